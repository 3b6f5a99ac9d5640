"""Event queue: the simulator's time, and what is to happen in it.

Global time is in nanoseconds. Events that are due at the same time happen in the order in which
they were scheduled, so one seed is one run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random

HISTORY_LINES_MAX = 2_000

MS = 1_000_000


class Events:
    """What is to happen, and the last lines of what has."""

    def __init__(self) -> None:
        self.now = 0
        self.happened = 0
        self.history: deque[str] = deque(maxlen=HISTORY_LINES_MAX)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def after(self, wait_ns: int, happen: Callable[[], None]) -> None:
        """``happen`` is called when ``wait_ns`` have passed."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + max(0, wait_ns), self._sequence, happen))

    def run(self, time_ns: int) -> None:
        """Let ``time_ns`` pass."""
        end = self.now + time_ns
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, happen = heapq.heappop(queue)
            self.happened += 1
            happen()
        self.now = end

    def trace(self, text: str) -> None:
        """Keep a line for whoever looks for the cause of a failure."""
        self.history.append(f"{self.now / 1e6:10.3f} {text}")


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
