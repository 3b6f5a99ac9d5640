"""Slots file: a small file that is written slot by slot, and synced, before anybody hears of it."""

from __future__ import annotations

import os
from pathlib import Path

from ledgermq.model.errors import StorageError
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.files.disk_sync import make_directories, sync_content, sync_directory, sync_file


class SlotsFile:
    """Owned by one process.

    Attributes:
        path: where it is.
        content: what was found in it.
    """

    def __init__(self, path: Path, size: int, *, of: str) -> None:
        """Open ``path``, made with ``size`` zeros if it is not there.

        Args:
            of: what is in it, as errors say it.

        Raises:
            StorageError: the operating system refused.
        """
        self.path = path
        self._of = of
        try:
            make_directories(path.parent)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.content = os.pread(self._fd, size, 0)
            if not self.content:
                os.ftruncate(self._fd, size)
                sync_file(self._fd)
                sync_directory(path.parent)
        except OSError as error:
            raise self.error("open", error) from error

    def write(self, offset: int, slot: bytes) -> None:
        """Durable when this returns.

        Raises:
            DiskFullError: there is no space for it now.
            StorageError: it is not, and nothing that depends on it may leave the node.
        """
        try:
            os.pwrite(self._fd, slot, offset)
        except OSError as error:
            raise self.error("write", error) from error
        try:
            sync_content(self._fd)
        except OSError as error:
            raise self.error("sync", error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def error(self, verb: str, error: OSError) -> StorageError:
        """What to raise for ``error`` of ``verb``: a sync without space is no full disk."""
        text = f"could not {verb} {self._of}"
        if verb == "sync":
            reason = error.strerror
            return StorageError(text, errno=error.errno, file=str(self.path), reason=reason)
        return storage_error(text, error, file=str(self.path))
