"""Reports of the raft process: a JSON list each in the runtime directory, replaced when it changes.

``damage`` lists what is damaged now, ``levels`` the feature level that each member knows; neither
is there before the first look.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from ledgermq.model.features import MemberLevel

logger = logging.getLogger(__name__)


def write_rows(path: Path, rows: Sequence[object]) -> None:
    """Replace the report in one step. People alone read it: where it cannot be written, as in a
    runtime directory that is full, the log says so, and the node goes on.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_text(json.dumps(rows))
        fresh.rename(path)
    except OSError as error:
        logger.warning("not reported: file=%s: %s", path, error)


def read_rows(path: Path) -> list[Any]:
    """What was reported last; nothing where nobody has reported yet."""
    try:
        rows: list[Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    return rows


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


def write_levels(path: Path, members: Sequence[MemberLevel]) -> None:
    """Replace the report."""
    write_rows(path, members)


def read_levels(path: Path) -> list[MemberLevel]:
    """All members by name; none where no raft process has written the report yet."""
    return read_rows(path)
