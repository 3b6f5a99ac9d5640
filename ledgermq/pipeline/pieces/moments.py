"""Moments of a log in pieces: an entry by index or time, and the state's messages up to it.

By a time it is the last entry before the first that was stored later, as for a restore: no message
of a later time is there, however the leaders' clocks differed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ledgermq.formats.dledger_entry import decode_entry_header
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import ConfigError
from ledgermq.model.instants import parse_time
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.names.system_topics import STATE_QUEUE_ID
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_columns import milliseconds
from ledgermq.pipeline.pieces.piece_file import PieceRecord
from ledgermq.pipeline.pieces.piece_footer import QueueStretch
from ledgermq.pipeline.pieces.piece_manifest import PieceRow
from ledgermq.pipeline.pieces.piece_places import ReadPlace

INDEX_MARK = "index="


class Moment(NamedTuple):
    """Which records are there: those before a position, and up to an index; None: all of them.

    Attributes:
        has_entries: whether the log has entries; else an index is a position.
    """

    before: int | None = None
    last_index: int | None = None
    has_entries: bool = True

    def has(self, record: PieceRecord) -> bool:
        """Whether the record is there."""
        if self.before is not None and record.position >= self.before:
            return False
        # The plain part of a log that was upgraded is before all entries.
        is_counted = bool(record.header) or not self.has_entries
        return self.last_index is None or not is_counted or _index_of(record) <= self.last_index

    def has_all(self, row: PieceRow) -> bool | None:
        """Whether all records of a piece are there; False: none is, None: some may be."""
        if self.before is not None:
            return None if row.start < self.before < row.end else row.end <= self.before
        if self.last_index is None or not (row.header_size or not self.has_entries):
            return True
        if row.facts.first_index > self.last_index:
            return False
        return True if row.facts.last_index <= self.last_index else None


def moment_of(queues: ColdQueues, *, index: int | None, time_ms: int | None) -> Moment:
    """The moment of an index or a time; the last one of the pieces with neither.

    Args:
        index: of the last entry that is there; in a plain log a position, before which it ends.
        time_ms: epoch ms.

    Raises:
        ConfigError: the pieces do not go so far.
        CorruptLogError, StorageError: as ``ColdQueues.read``.
    """
    if time_ms is not None:
        return Moment(before=_first_later(queues, time_ms))
    if index is not None:
        last, has_entries = _last_index(queues)
        if index > last:
            raise ConfigError("the pieces do not go so far", index=index, last=last)
        return Moment(last_index=index, has_entries=has_entries)
    return Moment()


def moment_as_told(
    queues: ColdQueues, text: str, *, option: str, live: ReadPlace | None = None
) -> tuple[ColdQueues, Moment]:
    """The moment that ``text`` says, ``index=N``, or a time; and the queues that have it.

    Args:
        live: the place of the same pieces, and of the log behind them, which is read where the
            pieces do not go so far.

    Raises:
        ConfigError: it says none, or nothing goes so far.
        CorruptLogError, StorageError: as ``moment_of``.
    """
    index, time_ms = _parsed(text, option)
    if live is not None and not _is_sealed(queues, index, time_ms):
        queues = ColdQueues(live)
    return queues, moment_of(queues, index=index, time_ms=time_ms)


def _parsed(text: str, option: str) -> tuple[int | None, int | None]:
    """Index and time, epoch ms, of which one is None."""
    if not text.startswith(INDEX_MARK):
        return None, parse_time(text, option)
    number = text.removeprefix(INDEX_MARK)
    if not (number.isascii() and number.isdecimal()):
        raise ConfigError(f"{option} names no entry", given=text, allowed="index=N, or a time")
    return int(number), None


def _is_sealed(queues: ColdQueues, index: int | None, time_ms: int | None) -> bool:
    """Whether pieces alone know what was there then: for a time, something later is in them."""
    if index is not None:
        last, has_entries = _last_index(queues)
        # A log that was upgraded since has entries, and what pieces know are positions.
        return has_entries and index <= last
    return time_ms is not None and _first_later(queues, time_ms) is not None


def _last_index(queues: ColdQueues) -> tuple[int, bool]:
    """Index of the last entry, and whether there are entries; else it is a position."""
    rows = queues.manifest.rows
    has_entries = any(row.header_size for row in rows)
    counted = [row for row in rows if row.header_size or not has_entries]
    return max((row.facts.last_index for row in counted), default=-1), has_entries


def end_at(queues: ColdQueues, topic: str, queue_id: int, moment: Moment) -> int:
    """Queue offset behind the last message of a queue that was there at a moment; where the pieces
    have none that old, that of the first message that they have, or 0.

    Raises:
        CorruptLogError, StorageError: as ``ColdQueues.read``.
    """
    end: int | None = None
    for row in queues.manifest.rows:
        for one in row.queues.get(topic, ()):
            if one.queue_id != queue_id:
                continue
            end = one.offset if end is None else end
            is_there = moment.has_all(row)
            if is_there is False:
                return end
            # What was numbered anew may begin before where it ended.
            end = one.end if is_there else _end_within(queues, topic, one, moment, end)
    return end or 0


def _end_within(
    queues: ColdQueues, topic: str, of: QueueStretch, moment: Moment, before: int
) -> int:
    """Behind the last message of a stretch that was there; ``before`` where none was.

    Of messages that were dropped one by one nothing says when they came: the next one does.
    """
    low, high = of.offset, of.end
    while low < high:
        middle = (low + high) // 2
        record = next(queues.read(topic, of.queue_id, middle), None)
        if record is not None and moment.has(record):
            low = middle + 1
        else:
            high = middle
    return low if low > of.offset else before


def _first_later(queues: ColdQueues, time_ms: int) -> int | None:
    """Position of the first record that was stored later; None without one."""
    for row in queues.manifest.rows:
        if row.facts.max_ms <= time_ms:
            continue
        piece = queues.piece(row)
        found = []
        for number, group in enumerate(piece.footer.groups):
            if group.max_ms > time_ms:
                table = piece.group(number, ["physicalOffset", "storeTimestamp"])
                stored = milliseconds(table.column("storeTimestamp"))
                later = table.column("physicalOffset").to_numpy()[stored > time_ms]
                found.append(int(later.min()) if len(later) else row.end)
        if found:
            return int(np.min(found))
    return None


def snapshots_before(queues: ColdQueues, moment: Moment) -> list[int]:
    """Where snapshots of the tables begin that may be before a moment: offsets of the state's
    queue, ascending; of the piece that the moment is in all are.
    """
    return [
        offset
        for row in queues.manifest.rows
        if (moment.before is None or row.start < moment.before)
        and (
            moment.last_index is None
            or not (row.header_size or not moment.has_entries)
            or row.facts.first_index <= moment.last_index
        )
        for offset in row.snapshots
    ]


def state_records(
    queues: ColdQueues, first: int, moment: Moment
) -> Iterator[tuple[int, PieceRecord]]:
    """Messages of the state's queue from offset ``first`` on that are there at the moment.

    Raises:
        CorruptLogError, StorageError: as ``ColdQueues.read``.
        MessageUnknownError: one of them is in no piece.
    """
    for record in queues.read(SYSTEM_TOPIC, STATE_QUEUE_ID, first):
        if not moment.has(record):
            return
        yield decode_message(memoryview(record.record)).queue_offset, record


def _index_of(record: PieceRecord) -> int:
    """Index of the record's entry; in a plain log where it ends."""
    if record.header:
        return int(decode_entry_header(memoryview(record.header + record.record)).index)
    return record.position + len(record.record)
