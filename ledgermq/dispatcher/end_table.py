"""Table of queue ends, as the dispatcher keeps it (``store/queues/queue_ends.py``).

What the table says of a queue counts where the queue has no unit: its messages are gone from the
log, and its files were not shipped, were lost, or are not those of a queue. Such a queue ends where
it ended, before anybody reads it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ledgermq.model.errors import CorruptLogError
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, read_queue_ends, told_ends_path

logger = logging.getLogger(__name__)


class EndTable:
    """Owned by the dispatcher. Invariant: ``position`` is that of the file, 0 without one."""

    def __init__(self, root: Path) -> None:
        """Nothing is read yet."""
        self._path = ends_path(root)
        self._told_path = told_ends_path(root)
        self._told_stamp = (0, 0)
        self._known: QueueEnds | None = None
        self._waiting: list[QueueEnds] = []

    @property
    def position(self) -> int:
        """Position up to which the table counts messages; what it knows nothing of is before."""
        return 0 if self._known is None else self._known.position

    @property
    def is_waiting(self) -> bool:
        """Whether a table is to be put when more is dispatched."""
        return bool(self._waiting)

    def open(self, log_start: int) -> None:
        """Read the table again; ``put`` has it put then.

        Args:
            log_start: first byte of the log's first file. A table of a position before that comes
                from before somebody else deleted files, and says nothing any more.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            self._known = read_queue_ends(self._path)
        except CorruptLogError as error:
            # It is written anew of the queues that there are.
            logger.error("table of queue ends passed: %s", error)
            self._known = None
        if self._known is not None and self._known.position < log_start:
            self._known = None
        self._waiting = [] if self._known is None else [self._known]
        self._told_stamp = (0, 0)
        self.look()

    def look(self) -> None:
        """Take what a leader's snapshot has told since the last look, for ``put``.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            found = self._told_path.stat()
        except FileNotFoundError:
            return
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp == self._told_stamp:
            return
        self._told_stamp = stamp
        try:
            told = read_queue_ends(self._told_path)
        except CorruptLogError as error:
            logger.error("queue ends that were told passed: %s", error)
            return
        if told is not None:
            self._waiting = sorted((*self._waiting, told), key=lambda one: one.position)

    def put(self, builder: DispatchBuilder, log_start: int) -> int:
        """Let queues without a unit end where a table says, once all before it is dispatched.

        Returns:
            how many queues had none.

        Raises:
            DiskFullError, StorageError: the operating system refused; to be called again.
        """
        put = 0
        while self._waiting and builder.position >= self._waiting[0].position:
            if self._waiting[0].position >= log_start:
                put += builder.queues.put_ends(self._waiting[0].ends, log_start=log_start)
            del self._waiting[0]
        if put:
            logger.info("queues end where they ended: queues=%d log_start=%d", put, log_start)
        return put

    def due(self, builder: DispatchBuilder, file_start: int) -> QueueEnds | None:
        """The table to be written now: when dispatch has come to another file; None before that.

        Args:
            file_start: first byte of the log's file in which ``builder`` stands.
        """
        if file_start <= self.position:
            return None
        return builder.all_ends(self._known)

    def written(self, ends: QueueEnds) -> None:
        """``ends`` are in the file."""
        self._known = ends
