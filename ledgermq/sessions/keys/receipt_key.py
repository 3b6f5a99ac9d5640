"""The key of receipts: the broker set signs with it, and anybody checks by its public half.

It is one line, as ``formats/receipts/signed_note.py`` has it, the same on all members.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from ledgermq.formats.receipts.signed_note import NoteKey, NoteSigner
from ledgermq.model.errors import ConfigError
from ledgermq.sessions.keys.client_keys import write_new_key
from ledgermq.sessions.keys.peer_keys import check_private
from ledgermq.store.files.small_file import read_file

SETTING = "receipts.key_file"
_FILE_SIZE_MAX = 1_024
_WAY_OUT = "make one with `ledgermq receipt key NAME --to FILE`, and copy it to all members"


def read_signer(path: Path) -> NoteSigner:
    """The secret key in a file that only its owner can read.

    Raises:
        ConfigError: it is missing, no key, or others can read it.
        StorageError: the operating system refused.
    """
    check_private(path, setting=SETTING, way_out=_WAY_OUT)
    content = read_file(path) or b""
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if len(content) > _FILE_SIZE_MAX or not text:
        raise ConfigError(
            f"no key of receipts: {_WAY_OUT}", file=str(path), size=len(content), setting=SETTING
        )
    try:
        return NoteSigner.read(text)
    except ConfigError as error:
        raise ConfigError(str(error), file=str(path), setting=SETTING) from error


def make_signer(path: Path, name: str) -> NoteKey:
    """Write a new secret key to ``path``; its public half.

    Raises:
        ConfigError: there is something already, or the name cannot be one.
        StorageError: the operating system refused.
    """
    signer = NoteSigner(name, secrets.token_bytes(32))
    write_new_key(path, signer.as_text() + "\n")
    return signer.key
