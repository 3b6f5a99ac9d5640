"""Syncs: the one place where we ask the operating system to make something durable.

Who wants to know what a power failure would leave (the simulator) watches here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ledgermq.model.errors import refused_as
from ledgermq.store.files.descriptor_cache import with_descriptors


class SyncWatcher(Protocol):
    """Told of everything that became durable."""

    def synced(self, fd: int) -> None:
        """The file or the directory that ``fd`` has open is on the disk as it is now."""


_watchers: list[SyncWatcher] = []


@contextmanager
def watched(watcher: SyncWatcher) -> Iterator[None]:
    """Within the block ``watcher`` is told, from whatever thread syncs."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def sync_content(fd: int) -> None:
    """Return when the bytes of the file, and its size, are on the disk.

    Raises:
        OSError: after that the page cache cannot be trusted.
    """
    os.fdatasync(fd)
    _tell(fd)


def sync_file(fd: int) -> None:
    """Return when the bytes of the file, its size, times and permissions are on the disk.

    Raises:
        OSError: after that the page cache cannot be trusted.
    """
    os.fsync(fd)
    _tell(fd)


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable.

    Raises:
        OSError: the operating system refused.
    """
    fd = with_descriptors(lambda: os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
    try:
        os.fsync(fd)
        _tell(fd)
    finally:
        os.close(fd)


def make_directories(directory: Path, *, mode: int = 0o777) -> bool:
    """Make ``directory`` and all above it that are missing, durable; whether any was.

    The name of each is in the folder above it, which a power failure may have without it: that is
    synced, from the outermost one on.

    Args:
        mode: of ``directory`` itself; those above are made as the process makes folders.

    Raises:
        OSError: the operating system refused.
    """
    missing = []
    for folder in (directory, *directory.parents):
        if folder.is_dir():
            break
        missing.append(folder)
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=mode if folder == directory else 0o777)
        except FileExistsError:
            # Another process was faster, and may not have synced it yet; of another account it is
            # no folder of ours.
            if not folder.is_dir() or folder.stat().st_uid not in (0, os.geteuid()):
                raise
        sync_directory(folder.parent)
    return bool(missing)


def make_folder(directory: Path) -> None:
    """Make a folder of the store, with those above it; durable on return.

    Raises:
        DiskFullError, StorageError: the operating system refused.
    """
    with refused_as("folder not made", writes=True, file=directory):
        make_directories(directory)


def _tell(fd: int) -> None:
    for watcher in _watchers:
        watcher.synced(fd)
