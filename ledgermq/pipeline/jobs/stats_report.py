"""Stats report: tables as Parquet, everything small as JSON, and a page with plots."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ledgermq.model.errors import StorageError
from ledgermq.pipeline.jobs.html_page import html_page, html_table
from ledgermq.pipeline.jobs.stats_counts import TopicCounts
from ledgermq.pipeline.jobs.stats_job import GroupLag, Stats
from ledgermq.pipeline.jobs.svg_plots import Line, bar_plot, legend, line_plot
from ledgermq.store.files.small_file import replace_file

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
