"""Micro-batches of a stream: offsets a queue, and how much a batch takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.batch_reader import RangesPartition, rows_of_ranges
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.clusters.group_offsets import GROUPS, groups_in
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.queue_ranges import (
    CONSUMER,
    MessageRange,
    Offsets,
    Queue,
    checkpoint_table,
    queue_document,
    ranges_between,
)
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.file_source import FileSource, steady
from ledgermq.pipeline.source.node_source import NodeSource
from ledgermq.pipeline.source.row_source import (
    RowSource,
    chosen_bounds,
    offsets_at,
    open_to_plan,
)
from ledgermq.pipeline.source_options import SourceOptions

LOOK_S = 0.05
"""Spark asks every ten milliseconds what is new; the store is looked at no more often than this."""

AGAIN_S = 0.1
"""A queue that is being built again is looked at so often."""

Document = dict[str, dict[str, int]]
StreamDocument = dict[str, Any]
"""A ``Document`` that may also have ``CONSUMER``."""


class RangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What streams of one group and of several have in common: limits, and the work of tasks."""

    def __init__(self, options: SourceOptions, columns: ChosenColumns) -> None:
        self._options = options
        self._columns = columns

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """``maxOffsetsPerTrigger``, or all that there is."""
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task.

        Raises:
            LedgerError: as of ``rows_of_ranges``.
        """
        assert isinstance(partition, RangesPartition), partition
        return rows_of_ranges(self._options, self._columns, partition, RowFilter())

    def commit(self, end: Mapping[str, object]) -> None:
        """Spark keeps the offsets; there is nothing to do."""


class StreamReader(RangesReader):
    """One query's view of the queues; the driver has one, and each task one.

    Invariant: an offset that was handed out is never behind the committed end of its queue.
    """

    def __init__(self, options: SourceOptions, columns: ChosenColumns) -> None:
        super().__init__(options, columns)
        self._source: RowSource | None = None
        self._bounds: dict[Queue, MessageRange] = {}
        self._looked = float("-inf")
        self._target: Offsets | None = None
        self._lost: set[Queue] = set()
        self._behind_since: dict[Queue, float] = {}

    @property
    def bounds(self) -> dict[Queue, MessageRange]:
        """What the queues held when they were looked at last."""
        return self._bounds

    def initialOffset(self) -> StreamDocument:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins.

        Raises:
            LedgerError: the options do not fit what there is, or it cannot be read.
        """
        options = self._options
        bounds = self._look(now=True)
        starts = offsets_at(
            self._opened(), bounds, options.starting, options.starting_ms, option="startingOffsets"
        )
        starts |= self._consumed(set(starts))
        # What is gone already, or not there yet, is told here and not with the first batch.
        ends = {queue: range_.end for queue, range_ in bounds.items()}
        ranges = ranges_between(starts, ends, bounds, fail=options.fail_on_data_loss)
        firsts = {range_.queue: range_.first for range_ in ranges}
        begins = {queue: firsts.get(queue, ends[queue]) for queue in ends}
        return self._for_group(begins, begins)

    def _consumed(self, queues: set[Queue]) -> Offsets:
        """Where the group is in those of ``queues`` of which it has consumed something."""
        if self._options.group is None:
            return {}
        source = self._opened()
        assert isinstance(source, NodeSource), "a group is asked of nodes"
        return source.consumed(self._options.group, queues)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: StreamDocument, limit: ReadLimit
    ) -> StreamDocument:
        """Where the next batch ends; ``start`` when there is nothing new.

        Raises:
            DataLossError: a queue has gone, or ends before ``start``, and that is to fail.
        """
        begins = checkpoint_table(start)
        bounds = self._look()
        ends = {queue: range_.end for queue, range_ in bounds.items()}
        if self._target is not None:
            # Of a query that stops by itself: what came after its start is the next one's.
            ends = {queue: min(end, ends.get(queue, end)) for queue, end in self._target.items()}
        for queue, begin in begins.items():
            if ends.get(queue, -1) < begin:
                held = bounds.get(queue)
                if self._target is None and (held is None or not self._may_come_back(held)):
                    self._report_cut(queue, begin, ends.get(queue))
                ends[queue] = begin
            else:
                self._behind_since.pop(queue, None)
        if isinstance(limit, ReadMaxRows):
            ends = limited(begins, ends, bounds, limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise ConfigError("read limit is not one that the source knows", limit=repr(limit))
        return start if ends == begins else self._for_group(begins, ends)

    def _for_group(self, begins: Offsets, ends: Offsets) -> StreamDocument:
        """``ends``, for a group with where the batch begins: a sink commits its offsets by it."""
        if self._options.group is None:
            return queue_document(ends)
        consumer = {"group": self._options.group, "from": queue_document(begins)}
        return {**queue_document(ends), CONSUMER: consumer}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """All that is there now is read, and nothing that comes later."""
        bounds = self._look(now=True)
        self._target = {queue: range_.end for queue, range_ in bounds.items()}

    def reportLatestOffset(self) -> Document:  # noqa: N802 - Spark's name
        """Where the queues end, for the query's progress: behind that it lags."""
        return queue_document({queue: range_.end for queue, range_ in self._look().items()})

    def partitions(self, start: StreamDocument, end: StreamDocument) -> list[InputPartition]:
        """What each task of the batch from ``start`` to ``end`` reads.

        Raises:
            DataLossError: some of it has been deleted, and that is to fail.
        """
        starts, ends = checkpoint_table(start), checkpoint_table(end)
        source = self._opened()
        source.refresh()

        def plan() -> list[tuple[MessageRange, ...]]:
            bounds = self._bounds_with(source, ends)
            options = self._options
            ranges = ranges_between(starts, ends, bounds, fail=options.fail_on_data_loss)
            return source.plan(
                ranges, split_bytes=options.split_bytes, splits_min=options.min_partitions
            )

        return [RangesPartition(part) for part in steady(plan, again=source.refresh)]

    def stop(self) -> None:
        """Let go of the store."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _opened(self) -> RowSource:
        if self._source is None:
            self._source = open_to_plan(self._options)
            if isinstance(self._source, FileSource) and not self._source.has_queues:
                raise ConfigError(
                    "store has no queues: it can be read as a batch alone",
                    directory=self._source.place,
                )
        return self._source

    def _look(self, *, now: bool = False) -> dict[Queue, MessageRange]:
        if now or time.monotonic() - self._looked >= LOOK_S:
            source = self._opened()
            source.refresh()
            self._bounds = chosen_bounds(source, self._options)
            self._looked = time.monotonic()
        return self._bounds

    def _bounds_with(self, source: RowSource, ends: Offsets) -> dict[Queue, MessageRange]:
        """What the queues hold, once they reach to ``ends``, which they did before.

        A node that was killed builds the end of its queues again when it starts.
        """
        until = time.monotonic() + self._options.timeout_ms / 1_000
        while True:
            bounds = source.bounds(ends)
            lacks = [queue for queue, held in bounds.items() if held.first < held.end < ends[queue]]
            if not lacks or time.monotonic() >= until:
                return bounds
            time.sleep(AGAIN_S)
            source.refresh()

    def _may_come_back(self, held: MessageRange) -> bool:
        """Whether a queue that ends before what was read is given time to be built again."""
        since = self._behind_since.setdefault(held.queue, time.monotonic())
        patience_s = self._options.timeout_ms / 1_000
        return held.first < held.end and time.monotonic() - since < patience_s

    def _report_cut(self, queue: Queue, begin: int, end: int | None) -> None:
        if queue in self._lost and not self._options.fail_on_data_loss:
            return
        self._lost.add(queue)
        report_loss(
            fail=self._options.fail_on_data_loss,
            topic=queue[0],
            queueId=queue[1],
            wanted=begin,
            end=end,
            missing="what the queue had",
        )


AnyQueue = TypeVar("AnyQueue", bound=tuple[str | int, ...])


def limited(
    starts: Mapping[AnyQueue, int],
    ends: Mapping[AnyQueue, int],
    bounds: Mapping[AnyQueue, MessageRange],
    rows_max: int,
) -> dict[AnyQueue, int]:
    """``ends``, no more than ``rows_max`` messages behind ``starts``, shared by what each lacks.

    Exactly so many when there are so many: what the shares leave goes to the largest remainders.
    """
    lacks: dict[AnyQueue, int] = {}
    for queue, end in ends.items():
        held = bounds.get(queue)
        begin = starts.get(queue, held.first if held is not None else end)
        # What is deleted already gives no rows.
        lacks[queue] = max(0, end - max(begin, held.first if held is not None else begin))
    total = sum(lacks.values())
    if total <= rows_max:
        return dict(ends)
    shares = {queue: lack * rows_max // total for queue, lack in lacks.items()}
    left = rows_max - sum(shares.values())
    by_remainder = sorted(lacks, key=lambda queue: (-(lacks[queue] * rows_max % total), queue))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return {queue: ends[queue] - lacks[queue] + share for queue, share in shares.items()}


def lag(progress: Mapping[str, object]) -> Document | dict[str, Document]:
    """Messages of each queue that a query has not read yet, from one of its progress reports.

    Args:
        progress: an item of ``query.recentProgress``'s ``sources``, with the offsets as objects.

    Returns:
        By topic and queue; of a query over several groups by the group before that.
    """
    ends, latest = (_document(progress, name) for name in ("endOffset", "latestOffset"))
    if GROUPS not in latest:
        return _lag(
            checkpoint_table(ends, option="endOffset"),
            checkpoint_table(latest, option="latestOffset"),
        )
    read = groups_in(ends, option="endOffset") if ends else {}
    return {
        name: _lag(read[name].offsets if name in read else {}, group.offsets)
        for name, group in groups_in(latest, option="latestOffset").items()
    }


def _lag(ends: Offsets, latest: Offsets) -> Document:
    return queue_document({queue: end - ends.get(queue, 0) for queue, end in latest.items()})


def _document(progress: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = progress.get(name) or {}
    if not isinstance(value, Mapping):
        raise ConfigError("progress has another form", option=name, value=str(value)[:200])
    return value
