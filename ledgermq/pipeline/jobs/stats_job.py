"""``stats`` job: rates, sizes, latencies and keys of messages, and lags."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ledgermq.client.admin.admin import Admin
from ledgermq.formats.config_json import (
    OFFSET_TABLE,
    choose_document,
    whole_number,
    with_field_names,
)
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.pipeline.jobs.html_page import (
    Line,
    bar_plot,
    html_page,
    html_table,
    legend,
    line_plot,
)
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.jobs.stats_counts import Counts, StatsTask, TopicCounts, count_part, merged
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
from ledgermq.store.files.small_file import read_file, replace_file

KEYS_SHOWN = 100

SHARES = (0.5, 0.9, 0.99, 0.999)
"""The quantiles that are told."""

_TIME = pa.timestamp("ms", tz="UTC")
_COUNTS = [("messages", pa.int64())]

RATES = pa.schema(
    [
        *[("topic", pa.string()), ("tag", pa.string()), ("begin", _TIME)],
        *[("messages", pa.int64()), ("bytes", pa.int64())],
    ]
)

TOPICS = pa.schema(
    [
        *[("topic", pa.string()), ("messages", pa.int64()), ("bytes", pa.int64())],
        *[("first_stored", _TIME), ("last_stored", _TIME), ("early", pa.int64())],
        *[
            (f"{what}_{name}", pa.int64())
            for what in ("size", "latency_ms")
            for name in ("least", "p50", "p90", "p99", "p999", "largest")
        ],
    ]
)

DISTRIBUTIONS = pa.schema(
    [
        *[("topic", pa.string()), ("what", pa.string()), ("first", pa.int64())],
        *[("end", pa.int64()), ("messages", pa.int64())],
    ]
)

KEYS = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.string()),
        ("messages", pa.int64()),
        ("at_most", pa.int64()),
    ]
)

LAGS = pa.schema(
    [
        *[("group", pa.string()), ("topic", pa.string()), ("queue_id", pa.int32())],
        *[("offset", pa.int64()), ("end", pa.int64())],
        *[("lag", pa.int64()), ("deleted", pa.int64())],
    ]
)

Row = dict[str, object]
_LINES_MAX = 8
_POINTS_MAX = 480
_BARS_MAX = 20


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
    """Group, topic and queue of each offset in ``consumerOffset.json``, as ``topic@group`` there.

    Raises:
        ConfigError: it holds something else than offsets; names file, key and value.
    """
    path = root / "config" / "consumerOffset.json"
    backup = path.with_name(path.name + ".bak")
    document = choose_document(read_file(path), read_file(backup), file=str(path)) or {}
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


def write_stats(found: Stats, folder: Path) -> list[Path]:
    """Write five tables, ``stats.json`` and ``stats.html`` into ``folder``; their paths.

    Raises:
        StorageError: the operating system refused.
    """
    tables = {
        "rates": pa.Table.from_pylist(_rates(found), schema=RATES),
        "topics": pa.Table.from_pylist(topic_rows(found), schema=TOPICS),
        "distributions": pa.Table.from_pylist(_distributions(found), schema=DISTRIBUTIONS),
        "keys": pa.Table.from_pylist(_keys(found), schema=KEYS),
        "lags": pa.Table.from_pylist([lag._asdict() for lag in found.lags], schema=LAGS),
    }
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            paths.append(folder / f"{name}.parquet")
            pq.write_table(table, str(paths[-1]))
    except OSError as error:
        raise StorageError(
            "stats not written", errno=error.errno, directory=str(folder), reason=str(error)
        ) from error
    paths += [folder / "stats.json", folder / "stats.html"]
    replace_file(paths[-2], json.dumps(stats_as_json(found), indent=1).encode())
    replace_file(paths[-1], stats_as_html(found).encode())
    return paths


def topic_rows(found: Stats) -> list[Row]:
    """One row a topic; times are epoch ms, sizes those of bodies as they are stored."""
    rows: list[Row] = []
    for topic, one in sorted(found.topics.items()):
        row: Row = {
            "topic": topic,
            "messages": one.messages,
            "bytes": one.sizes.total,
            "first_stored": one.first_stored,
            "last_stored": one.last_stored,
            "early": one.early,
        }
        for what, histogram in (("size", one.sizes), ("latency_ms", one.latencies)):
            row[f"{what}_least"], row[f"{what}_largest"] = histogram.least, histogram.largest
            for share, value in zip(SHARES, histogram.quantiles(SHARES), strict=True):
                row[f"{what}_p{f'{share:g}'[2:].ljust(2, '0')}"] = value
        rows.append(row)
    return rows


def stats_as_json(found: Stats) -> dict[str, object]:
    """What was found without the rates: topics, lags and the most frequent keys."""
    return {
        "source": found.source,
        "messages": found.messages,
        "bucket_ms": found.bucket_ms,
        "tasks": found.tasks,
        "topics": topic_rows(found),
        "lags": [lag._asdict() for lag in found.lags],
        "keys": _keys(found),
    }


def stats_as_html(found: Stats) -> str:
    """One page without anything from elsewhere."""
    largest = sorted(found.topics, key=lambda topic: -found.topics[topic].messages)[:_LINES_MAX]
    names = {topic: found.topics[topic] for topic in largest}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    heads = (
        *("topic", "messages", "bytes", "first", "last"),
        *("size p50", "p99", "max", "ms p50", "p99", "p99.9", "max"),
    )
    shown = (
        *("size_p50", "size_p99", "size_largest"),
        *("latency_ms_p50", "latency_ms_p99", "latency_ms_p999", "latency_ms_largest"),
    )
    topics: list[tuple[str | int, ...]] = [
        (
            *(str(row["topic"]), _number(row["messages"]), _number(row["bytes"])),
            *(_time_text(_number(row["first_stored"])), _time_text(_number(row["last_stored"]))),
            *(_number(row[name]) for name in shown),
        )
        for row in topic_rows(found)
    ]
    body = (
        f"<h1>Messages of {escape(found.source)}</h1><p>{now}; {found.messages:,} messages in"
        f" {len(found.topics):,} topics.</p>{html_table(heads, topics, unbroken=('first', 'last'))}"
        f"<h2>Messages a second, by topic</h2>{legend(largest)}{_rate_plot(found, names)}"
        f"<h2>Messages by tag</h2>{bar_plot(_tag_bars(found), label='messages by topic and tag')}"
        f"<h2>From born to stored</h2><p>Share of the messages that took at most so many"
        f" milliseconds.</p>{legend(largest)}{_latency_plot(names)}"
        f"<h2>Sizes of bodies</h2><p>Share of the messages of at most so many bytes, as they are"
        f" stored.</p>{legend(largest)}{_size_plot(names)}"
        f"<h2>Lag of groups</h2>{bar_plot(_lag_bars(found.lags), label='lag by group and topic')}"
        f"{html_table(('group', 'topic', 'lag', 'deleted unread'), _lag_rows(found.lags))}"
        f"<h2>Most frequent keys</h2>{_key_table(found)}"
    )
    return html_page("Messages and their rates", body)


def _rate_plot(found: Stats, topics: dict[str, TopicCounts]) -> str:
    """Lines from the first bucket to the last one; buckets are put together, so that all fit."""
    numbers = [bucket for one in topics.values() for _, bucket in one.rates]
    if not numbers:
        return ""
    first, last = min(numbers), max(numbers)
    width = -(-(last - first + 1) // _POINTS_MAX)
    seconds = width * found.bucket_ms / 1_000
    lines = []
    for topic, one in topics.items():
        sums: Counter[int] = Counter()
        for (_, bucket), (messages, _) in one.rates.items():
            sums[(bucket - first) // width] += messages
        points = [
            ((first + place * width) * found.bucket_ms, sums[place] / seconds)
            for place in range((last - first) // width + 1)
        ]
        lines.append(Line(topic, points))
    return line_plot(lines, label="messages a second", x_text=lambda ms: _time_text(int(ms)))


def _latency_plot(topics: dict[str, TopicCounts]) -> str:
    lines = [Line(topic, _shares(one.latencies.steps())) for topic, one in topics.items()]
    return _share_plot(lines, "latencies", lambda ms: f"{ms:,.0f} ms")


def _size_plot(topics: dict[str, TopicCounts]) -> str:
    lines = [Line(topic, _shares(one.sizes.steps())) for topic, one in topics.items()]
    return _share_plot(lines, "sizes", lambda size: f"{size:,.0f}")


def _share_plot(lines: list[Line], label: str, x_text: Callable[[float], str]) -> str:
    return line_plot(
        lines, label=label, x_text=x_text, y_text=lambda share: f"{share:.0%}", is_log_x=True
    )


def _shares(steps: list[tuple[int, int, int]]) -> list[tuple[float, float]]:
    total = sum(count for _, _, count in steps)
    points: list[tuple[float, float]] = []
    reached = 0
    for first, end, count in steps:
        points.append((first, reached / total))
        reached += count
        points.append((end - 1, reached / total))
    return points


def _tag_bars(found: Stats) -> list[tuple[str, int]]:
    totals: Counter[str] = Counter()
    for topic, one in found.topics.items():
        for (tag, _), (messages, _) in one.rates.items():
            totals[f"{topic} {tag or '(no tag)'}"] += messages
    return totals.most_common(_BARS_MAX)


def _lag_sums(lags: tuple[GroupLag, ...]) -> dict[tuple[str, str], tuple[int, int]]:
    sums: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in lags:
        lag, deleted = sums[row.group, row.topic]
        sums[row.group, row.topic] = lag + row.lag, deleted + row.deleted
    return sums


def _lag_bars(lags: tuple[GroupLag, ...]) -> list[tuple[str, int]]:
    totals = Counter(
        {f"{group} {topic}": sums[0] for (group, topic), sums in _lag_sums(lags).items()}
    )
    return [(name, lag) for name, lag in totals.most_common(_BARS_MAX) if lag]


def _lag_rows(lags: tuple[GroupLag, ...]) -> list[tuple[str, str, int, int]]:
    return [(*owner, *sums) for owner, sums in sorted(_lag_sums(lags).items())]


def _key_table(found: Stats) -> str:
    rows = sorted(_keys(found), key=lambda row: -_number(row["messages"]))[:_BARS_MAX]
    heads = ("topic", "key", "messages", "at most")
    return html_table(
        heads,
        [
            (str(row["topic"]), str(row["key"]), _number(row["messages"]), _number(row["at_most"]))
            for row in rows
        ],
    )


def _rates(found: Stats) -> list[Row]:
    rows: list[Row] = []
    for topic, one in sorted(found.topics.items()):
        ordered = sorted(one.rates.items(), key=lambda item: (item[0][1], item[0][0] or ""))
        for (tag, bucket), (messages, size) in ordered:
            begin = bucket * found.bucket_ms
            row: Row = {"topic": topic, "tag": tag, "begin": begin}
            rows.append({**row, "messages": messages, "bytes": size})
    return rows


def _distributions(found: Stats) -> list[Row]:
    return [
        {"topic": topic, "what": what, "first": first, "end": end, "messages": count}
        for topic, one in sorted(found.topics.items())
        for what, histogram in (("size", one.sizes), ("latency_ms", one.latencies))
        for first, end, count in histogram.steps()
    ]


def _keys(found: Stats) -> list[Row]:
    return [
        {"topic": topic, "key": key, "messages": count, "at_most": count + one.keys_lost}
        for topic, one in sorted(found.topics.items())
        for key, count in one.keys.most_common()
    ]


def _number(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _time_text(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        # No year that a calendar has: the clock of that machine was elsewhere.
        return f"{ms} ms"
