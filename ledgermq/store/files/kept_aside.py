"""Quarantine of files that are not whole: kept where nobody takes them for part of the store.

They go to ``ROOT/ledgermq/set-aside/``, under the name of their folder and their own, with the
epoch millisecond behind it: RocketMQ reads all that lies in its own folders, and refuses what does
not fit there. Nothing deletes them but an operator.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from ledgermq.model.errors import refused_as
from ledgermq.model.events import Event
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.file_names import is_of_others, own_names
from ledgermq.store.files.small_file import create_file

logger = logging.getLogger(__name__)

FOLDER = "set-aside"
_UNDER_WAY = ".copied"
_STEP = 1 << 20

TOLD_MAX = 100


def keep_aside(path: Path, aside: Path, *, reason: str) -> Path:
    """Move the file or folder ``path`` away; where it is now. Durable on return.

    Args:
        aside: folder for it, made when it is not there.
        reason: told in the process's log, for an operator.

    Raises:
        StorageError: the operating system refused; all of ``path`` is where it was.
    """
    return _kept(path, aside, lambda target: move(path, target), reason)


def keep_copy_aside(path: Path, aside: Path, *, reason: str) -> Path | None:
    """Give what the file ``path`` holds now a second name there, so that it stays when the file is
    replaced; None where it has one already.

    Args:
        aside, reason: as of ``keep_aside``.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("file not looked at", why="", file=path):
        if path.stat().st_nlink > 1:
            return None
    return _kept(path, aside, lambda target: _link(path, target), reason)


def _kept(path: Path, aside: Path, keep: Callable[[Path], object], reason: str) -> Path:
    target = _target(path, aside)
    with refused_as("file not kept aside", file=path):
        make_directories(aside)
        keep(target)
    logger.warning(
        "kept aside: %s: file=%s now=%s", reason, path, target, extra={"event": Event.KEPT_ASIDE}
    )
    return target


def _link(path: Path, target: Path) -> None:
    try:
        target.hardlink_to(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy(path, target)
        with target.open("rb") as file:
            sync_file(file.fileno())
    sync_directory(target.parent)


def kept_in(aside: Path) -> list[str]:
    """Names of what was kept aside, at most ``TOLD_MAX`` of them; none where it cannot be seen."""
    try:
        with os.scandir(aside) as entries:
            return sorted(entry.name for entry in islice(entries, TOLD_MAX))
    except OSError:
        return []


def settle_last_file(directory: Path, *, expected: int | None, aside: Path) -> Path | None:
    """Give the last file of a log its size again, when it has another one; where a copy is.

    What stands in it stays, as far as it has room; recovery finds which records are whole. A crash
    meanwhile leaves the file as it was.

    Args:
        expected: size of a file of this log; None to take that of the first one, when there are
            several.

    Returns:
        None when the last file has its size, or nobody can tell which one it must have.

    Raises:
        StorageError: the operating system refused.
    """
    paths = [directory / name for name in own_names(directory)]
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
    with refused_as("log file of a wrong size not kept aside", file=last):
        make_directories(aside)
        _copy_beside(last, target)
        with last.open("r+b") as file:
            os.ftruncate(file.fileno(), expected)
            sync_file(file.fileno())
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


def move(path: Path, target: Path) -> None:
    """Have the file or folder ``path`` at ``target``, durably, whatever file system that is on.

    A folder that is a mount of its own stays, empty, as ``path``, and as ``target`` is filled.
    Where a rename does not do, all of ``path`` is copied before any of it is deleted: who was
    killed in between may do the same again.

    Raises:
        OSError: the operating system refused; all of ``path`` is where it was.
    """
    try:
        path.rename(target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EBUSY):
            raise
        _copy_beside(path, target)
        _delete(path)
    sync_directory(target.parent)
    sync_directory(path.parent)


def link_folder(path: Path, target: Path) -> None:
    """Give all files of the folder ``path`` second names, in the folder ``target``; durable. What
    cannot have one is copied.

    Raises:
        OSError: the operating system refused.
    """
    make_directories(target)
    for name in sorted(one.name for one in path.iterdir()):
        if (path / name).is_dir() and not (path / name).is_symlink():
            link_folder(path / name, target / name)
            continue
        try:
            os.link(path / name, target / name, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            _copy_file(path / name, target / name)
    shutil.copystat(path, target)
    sync_directory(target)


def _target(path: Path, aside: Path) -> Path:
    return aside / f"{path.parent.name}-{path.name}-{time.time_ns() // 1_000_000}"


def _copy_beside(path: Path, target: Path) -> None:
    """Make ``target`` a copy; it is there as a whole or, but for a mount, not at all. Durable."""
    if target.is_dir():
        _copy(path, target)
        return
    partial = target.with_name(target.name + _UNDER_WAY)
    if partial.exists():
        _delete(partial)
    _copy(path, partial)
    partial.rename(target)
    sync_directory(target.parent)


def _copy(path: Path, target: Path) -> None:
    """Copy a file with its holes, or a folder and what is in it; durable but for its own name."""
    if not path.is_dir():
        _copy_file(path, target)
        return
    make_directories(target)
    for name in _moved_in(path):
        if (path / name).is_dir():
            _copy(path / name, target / name)
        else:
            _copy_file(path / name, target / name)
    shutil.copystat(path, target)
    sync_directory(target)


def _copy_file(path: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    with path.open("rb") as old, create_file(target) as new:
        source, copy = old.fileno(), new.fileno()
        size = os.fstat(source).st_size
        os.ftruncate(copy, size)
        at = 0
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError:
                # ENXIO: there is nothing but a hole up to the file's end.
                break
            end = os.lseek(source, at, os.SEEK_HOLE)
            while at < end:
                at += os.pwrite(copy, os.pread(source, min(end - at, _STEP), at), at)
        shutil.copystat(path, target)
        sync_file(copy)


def _delete(path: Path) -> None:
    """Delete what was copied; a mount, and what is left where it is in it, stay."""
    if not path.is_dir():
        path.unlink()
        return
    for name in _moved_in(path):
        _delete(path / name)
    if not path.is_mount():
        path.rmdir()


def _moved_in(folder: Path) -> list[str]:
    """What is in ``folder``, but for what a mount has of its own."""
    names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if not (folder.is_mount() and is_of_others(name))]
