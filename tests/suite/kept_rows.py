"""Rows by name in a JSON file, which is replaced whole: whoever is killed leaves the old one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def kept_rows(path: Path) -> dict[str, dict[str, Any]]:
    """What is in the file; nothing where there is none."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def keep_rows(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Have these rows and no other ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(rows, indent=1) + "\n")
    fresh.replace(path)
