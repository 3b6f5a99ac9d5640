"""Shared part of the sources that read store directories beside a node. Read-only.

Nothing is locked, and no process of a node is asked. How far the log is committed say the queues: a
node puts a unit only when its entry is committed. A store without queues, sealed files alone, is
read by walking through its log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ledgermq.formats.arrays import Units
from ledgermq.formats.batch_unit import BATCH_TAGS
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.columns.arrow_slices import Integers
from ledgermq.pipeline.columns.queued_records import QueuedRecords
from ledgermq.pipeline.columns.record_columns import RecordBlock
from ledgermq.pipeline.queue_ranges import MessageRange, Queue, Queued
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.split_plan import RangeExtent, split_ranges
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.queues.batch_queue_reader import are_messages

_Found = TypeVar("_Found")

BATCH_ROWS = 8_192
"""Rows of one batch: fewer cost more calls, more of them fall out of the processor's cache."""

BATCH_BYTES = 32 * 1024 * 1024
"""Most bytes of one batch's records; a larger one comes alone."""

VANISHED_MAX = 10
"""Times that work is begun where files are deleted under it: retention deletes a few files at once,
and then waits."""

SAMPLE_UNITS = 1_000
"""Messages of a queue that are asked how large they are."""


class FileSource(ABC):
    """Queues and log that lie in files; what they hold is as of the last ``refresh``."""

    @abstractmethod
    def refresh(self) -> None:
        """Look for what came and went since."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the maps."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The directory, or directories with commas, for errors."""

    @property
    @abstractmethod
    def has_queues(self) -> bool:
        """Whether there is a ConsumeQueue; else only ``walk`` reads it."""

    @abstractmethod
    def queues(self) -> list[Queue]:
        """All queues that there are, those of the system, too.

        Raises:
            StorageError: the folders cannot be read.
            CorruptLogError: one is not named as a queue is.
        """

    @abstractmethod
    def has_batches(self, topic: str) -> bool:
        """Whether the queues of a topic are of batches: then several units lead to one record."""

    @abstractmethod
    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        """What each of ``queues`` holds; nothing at or beyond the committed end.

        Raises:
            CorruptLogError: a queue's files are not those of a queue.
        """

    @abstractmethod
    def units_of(self, queue: Queue, first: int, count: int) -> Units:
        """The units of a queue from ``first`` on, within what ``bounds`` has told.

        Raises:
            VanishedError: a file was deleted meanwhile.
        """

    @abstractmethod
    def store_time_at(self, position: int, size: int) -> int:
        """Store time, epoch ms, of the message that a unit points to.

        Raises:
            CorruptLogError: there is none.
        """

    @abstractmethod
    def read(
        self, ranges: Sequence[MessageRange], *, fail_on_data_loss: bool
    ) -> Iterator[QueuedRecords]:
        """The messages of ``ranges``, in the order of the log, some thousands at once.

        Raises:
            DataLossError: some were deleted meanwhile, and that is to fail.
            CorruptLogError: a unit does not point to its message.
        """

    @abstractmethod
    def walk(self, first: int, end: int) -> Iterator[RecordBlock]:
        """The records from ``first``, where one begins, to ``end``, by walking through the log.

        Raises:
            CorruptLogError: a record is not whole; names file, offset and field.
        """

    @abstractmethod
    def walk_bounds(self) -> list[int]:
        """Where ``walk`` may begin, ascending, and behind that where the committed log ends.

        Raises:
            ConfigError: the store is open, and nothing says how far its log is committed.
        """

    def units(self, range_: MessageRange) -> Units:
        """The units of a range that ``bounds`` has told of.

        Raises:
            VanishedError: a file was deleted meanwhile.
        """
        return self.units_of(range_.queue, range_.first, range_.end - range_.first)

    def positions(self, range_: MessageRange) -> tuple[int, int]:
        """Where the first message of a range begins in the log, and its last one ends."""
        first, last = (
            self.units_of(range_.queue, at, 1)[0] for at in (range_.first, range_.end - 1)
        )
        return int(first["position"]), int(last["position"]) + int(last["size"])

    def position_of(self, range_: MessageRange, offset: int) -> int:
        """Where a message that a range has stands in the log."""
        return int(self.units_of(range_.queue, offset, 1)["position"][0])

    def queued(self) -> Queued | None:
        """Position up to which the log is in the queues that are listed from now on.

        None where no dispatcher of ours has said so: which of several queues grew first is not
        seen from outside.
        """
        return None

    def offset_at_position(self, range_: MessageRange, position: int) -> int:
        """Queue offset of the first message of a range that begins at or behind ``position``."""
        return first_offset(
            range_, lambda at: int(self.units_of(range_.queue, at, 1)["position"][0]) < position
        )

    def offset_at_time(self, range_: MessageRange, timestamp_ms: int) -> int:
        """Queue offset of the first message of a range that was stored at that time or later.

        Store times are taken to ascend in a queue, as the clock of a leader does.
        """

        def is_older(offset: int) -> bool:
            unit = self.units_of(range_.queue, offset, 1)[0]
            return self.store_time_at(int(unit["position"]), int(unit["size"])) < timestamp_ms

        return first_offset(range_, is_older)

    def plan(
        self, ranges: Sequence[MessageRange], *, split_bytes: int, splits_min: int
    ) -> list[tuple[MessageRange, ...]]:
        """``ranges`` divided into parts of about ``split_bytes``, each from one stretch of the log.

        Raises:
            VanishedError: files that it needs are gone.
        """
        extents = [self._extent(range_) for range_ in ranges]
        return split_ranges(
            ranges,
            extents,
            self.offset_at_position,
            split_bytes=split_bytes,
            splits_min=splits_min,
        )

    def _extent(self, range_: MessageRange) -> RangeExtent:
        first, end = self.positions(range_)
        count = range_.end - range_.first
        sample = self.units_of(range_.queue, range_.first, min(count, SAMPLE_UNITS))
        return RangeExtent(first, end, int(sample["size"].mean() * count))

    def _load(self, ranges: Sequence[MessageRange], *, fail: bool) -> Loaded:
        """The units of ``ranges``, by position.

        Raises:
            DataLossError: some are not there any more, and ``fail``.
            CorruptLogError: a queue was cut.
            VanishedError: a file was deleted meanwhile.
        """
        held = self.bounds(range_.queue for range_ in ranges)
        parts: list[Loaded] = []
        for number, range_ in enumerate(ranges):
            first = _first_held(range_, held[range_.queue], fail=fail)
            units = self.units(range_._replace(first=first))
            positions, offsets = units["position"].astype(np.int64), np.arange(len(units)) + first
            if self.has_batches(range_.topic):
                # A record once, and by the queue offset that it says.
                rows = _records_in(units)
                inside = units["tags"][rows].astype(np.int64) - BATCH_TAGS
                units, positions, offsets = units[rows], positions[rows], offsets[rows] - inside
            parts.append(
                Loaded(
                    positions,
                    units["size"].astype(np.int64),
                    np.full(len(units), number, np.int64),
                    offsets,
                )
            )
        if len(parts) == 1:
            return parts[0]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Loaded(*(column[order] for column in columns))


class Loaded(NamedTuple):
    """Records that are to be read: position, size, number of the range, and queue offset of the
    first message.
    """

    positions: Integers
    sizes: Integers
    numbers: Integers
    offsets: Integers


def _records_in(units: Units) -> Integers:
    """The first unit of each record, of units of a queue of batches."""
    rows = np.flatnonzero(are_messages(units))
    places = units["position"][rows]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = places[1:] != places[:-1]
    found: Integers = rows[is_first]
    return found


def steady(work: Callable[[], _Found], *, again: Callable[[], None] | None = None) -> _Found:
    """What ``work`` finds, begun anew where files are deleted under it; ``again`` goes before."""
    for _ in range(VANISHED_MAX):
        try:
            return work()
        except VanishedError:
            if again is not None:
                again()
    return work()


def first_offset(range_: MessageRange, is_before: Callable[[int], bool]) -> int:
    """First queue offset of a range of which ``is_before`` does not hold."""
    offsets = range(range_.first, range_.end)
    return range_.first + bisect_left(offsets, True, key=lambda at: not is_before(at))


def _first_held(range_: MessageRange, bounds: MessageRange, *, fail: bool) -> int:
    """First queue offset of a range that is still there."""
    if range_.end > bounds.end > bounds.first:
        raise CorruptLogError(
            "queue ends before what was planned: its log was cut",
            topic=range_.topic,
            queueId=range_.queue_id,
            end=bounds.end,
            wanted=range_.end,
        )
    first = min(max(range_.first, bounds.first), range_.end)
    if bounds.end <= bounds.first:
        first = range_.end
    if first > range_.first:
        report_loss(
            fail=fail,
            topic=range_.topic,
            queueId=range_.queue_id,
            wanted=range_.first,
            oldest=bounds.first,
            missing=first - range_.first,
        )
    return first
