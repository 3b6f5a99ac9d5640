"""Lag of members at their leader, in bytes and in time: from the files of the leader's log.

The raft process says which entry a member is known to hold; where the next one stands, and when it
was stored, is read here, so that it costs the raft process nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.dledger_index import FILE_SIZE
from ledgermq.formats.records.message import decode_message
from ledgermq.model.config.settings import Settings
from ledgermq.model.ids import Index, Position
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntryFiles, file_size_in
from ledgermq.store.recovery.recovery import COMMIT_LOG_FILE_SIZE


class MemberLag(NamedTuple):
    """What a member is not known to hold: bytes, and the age of the oldest entry in seconds."""

    bytes: int
    seconds: float


NO_LAG = MemberLag(0, 0.0)


def member_lag(settings: Settings, match: Index, last: Index, end: Position) -> MemberLag:
    """What a member is not known to hold that holds the leader's log up to entry ``match``.

    Args:
        last: the leader's last entry.
        end: the leader's log behind it.

    Raises:
        CorruptLogError, StorageError: the files do not have these entries any more, or cannot be
            read: the member is to get whole files.
    """
    if match >= last:
        return NO_LAG
    with _opened(settings) as files:
        begin = files.end_of(match).position
        entry = files.span(Index(match + 1), Index(match + 1), size_max=1)
    stored_ms = decode_message(memoryview(entry.data), HEADER_SIZE, check_crc=False).store_timestamp
    return MemberLag(max(0, end - begin), max(0.0, time.time() - stored_ms / 1_000))


def index_held(settings: Settings, position: Position, last: Index) -> Index | None:
    """The last entry of a copy that has the log up to ``position``; None: the log begins later.

    Args:
        last: the log's last entry, which begins behind ``position``.

    Raises:
        CorruptLogError, StorageError: the files are damaged, or cannot be read.
    """
    with _opened(settings) as files:
        if position < files.first_position():
            return None
        begin = files.entry_before(position, last)
        index = files.index_at(begin)
    return Index(index - 1) if begin == position else index


@contextmanager
def _opened(settings: Settings) -> Iterator[EntryFiles]:
    paths = StorePaths.of(settings)
    assert paths.index is not None, "members of a log without terms"
    configured = settings.store.mapped_file_size_commit_log
    # Opened anew: files of these names may have been cut, or be those of another log by now.
    files = EntryFiles(
        paths.data,
        paths.index,
        file_size=configured or file_size_in(paths.data, COMMIT_LOG_FILE_SIZE),
        index_file_size=file_size_in(paths.index, FILE_SIZE),
    )
    try:
        yield files
    finally:
        files.forget()
