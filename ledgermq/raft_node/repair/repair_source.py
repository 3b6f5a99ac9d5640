"""Repair answers to peers: entries damaged on their disk, read from this one."""

from __future__ import annotations

import errno

from ledgermq.model.errors import StorageError
from ledgermq.model.ids import Index
from ledgermq.repair.log_scrub import LogScrub, ScrubEnd
from ledgermq.wire.repair_frames import (
    ENTRIES_SIZE_MAX,
    RepairFrame,
    RepairKind,
    encode_repair_frame,
    entries_digest,
)


def entries_for(log: LogScrub, asked: RepairFrame, end: ScrubEnd) -> bytes | None:
    """The committed entries that ``asked`` names, as many as one answer holds; verified.

    None when the first one is not there, or is not whole here either.

    Raises:
        StorageError: the log cannot be read.
    """
    if asked.first > end.index:
        return None
    last = Index(min(asked.last, end.index))
    try:
        return log.whole_entries(asked.first, last, size_max=ENTRIES_SIZE_MAX)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        # Retention was faster.
        return None


def repair_answer(asked: RepairFrame, data: bytes | None) -> list[bytes]:
    """The parts of the answer to ``asked``; without ``data``, that there are no such entries."""
    if data is None:
        return [encode_repair_frame(asked._replace(kind=RepairKind.NO_ENTRIES))]
    answer = asked._replace(kind=RepairKind.ENTRIES, digest=entries_digest(data))
    return [encode_repair_frame(answer), data]
