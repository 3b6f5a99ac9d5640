"""Tables of docs/python say what the code does; Python on pages for operators is some, and imports
what is there."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ledgermq import client
from ledgermq.client import (
    ConsumerOptions,
    GroupOptions,
    LedgerError,
    ProducerOptions,
    ShareOptions,
)

FOLDER = Path(__file__).parents[1] / "docs" / "python"


OPERATING = FOLDER.parent / "operating"


def blocks_by_page() -> dict[Path, list[str]]:
    """Python on pages for operators, whose names are those of the text around it."""
    found = {
        page: re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
        for page in sorted(OPERATING.glob("*.md"))
    }
    return {page: blocks for page, blocks in found.items() if blocks}


def rows(page: str, *, below: str = "") -> list[list[str]]:
    """The rows of a page's tables whose first cell is a name."""
    text = (FOLDER / page).read_text().partition(below)[2] if below else (FOLDER / page).read_text()
    text = text.partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if re.match(r"\| `\w+` \|", line)
    ]


def test_every_error_is_told_with_what_it_is_and_whether_to_repeat() -> None:
    told = {
        name.strip(" `"): (base.strip("`"), again) for name, base, again, _ in rows("errors.md")
    }
    errors = {
        name: kind
        for name in client.__all__
        if isinstance(kind := getattr(client, name), type) and issubclass(kind, LedgerError)
    }

    assert told == {
        name: (kind.__base__.__name__, "yes" if kind.retriable else "no")
        for name, kind in errors.items()
        if kind.__base__ is not None
    }


@pytest.mark.parametrize("options", [ProducerOptions, ConsumerOptions, GroupOptions, ShareOptions])
def test_every_option_is_told_with_its_default(options: type[Any]) -> None:
    told = {
        row[0].strip(" `"): row[1].strip("`")
        for row in rows("options.md", below=f"## {options.__name__}\n")
    }

    assert told == {
        one.name: f'"{one.default}"' if isinstance(one.default, str | Path) else repr(one.default)
        for one in fields(options)
    }


@pytest.mark.parametrize("page", [page.name for page in blocks_by_page()])
def test_python_on_an_operators_page_imports_what_is_there(page: str) -> None:
    imported = [
        (one.module, name.name)
        for block in blocks_by_page()[OPERATING / page]
        # What is left out has three points of typography.
        for one in ast.walk(ast.parse(block.replace("…", "...")))
        if isinstance(one, ast.ImportFrom) and one.module and one.module.startswith("ledgermq")
        for name in one.names
    ]
    if any(module.startswith("ledgermq.pipeline") for module, _ in imported):
        pytest.importorskip("pyspark", reason="no Spark: packaging/bootstrap.sh, where Java is")

    assert [one for one in imported if not hasattr(import_module(one[0]), one[1])] == []
