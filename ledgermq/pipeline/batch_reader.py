"""Batch reads: the driver's plan, and the work of each task."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.clusters.cluster_groups import (
    GROUPS_AT_ONCE,
    ClusterGroups,
    GroupPlace,
    dead_group,
)
from ledgermq.pipeline.columns.queued_records import walked_rows, wanted_rows
from ledgermq.pipeline.columns.row_filter import LIMITED, Limits, RowFilter, at_least, at_most
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.file_source import FileSource, steady
from ledgermq.pipeline.source.row_source import RowSource, chosen_ranges, open_source, open_to_plan
from ledgermq.pipeline.source_options import SourceOptions

logger = logging.getLogger(__name__)

_BUFFER_SIZE = 65_536
"""Spark's own, where ``spark.buffer.size`` says nothing else."""

_BUFFERS_IN_TAIL = 2
_BUFFERS_IN_BATCH = 16


def sent_ahead(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order; the last ones of a large batch come as a batch of their own.

    Spark's worker writes batches through a buffer that it does not flush in between. What is left
    of a batch there, the short columns behind the bodies, keeps the JVM waiting until the next one
    is made, so that Python and JVM would take turns. A few rows behind it push it out.
    """
    buffer_size = int(os.environ.get("SPARK_BUFFER_SIZE", _BUFFER_SIZE))
    for batch in batches:
        size, rows = batch.nbytes, batch.num_rows
        tail = -(-_BUFFERS_IN_TAIL * buffer_size * rows // size) if size else rows
        if size < _BUFFERS_IN_BATCH * buffer_size or tail >= rows:
            yield batch
            continue
        yield batch.slice(0, rows - tail)
        yield batch.slice(rows - tail)


Parts = list[tuple[MessageRange, ...]]
NEVER_NULL = LIMITED | {"topic", "sysFlag", "flag", "body", "bornTimestamp", "bodyCrc", "crcOk"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


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


def rows_of_ranges(
    options: SourceOptions, columns: ChosenColumns, partition: RangesPartition, wanted: RowFilter
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, as far as they are wanted.

    Raises:
        LedgerError: they cannot be read, or are gone and that is to fail; ``broker_group`` in its
            details says of which group they are, where there are several.
    """
    if partition.place is not None:
        options = options.of_group(*partition.place)
    inflates = columns.inflates(options)
    try:
        with closing(open_source(options)) as source:
            read = source.read(partition.ranges, fail_on_data_loss=options.fail_on_data_loss)
            rows = wanted_rows(read, wanted, inflate=inflates, size_max=options.inflate_max)
            with columns.opened(options) as made:
                yield from sent_ahead(chain.from_iterable(map(made, rows)))
    except LedgerError as error:
        if options.broker_group:
            error.details["broker_group"] = options.broker_group
        raise


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
        if isinstance(partition, RangesPartition):
            yield from rows_of_ranges(self._options, self._columns, partition, self._wanted)
            return
        assert isinstance(partition, WalkPartition), partition
        options = self._options
        source = open_source(options)
        assert isinstance(source, FileSource), partition
        inflates = self._columns.inflates(options)
        try:
            parts = source.walk(partition.first, partition.end)
            rows = walked_rows(parts, self._wanted, inflate=inflates, size_max=options.inflate_max)
            with self._columns.opened(options) as made:
                yield from sent_ahead(chain.from_iterable(map(made, rows)))
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


def planned_by_group(
    options: SourceOptions, plan: Callable[[RowSource, SourceOptions], Parts]
) -> list[tuple[GroupPlace, Parts]]:
    """What ``plan`` makes of each group, in the order of their names.

    Raises:
        LedgerError: the options do not fit what there is, or it cannot be read; a group does not
            answer, and that is to fail.
    """
    assert options.groups is not None, "groups are chosen"
    queues: set[Queue] = set()

    def planned(place: GroupPlace) -> Parts | LedgerError:
        of_group = options.of_group(*place)
        source = open_to_plan(of_group)
        try:
            queues.update(source.queues())
            return plan(source, of_group)
        except LedgerError as error:
            error.details["broker_group"] = place.name
            return error
        finally:
            source.close()

    with closing(ClusterGroups(options)) as groups:
        places = [GroupPlace(*one) for one in sorted(groups.all_places().items())]
    with ThreadPoolExecutor(GROUPS_AT_ONCE, thread_name_prefix="spark-groups") as threads:
        found = list(zip(places, threads.map(planned, places), strict=True))
    parts: list[tuple[GroupPlace, Parts]] = []
    for place, one in found:
        if not isinstance(one, LedgerError):
            parts.append((place, one))
        elif not one.retriable:
            raise one
        elif options.groups.fails_on_dead:
            raise dead_group(place.name, one) from one
        else:
            logger.warning(
                "group does not answer, and is left out: broker_group=%s: %s", place.name, one
            )
    if len(parts) == len(found):
        options.choice.check_found(queues)
    return parts


def pushed(wanted: RowFilter, filter_: Filter) -> RowFilter | None:
    """``wanted`` and ``filter_``; None when Spark must apply that one itself."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    name = ".".join(path)
    if isinstance(filter_, IsNotNull):
        return wanted if name in NEVER_NULL else None
    if isinstance(filter_, In):
        return _among(wanted, name, filter_.value)
    if isinstance(filter_, EqualTo | EqualNullSafe) and name == "topic":
        return _among(wanted, name, (filter_.value,))
    for kind, limits in _COMPARED.items():
        if isinstance(filter_, kind) and name in LIMITED:
            found = limits(name, getattr(filter_, "value", None))
            return None if found is None else wanted.narrowed(found)
    return None


def _among(wanted: RowFilter, name: str, values: tuple[object, ...]) -> RowFilter | None:
    if name == "topic" and all(isinstance(value, str) for value in values):
        topics = frozenset(str(value) for value in values)
        kept = topics if wanted.topics is None else wanted.topics & topics
        return replace(wanted, topics=kept)
    if name == "queueId" and all(isinstance(value, int) for value in values):
        ids = frozenset(value for value in values if isinstance(value, int))
        kept_ids = ids if wanted.queue_ids is None else wanted.queue_ids & ids
        return replace(wanted, queue_ids=kept_ids)
    return None


def _bound(name: str, value: object) -> tuple[int, bool] | None:
    """The largest whole number at or below ``value``, and whether it is ``value``."""
    if name == "storeTimestamp":
        if not isinstance(value, datetime):
            return None
        aware = value if value.tzinfo is not None else value.astimezone()
        whole, rest = divmod(aware - _EPOCH, _MILLISECOND)
        return whole, not rest
    return (value, True) if isinstance(value, int) else None


def _equal(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    if bound is None:
        return None
    return {name: (bound[0], bound[0] if bound[1] else bound[0] - 1)}


def _from(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_least(name, bound[0] if bound[1] else bound[0] + 1)


def _behind(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_least(name, bound[0] + 1)


def _upto(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_most(name, bound[0])


def _before(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_most(name, bound[0] - 1 if bound[1] else bound[0])


_COMPARED: dict[type[Filter], Callable[[str, object], Limits | None]] = {
    EqualTo: _equal,
    EqualNullSafe: _equal,
    GreaterThanOrEqual: _from,
    GreaterThan: _behind,
    LessThanOrEqual: _upto,
    LessThan: _before,
}
