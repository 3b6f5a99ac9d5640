"""Clock and chance of a worker: the machine's, or the simulator's."""

from __future__ import annotations

import os
import time
from typing import Protocol

NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Time and chance of one node."""

    def monotonic_ns(self) -> int:
        """Never goes back, and never gives a number twice to one process."""

    def epoch_ns(self) -> int:
        """What people take for the time; it may jump."""

    def seed(self) -> int:
        """64 bits that no other process gets."""


def epoch_ms(clock: Clock) -> int:
    """What people take for the time, in the unit of RocketMQ's timestamps."""
    return clock.epoch_ns() // NS_PER_MS


class MachineClock:
    """The operating system's."""

    # Asked with each message: CLOCK_MONOTONIC, the same for all processes of one boot, and
    # CLOCK_REALTIME.
    monotonic_ns = staticmethod(time.monotonic_ns)
    epoch_ns = staticmethod(time.time_ns)

    def seed(self) -> int:
        """A seed from the kernel's generator."""
        return int.from_bytes(os.urandom(8), "little")


MACHINE_CLOCK = MachineClock()
"""The clock of whoever is not told of another one."""
