"""Put lock: its holder, and since when, for all processes to see.

The writer process is the only one that puts, so the lock excludes nobody in ordinary times. It is
there for two reasons: its slot in the cursor page shows a put that hangs, and a writer that follows
one that died inside finds the dead holder, counts it, and recovers the log before it goes on.
"""

from __future__ import annotations

import logging
import os
import time

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.time_histogram import TimeHistogram, TimeKind

logger = logging.getLogger(__name__)


class PutLockHolder:
    """The writer's end of the put lock; ``with`` it around a put.

    Attributes:
        since_ns: when it was taken last.
    """

    def __init__(self, page: CursorPage, warn_ms: int) -> None:
        """Recover from a dead holder, if there is one.

        Args:
            warn_ms: a put that takes longer is logged and counted.
        """
        self._page = page
        self._warn_ns = warn_ms * 1_000_000
        self._pid = os.getpid()
        self._times = TimeHistogram(page, TimeKind.PUT_LOCK)
        left = page.read_put_lock()
        self.since_ns = 0
        self._taken, self._slow, self._recovered = left.taken, left.slow, left.recovered
        if left.holder:
            self._recovered += 1
            logger.warning("put lock recovered from a dead holder: pid=%d", left.holder)
        page.publish_put_lock((0, 0, self._taken, self._slow, self._recovered))

    def lend(self) -> tuple[int, int, int, int]:
        """For who takes it as ``with`` does, and then calls ``take_back``: how often it was taken,
        how often for long, how often it was recovered, and nanoseconds from which on it is long.
        """
        return self._taken, self._slow, self._recovered, self._warn_ns

    def take_back(self, taken: int) -> None:
        """It was taken so often now."""
        self._taken = taken

    def note_slow(self, held_ns: int) -> None:
        """It was held for long."""
        self._slow += 1
        logger.warning("put lock held for long: ms=%d", held_ns // 1_000_000)

    def __enter__(self) -> None:
        self._taken += 1
        self.since_ns = time.monotonic_ns()
        state = self._pid, self.since_ns, self._taken, self._slow, self._recovered
        self._page.publish_put_lock(state)

    def __exit__(self, *_: object) -> None:
        held_ns = time.monotonic_ns() - self.since_ns
        self._times.observe(held_ns)
        if held_ns > self._warn_ns:
            self.note_slow(held_ns)
        self._page.publish_put_lock((0, 0, self._taken, self._slow, self._recovered))
