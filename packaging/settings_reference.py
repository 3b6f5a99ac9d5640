#!/usr/bin/env python3
"""Writes what the code says of each setting into docs/operating/settings.md.

    .venv/bin/python packaging/settings_reference.py            # names settings without a meaning
    .venv/bin/python packaging/settings_reference.py --check    # writes nothing; 1: not current

Order, defaults, what is allowed and what a reload takes are the code's; the meaning of a setting,
and all text between the tables, is the document's and stays. A new setting gets its row, and its
meaning is then written by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_change import CLUSTER_KEYS, RELOADABLE
from ledgermq.model.config.settings_file import OCTAL_KEYS, keys_of, tables, value_text
from ledgermq.model.config.settings_rules import RULES

DOCUMENT = Path(__file__).parents[1] / "docs" / "operating" / "settings.md"
HEAD = ["| key | default | must be | reload | meaning |", "|---|---|---|---|---|"]
_ROW = re.compile(r"^\| `(\w+)` \|.*(?<!\\) \| (.*) \|$", re.M)
_TABLE = re.compile(r"^\| key \| default .*\n\|[-|]+\n(?:\|.*\n)*", re.M)
_ALIKE = re.compile(r"(compare:\n)`.*?`(\.\n\n)", re.S)


def reference(document: str) -> str:
    """``document`` with tables as the code has them; a setting without a meaning has none there."""
    parts = re.split(r"^(?=## \[)", document, flags=re.M)
    old = {_title(part): part for part in parts[1:]}
    sections = [_section(table, old.get(table)) for table in tables()]
    return _alike(parts[0]) + "\n".join(section.rstrip("\n") + "\n" for section in sections)


def without_meaning(document: str) -> list[str]:
    """Settings that nobody has explained yet."""
    return [
        f"{_title(part)}.{key}"
        for part in re.split(r"^(?=## \[)", document, flags=re.M)[1:]
        for key, meaning in _ROW.findall(part)
        if not meaning.strip()
    ]


def _title(section: str) -> str:
    found = re.match(r"## \[(\w+)\]", section)
    assert found is not None, section[:40]
    return found[1]


def _section(table: str, old: str | None) -> str:
    meanings = dict(_ROW.findall(old or ""))
    rows = [
        _row(f"{table}.{name}", meanings.get(name, ""))
        for name in keys_of(getattr(Settings(), table))
    ]
    drawn = "\n".join([*HEAD, *rows]) + "\n"
    if old is None:
        return f"## [{table}]\n\n{drawn}"
    return _TABLE.sub(lambda _: drawn, old)


def _row(key: str, meaning: str) -> str:
    table, _, name = key.partition(".")
    value = getattr(getattr(Settings(), table), name)
    default = "not set" if value is None else f"`{value_text(value, octal=key in OCTAL_KEYS)}`"
    cells = [f"`{name}`", default, RULES[key].allowed, "yes" if key in RELOADABLE else "no"]
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join([*escaped, meaning])} |"


def _alike(text: str) -> str:
    """The settings that members compare, as the code lists them."""
    line, lines = "", []
    for number, key in enumerate(CLUSTER_KEYS):
        word = f"`{key}`{',' if number + 1 < len(CLUSTER_KEYS) else ''}"
        if line and len(line) + len(word) > 109:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    joined = "\n".join([*lines, line])
    return _ALIKE.sub(lambda found: f"{found[1]}{joined}{found[2]}", text)


def main(words: list[str]) -> int:
    """Write or check; the exit status."""
    before = DOCUMENT.read_text()
    after = reference(before)
    if words == ["--check"]:
        if after != before:
            print(f"{DOCUMENT.name} is not what the code says: run {Path(__file__).name}")
        return int(after != before)
    DOCUMENT.write_text(after)
    missing = without_meaning(after)
    for key in missing:
        print(f"say in {DOCUMENT.name} what {key} means")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
