"""Checked documents: JSON files of our own with a CRC-32, so that a torn one is seen.

A file is one line of JSON, UTF-8, and a second line with the CRC-32 of the first one in hexadecimal
digits: an operator can read it, and a torn or edited one is found out. A manifest is one of a
version that says of itself what it lists.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.store.files.small_file import read_file, replace_file


def read_document(path: Path) -> dict[str, object] | None:
    """The document at ``path``; None when there is no such file.

    Raises:
        CorruptLogError: the file is torn, was changed by hand, or holds no JSON object.
        StorageError: the operating system refused.
    """
    content = read_file(path)
    return None if content is None else decode_document(content, file=str(path))


def decode_document(content: bytes, *, file: str) -> dict[str, object]:
    """The document that is the content of ``file``.

    Raises:
        CorruptLogError: it is torn, was changed by hand, or is no JSON object.
    """
    line, _, rest = content.partition(b"\n")
    if line + b"\n" + rest != checked(line):
        raise CorruptLogError("document does not match its checksum", file=file)
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CorruptLogError("document is no JSON", file=file, reason=str(error)) from error
    if not isinstance(document, dict):
        raise CorruptLogError("document is no JSON object", file=file)
    return document


def write_document(path: Path, document: dict[str, object]) -> None:
    """Replace the document at ``path``; it is durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    replace_file(path, encode_document(document))


def encode_document(document: dict[str, object]) -> bytes:
    """The content of a file that holds ``document``."""
    return checked(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def checked(line: bytes) -> bytes:
    """The content of a file whose document is ``line``."""
    return b"%s\n%08x\n" % (line, zlib.crc32(line))


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
