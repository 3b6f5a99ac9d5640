"""Epochs and confirmed offset of a store of RocketMQ's controller mode, compared with its log.

Read-only, and bounded in records and time; for ``store/origin.py``.

The log is taken as it is. Confirmed is what all brokers in sync had: what stands behind that may
have been acknowledged by a master that was alone, or never, and only people know which broker led
last. So it is told. What is refused is a log that lacks something of what was confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.epoch_file import EPOCH_FILE, Epoch, decode_epochs
from ledgermq.formats.records.message import MAGICS, SIZE_AND_MAGIC, SIZE_MIN
from ledgermq.formats.store_markers import COMMITLOG_BLANK_MAGIC
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.origin_files import Found, OriginFiles, bounded_bytes

EPOCH_FILE_SIZE_MAX = 1 << 20
RECORDS_MAX = 4_000_000
"""Most records that are passed, in the file that has the confirmed offset and behind it."""

PASSING_S_MAX = 30.0
"""Longest time that this takes."""

_CONFIRMED = Struct(">q")
_CONFIRMED_AT = 32
"""Offset of RocketMQ 5's confirmPhyOffset in ``checkpoint``."""

_LOOK = 4_096
"""Records between two looks at the clock."""


class _Behind(NamedTuple):
    """The log behind a position: where it ends, how many records end behind the position, and
    whether that is all of it.
    """

    end: int
    records: int
    is_all: bool


def unconfirmed(files: OriginFiles) -> Iterator[Found]:
    """What of a controller's log is not confirmed, or is confirmed and not there."""
    try:
        log = MappedFiles(files.root / "commitlog")
        if log.is_empty:
            return
        epochs = _epochs(files)
        content = bounded_bytes(files.root / "checkpoint", _CONFIRMED_AT + _CONFIRMED.size)
        if len(content) < _CONFIRMED_AT + _CONFIRMED.size:
            raise CorruptLogError("checkpoint does not say what is confirmed")
        (confirmed,) = _CONFIRMED.unpack_from(content, _CONFIRMED_AT)
        confirmed = max(confirmed, log.first)
        behind = _passed(log, min(confirmed, log.end), confirmed)
    except CorruptLogError as error:
        what = f"what is confirmed of a controller's log cannot be told: {error.message}"
        yield Found(StrangeUse.UNCONFIRMED, what, None)
        return
    number, start = epochs[-1]
    if behind.is_all and behind.end < max(confirmed, start):
        what = (
            f"the log ends at {behind.end:,}, and was confirmed up to {confirmed:,}, in epoch"
            f" {number}, which begins at {start:,}"
        )
        yield Found(StrangeUse.UNCONFIRMED, what, None)
    elif behind.records:
        least = "" if behind.is_all else "at least "
        what = (
            f"the log of epoch {number} goes on behind the confirmed offset {confirmed:,}, with"
            f" {least}{behind.end - confirmed:,} bytes, {behind.records:,} messages, which were"
            " acknowledged only if this broker was the last master"
        )
        yield Found(StrangeUse.UNCONFIRMED, what, behind.records, True)


def _epochs(files: OriginFiles) -> tuple[Epoch, ...]:
    """The epochs of the file, or else of the one before it, as RocketMQ reads them."""
    try:
        return decode_epochs(bounded_bytes(files.root / EPOCH_FILE, EPOCH_FILE_SIZE_MAX))
    except CorruptLogError:
        before = bounded_bytes(files.root / f"{EPOCH_FILE}.bak", EPOCH_FILE_SIZE_MAX)
        if not before:
            raise
        return decode_epochs(before)


def _passed(log: MappedFiles, near: int, confirmed: int) -> _Behind:
    """Pass the records from the begin of a file on, for ``confirmed`` may lie inside of one.

    Args:
        near: in which file, or at whose end.
    """
    position = max(log.first, log.start_of(max(near - 1, log.first)))
    deadline = time.monotonic() + PASSING_S_MAX
    records = 0
    for number in range(RECORDS_MAX):
        if position >= log.end or (number % _LOOK == 0 and time.monotonic() > deadline):
            return _Behind(position, records, position >= log.end)
        room = log.room(position)
        if room < SIZE_AND_MAGIC.size:
            return _Behind(position, records, True)
        size, magic = SIZE_AND_MAGIC.unpack(log.view(position, SIZE_AND_MAGIC.size))
        if magic == COMMITLOG_BLANK_MAGIC:
            if log.start_of(position) + log.file_size >= log.end:
                return _Behind(position, records, True)
            position += room
            continue
        if magic not in MAGICS or not SIZE_MIN <= size <= room:
            return _Behind(position, records, True)
        position += size
        records += position > confirmed
    return _Behind(position, records, False)
