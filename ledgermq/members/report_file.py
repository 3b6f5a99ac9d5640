"""Report files of the raft process: a JSON list each in the runtime directory, read by others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Sequence[object]) -> None:
    """Replace the report in one step.

    Raises:
        OSError: it could not be written.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(rows))
    fresh.rename(path)


def read_rows(path: Path) -> list[Any]:
    """What was reported last; nothing where nobody has reported yet."""
    try:
        rows: list[Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    return rows
