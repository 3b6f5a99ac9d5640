"""Records read as messages of queues, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ledgermq.formats.records.body_compression import PLAIN_SIZE_MAX
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.record_columns import RecordBlock, RecordColumns
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.queue_ranges import MessageRange


class QueuedRecords(NamedTuple):
    """Records, and of which queue each is, by the unit or the answer that led to it.

    Attributes:
        ranges: what was asked for; ``numbers`` says which of them each record is of.
    """

    records: RecordBlock
    ranges: Sequence[MessageRange]
    numbers: Integers


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
    for part in parts:
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
