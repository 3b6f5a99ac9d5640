"""Self-contained HTML page, with tables and plots as inline SVG: nothing comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from html import escape
from math import log10
from typing import NamedTuple

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
