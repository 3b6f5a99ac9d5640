"""``stats`` job: rates, sizes, latencies and keys of messages, and lags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ledgermq.client.admin.admin import Admin
from ledgermq.formats.config_json import OFFSET_TABLE, whole_number, with_field_names
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.jobs.stats_counts import Counts, StatsTask, count_part, merged
from ledgermq.pipeline.queue_ranges import MessageRange
from ledgermq.pipeline.source.file_source import FileSource, steady
from ledgermq.pipeline.source.row_source import (
    RowSource,
    check_queued,
    chosen_ranges,
    name_of,
    open_to_plan,
)
from ledgermq.pipeline.source_options import SourceOptions
from ledgermq.store.files.offsets_file import OffsetsFile

KEYS_SHOWN = 100


class GroupLag(NamedTuple):
    """How far a group is behind in one queue.

    Attributes:
        offset: of the message that it gets next.
        lag: messages that are there and that it has not read.
        deleted: messages that are gone, and that it has not read either.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    end: int
    lag: int
    deleted: int


@dataclass(frozen=True)
class Stats:
    """What was found.

    Attributes:
        source: directory or addresses.
        bucket_ms: how long a bucket of the rates is.
    """

    source: str
    bucket_ms: int
    topics: Counts
    lags: tuple[GroupLag, ...]
    tasks: int

    @property
    def messages(self) -> int:
        """Messages of all topics."""
        return sum(topic.messages for topic in self.topics.values())


def stats(job: Tasks, options: SourceOptions, *, bucket_ms: int, split_bytes: int) -> Stats:
    """Count what the options choose.

    Args:
        bucket_ms: how long a bucket of the rates is.
        split_bytes: of the log, for one task.

    Raises:
        ConfigError: a bucket is shorter than a second, or a topic is not there.
        LedgerError: the source cannot be read.
        JobFailedError: Spark gave up.
    """
    if bucket_ms < 1_000:
        raise ConfigError("bucket is too short", option="--bucket", value=bucket_ms, minimum=1_000)
    source = open_to_plan(options)
    try:
        check_queued(source)
        parts = steady(
            lambda: source.plan(
                chosen_ranges(source, options), split_bytes=split_bytes, splits_min=job.slots
            ),
            again=source.refresh,
        )
        lags = tuple(_lags(source, options))
    finally:
        source.close()
    tasks = [StatsTask(options, ranges, bucket_ms) for ranges in parts]
    counts = merged(job.each(tasks, count_part, size=len(tasks), split_bytes=1), keys=KEYS_SHOWN)
    return Stats(name_of(options), bucket_ms, counts, lags, len(tasks))


def _lags(source: RowSource, options: SourceOptions) -> Iterator[GroupLag]:
    """How far each group is behind in the queues that it has consumed of the chosen topics."""
    if isinstance(source, FileSource):
        yield from _stored_lags(source, options)
        return
    with Admin(list(options.nodes)) as admin:
        for group in admin.groups():
            for row in admin.lag(group.group):
                if row.offset is not None and options.choice.has((row.topic, row.queue)):
                    held = MessageRange(row.topic, row.queue, row.begin, row.end)
                    yield _lag(group.group, held, row.offset)


def _stored_lags(source: FileSource, options: SourceOptions) -> Iterator[GroupLag]:
    """Lags by the offsets that are in the files; of several replicas the furthest count."""
    bounds = source.bounds(queue for queue in source.queues() if options.choice.has(queue))
    furthest: dict[tuple[str, str, int], int] = {}
    for root in options.paths:
        for owner, offset in _stored_offsets(root):
            furthest[owner] = max(offset, furthest.get(owner, 0))
    for (group, topic, queue_id), offset in sorted(furthest.items()):
        held = bounds.get((topic, queue_id))
        if held is not None:
            yield _lag(group, held, offset)


def _stored_offsets(root: Path) -> Iterator[tuple[tuple[str, str, int], int]]:
    """Group, topic and queue of each offset in the table's file, as ``topic@group`` there.

    Raises:
        ConfigError: it holds something else than offsets; names file, key and value.
    """
    file = OffsetsFile(root / "config")
    document, path = file.load(), file.path
    table = with_field_names(document, frozenset({OFFSET_TABLE})).get(OFFSET_TABLE, {})
    rows = table.items() if isinstance(table, dict) else [(OFFSET_TABLE, table)]
    for name, offsets in rows:
        topic, _, group = name.partition("@")
        for queue, offset in offsets.items() if isinstance(offsets, dict) else [("", offsets)]:
            try:
                queue_id, number = whole_number(queue), whole_number(offset)
            except ValueError:
                queue_id = number = None
            if queue_id is None or number is None:
                raise ConfigError("no offset of a queue", file=str(path), key=name, value=offset)
            yield (group, topic, queue_id), number


def _lag(group: str, held: MessageRange, offset: int) -> GroupLag:
    lag = max(0, held.end - max(offset, held.first))
    deleted = max(0, held.first - offset)
    return GroupLag(group, held.topic, held.queue_id, offset, held.end, lag, deleted)
