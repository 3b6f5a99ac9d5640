"""Token bucket that may be overdrawn once: no request is too large for its rate.

What is taken may be more than there is; then nothing may be taken before the debt is paid. So the
rate holds in the long run, whatever the size of a request, and the wait can be told exactly.
"""

from __future__ import annotations

from ledgermq.model.units import MS_NS

NS_PER_S = 1_000_000_000


class TokenBucket:
    """Invariant: the level is at most ``burst``; it grows by ``rate`` a second.

    Levels are whole numbers of a billionth of a token, so that nothing is lost to rounding.
    """

    __slots__ = ("_at_ns", "_level", "burst", "rate")

    def __init__(self, rate: int, *, burst: int, now_ns: int, is_full: bool) -> None:
        """A bucket.

        Args:
            rate: tokens a second, at least one.
            burst: most tokens that are saved up.
            is_full: whether it begins with them; else with none.
        """
        assert rate > 0 and burst > 0, (rate, burst)
        self.rate = rate
        self.burst = burst
        self._level = burst * NS_PER_S if is_full else 0
        self._at_ns = now_ns

    def wait_ms(self, now_ns: int) -> int:
        """How long until something may be taken; 0: now."""
        self._fill(now_ns)
        return 0 if self._level >= 0 else -(self._level // (self.rate * MS_NS))

    def take(self, count: int) -> None:
        """Take ``count`` tokens; to be called when ``wait_ms`` is 0, or for what was given out."""
        self._level -= count * NS_PER_S

    def _fill(self, now_ns: int) -> None:
        passed_ns = now_ns - self._at_ns
        if passed_ns > 0:
            self._level = min(self.burst * NS_PER_S, self._level + passed_ns * self.rate)
            self._at_ns = now_ns
