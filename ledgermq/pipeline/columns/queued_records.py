"""Records read as messages of queues, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.batch_unit import BASE_END
from ledgermq.formats.records.body_compression import PLAIN_SIZE_MAX
from ledgermq.formats.records.inner_batch import single_records
from ledgermq.formats.records.message import INNER_BATCH, SIZE_MIN, SYS_FLAG_AT, WORD
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.record_columns import RecordBlock, RecordColumns
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.queue_ranges import MessageRange

APART_BYTES_MAX = 4 << 20
"""Bytes of messages that are taken out of one record at once: it may say that it has many."""


class QueuedRecords(NamedTuple):
    """Records, and of which queue each is, by the unit or the answer that led to it.

    Attributes:
        ranges: what was asked for; ``numbers`` says which of them each record is of.
    """

    records: RecordBlock
    ranges: Sequence[MessageRange]
    numbers: Integers


def each_message(part: QueuedRecords) -> Iterator[QueuedRecords]:
    """The same, with a record for each message of those records that have several, where its range
    has it; at once as many as have ``APART_BYTES_MAX``, or one.
    """
    records = part.records
    several = _several(records)
    if not several.any():
        yield part
        return
    first = 0
    for row in [*np.flatnonzero(several).tolist(), len(several)]:
        if first < row:
            ahead = slice(first, row)
            block = replace(records, starts=records.starts[ahead], sizes=records.sizes[ahead])
            yield QueuedRecords(block, part.ranges, part.numbers[ahead])
        first = row + 1
        if row < len(several):
            number = part.numbers[row : row + 1]
            range_ = part.ranges[int(number[0])]
            for block in _apart(records, row, range_.first, range_.end):
                yield QueuedRecords(block, part.ranges, number.repeat(len(block.starts)))


def each_walked(parts: Iterable[RecordBlock]) -> Iterator[RecordBlock]:
    """The same of records that no queue led to."""
    for records in parts:
        ranges = [MessageRange("", 0, 0, BASE_END)]
        numbers = np.zeros(len(records.starts), np.int64)
        for part in each_message(QueuedRecords(records, ranges, numbers)):
            yield part.records


def _several(records: RecordBlock) -> npt.NDArray[np.bool_]:
    """Which records have several messages; what is no record has not."""
    octets = np.frombuffer(records.view, np.uint8)
    at = np.asarray(records.starts, np.int64) + (SYS_FLAG_AT + WORD.size - 1)
    is_there = (at >= 0) & (at < len(octets)) & (np.asarray(records.sizes) >= SIZE_MIN)
    flags = octets[np.where(is_there, at, 0)] if len(octets) else np.zeros(len(at), np.uint8)
    found: npt.NDArray[np.bool_] = is_there & ((flags & INNER_BATCH) != 0)
    return found


def _apart(records: RecordBlock, row: int, first: int, end: int) -> Iterator[RecordBlock]:
    """The messages of a record that have these queue offsets, each behind its entry's header.

    Raises:
        CorruptLogError: the record is not whole; names file, offset and field.
    """
    one = slice(row, row + 1)
    # It is one, and of its place.
    RecordColumns(replace(records, starts=records.starts[one], sizes=records.sizes[one]))
    start, size = int(records.starts[row]), int(records.sizes[row])
    header = bytes(records.view[start - records.header_size : start])
    made: list[bytes | bytearray] = []
    bytes_made = 0
    for _, record in single_records(records.view[start : start + size], first, end):
        made += [header, record]
        bytes_made += len(header) + len(record)
        if bytes_made >= APART_BYTES_MAX:
            yield _block(made, records)
            made, bytes_made = [], 0
    if made:
        yield _block(made, records)


def _block(made: Sequence[bytes | bytearray], records: RecordBlock) -> RecordBlock:
    ends = np.cumsum([len(part) for part in made])
    sizes = np.array([len(part) for part in made[1::2]], np.int64)
    # Where they stand in the log they say themselves: several at one place.
    return replace(
        records,
        view=memoryview(b"".join(made)),
        base=None,
        starts=ends[1::2] - sizes,
        sizes=sizes,
    )


def wanted_rows(
    parts: Iterable[QueuedRecords],
    wanted: RowFilter,
    *,
    inflate: bool,
    size_max: int = PLAIN_SIZE_MAX,
) -> Iterator[RecordColumns]:
    """Rows of ``parts`` that are wanted, of which no columns are made yet.

    Raises:
        CorruptLogError: a record is not whole, or is no message of its queue.
    """
    for part in parts:
        rows = columns_of(part, inflate=inflate, size_max=size_max)
        wanted.apply(rows)
        if len(rows):
            yield rows


def columns_of(
    part: QueuedRecords, *, inflate: bool, size_max: int = PLAIN_SIZE_MAX
) -> RecordColumns:
    """The rows of ``part``, all of them.

    Raises:
        CorruptLogError: a record is not whole, or is no message of its queue.
    """
    rows = RecordColumns(part.records, inflate=inflate, size_max=size_max)
    _check_queues(rows, part)
    return rows


def walked_rows(
    parts: Iterable[RecordBlock],
    wanted: RowFilter,
    *,
    inflate: bool,
    size_max: int = PLAIN_SIZE_MAX,
) -> Iterator[RecordColumns]:
    """Rows of records that no queue led to, of which no columns are made yet; those that never were
    in a queue are left out.

    Raises:
        CorruptLogError: a record is not whole.
    """
    for part in each_walked(parts):
        rows = RecordColumns(part, inflate=inflate, size_max=size_max)
        rows.keep(rows.is_queued)
        wanted.apply(rows)
        if len(rows):
            yield rows


def _check_queues(rows: RecordColumns, part: QueuedRecords) -> None:
    """A unit that points to a message of another queue must not give a row."""
    ids = np.array([range_.queue_id for range_ in part.ranges], np.int64)[part.numbers]
    topics = [range_.topic for range_ in part.ranges]
    is_same = rows.queue_ids == ids
    row = (
        int(np.argmin(is_same))
        if not is_same.all()
        else rows.first_of_other_topic(topics, part.numbers)
    )
    if row < len(rows):
        range_ = part.ranges[int(part.numbers[row])]
        raise CorruptLogError(
            "message of another queue than the unit that points to it",
            topic=range_.topic,
            queueId=range_.queue_id,
            offset=int(rows.physical_offsets[row]),
        )
