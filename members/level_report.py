"""Level report: a file of the raft process with the feature level that each member knows.

``RUNTIME/levels`` is a JSON list, replaced when it changes; not there before the first look.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ledgermq.model.features import MemberLevel


def write_levels(path: Path, members: Sequence[MemberLevel]) -> None:
    """Replace the report.

    Raises:
        OSError: it could not be written.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(members))
    fresh.rename(path)


def read_levels(path: Path) -> list[MemberLevel]:
    """All members by name; none where no raft process has written the report yet."""
    try:
        return cast("list[MemberLevel]", json.loads(path.read_text()))
    except FileNotFoundError:
        return []
