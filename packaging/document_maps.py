#!/usr/bin/env python3
"""Writes what can be told from the tree into build/map.md and docs/decisions/README.md.

    make map
    .venv/bin/python packaging/document_maps.py --check    # writes nothing; 1: index not current

The map has each package in the order of its layer, and each module, with the first sentence of its
docstring; it is made where it is wanted, and is not kept in the tree. The index of decisions has
number and title from each record; its third column is written by hand and stays: a new record gets
its row, and what it is about is then said there.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "ledgermq"
MAP = ROOT / "build" / "map.md"
DECISIONS = ROOT / "docs" / "decisions"
INDEX = DECISIONS / "README.md"
_MAP_HEAD = """\
# The map

Every package and module with the first sentence of its docstring, from the lowest layer to the
highest: a package imports from those above it in this list, never from those below
([CONTRIBUTING.md](../CONTRIBUTING.md#rules-that-machines-check)). `make map` writes this page; what
is wrong in it is wrong in a docstring.
"""
_INDEX_ROW = re.compile(r"^\| \[(\d{4})\]\([^)]*\) \| .*? \| (.*) \|$", re.M)
_INDEX_TABLE = re.compile(r"^\| number .*\n\|[-|]+\n(?:\|.*\n)*", re.M)
_INDEX_HEAD = ["| number | title | about |", "|---|---|---|"]
_SENTENCE = re.compile(r"(?:.+?[.!?])(?=\s|$)")


def map_text() -> str:
    """The whole of build/map.md as the docstrings have it."""
    layers = [_layer(names) for names in reversed(_layers())]
    return "\n".join([_MAP_HEAD, *layers])


def index_text(before: str) -> str:
    """The index ``before`` with a row for each record, and what it says each is about."""
    about = dict(_INDEX_ROW.findall(before))
    rows = [
        f"| [{path.name[:4]}]({path.name}) | {_title(path)} | {about.get(path.name[:4], '')} |"
        for path in sorted(DECISIONS.glob("[0-9]*.md"))
    ]
    drawn = "\n".join([*_INDEX_HEAD, *rows]) + "\n"
    return _INDEX_TABLE.sub(lambda _: drawn, before)


def without_subject(index: str) -> list[str]:
    """Numbers of the records of which the ``index`` does not say what they are about."""
    return [number for number, about in _INDEX_ROW.findall(index) if not about.strip()]


def first_sentence(path: Path) -> str:
    """The headline of a module or package, in Markdown and on one line."""
    # What the collector of cycles runs may parse, too: CPython before 3.11.5 does one at a time.
    gc.disable()
    try:
        text = ast.get_docstring(ast.parse(path.read_text()))
    finally:
        gc.enable()
    assert text is not None, path
    paragraph = " ".join(text.partition("\n\n")[0].split())
    found = _SENTENCE.match(paragraph)
    sentence = paragraph if found is None else found[0]
    return sentence.replace("``", "`").replace("|", "\\|")


def _layers() -> list[list[str]]:
    """Packages of each layer, the highest first, as the import contract names them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [re.split(r"[ |]+", layer) for layer in layers]


def _layer(names: list[str]) -> str:
    return "\n".join(section for name in names for section in _sections(PRODUCT / name))


def _sections(folder: Path) -> Iterator[str]:
    """A package, and behind it the packages within."""
    path = folder.relative_to(PRODUCT)
    lines = [
        f"{'#' * (len(path.parts) + 1)} {path}/",
        "",
        first_sentence(folder / "__init__.py"),
        "",
    ]
    modules = [module for module in sorted(folder.glob("*.py")) if module.name != "__init__.py"]
    if modules:
        rows = [f"| `{module.stem}` | {first_sentence(module)} |" for module in modules]
        lines += ["| module | holds |", "|---|---|", *rows, ""]
    yield "\n".join(lines)
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists():
            yield from _sections(inner)


def _title(record: Path) -> str:
    found = re.match(r"# \d{4}: (.*)\n", record.read_text())
    assert found is not None, f"the first line of {record.name} is: # {record.name[:4]}: Title"
    return found[1].replace("|", "\\|")


def main(words: list[str]) -> int:
    """Write or check; the exit status."""
    before = INDEX.read_text()
    index = index_text(before)
    if words == ["--check"]:
        if index != before:
            print(f"docs/decisions/{INDEX.name} is not what the records say: make map")
        return int(index != before)
    MAP.parent.mkdir(exist_ok=True)
    MAP.write_text(map_text())
    INDEX.write_text(index)
    missing = without_subject(index)
    for number in missing:
        print(f"say in docs/decisions/{INDEX.name} what {number} is about")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
