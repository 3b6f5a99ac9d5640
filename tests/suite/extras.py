"""What the extras ask for, as pyproject.toml and the files that it names say."""

from __future__ import annotations

import runpy
from pathlib import Path

import tomli

ROOT = Path(__file__).parents[2]


def extras() -> dict[str, list[str]]:
    """The requirements of each extra, as they are written."""
    needs = runpy.run_path(str(ROOT / "setup.py"))["needs"]
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    files = project["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    return {
        extra: [line for name in said["file"] for line in needs(str(ROOT / name))]
        for extra, said in files.items()
    }
