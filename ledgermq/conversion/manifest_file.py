"""Manifest file: a checked document of a version that says of itself what it lists."""

from __future__ import annotations

from pathlib import Path

from ledgermq.model.errors import ConfigError
from ledgermq.store.files.checked_document import read_document


def read_manifest_file(path: Path, *, version: int, lists: str, of: str) -> dict[str, object]:
    """The manifest at ``path``.

    Args:
        version: the only one that is known here.
        lists: the field that has what it lists.
        of: what it is the manifest of, for the error.

    Raises:
        ConfigError: there is none, or of something else, or of another version.
        CorruptLogError: it was changed, or cut off, on its way.
        StorageError: it cannot be read.
    """
    document = read_document(path)
    if document is None:
        raise ConfigError("no such manifest", file=str(path))
    if document.get("version") != version or not isinstance(document.get(lists), dict):
        raise ConfigError(
            f"not the manifest of {of}, or of another version",
            file=str(path),
            version=document.get("version"),
            expected=version,
        )
    return document
