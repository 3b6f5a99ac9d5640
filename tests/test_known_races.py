"""docs/known-races.md says what is known of each test that needed a second try."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.suite.parsed import parsed
from tests.suite.second_tries import (
    PAGE,
    ROOT,
    demand,
    described,
    note,
    noted,
    rows,
    unanswered,
)

EXAMPLE = """
| test | seen | what is known of its cause |
|---|---|---|
| `tests/unit/test_a.py::test_one` | 2026-11-23, two spinners | reads an old READY |
"""


def test_each_test_that_needed_a_second_try_stands_on_the_page() -> None:
    missing = unanswered(PAGE.read_text())

    assert not missing, described(missing)


def test_each_row_names_a_test_that_there_is_and_says_what_is_known() -> None:
    for row in rows(PAGE.read_text()):
        file, _, name = row.test.partition("::")
        tree = parsed((ROOT / file).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in names, row.test
        assert row.seen and row.cause, row.test


def test_a_note_is_demanded_until_it_is_on_the_page(tmp_path: Path) -> None:
    notes = tmp_path / "build" / "second-tries.json"
    note(["tests/unit/test_a.py::test_one[2]"], commit="abc", notes=notes)
    note(["tests/unit/test_a.py::test_two"], commit="abd", notes=notes)

    assert [one["test"] for one in unanswered("", notes)] == [
        "tests/unit/test_a.py::test_one[2]",
        "tests/unit/test_a.py::test_two",
    ]
    missing = demand(EXAMPLE, notes)
    assert [one["test"] for one in missing] == ["tests/unit/test_a.py::test_two"]
    assert "not in docs/known-races.md: tests/unit/test_a.py::test_two (commit abd" in described(
        missing
    )
    # What has been answered is no longer asked for, also when the page is empty again.
    assert [one["test"] for one in unanswered("", notes)] == ["tests/unit/test_a.py::test_two"]


def test_nothing_is_left_when_all_is_answered(tmp_path: Path) -> None:
    notes = tmp_path / "second-tries.json"
    note(["tests/unit/test_a.py::test_one"], commit="abc", notes=notes)

    assert demand(EXAMPLE, notes) == []
    assert not notes.exists()
    assert noted(notes) == []
