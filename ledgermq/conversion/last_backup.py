"""Notes of the last backup and of the backup stream: when it was made, and how far it goes.

``ROOT/ledgermq/last-backup`` and ``last-stream`` are checked documents,
``{"created_ms": …, "end": …}``; they are not in a backup themselves. Who watches the node learns
from them that backups are made no more.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.checked_document import read_document, write_document

NAME = "last-backup"
STREAM_NAME = "last-stream"


class LastBackup(NamedTuple):
    """When the backup was made, epoch ms, and up to which position it has the log."""

    created_ms: int
    end: int


def write_last_backup(root: Path, backup: LastBackup, *, name: str = NAME) -> None:
    """Note a backup of the store in ``root`` that is whole; durable on return.

    Args:
        name: which of the two notes.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(root / "ledgermq" / name, backup._asdict())


def read_last_backup(root: Path, *, name: str = NAME) -> LastBackup | None:
    """The last backup of the store in ``root``; None when none was ever noted.

    Args:
        name: which of the two notes.

    Raises:
        CorruptLogError: the note is torn, or no note.
        StorageError: the operating system refused.
    """
    path = root / "ledgermq" / name
    document = read_document(path)
    if document is None:
        return None
    created_ms, end = document.get("created_ms"), document.get("end")
    if not isinstance(created_ms, int) or not isinstance(end, int):
        raise CorruptLogError("note of a backup lacks a number", file=str(path))
    return LastBackup(created_ms, end)
