"""Scrub pace: how fast a store is read again and again, beside what a node serves.

A *pass* reads everything once; ``scrub.every_s`` after its beginning the next one is due. It goes
on in steps of bounded size, ``scrub.rate_bytes_per_s``.
"""

from __future__ import annotations

from ledgermq.model.config.settings import ScrubSection

FIRST_PASS_NS = 60_000_000_000
"""A node that starts has other things to read; unless passes are wanted more often."""

STEPS_PER_S = 4
STEP_SIZE_MIN = 64 * 1024
STEP_SIZE_MAX = 1024 * 1024

_NEVER = 2**63 - 1
_S = 1_000_000_000


class ScrubPace:
    """When the next step may begin.

    Attributes:
        due_ns: of the pass that goes on, or of the next one.
    """

    def __init__(self, settings: ScrubSection, now_ns: int) -> None:
        """Nothing is read before the first pass is due."""
        self._settings = settings
        self._is_passing = False
        self._pass_due_ns = now_ns + min(FIRST_PASS_NS, settings.every_s * _S)
        self._step_due_ns = 0
        self.due_ns = self._due_ns()

    def change(self, settings: ScrubSection, now_ns: int) -> None:
        """Take other settings while it runs."""
        self._pass_due_ns = min(self._pass_due_ns, now_ns + settings.every_s * _S)
        self._settings = settings
        self.due_ns = self._due_ns()

    def begin_step(self, now_ns: int) -> int:
        """A step begins, and a pass when none goes on; how many bytes it has at most."""
        if not self._is_passing:
            self._is_passing = True
            self._pass_due_ns = now_ns + self._settings.every_s * _S
        rate = self._settings.rate_bytes_per_s
        size = max(STEP_SIZE_MIN, min(STEP_SIZE_MAX, rate // STEPS_PER_S))
        self._step_due_ns = now_ns + size * _S // rate
        self.due_ns = self._due_ns()
        return size

    def end_pass(self) -> None:
        """All is read, or the rest is left to the next pass."""
        self._is_passing = False
        self.due_ns = self._due_ns()

    def _due_ns(self) -> int:
        if not self._settings.rate_bytes_per_s:
            return _NEVER
        return self._step_due_ns if self._is_passing else max(self._step_due_ns, self._pass_due_ns)
