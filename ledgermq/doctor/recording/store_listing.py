"""Files of a store with their sizes: one by one in the log, summed up where there are many."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

ABOUT = (
    "files of the store: bytes, bytes on disk, last change, mode, name; a folder with more than"
    " 200 files is summed up"
)
ALONE_MAX = 200
LINES_MAX = 50_000
SECONDS_MAX = 20.0
"""A store on a disk that is ill, or with millions of files, is not listed to its end."""

QUEUES = "consumequeue"
_BLOCK = 512


def listing(root: Path) -> Iterator[str]:
    """Lines about what is below ``root``; the last one says where it ended too early."""
    deadline = time.monotonic() + SECONDS_MAX
    lines = 0
    for folder, folders, files in os.walk(root, onerror=None):
        # The queues last: they are many, and what they hold follows from the log.
        folders.sort(key=lambda name: (name == QUEUES, name))
        for line in _folder(Path(folder), root, sorted(files)):
            yield line
            lines += 1
        if lines >= LINES_MAX or time.monotonic() > deadline:
            yield f"[ended here: after {lines} lines, or {SECONDS_MAX:.0f} s]"
            return


def _folder(folder: Path, root: Path, files: list[str]) -> Iterator[str]:
    name = folder.relative_to(root)
    if len(files) <= ALONE_MAX:
        for file in files:
            found = _stat(folder / file)
            if found is not None:
                yield _line(found, str(name / file))
        return
    all_of_them = [found for file in files if (found := _stat(folder / file)) is not None]
    size = sum(found.st_size for found in all_of_them)
    on_disk = sum(found.st_blocks for found in all_of_them) * _BLOCK
    yield f"{size:>15} {on_disk:>15} {'':20} {'':10} {name}/ ({len(all_of_them)} files)"
    for file in (*files[:2], *files[-2:]):
        found = _stat(folder / file)
        if found is not None:
            yield _line(found, str(name / file))


def _line(found: os.stat_result, name: str) -> str:
    changed = datetime.fromtimestamp(found.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"{found.st_size:>15} {found.st_blocks * _BLOCK:>15} {changed} {found.st_mode:>10o} {name}"
    )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        # Deleted meanwhile: a log file that retention has taken.
        return None
