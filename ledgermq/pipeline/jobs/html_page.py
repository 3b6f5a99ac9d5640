"""Self-contained HTML page: nothing in it comes from elsewhere."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape

_STYLE = """\
body{font:15px/1.45 system-ui,sans-serif;max-width:1120px;margin:2em auto;color:#222}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .6em;
border-bottom:1px solid #ddd;vertical-align:top}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums}td.u{white-space:nowrap}
svg{display:block;margin:.3em 0 1em}i{display:inline-block;
width:.9em;height:.9em;margin:0 .3em 0 1em}text{font-size:12px;fill:#555}
"""


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
