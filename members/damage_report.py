"""Damage report: a file of the raft process that lists what is damaged now.

``RUNTIME/damage`` is a JSON list, replaced when it changes; empty or not there without damage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

LISTED_MAX = 100
"""So many damages are listed; all are counted."""


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
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(damages))
    fresh.rename(path)


def read_report(path: Path) -> list[DamageStatus]:
    """The damages that are known; none when nothing was ever reported."""
    try:
        return cast("list[DamageStatus]", json.loads(path.read_text()))
    except FileNotFoundError:
        return []
