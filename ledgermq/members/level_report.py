"""Level report: a file of the raft process with the feature level that each member knows.

``RUNTIME/levels`` is a JSON list, replaced when it changes; not there before the first look.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledgermq.members.report_file import read_rows, write_rows
from ledgermq.model.features import MemberLevel


def write_levels(path: Path, members: Sequence[MemberLevel]) -> None:
    """Replace the report."""
    write_rows(path, members)


def read_levels(path: Path) -> list[MemberLevel]:
    """All members by name; none where no raft process has written the report yet."""
    return read_rows(path)
