"""The progress line, at a real terminal and in a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.cli.progress_line import CountedWork

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import select, sys
from ledgermq.cli.progress_line import ProgressLine
with ProgressLine("MiB read") as line:
    line.note("it starts")
    count = 0
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        count += 7
        line.show(count, 1_000_000)
"""
BEGAN = CountedWork(100.0, 50, 1_050)


@pytest.mark.parametrize(
    ("later", "text"),
    [
        (CountedWork(100.5, 60, 1_050), "60 of 1,050 files"),
        (CountedWork(110.0, 50, 1_050), "50 of 1,050 files"),
        (CountedWork(110.0, 250, 1_050), "250 of 1,050 files, 20/s, 0:40 left"),
        (CountedWork(200.0, 60, 1_050), "60 of 1,050 files, 0.1/s, 2:45:00 left"),
        (CountedWork(110.0, 1_050, 1_050), "1,050 of 1,050 files, 100/s"),
        (CountedWork(101.0, 25_050, None), "25,050 files, 25,000/s"),
    ],
)
def test_rate_and_remaining_time_are_those_since_the_first_count(
    later: CountedWork, text: str
) -> None:
    assert BEGAN.told(later, "files") == text


@pytest.mark.parametrize("later", [CountedWork(101.0, 49, 1_050), CountedWork(101.0, 60, 2_000)])
def test_a_step_that_begins_anew_has_a_rate_of_its_own(later: CountedWork) -> None:
    assert not BEGAN.goes_on(later)


@pytest.mark.slow
def test_a_terminal_sees_the_line_until_the_end_and_a_pipe_nothing() -> None:
    ours, terminal = os.openpty()
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=terminal, cwd=ROOT) as program:
        os.close(terminal)
        seen = b""
        while b" left" not in seen:
            seen += os.read(ours, 4_096)
        program.communicate()
        last = os.read(ours, 4_096)
    os.close(ours)
    piped = subprocess.run(command, input=b"", capture_output=True, check=True, cwd=ROOT)

    assert seen.startswith(b"\rit starts")
    assert re.search(rb"\r\d+ of 1,000,000 MiB read, \d+/s, \d+:\d\d:\d\d left", seen)
    assert last.endswith(b" \r")
    assert piped.stderr == b""
