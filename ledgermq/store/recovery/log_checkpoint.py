"""Log checkpoint: the position up to which the log is durable and verified, for a short start.

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

import zlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.digest import CRC
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.small_file import read_file
from ledgermq.store.log.log_writer import LogEnd

_FRAME = Struct("<4sIqqqIq")
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
    return body + CRC.pack(zlib.crc32(body))


def decode(content: bytes) -> LogCheckpoint | None:
    """What the file says; None when it is not whole: then the log is scanned from further back."""
    if len(content) != _FRAME.size + CRC.size:
        return None
    body = content[: _FRAME.size]
    if CRC.unpack_from(content, _FRAME.size)[0] != zlib.crc32(body):
        return None
    magic, version, position, index, term, chain, file_size = _FRAME.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    end = LogEnd(Position(position), Index(index), Term(term), chain)
    return LogCheckpoint(end, file_size)


def read(path: Path) -> LogCheckpoint | None:
    """The checkpoint at ``path``; None when there is none that is whole.

    Raises:
        StorageError: the file is there and cannot be read.
    """
    content = read_file(path)
    return None if content is None else decode(content)
