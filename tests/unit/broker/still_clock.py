"""A clock for services whose turns are bounded by time."""

from __future__ import annotations

from ledgermq.process.clock import MachineClock


class StillClock(MachineClock):
    """A clock by which no turn ends early, however slow the machine is."""

    def monotonic_ns(self) -> int:
        return 0


STILL = StillClock()
