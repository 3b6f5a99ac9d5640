"""Damage report: a file of the raft process that lists what is damaged now.

``RUNTIME/damage`` is a JSON list, replaced when it changes; empty or not there without damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from ledgermq.members.report_file import read_rows, write_rows

LISTED_MAX = 100
"""Most damages that are listed; all are counted."""


class DamageStatus(TypedDict):
    """One damage; ``unrepairable`` is the reason why nothing helped so far, empty before that."""

    file: str
    offset: int
    position: int
    first_index: int
    last_index: int
    fault: str
    unrepairable: str


def write_report(path: Path, damages: Sequence[DamageStatus]) -> None:
    """Replace the report."""
    write_rows(path, damages)


def read_report(path: Path) -> list[DamageStatus]:
    """The damages that are known; none when nothing was ever reported."""
    return read_rows(path)
