"""Queues in doubt: those of a store that RocketMQ had open when it ended without closing it.

Who was killed has left all that it wrote in the page cache. But nobody can tell that from a machine
that lost its power, and then any page of a queue or of the newest index file may be what it was
minutes ago: RocketMQ syncs queues once a minute, and an index file when it is full. Its
``checkpoint`` has the store time of the last message whose unit is on the disk
(``DefaultMessageStore.recoverConsumeQueue`` begins by that, too), and a map of that file may
reach the disk before the queues do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledgermq.model.ids import Position
from ledgermq.store.files.store_checkpoint import certain_before_ms
from ledgermq.store.log_family import LogFamily, first_store_ms

_SYNC_INTERVAL_MS = 120_000
"""Twice what RocketMQ lets pass between two syncs of all queues
(``flushConsumeQueueThoroughInterval``)."""


@dataclass(frozen=True, slots=True)
class UnsureQueues:
    """Position from which on queues and index are in doubt.

    Attributes:
        position: units of messages before it are on the disk.
        file_starts: of the log, ascending.
    """

    position: Position
    file_starts: tuple[int, ...]

    def file_start(self, position: int) -> Position:
        """First byte of the log's file that has ``position``; 0 before the first one."""
        starts = [start for start in self.file_starts if start <= position]
        return Position(max(starts, default=0))


def unsure_queues(root: Path, log: LogFamily) -> UnsureQueues | None:
    """What is in doubt of the store in ``root``, whose log is ``log``; None after a clean stop.

    Raises:
        StorageError: the checkpoint or the log cannot be read.
    """
    synced_ms = certain_before_ms(root)
    if synced_ms is None:
        return None
    files = log.files()
    begin = 0
    for file in reversed(files):
        stored_ms = first_store_ms(file)
        if stored_ms is not None and 0 < stored_ms <= synced_ms - _SYNC_INTERVAL_MS:
            begin = file.start
            break
    return UnsureQueues(Position(begin), tuple(file.start for file in files))
