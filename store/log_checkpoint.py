"""Our own checkpoint of the log: up to where it is durable and verified, so that a start is short.

Layout of ``ROOT/ledgermq/log-checkpoint``, little-endian:

    offset  size  field
    0       4     magic ``LMQC``
    4       4     version, 1
    8       8     position: first one that is not covered
    16      8     index of the last entry covered (with a CommitLog: the position)
    24      8     term of that entry
    32      4     chainCrc of that entry
    36      8     size of a log file
    44      4     CRC-32 of the bytes before
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.disk_sync import sync_directory, sync_file
from ledgermq.store.log_writer import LogEnd

_FRAME = Struct("<4sIqqqIq")
_CRC = Struct("<I")
_MAGIC = b"LMQC"
_VERSION = 1


class LogCheckpoint(NamedTuple):
    """End of the verified and durable part of the log, and the size of the log's files."""

    end: LogEnd
    file_size: int


def encode(checkpoint: LogCheckpoint) -> bytes:
    """The file's content."""
    end = checkpoint.end
    body = _FRAME.pack(
        _MAGIC, _VERSION, end.position, end.index_, end.term, end.chain, checkpoint.file_size
    )
    return body + _CRC.pack(zlib.crc32(body))


def decode(content: bytes) -> LogCheckpoint | None:
    """What the file says; None when it is not whole: then the log is scanned from further back."""
    if len(content) != _FRAME.size + _CRC.size:
        return None
    body = content[: _FRAME.size]
    if _CRC.unpack_from(content, _FRAME.size)[0] != zlib.crc32(body):
        return None
    magic, version, position, index, term, chain, file_size = _FRAME.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    end = LogEnd(Position(position), Index(index), Term(term), chain)
    return LogCheckpoint(end, file_size)


def replace_file(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` so that a crash leaves the old content or the new one, durable.

    Raises:
        StorageError: the operating system refused.
    """
    fresh = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            os.write(fd, content)
            sync_file(fd)
        finally:
            os.close(fd)
        fresh.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise StorageError(
            "file not replaced", errno=error.errno, file=str(path), reason=error.strerror
        ) from error
