"""A rate as a bucket of tokens, which may be overdrawn once: no request is too large for it.

What is taken may be more than there is; then nothing may be taken before the debt is paid. So the
rate holds in the long run, whatever the size of a request, and the wait can be told exactly.
"""

from __future__ import annotations

import math

NS_PER_S = 1_000_000_000


class TokenBucket:
    """Invariant: ``level <= burst``; it grows by ``rate`` a second."""

    __slots__ = ("_at_ns", "_level", "burst", "rate")

    def __init__(self, rate: int, *, burst: float, now_ns: int, is_full: bool) -> None:
        """A bucket.

        Args:
            rate: tokens a second, at least one.
            burst: most tokens that are saved up.
            is_full: whether it begins with them; else with none.
        """
        assert rate > 0 and burst > 0, (rate, burst)
        self.rate = rate
        self.burst = burst
        self._level = burst if is_full else 0.0
        self._at_ns = now_ns

    def wait_ms(self, now_ns: int) -> int:
        """How long until something may be taken; 0: now."""
        self._fill(now_ns)
        if self._level >= 0:
            return 0
        return max(1, math.ceil(-self._level / self.rate * 1_000))

    def take(self, count: int) -> None:
        """Take ``count`` tokens; to be called when ``wait_ms`` is 0, or for what was given out."""
        self._level -= count

    def _fill(self, now_ns: int) -> None:
        passed_ns = now_ns - self._at_ns
        if passed_ns > 0:
            self._level = min(self.burst, self._level + passed_ns * self.rate / NS_PER_S)
            self._at_ns = now_ns
