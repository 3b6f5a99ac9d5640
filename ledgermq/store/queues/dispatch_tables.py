"""Dispatch columns of one scanned portion of the log: filled by the kernel, grouped by numpy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import BATCH_UNIT, I64, UNIT, Units
from ledgermq.formats.batch_unit import NOT_COMPACTED, Numbers
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import (
    NO_UNIT,
    SCAN_ROWS,
    ScanStatus,
    dispatch_span,
    scan_entries,
    whole_records,
)
from ledgermq.formats.records.inner_batch import batch_in
from ledgermq.store.index.index_files import NewKeys

KEYS = 65_536
"""Keys of one portion; one message has at most 16,386."""

_FIELDS = 10
_TABLE_MIN = 64


class QueueBlock(NamedTuple):
    """Units of one queue, in the order of the log.

    Attributes:
        queue_offsets: of each unit's message, or of its first one.
    """

    topic: bytes
    queue_id: int
    queue_offsets: I64
    units: Units

    @property
    def is_of_batches(self) -> bool:
        """Whether its units are those of a queue of batches."""
        return self.units.dtype == BATCH_UNIT

    @property
    def messages(self) -> int:
        """How many its units point to."""
        return int(self.units["count"].sum()) if self.is_of_batches else len(self.units)


class Grouped(NamedTuple):
    """The units of a portion, sorted by queue, and in the order of the log for each.

    Attributes:
        topics, queue_ids: of each queue.
        ends: row behind its last unit.
        queue_offsets, units: of all rows.
    """

    topics: list[bytes]
    queue_ids: list[int]
    ends: list[int]
    queue_offsets: I64
    units: Units


class BatchRow(NamedTuple):
    """What a unit of a queue of batches says of a record, in the order of its fields."""

    position: int
    size: int
    tags_code: int
    store_time: int
    numbers: Numbers


def batch_units(rows: Sequence[BatchRow]) -> Units:
    """Units of a queue of batches, one for each of ``rows``."""
    units = np.zeros(len(rows), BATCH_UNIT)
    for at, (*said, numbers) in enumerate(rows):
        units[at] = (*said, *numbers, NOT_COMPACTED, 0)
    return units


class Portion(NamedTuple):
    """Rows that one pass of the kernel filled; all are valid until the next pass.

    Attributes:
        rows: the messages.
        keys: their keys.
        groups: how many queues have units among them.
        malformed: messages that cannot be parsed.
    """

    rows: range
    keys: NewKeys
    groups: int
    malformed: int


class DispatchTables:
    """Columns for ``SCAN_ROWS`` messages, used again for every portion.

    Attributes:
        positions: physical offset of each row's message.
        store_times: its store time, epoch ms.
    """

    def __init__(
        self, delays_ms: Sequence[int], *, with_keys: bool, with_tags: bool = False
    ) -> None:
        """Columns without rows.

        Args:
            with_keys: whether messages have keys for the Index.
            with_tags: whether tags are among them (``tag_items``).
        """
        self._delays = np.array(delays_ms, np.int64)
        self._with_keys = with_keys
        self._with_tags = with_tags
        self._starts = np.zeros(SCAN_ROWS, np.int64)
        self._sizes = np.zeros(SCAN_ROWS, np.int64)
        self._queue_offsets = np.zeros(SCAN_ROWS, np.int64)
        self.store_times = np.zeros(SCAN_ROWS, np.int64)
        self._tags_codes = np.zeros(SCAN_ROWS, np.int64)
        self.positions = np.zeros(SCAN_ROWS, np.int64)
        self._groups = np.zeros(SCAN_ROWS, np.int32)
        self._key_hashes = np.zeros(KEYS, np.int32)
        self._key_rows = np.zeros(KEYS, np.int32)
        self._group_topics = np.zeros(SCAN_ROWS, np.int64)
        self._group_queues = np.zeros(SCAN_ROWS, np.int64)
        self._table = np.zeros(2 * SCAN_ROWS, np.int32)
        self._fields = np.zeros(_FIELDS, np.int64)

    def scan(
        self, span: memoryview, start: int, end: int, *, header_size: int, base: int
    ) -> tuple[int, int, ScanStatus]:
        """Find up to ``SCAN_ROWS`` messages; how many, where the next one begins, why it ended."""
        count, at, status = scan_entries(
            span, start, end, header_size, base, self._starts.data, self._sizes.data
        )
        self.positions[:count] = self._starts[:count]
        self.positions[:count] += base
        return count, at, ScanStatus(status)

    def whole(self, span: memoryview, count: int, *, header_size: int) -> int:
        """How many of the first ``count`` rows, from the first on, are as they were written."""
        starts, sizes = self._starts[:count].data, self._sizes[:count].data
        return whole_records(span, starts, sizes, header_size, crc32)

    def place(self, row: int) -> tuple[int, int]:
        """Where in the span a row's message begins, and its size."""
        return int(self._starts[row]), int(self._sizes[row])

    def portions(self, span: memoryview, base: int, count: int) -> Iterator[Portion]:
        """Hash the first ``count`` rows; more than one portion when their keys find no room."""
        first = 0
        while first < count:
            table = max(_TABLE_MIN, 1 << (2 * (count - first) - 1).bit_length())
            last, keys, groups, malformed = dispatch_span(
                span,
                base,
                self._starts.data,
                self._sizes.data,
                first,
                count,
                self._delays.data,
                self._with_keys,
                self._with_tags,
                self._queue_offsets.data,
                self.store_times.data,
                self._tags_codes.data,
                self._groups.data,
                self._key_hashes.data,
                self._key_rows.data,
                self._group_topics.data,
                self._group_queues.data,
                self._table[:table].data,
                self._fields.data,
            )
            assert last > first, "the keys of one message found no room"
            columns = NewKeys(
                self._key_hashes[:keys], self._key_rows[:keys], self.positions, self.store_times
            )
            yield Portion(range(first, last), columns, groups, malformed)
            first = last

    def blocks(
        self, span: memoryview, portion: Portion, batch_topics: Collection[bytes] = ()
    ) -> Iterator[QueueBlock]:
        """The units of a portion, queue by queue.

        Args:
            batch_topics: those whose queues are of batches. Where they are not told, records of
                several messages have no unit, and single ones that of other queues.
        """
        grouped = self.grouped(span, portion)
        topics, queue_ids, ends, queue_offsets, units = grouped
        start = 0
        for topic, queue_id, end in zip(topics, queue_ids, ends, strict=True):
            if topic not in batch_topics:
                yield QueueBlock(topic, queue_id, queue_offsets[start:end], units[start:end])
            start = end
        for name, found in self.batches(span, portion, grouped, batch_topics).items():
            yield QueueBlock(*name, found["base"].astype(np.int64), found)

    def grouped(self, span: memoryview, portion: Portion) -> Grouped:
        """The units of a portion, for who has no time for an object a queue."""
        rows = slice(portion.rows.start, portion.rows.stop)
        groups = self._groups[rows]
        units = np.empty(len(groups), UNIT)
        units["position"] = self.positions[rows]
        units["size"] = self._sizes[rows]
        units["tags"] = self._tags_codes[rows]
        queue_offsets = self._queue_offsets[rows]
        if portion.groups != 1 or groups.min() < 0:
            # Sixteen bits (the rows are no more) are sorted by radix; -1 and -2 come first.
            order = np.argsort(groups.astype(np.int16), kind="stable")
            order = order[np.count_nonzero(groups < 0) :]
            groups, units, queue_offsets = groups[order], units[order], queue_offsets[order]
        ends = np.cumsum(np.bincount(groups, minlength=portion.groups)).tolist()
        topics = [
            bytes(span[at : at + span[at - 1]])
            for at in self._group_topics[: portion.groups].tolist()
        ]
        queue_ids = self._group_queues[: portion.groups].tolist()
        return Grouped(topics, queue_ids, ends, queue_offsets, units)

    def batches(
        self, span: memoryview, portion: Portion, grouped: Grouped, topics: Collection[bytes]
    ) -> dict[tuple[bytes, int], Units]:
        """Units of a portion's queues of batches, in the order of the log for each.

        Args:
            grouped: the portion's, which has the single messages among them.
            topics: those whose queues are of batches.
        """
        if not topics:
            return {}
        rows = self._records_of_several(span, portion, topics)
        start = 0
        for topic, queue_id, end in zip(
            grouped.topics, grouped.queue_ids, grouped.ends, strict=True
        ):
            if topic in topics:
                offsets = grouped.queue_offsets[start:end].tolist()
                single = rows.setdefault((topic, queue_id), [])
                for offset, unit in zip(offsets, grouped.units[start:end].tolist(), strict=True):
                    position, size, code = unit
                    time = self._time_of(portion, position)
                    single.append(BatchRow(position, size, code, time, Numbers(offset, 1)))
            start = end
        return {name: batch_units(sorted(found)) for name, found in rows.items()}

    def _records_of_several(
        self, span: memoryview, portion: Portion, topics: Collection[bytes]
    ) -> dict[tuple[bytes, int], list[BatchRow]]:
        found: dict[tuple[bytes, int], list[BatchRow]] = {}
        groups = self._groups[portion.rows.start : portion.rows.stop]
        for row in (np.flatnonzero(groups == NO_UNIT) + portion.rows.start).tolist():
            at, size = self.place(row)
            batch = batch_in(span[at : at + size])
            if batch is not None and batch.topic in topics:
                position, time = int(self.positions[row]), int(self.store_times[row])
                said = BatchRow(position, size, int(self._tags_codes[row]), time, batch.numbers)
                found.setdefault((batch.topic, batch.queue_id), []).append(said)
        return found

    def _time_of(self, portion: Portion, position: int) -> int:
        """Store time of the message of a portion that begins at ``position``."""
        positions = self.positions[portion.rows.start : portion.rows.stop]
        row = portion.rows.start + int(np.searchsorted(positions, position))
        return int(self.store_times[row])

    def last_unit_row(self, portion: Portion, *, before: int | None = None) -> int:
        """Row of the portion's last message that has a unit, -1 when none has.

        Args:
            before: position at and behind which messages do not count.
        """
        stop = portion.rows.stop
        if before is not None:
            positions = self.positions[portion.rows.start : stop]
            stop = portion.rows.start + int(np.searchsorted(positions, before))
        rows = np.flatnonzero(self._groups[portion.rows.start : stop] >= 0)
        return portion.rows.start + int(rows[-1]) if len(rows) else -1


assert np.iinfo(np.int16).max >= SCAN_ROWS
