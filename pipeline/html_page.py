"""One self-contained page of HTML: nothing in it comes from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """\
body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:2em auto;color:#222}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .6em;
border-bottom:1px solid #ddd;vertical-align:top}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums}svg{display:block;margin:.3em 0 1em}i{display:inline-block;
width:.9em;height:.9em;margin:0 .3em 0 1em}text{font-size:12px;fill:#555}
"""


def html_page(title: str, body: str) -> str:
    """The page; ``body`` is HTML already."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style>{body}</html>\n"
    )


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str | int | None]]) -> str:
    """A table; numbers stand to the right, with commas. Without rows it says so."""
    lines = ["<tr>" + "".join(_cell(value) for value in row) for row in rows]
    if not lines:
        return "<p>None.</p>"
    return f"<table><tr>{''.join(f'<th>{escape(head)}' for head in heads)}{''.join(lines)}</table>"


def _cell(value: str | int | None) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}'
    return f"<td>{escape(value or '')}"
