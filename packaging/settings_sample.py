#!/usr/bin/env python3
"""Prints the settings file that the package installs: every setting, explained, at its default.

    settings_sample.py > ledgermq.toml

All lines are comments, so that a later version's defaults count where nothing was changed. What the
settings mean is read from docs/operating/settings.md, which a test compares with the code.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[1] / "docs" / "operating" / "settings.md"

_HEAD = """\
# Settings of this node. Every line here is a comment that shows a default: take the # away from
# what is to be different, and from the [table] that it stands in.
#
#   ledgermq config check FILE     says what is wrong, all at once
#   systemctl reload ledgermq      takes what is marked with (reload) while the node runs
#
# Explained at length: ledgermq.toml(5) and /usr/share/doc/ledgermq/operating/settings.md
"""


class Row(NamedTuple):
    """One setting as the document tells it; ``default`` is TOML, or ``not set``."""

    key: str
    default: str
    allowed: str
    is_reloaded: bool
    meaning: str


def told_settings(document: Path = DOCUMENT) -> dict[str, list[Row]]:
    """The rows of the document by table, in its order."""
    tables: dict[str, list[Row]] = {}
    text = document.read_text(encoding="utf-8")
    for table, section in re.findall(r"^## \[(\w+)\]\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        rows = tables.setdefault(table, [])
        for key, line in re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M):
            cells = [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", line)]
            default, allowed, reload, meaning = cells
            rows.append(Row(key, default.strip("`"), allowed, reload == "yes", _plain(meaning)))
    return tables


def sample(tables: dict[str, list[Row]]) -> Iterator[str]:
    """Lines of the file."""
    yield _HEAD
    for table, rows in tables.items():
        yield f"#[{table}]"
        for row in rows:
            reload = " (reload)" if row.is_reloaded else ""
            said = f"{row.meaning} Must be {row.allowed}.{reload}"
            yield from textwrap.wrap(said, 98, initial_indent="## ", subsequent_indent="## ")
            if row.default == "not set":
                yield f"## {row.key} is not set"
            else:
                yield f"#{row.key} = {row.default}"
        yield ""


def _plain(text: str) -> str:
    """Without Markdown's marks and links."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


if __name__ == "__main__":
    print("\n".join(sample(told_settings())).rstrip())
