"""Stored name: what a file, a table or a message says, and what is to be a name in a folder."""

from __future__ import annotations

from pathlib import Path

from ledgermq.model.errors import CorruptLogError

FILE_NAME_MAX = 255
"""Bytes that Linux's file systems take."""


def is_file_name(name: str | bytes) -> bool:
    """Whether one file or folder can be called so; a path, or half of a character, is none."""
    try:
        encoded = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    is_one = b"/" not in encoded and b"\0" not in encoded and encoded not in (b".", b"..")
    return is_one and 0 < len(encoded) <= FILE_NAME_MAX


def path_below(folder: Path, name: str, *, said_by: str) -> Path:
    """``name``, names with ``/`` between them, as a path below ``folder``.

    Args:
        said_by: what the name was read from, as the error has it.

    Raises:
        CorruptLogError: it leads elsewhere.
    """
    parts = name.split("/")
    if not all(map(is_file_name, parts)):
        raise CorruptLogError("names a file outside of its folder", file=said_by, name=name)
    return folder.joinpath(*parts)
