"""Event queue: the simulator's time, and what is to happen in it.

Global time is in nanoseconds. Events that are due at the same time happen in the order in which
they were scheduled, so one seed is one run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

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
