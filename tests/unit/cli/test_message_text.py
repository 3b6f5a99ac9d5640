"""What others have chosen does nothing to the terminal of who looks at it."""

from __future__ import annotations

import pytest

from ledgermq.cli.output import print_table
from ledgermq.cli.seen_text import shown

EVIL = "x\n2026 INFO forged\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"


def test_letters_that_a_terminal_obeys_are_dots_in_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["client", "lag"], [[EVIL, "7"], ["größe 数", "12"]])
    said = capsys.readouterr().out

    assert all(letter.isprintable() for letter in said.replace("\n", ""))
    assert [line.split()[-1] for line in said.splitlines()] == ["lag", "7", "12"]
    assert "größe 数" in said


def test_lines_stay_where_they_are_kept() -> None:
    assert shown("a\tb\n\x1b[31m", keeps="\n\t") == "a\tb\n·[31m"
