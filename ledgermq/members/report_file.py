"""Report files of the raft process: a JSON list each in the runtime directory, read by others."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
