"""Batch reads: the driver's plan, and the work of each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.clusters.cluster_batch import planned_by_group
from ledgermq.pipeline.clusters.cluster_groups import GroupPlace
from ledgermq.pipeline.columns.queued_records import walked_rows, wanted_rows
from ledgermq.pipeline.columns.row_filter import RowFilter, at_least, at_most
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.file_source import FileSource, steady
from ledgermq.pipeline.source.pushed_filters import pushed
from ledgermq.pipeline.source.row_source import RowSource, chosen_ranges, open_source, open_to_plan
from ledgermq.pipeline.source.sent_ahead import sent_ahead
from ledgermq.pipeline.source_options import SourceOptions


@dataclass
class RangesPartition(InputPartition):
    """Messages of queues, for one task.

    Attributes:
        place: the group whose queues they are, of a query over several.
    """

    ranges: tuple[MessageRange, ...]
    place: GroupPlace | None = None


@dataclass
class WalkPartition(InputPartition):
    """A stretch of the log of a store without queues; positions, half-open."""

    first: int
    end: int


class BatchReader(DataSourceReader):
    """Rows from where the options say to where the queues ended when the query was planned."""

    def __init__(self, options: SourceOptions, columns: ChosenColumns) -> None:
        self._options = options
        self._columns = columns
        self._wanted = RowFilter()
        if options.starting_ms is not None:
            self._wanted = self._wanted.narrowed(at_least("storeTimestamp", options.starting_ms))
        if options.ending_ms is not None:
            self._wanted = self._wanted.narrowed(at_most("storeTimestamp", options.ending_ms - 1))

    def partitions(self) -> list[InputPartition]:
        """What each task reads.

        Raises:
            LedgerError: the options do not fit what there is, or it cannot be read.
        """
        if self._options.groups is not None:
            planned_of = planned_by_group(self._options, self._plan)
            return [RangesPartition(part, place) for place, parts in planned_of for part in parts]
        source = open_to_plan(self._options)
        try:
            if isinstance(source, FileSource) and not source.has_queues:
                return self._walks(source)
            planned = steady(lambda: self._plan(source, self._options), again=source.refresh)
            return [RangesPartition(ranges) for ranges in planned]
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task.

        Raises:
            LedgerError: they cannot be read, or are gone and that is to fail.
        """
        if type(partition) is InputPartition:
            # What Spark makes of a plan without tasks: nothing is there to be read.
            return
        options = self._options
        if isinstance(partition, RangesPartition) and partition.place is not None:
            options = options.of_group(*partition.place)
        source = open_source(options)
        inflates = self._columns.inflates(options)
        try:
            if isinstance(partition, WalkPartition):
                assert isinstance(source, FileSource), partition
                parts = source.walk(partition.first, partition.end)
                rows = walked_rows(
                    parts, self._wanted, inflate=inflates, size_max=options.inflate_max
                )
            else:
                assert isinstance(partition, RangesPartition), partition
                read = source.read(partition.ranges, fail_on_data_loss=options.fail_on_data_loss)
                rows = wanted_rows(
                    read, self._wanted, inflate=inflates, size_max=options.inflate_max
                )
            with self._columns.opened(options) as made:
                yield from sent_ahead(chain.from_iterable(map(made, rows)))
        except LedgerError as error:
            if options.broker_group:
                error.details["broker_group"] = options.broker_group
            raise
        finally:
            source.close()

    def _plan(self, source: RowSource, options: SourceOptions) -> list[tuple[MessageRange, ...]]:
        ranges = chosen_ranges(source, options)
        narrowed = [self._narrowed(source, range_) for range_ in ranges if self._has(range_.queue)]
        return source.plan(
            [range_ for range_ in narrowed if range_.first < range_.end],
            split_bytes=options.split_bytes,
            splits_min=options.min_partitions,
        )

    def _has(self, queue: Queue) -> bool:
        wanted, (low, high) = self._wanted, self._wanted.limit("queueId")
        return (
            (wanted.topics is None or queue[0] in wanted.topics)
            and (wanted.queue_ids is None or queue[1] in wanted.queue_ids)
            and low <= queue[1] <= high
        )

    def _narrowed(self, source: RowSource, range_: MessageRange) -> MessageRange:
        """What of a range can hold wanted rows, as far as its ends tell without reading it."""
        low, high = self._wanted.limit("queueOffset")
        first, end = max(range_.first, low), min(range_.end, high + 1)
        if first >= end:
            return range_._replace(end=range_.first)
        range_ = range_._replace(first=first, end=end)
        low, high = self._wanted.limit("storeTimestamp")
        if low > 0:
            range_ = range_._replace(first=source.offset_at_time(range_, low))
        if high < 1 << 62:
            range_ = range_._replace(end=source.offset_at_time(range_, high + 1))
        if not isinstance(source, FileSource) or range_.first >= range_.end:
            return range_
        low, high = self._wanted.limit("physicalOffset")
        if low > 0:
            range_ = range_._replace(first=source.offset_at_position(range_, low))
        if high < 1 << 62:
            range_ = range_._replace(end=source.offset_at_position(range_, high + 1))
        return range_

    def _walks(self, source: FileSource) -> list[InputPartition]:
        options = self._options
        if not (options.starting == "earliest" and options.ending == "latest"):
            raise ConfigError(
                "store has no queues: it is read as a whole, or by time",
                options=["startingOffsets", "endingOffsets"],
                directory=source.place,
            )
        self._wanted = RowFilter(
            options.choice, self._wanted.topics, self._wanted.queue_ids, self._wanted.limits
        )
        bounds = source.walk_bounds()
        return [WalkPartition(first, end) for first, end in pairwise(bounds)]


class FilteringReader(BatchReader):
    """The same, which takes filters off Spark; Spark refuses it unless that is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what can be applied here; the others are left to Spark."""
        for filter_ in filters:
            wanted = pushed(self._wanted, filter_)
            if wanted is None:
                yield filter_
            else:
                self._wanted = wanted
