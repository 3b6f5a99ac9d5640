"""Disk space: usage, errors that name it, and a reserve for small files on a full disk.

The reserve is a file of blocks that nobody uses. Who is refused space for a small file that must be
written all the same (term and vote, checkpoints, tables of the broker) frees a part of it and tries
again. Any process of a node may make it shorter; the writer alone fills it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ledgermq.model.config.amounts import FileSystem
from ledgermq.model.errors import NO_SPACE, DiskFullError, StorageError, refused_as

BLOCK_SIZE = 512
"""Unit of ``st_blocks``, whatever the file system's own blocks are."""

FILL_SIZE = 1024 * 1024
"""The reserve is filled in steps of this size."""

FREE_SIZE = 64 * 1024
"""The reserve is freed in steps of this size, each twice the one before: a small file needs a block
or two, and others take what is free too.
"""

_Result = TypeVar("_Result")


class _Reserve:
    """The process's reserve; one a process, because every small file is to find it."""

    path: Path | None = None


def measure(path: Path) -> FileSystem:
    """The file system that ``path`` is on.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("disk not measured", writes=True, path=path):
        found = os.statvfs(path)
    size = found.f_frsize
    return FileSystem(
        total=found.f_blocks * size,
        used=(found.f_blocks - found.f_bfree) * size,
        free=found.f_bavail * size,
    )


def bytes_on_disk(*folders: Path) -> int:
    """Bytes that the files below ``folders`` occupy.

    What goes away meanwhile counts none, nor what is in folders that this account may not read, as
    ``lost+found`` where the store has a file system of its own.
    """
    total = 0
    waiting = [os.fspath(folder) for folder in dict.fromkeys(folders)]
    while waiting:
        with suppress(FileNotFoundError, PermissionError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_SIZE
    return total


def storage_error(text: str, error: OSError, **details: object) -> StorageError:
    """What to raise for ``error``: a ``DiskFullError`` when it says that there is no space."""
    kind = DiskFullError if error.errno in NO_SPACE else StorageError
    return kind.of(text, error, why="apart", **details)


def use_reserve(path: Path | None) -> None:
    """The small files of this process may take from the reserve at ``path``; None: from none."""
    _Reserve.path = path


def with_reserve(write: Callable[[], _Result], *, keep: int = 0) -> _Result:
    """What ``write`` returns; without space it is tried again as long as the reserve has some.

    Args:
        write: can be repeated after an ``OSError`` or a ``DiskFullError``.
        keep: bytes of the reserve that are not for this.
    """
    size = FREE_SIZE
    while True:
        try:
            return write()
        except DiskFullError:
            if not _free_some(size, keep):
                raise
        except OSError as error:
            if error.errno not in NO_SPACE or not _free_some(size, keep):
                raise
        size *= 2


def fill_reserve(path: Path, size: int) -> None:
    """Have ``size`` bytes of blocks in the file at ``path``; less when the disk is full.

    Raises:
        DiskFullError: there is less; what was there stays.
        StorageError: the operating system refused.
    """
    with refused_as("reserve not filled", writes=True, file=path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            have = os.fstat(fd).st_size
            if have > size:
                os.ftruncate(fd, size)
            while have < size:
                step = min(FILL_SIZE, size - have)
                os.posix_fallocate(fd, have, step)
                have += step
        finally:
            os.close(fd)


def _free_some(size: int, keep: int) -> bool:
    """Whether the reserve had something to give."""
    path = _Reserve.path
    if path is None:
        return False
    try:
        have = path.stat().st_size
        if have <= keep:
            return False
        os.truncate(path, max(keep, have - size))
    except FileNotFoundError:
        return False
    return True
