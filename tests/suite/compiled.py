"""Test files are compiled once, and not by each worker again.

pytest rewrites the assertions of a test file, which takes as long as a hundred imports, and keeps
the outcome beside the file. Workers that begin in a fresh clone would all do that at the same time,
each for all files: two and a half minutes of processor time. So they are collected before, each
file once, by as many processes as there are cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STALE_MIN = 40
"""With fewer files the workers are done as soon."""


def stale(root: Path) -> list[Path]:
    """Test files below ``root`` of which no rewritten form is kept that is as new."""
    if sys.dont_write_bytecode:
        return []
    kept = {}
    for path in root.rglob(f"__pycache__/*.{sys.implementation.cache_tag}-pytest-*.pyc"):
        source = path.parents[1] / f"{path.name.partition('.')[0]}.py"
        kept[source] = max(kept.get(source, 0.0), path.stat().st_mtime)
    files = sorted(root.rglob("test_*.py"))
    return [path for path in files if kept.get(path, 0.0) < path.stat().st_mtime]


def compile_all(files: Sequence[Path], folder: Path) -> None:
    """Collect them; whatever is wrong with one, the workers say."""
    if len(files) < STALE_MIN:
        return
    parts = len(os.sched_getaffinity(0))
    running = [
        subprocess.Popen(
            [
                sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider",
                *map(str, files[part::parts]),
            ],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for part in range(parts)
    ]  # fmt: skip
    for one in running:
        one.wait()
