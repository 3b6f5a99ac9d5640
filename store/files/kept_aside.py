"""Quarantine of files that are not whole: kept where nobody takes them for part of the store.

They go to ``ROOT/ledgermq/set-aside/``, under the name of their folder and their own, with the
epoch millisecond behind it: RocketMQ reads all that lies in its own folders, and refuses what does
not fit there. Nothing deletes them but an operator.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from ledgermq.model.errors import StorageError
from ledgermq.model.events import Event
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.file_names import is_file_name
from ledgermq.store.files.small_file import create_file

logger = logging.getLogger(__name__)

FOLDER = "set-aside"


def keep_aside(path: Path, aside: Path, *, reason: str) -> Path:
    """Move the file or folder ``path`` away; where it is now. Durable on return.

    Args:
        aside: folder for it, made when it is not there; on the same file system.
        reason: told in the process's log, for an operator.

    Raises:
        StorageError: the operating system refused; ``path`` is where it was.
    """
    target = _target(path, aside)
    try:
        make_directories(aside)
        path.rename(target)
        sync_directory(aside)
        sync_directory(path.parent)
    except OSError as error:
        raise StorageError(
            "file not kept aside", errno=error.errno, file=str(path), reason=error.strerror
        ) from error
    logger.warning(
        "kept aside: %s: file=%s now=%s", reason, path, target, extra={"event": Event.KEPT_ASIDE}
    )
    return target


def settle_last_file(directory: Path, *, expected: int | None, aside: Path) -> Path | None:
    """Give the last file of a log its size again, when it has another one; where the old one is.

    What stands in it is copied, as far as it has room; recovery finds which records are whole. A
    crash meanwhile leaves the old file in place.

    Args:
        expected: size of a file of this log; None to take that of the first one, when there are
            several.

    Returns:
        None when the last file has its size, or nobody can tell which one it must have.

    Raises:
        StorageError: the operating system refused.
    """
    paths = _log_files(directory)
    if not paths:
        return None
    last = paths[-1]
    size = last.stat().st_size
    if expected is None and len(paths) > 1:
        expected = paths[0].stat().st_size
    if not size or not expected or size == expected:
        # A file without a byte was just being made: it is made again.
        return None
    target = _target(last, aside)
    try:
        make_directories(aside)
        fresh = target.with_name(target.name + ".tmp")
        _copy(last, fresh, copied=min(size, expected), size=expected)
        os.link(last, target)
        sync_directory(aside)
        fresh.replace(last)
        sync_directory(directory)
    except OSError as error:
        raise StorageError(
            "log file of a wrong size not kept aside",
            errno=error.errno,
            file=str(last),
            reason=error.strerror,
        ) from error
    logger.warning(
        "kept aside: last file of the log has a wrong size, its whole records are taken over: "
        "file=%s size=%d expected=%d now=%s",
        last,
        size,
        expected,
        target,
        extra={"event": Event.KEPT_ASIDE},
    )
    return target


def _log_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    names = sorted(path.name for path in directory.iterdir())
    return [directory / name for name in names if is_file_name(name)]


def _target(path: Path, aside: Path) -> Path:
    return aside / f"{path.parent.name}-{path.name}-{time.time_ns() // 1_000_000}"


def _copy(source: Path, target: Path, *, copied: int, size: int) -> None:
    """Make ``target`` of the first ``copied`` bytes of ``source`` and zeros; durable on return."""
    with source.open("rb") as old, create_file(target) as new:
        os.ftruncate(new.fileno(), size)
        at = 0
        while at < copied:
            done = os.copy_file_range(old.fileno(), new.fileno(), copied - at, at, at)
            if done == 0:
                break
            at += done
        sync_file(new.fileno())
