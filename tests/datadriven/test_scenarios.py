"""Each scenario file is a test: what the group says is what is written down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.datadriven.script import replay

FOLDER = Path(__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", FILES)
def test_the_group_says_what_is_written_down(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    written, said = replay(path)
    if os.environ.get("LEDGERMQ_REWRITE"):
        path.write_text(said)
        return

    assert said == written
