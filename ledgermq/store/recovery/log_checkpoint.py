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

import logging
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.digest import CRC, with_crc, without_crc
from ledgermq.model.errors import DiskFullError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.disk_sync import sync_directory
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.files.small_file import read_file, replace_file
from ledgermq.store.files.store_paths import StorePaths
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
    return with_crc(body)


def decode(content: bytes) -> LogCheckpoint | None:
    """What the file says; None when it is not whole: then the log is scanned from further back."""
    body = without_crc(content, _FRAME.size)
    if body is None or len(content) != _FRAME.size + CRC.size:
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


logger = logging.getLogger(__name__)


def write_checkpoints(paths: StorePaths, end: LogEnd, file_size: int, committed: Index) -> None:
    """Our checkpoint, and DLedger's with the last index known to be committed.

    Without space, and without a reserve, there is none: recovery then reads more of the log.

    Args:
        end: what is durable.
        file_size: of the log's files.
        committed: as the cursor says; where a majority's memory is enough to commit, it may be
            ahead of what is durable here.
    """
    checkpoint = LogCheckpoint(end, file_size)
    try:
        replace_file(paths.log_checkpoint, encode(checkpoint))
    except DiskFullError as error:
        logger.warning("no checkpoint of the log: %s", error)
        older = read(paths.log_checkpoint)
        if older is not None and older.end.position > end.position:
            # It lies behind the cut that comes next.
            paths.log_checkpoint.unlink(missing_ok=True)
            sync_directory(paths.own)
        return
    if paths.dledger_checkpoint is not None:
        content = encode_dledger_checkpoint(
            DLedgerCheckpoint(end.index_, min(committed, end.index_))
        )
        try:
            replace_file(paths.dledger_checkpoint, content)
        except DiskFullError as error:
            logger.warning("DLedger's checkpoint not written: %s", error)
