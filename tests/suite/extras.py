"""What the extras ask for, as pyproject.toml and the files that it names say."""

from __future__ import annotations

from pathlib import Path

import tomli

ROOT = Path(__file__).parents[2]


def extras() -> dict[str, list[str]]:
    """The requirements of each extra, as they are written."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    files = project["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    return {
        extra: [
            line
            for name in said["file"]
            for line in (ROOT / name).read_text().splitlines()
            if line and not line.startswith("#")
        ]
        for extra, said in files.items()
    }
