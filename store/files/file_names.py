"""Names of a store's files: 20 digits of a first position, or 17 of a local time (index files)."""

from __future__ import annotations

from pathlib import Path

NAME_SIZE = 20
INDEX_NAME_SIZE = 17


def file_name(position: int) -> str:
    """RocketMQ's name of the file that begins at ``position``."""
    return f"{position:020d}"


def is_file_name(name: str) -> bool:
    """Whether a file of this name can be one of a log, a queue, or DLedger's index."""
    return len(name) == NAME_SIZE and name.isascii() and name.isdigit()


def is_index_name(name: str) -> bool:
    """Whether a file of this name can be one of the index of keys."""
    return len(name) == INDEX_NAME_SIZE and name.isascii() and name.isdigit()


def starts_in(folder: Path) -> list[int]:
    """First positions of the files in ``folder``, ascending; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if is_file_name(path.name))
