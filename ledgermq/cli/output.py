"""Output of commands: one JSON document or a text, tables, times."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from ledgermq.cli.seen_text import shown


def tell(
    arguments: argparse.Namespace, document: object, otherwise: str | Callable[[], None]
) -> int:
    """Print ``document`` with ``--json``, else a text, or what ``otherwise`` prints.

    Returns:
        the exit status: 0.
    """
    if arguments.json:
        print(json.dumps(document))
    elif isinstance(otherwise, str):
        print(otherwise)
    else:
        otherwise()
    return 0


def called_as() -> str:
    """This program as it can be typed again, also where its folder is not searched."""
    program = sys.argv[0]
    if program.endswith("ledgermq"):
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -m ledgermq.cli.main"


def time_text(timestamp_ms: int, *, unit: str = "milliseconds") -> str:
    """A time in UTC, exact to ``unit``; the bare number of one that no calendar has."""
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return time.isoformat(timespec=unit)


def when(timestamp_ms: int | None) -> str:
    """A time for a table, ``-`` when there is none."""
    return "-" if timestamp_ms is None else time_text(timestamp_ms)


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns as wide as their widest; numbers to the right."""
    lines = [list(head), *(list(map(shown, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    is_number = [
        all(_is_number(line[column]) for line in lines[1:]) and len(lines) > 1
        for column in range(len(head))
    ]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").isdecimal()
