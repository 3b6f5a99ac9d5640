"""Configuration files of RocketMQ's, JSON under ``config/``, each with a copy of its last content.

Java deletes the file and renames the new one to its name; here one rename does both, so that there
is a whole file at any moment, and all of it is durable when ``save`` returns.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ledgermq.formats.config_json import Chosen, chosen, encode_document
from ledgermq.model.errors import refused_as
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.small_file import read_file

BACKUP_SUFFIX = ".bak"
FRESH_SUFFIX = ".tmp"


class ConfigFile:
    """The broker's own; other processes only read it.

    Attributes:
        backup: its copy of the content before.
        loaded: what ``load`` has found last.
    """

    def __init__(self, path: Path, *, mode: int = 0o640) -> None:
        """The file at ``path``; ``mode`` are its permissions whenever it is written."""
        self.path = path
        self._mode = mode
        self.loaded = Chosen(None)
        self.backup = path.with_name(path.name + BACKUP_SUFFIX)

    def load(self) -> dict[str, object]:
        """The document, or that of the backup; empty when there is neither.

        Raises:
            CorruptLogError: there is something, and nothing that can be read.
            StorageError: the operating system refused.
        """
        self.loaded = chosen(read_file(self.path), read_file(self.backup), file=str(self.path))
        return self.loaded.document or {}

    def save(self, document: Mapping[str, object]) -> None:
        """Put ``document`` into the file; see ``save_content``."""
        self.save_content(encode_document(document))

    def save_content(self, content: bytes) -> None:
        """Put ``content`` into the file; what was there becomes the backup. Any thread may call it.

        Raises:
            StorageError: the operating system refused; the file is as it was.
        """
        fresh = self.path.with_name(self.path.name + FRESH_SUFFIX)
        with refused_as("file not replaced", writes=True, file=self.path):
            make_directories(self.path.parent)
            # What an earlier attempt left may have other permissions.
            fresh.unlink(missing_ok=True)
            with_reserve(lambda: _write(fresh, content, self._mode))
            self._keep_backup()
            fresh.rename(self.path)
            sync_directory(self.path.parent)

    def _keep_backup(self) -> None:
        # A second name for the same content, put in place by a rename: no moment without a file.
        link = self.backup.with_name(self.backup.name + FRESH_SUFFIX)
        link.unlink(missing_ok=True)
        try:
            link.hardlink_to(self.path)
        except FileNotFoundError:
            return
        link.rename(self.backup)


def _write(path: Path, content: bytes, mode: int) -> None:
    def private(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, mode)

    with open(path, "wb", opener=private) as file:
        file.write(content)
        file.flush()
        sync_file(file.fileno())
