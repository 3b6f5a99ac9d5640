"""The three looks of a log line."""

from __future__ import annotations

import logging
import re

import pytest

from ledgermq.model.events import Event
from ledgermq.process.log_lines import DatedFormatter, LeveledFormatter, LineFormatter


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("test").makeRecord(
        "test", logging.WARNING, "part.py", 1, "disk full: free=%d", (3,), None, "work", extra
    )


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [
        (LineFormatter("writer"), r"writer: disk full: free=3 file='a b' empty=''"),
        (
            DatedFormatter("writer"),
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING "
            r"writer: disk full: free=3 file='a b' empty=''",
        ),
        (LeveledFormatter("writer"), r"<4>writer: disk full: free=3 file='a b' empty=''"),
    ],
)
def test_a_line_is_a_phrase_and_its_values(formatter: logging.Formatter, expected: str) -> None:
    line = formatter.format(record(file="a b", empty="", event=Event.DISK_FULL))

    assert re.fullmatch(expected, line)


def test_each_line_of_a_traceback_has_its_level() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        failed = record()
        failed.exc_info = (type(error), error, error.__traceback__)
    lines = LeveledFormatter("writer").format(failed).split("\n")

    assert len(lines) > 3
    assert all(line.startswith("<4>") for line in lines)


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[2Kb", "a\x00b", "a\u2028b", "a\u202eb"])
def test_no_value_begins_a_line_or_hides_one(text: str) -> None:
    """A client's name stands in lines of ours: it must not look like one."""
    told = logging.getLogger("test").makeRecord(
        "test", logging.INFO, "part.py", 1, "member gone: client=%s", (text,), None, "work", {}
    )
    told.field = text
    line = LineFormatter("broker").format(told)

    assert line.startswith("broker: member gone: client=a\\")
    assert line.isprintable()


def test_lines_of_a_traceback_are_none_of_ours() -> None:
    forged = "2026-01-31T12:00:00.123Z INFO broker: admin act outcome=done"
    try:
        raise ValueError(f"first\n{forged}")
    except ValueError as error:
        failed = record()
        failed.exc_info = (type(error), error, error.__traceback__)
    lines = DatedFormatter("broker").format(failed).split("\n")

    assert any(forged in line for line in lines)
    assert all(line.startswith("    ") for line in lines[1:])
