"""Rows of records as Arrow batches: what was read is compared by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from ledgermq.pipeline.columns.queued_records import QueuedRecords, walked_rows, wanted_rows
from ledgermq.pipeline.columns.record_columns import RecordBlock
from ledgermq.pipeline.columns.row_filter import RowFilter


def batches_of(
    parts: Iterable[QueuedRecords], columns: Sequence[str], wanted: RowFilter, *, inflate: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of ``parts`` that are wanted.

    Raises:
        CorruptLogError: a record is not whole, or is no message of its queue.
    """
    for rows in wanted_rows(parts, wanted, inflate=inflate):
        for part in rows.parts() if inflate else (rows,):
            yield part.batch(columns)


def walked_batches(
    parts: Iterable[RecordBlock], columns: Sequence[str], wanted: RowFilter, *, inflate: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of records that no queue led to; those that never were in a queue are left out.

    Raises:
        CorruptLogError: a record is not whole.
    """
    for rows in walked_rows(parts, wanted, inflate=inflate):
        for part in rows.parts() if inflate else (rows,):
            yield part.batch(columns)
