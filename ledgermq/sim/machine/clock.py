"""Simulated clock of a node: it drifts, it may jump, and it never goes back."""

from __future__ import annotations

from random import Random

from ledgermq.sim.machine.events import Events

EPOCH_NS = 1_760_000_000_000_000_000
BOOT_NS = 1_000_000_000


class NodeClock:
    """The ``process.clock.Clock`` of a simulated node.

    Attributes:
        rate: its microseconds in a millisecond of the world.
        epoch_ahead_ns: how wrong the time of day is.
    """

    def __init__(self, events: Events, random: Random, *, rate: int) -> None:
        self.rate = rate
        self.epoch_ahead_ns = 0
        self._events = events
        self._random = random
        self._ahead_ns = random.randrange(BOOT_NS)
        self._last_ns = 0

    def monotonic_ns(self) -> int:
        self._last_ns = max(self.now_ns(), self._last_ns + 1)
        return self._last_ns

    def epoch_ns(self) -> int:
        return EPOCH_NS + self._events.now + self.epoch_ahead_ns

    def seed(self) -> int:
        return self._random.getrandbits(64)

    def now_ns(self) -> int:
        """What it shows, without counting as a look at it."""
        return BOOT_NS + self._events.now * self.rate // 1_000 + self._ahead_ns

    def until(self, wait_ns: int) -> int:
        """The world's time that passes while this clock runs for ``wait_ns``."""
        return -(-wait_ns * 1_000 // self.rate)

    def jump(self, ahead_ns: int) -> None:
        """It shows so much more at once, as after a machine was suspended."""
        assert ahead_ns >= 0, ahead_ns
        self._ahead_ns += ahead_ns
