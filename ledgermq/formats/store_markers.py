"""Markers of a store: the blank at a log file's end, the abort file, the lock file.

A record that does not fit in the rest of a log file goes to the next one. A blank fills the rest;
every record leaves 8 bytes for it. Big-endian, at the first unused byte:

    CommitLog (``CommitLog.doAppend``):            DLedger (``MmapFileList.preAppend``):
    offset  size  field      unit                  offset  size  field      unit
    0       4     remaining  bytes to the end      0       4     magic      0xFFFFFFFF
    4       4     magic      0xCBD43194            4       4     remaining  bytes to the end
    8             whatever was there               8             zeros to the end

The file ``abort`` is empty and exists while the store is open: whoever finds it recovers. In it
RocketMQ 5 has its process id, and in ``abort.bak``, which stays, what it found there before. The
file ``lock`` holds the text ``lock``; its owner has an advisory lock on the first byte.
"""

from __future__ import annotations

from struct import Struct

from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError

BLANK = Struct(">II")

BLANK_SIZE = BLANK.size
COMMITLOG_BLANK_MAGIC = 0xCBD43194
DLEDGER_BLANK_MAGIC = 0xFFFF_FFFF

LOCK_CONTENT = b"lock"
ABORT_BACKUP = "abort.bak"


def encode_blank(log: LogKind, remaining: int) -> bytes:
    """The blank for the last ``remaining`` bytes of a file, to be written where they begin.

    All of them for DLedger; for a CommitLog 8, as Java leaves the others as they are.
    """
    assert BLANK_SIZE <= remaining <= 0x7FFF_FFFF, remaining
    if log is LogKind.COMMITLOG:
        return BLANK.pack(remaining, COMMITLOG_BLANK_MAGIC)
    return BLANK.pack(DLEDGER_BLANK_MAGIC, remaining) + bytes(remaining - BLANK_SIZE)


def is_blank(
    view: memoryview, at: int, *, log: LogKind, file_end: int | None = None, file: str = ""
) -> bool:
    """Whether a blank begins at ``at``, and reaches to the end of the file.

    Args:
        view: bytes of one log file, or of its end.
        at: where the next record would begin in ``view``.
        file_end: where the file ends in ``view``, the view's end when left out.
        file: named in the error.

    Raises:
        CorruptLogError: a blank of another size.
    """
    if file_end is None:
        file_end = len(view)
    assert 0 <= at <= file_end <= len(view), (at, file_end, len(view))
    if at + BLANK_SIZE > file_end:
        return False
    first, second = BLANK.unpack_from(view, at)
    if log is LogKind.COMMITLOG:
        magic, wanted, remaining, offset = second, COMMITLOG_BLANK_MAGIC, first, at
    else:
        magic, wanted, remaining, offset = first, DLEDGER_BLANK_MAGIC, second, at + 4
    if magic != wanted:
        return False
    if remaining != file_end - at:
        raise CorruptLogError(
            "blank does not reach to the end of the file",
            file=file,
            offset=offset,
            field="remaining",
            value=remaining,
            expected=file_end - at,
        )
    return True
