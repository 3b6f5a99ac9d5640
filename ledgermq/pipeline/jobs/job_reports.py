"""Reports of jobs: tables as Parquet, everything small as JSON, and a page with pictures.

A page is self-contained: nothing in it comes from elsewhere.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from math import log10
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ledgermq.model.errors import StorageError
from ledgermq.pipeline.jobs.audit_job import Audit, AuditedReplica, Fault
from ledgermq.pipeline.jobs.log_digests import StretchState
from ledgermq.pipeline.jobs.receipt_faults import AuditedReceipts
from ledgermq.pipeline.jobs.stats_counts import TopicCounts
from ledgermq.pipeline.jobs.stats_job import GroupLag, Stats
from ledgermq.store.files.small_file import replace_file

_STYLE = """\
body{font:15px/1.45 system-ui,sans-serif;max-width:1120px;margin:2em auto;color:#222}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .6em;
border-bottom:1px solid #ddd;vertical-align:top}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums}td.u{white-space:nowrap}
svg{display:block;margin:.3em 0 1em}i{display:inline-block;
width:.9em;height:.9em;margin:0 .3em 0 1em}text{font-size:12px;fill:#555}
"""

WIDTH = 960
HEIGHT = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 10, 10, 24

COLOURS = (
    *("#3366cc", "#dc3912", "#ff9900", "#109618", "#990099"),
    *("#0099c6", "#dd4477", "#66aa00", "#b82e2e", "#316395"),
)

_TICKS = 5

FAULTS = pa.schema(
    [
        ("replica", pa.string()),
        ("kind", pa.string()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("file", pa.string()),
        ("what", pa.string()),
        ("remedy", pa.string()),
        ("findings", pa.int32()),
    ]
)

_BAR_HEIGHT = 28

_STATE_COLOURS = {
    StretchState.GOOD: "#3a9d5d",
    StretchState.DELETED: "#d9d9d9",
    StretchState.MISSING: "#e0a030",
    StretchState.DIVERGENT: "#c8322b",
}

SHARES = (0.5, 0.9, 0.99, 0.999)
"""The quantiles that are told."""

_TIME = pa.timestamp("ms", tz="UTC")

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


def html_page(title: str, body: str) -> str:
    """The page; ``body`` is HTML already."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style>{body}</html>\n"
    )


def html_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | int | None]],
    *,
    unbroken: Container[str] = (),
) -> str:
    """A table; numbers stand to the right, with commas. Without rows it says so.

    Args:
        unbroken: heads of columns whose texts stay on one line.
    """
    written = list(rows)
    if not written:
        return "<p>None.</p>"
    # Columns are of one type, but for what is not known.
    is_number = [any(isinstance(row[at], int) for row in written) for at in range(len(heads))]
    top = "".join(
        f'<th class="n">{escape(head)}' if number else f"<th>{escape(head)}"
        for head, number in zip(heads, is_number, strict=True)
    )
    lines = (
        "<tr>"
        + "".join(_cell(value, head in unbroken) for head, value in zip(heads, row, strict=True))
        for row in written
    )
    return f"<table><tr>{top}{''.join(lines)}</table>"


def _cell(value: str | int | None, is_unbroken: bool) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}'
    kind = ' class="u"' if is_unbroken else ""
    return f"<td{kind}>{escape(value or '')}"


class Line(NamedTuple):
    """Points by ascending x."""

    name: str
    points: Sequence[tuple[float, float]]


def legend(names: Sequence[str]) -> str:
    """Which colour is whose."""
    marks = (
        f'<i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}'
        for number, name in enumerate(names)
    )
    return f"<p>{''.join(marks)}</p>"


def line_plot(
    lines: Sequence[Line],
    *,
    label: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str] = lambda value: f"{value:,.4g}",
    is_log_x: bool = False,
) -> str:
    """All lines over one another, y from 0; a line of one point is a dot. Empty without points.

    Args:
        label: what it shows, for who cannot see it.
        x_text, y_text: how values are written at the axes.
        is_log_x: the axis has powers of ten; values below 1 stand at 1.
    """
    points = [point for line in lines for point in line.points]
    if not points:
        return ""

    def scaled(x: float) -> float:
        return log10(max(x, 1.0)) if is_log_x else x

    low, high = min(scaled(x) for x, _ in points), max(scaled(x) for x, _ in points)
    top = max((y for _, y in points), default=0.0) or 1.0
    wide, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    span = max(high - low, 1e-9)

    def place(x: float, y: float) -> tuple[float, float]:
        share = (scaled(x) - low) / span if high > low else 0.5
        return _LEFT + share * wide, _TOP + tall - y / top * tall

    drawn = "".join(
        _line([place(x, y) for x, y in line.points], COLOURS[number % len(COLOURS)], line.name)
        for number, line in enumerate(lines)
        if line.points
    )
    marks = []
    for number in range(_TICKS):
        share = number / (_TICKS - 1)
        y = _TOP + tall * (1 - share)
        marks.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{y_text(top * share)}</text>'
        )
    # One x has one name.
    for share in [number / (_TICKS - 1) for number in range(_TICKS)] if high > low else [0.5]:
        value = low + (high - low) * share
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        marks.append(
            f'<text x="{_LEFT + wide * share:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
            f"{escape(x_text(10**value if is_log_x else value))}</text>"
        )
    return _svg("".join(marks) + drawn, HEIGHT, label)


def _line(places: Sequence[tuple[float, float]], colour: str, name: str) -> str:
    """What shows a line: a polyline of one point would be nothing."""
    title = f"<title>{escape(name)}</title>"
    if len(places) == 1:
        x, y = places[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">{title}</circle>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}">'
        f"{title}</polyline>"
    )


def bar_plot(bars: Sequence[tuple[str, int]], *, label: str) -> str:
    """Horizontal bars with their names and values; empty text without bars."""
    if not bars:
        return ""
    most = max(value for _, value in bars) or 1
    names_width, row = 280, 20
    wide = WIDTH - names_width - 100
    drawn = "".join(
        f'<text x="{names_width - 6}" y="{number * row + 14}" text-anchor="end">{escape(name)}'
        f'</text><rect x="{names_width}" y="{number * row + 3}" height="{row - 6}"'
        f' width="{max(value / most * wide, 1):.1f}" fill="{COLOURS[0]}"/>'
        f'<text x="{names_width + max(value / most * wide, 1) + 6:.1f}" y="{number * row + 14}">'
        f"{value:,}</text>"
        for number, (name, value) in enumerate(bars)
    )
    return _svg(drawn, row * len(bars), label)


def _svg(content: str, height: int, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"'
        f' aria-label="{escape(label)}">{content}</svg>'
    )


def write_report(audit: Audit, folder: Path) -> list[Path]:
    """Write ``faults.parquet``, ``audit.json`` and ``audit.html`` into ``folder``; their paths.

    Raises:
        StorageError: the operating system refused.
    """
    paths = [folder / name for name in ("faults.parquet", "audit.json", "audit.html")]
    rows = [fault._asdict() for fault in audit.faults]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=FAULTS), str(paths[0]))
    except OSError as error:
        raise StorageError(
            "report not written", errno=error.errno, file=str(paths[0]), reason=str(error)
        ) from error
    replace_file(paths[1], json.dumps(audit_as_json(audit), indent=1, default=str).encode())
    replace_file(paths[2], audit_as_html(audit).encode())
    return paths


def audit_as_json(audit: Audit) -> dict[str, object]:
    """Everything that was found; ranges of the log are ``[first, end, state]``."""
    receipts = {} if audit.receipts is None else {"receipts": _receipts_as_json(audit.receipts)}
    return {
        "first": audit.first,
        "end": audit.end,
        "stretch": audit.grid,
        "replicas": [
            {
                "name": replica.name,
                "directory": str(replica.root),
                "ranges": [[first, end, str(state)] for first, end, state in replica.ranges],
                **_audit_counts(replica),
            }
            for replica in audit.replicas
        ],
        "faults": [fault._asdict() for fault in audit.faults],
        **receipts,
    }


def _receipts_as_json(found: AuditedReceipts) -> dict[str, object]:
    return {
        **found._asdict(),
        "copies": [copy._asdict() for copy in found.copies],
        "faults": [fault._asdict() for fault in found.faults],
    }


def audit_as_html(audit: Audit) -> str:
    """One page without anything from elsewhere."""
    verdict = (
        "All replicas are the same, and whole."
        if not audit.faults
        else f"{len(audit.faults)} {'fault' if len(audit.faults) == 1 else 'faults'}."
    )
    keys = "".join(
        f'<i style="background:{colour}"></i>{state.value}'
        for state, colour in _STATE_COLOURS.items()
    )
    pictures = "".join(_picture(audit, replica) for replica in audit.replicas)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    compared = (
        f"<p>Positions {audit.first:,} to {audit.end:,}, in stretches of {audit.grid:,} bytes."
        f" <b>{verdict}</b></p><p>{keys}</p>{pictures}"
        f"<h2>Faults</h2>{_fault_table(audit.faults)}"
    )
    return html_page(
        "Audit of a group",
        f"<h1>Audit of {len(audit.replicas)} replicas</h1><p>{now}</p>"
        f"{compared if audit.replicas else ''}"
        f"{'' if audit.receipts is None else _receipts_as_html(audit.receipts)}",
    )


def _receipts_as_html(found: AuditedReceipts) -> str:
    untold = f"<p>{found.untold:,} more.</p>" if found.untold else ""
    heads = ("copy", "kind", "topic", "queue", "from", "to", "what")
    return (
        f"<h2>What was signed</h2><p>{found.checkpoints:,} checkpoints with {found.stretches:,}"
        f" stretches, up to {_time_text(found.at_ms)}.</p>"
        f"{html_table(('copy', 'messages', 'stretches it lacks'), found.copies)}"
        f"<h3>Not what was signed</h3>{html_table(heads, found.faults)}{untold}"
    )


def _picture(audit: Audit, replica: AuditedReplica) -> str:
    """The replica's log from left to right; what is wrong is at least two points wide."""
    span = max(1, audit.end - audit.first)
    bars: list[str] = []
    # Faults last: they must not be covered by what is good.
    for first, end, state in sorted(
        replica.ranges, key=lambda one: one.state is not StretchState.GOOD
    ):
        x = (first - audit.first) * WIDTH / span
        width = max((end - first) * WIDTH / span, 0.2 if state is StretchState.GOOD else 2)
        bars.append(
            f'<rect x="{min(x, WIDTH - width):.2f}" width="{width:.2f}" height="{_BAR_HEIGHT}"'
            f' fill="{_STATE_COLOURS[state]}">'
            f"<title>{state.value}: {first:,} to {end:,}</title></rect>"
        )
    checked = replica.checked
    derived = sum(fault.replica == replica.name and bool(fault.file) for fault in audit.faults)
    marks = f"; {derived} faults beside the log's ranges" if derived else ""
    return (
        f"<h3>{escape(replica.name)}</h3><div>{checked.records:,} records,"
        f" {checked.units:,} units in {checked.queues:,} queues, {checked.keys:,} keys{marks}</div>"
        f'<svg viewBox="0 0 {WIDTH} {_BAR_HEIGHT}" width="{WIDTH}" height="{_BAR_HEIGHT}"'
        f' role="img" aria-label="log of {escape(replica.name)}">{"".join(bars)}</svg>'
    )


def _fault_table(faults: Iterable[Fault]) -> str:
    heads = ("replica", "kind", "from", "to", "file", "what", "what to do")
    columns = ("replica", "kind", "first", "end", "file", "what", "remedy")
    return html_table(heads, ([getattr(fault, name) for name in columns] for fault in faults))


def _audit_counts(replica: AuditedReplica) -> dict[str, object]:
    checked = replica.checked
    return {name: getattr(checked, name) for name in checked.__slots__ if name != "findings"}


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
