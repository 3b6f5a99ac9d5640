"""Every command that docs/operating tells is one that our command line understands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledgermq.cli.main import _parser
from tests.operating_commands import documents, told_in, words_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "operating"


@pytest.mark.parametrize("document", documents())
def test_commands_are_understood(document: str) -> None:
    for told in told_in(document):
        words = words_of(told.text.replace("…", "tcp://127.0.0.1:1"))
        if told.text.startswith("ledgermq "):
            arguments = _parser(words).parse_args(words)

            assert callable(arguments.func), told


def test_commands_that_are_run_are_told_in_most_documents() -> None:
    run = {document for document in documents() if any(one.is_run for one in told_in(document))}

    assert len(run) >= 8


def test_the_results_that_capacity_names_are_there() -> None:
    named = set(re.findall(r"`(\w+\.json)`", (FOLDER / "capacity.md").read_text()))
    there = {path.name for path in (ROOT / "bench" / "results").glob("*.json")}

    assert named
    assert named - there == set()
