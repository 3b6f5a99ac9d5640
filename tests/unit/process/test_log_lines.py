"""The four looks of a log line."""

from __future__ import annotations

import json
import logging
import re

import pytest

from ledgermq.model.events import Event
from ledgermq.process.log_lines import (
    FIELDS_MAX,
    TEXT_MAX,
    DatedFormatter,
    JsonFormatter,
    LeveledFormatter,
    LineFormatter,
)


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


def test_a_json_line_is_one_object_with_its_values() -> None:
    line = JsonFormatter("writer", "n0").format(
        record(file="a\nb\u2028c", empty="", event=Event.DISK_FULL)
    )
    told = json.loads(line)

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("time"))
    assert told == {
        "level": "WARNING",
        "process": "writer",
        "node": "n0",
        "message": "disk full: free=3",
        "event": "DISK_FULL",
        "fields": {"file": "a\nb\u2028c", "empty": ""},
    }
    assert line.isascii() and line.isprintable()


def test_a_json_line_has_an_end_whatever_a_client_sends() -> None:
    try:
        raise ValueError("x" * 10 * TEXT_MAX)
    except ValueError as error:
        failed = record(**{f"field{number}": "\x00" * 10 * TEXT_MAX for number in range(100)})
        failed.exc_info = (type(error), error, error.__traceback__)
    line = JsonFormatter("broker", "n0").format(failed)
    told = json.loads(line)

    assert len(told["fields"]) == FIELDS_MAX
    assert told["fields"]["field0"].endswith(f"… {9 * TEXT_MAX} more")
    assert "\n" not in line
    # Six characters for one at most.
    assert len(line) < 6 * (FIELDS_MAX + 3) * (TEXT_MAX + 100)
