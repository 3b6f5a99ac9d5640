"""Keys of topics: who has a topic's key reads what pieces have of it, and nobody else.

A variable of the environment names their folder, as others name the keys of a bucket, for whoever
seals and whoever reads: the command, a node's cold reads, Spark's driver and workers.

    FOLDER/TOPIC.key    64 hexadecimal digits a line: the first line locks, all of them unlock

What is not a letter, a digit, ``_``, ``.``, ``-`` or ``~`` in the name of a topic stands there as
``%XX``. A file is read whenever it is needed, and kept nowhere: once it is deleted, nothing that it
has locked is read any more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from ledgermq.conversion.stream.sealed_piece import key_id
from ledgermq.model.errors import ConfigError, KeyMissingError, refused_as
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.files.small_file import read_file

KEYS_VARIABLE = "LEDGERMQ_PIECE_KEYS"
KEY_LINES_MAX = 64
"""Keys of one topic: a new one is put before the others."""

_OTHERS = 0o077
_KEY = re.compile(rb"[0-9a-f]{64}")
_OWN = "LEDGERMQ_"
assert SYSTEM_TOPIC.startswith(_OWN)


def key_file(topic: str) -> Path | None:
    """Where the keys of a topic are; None where the environment names no folder.

    Raises:
        ConfigError: the topic is one of the broker's own, without which nothing else is read.
    """
    folder = os.environ.get(KEYS_VARIABLE)
    if not folder:
        return None
    if topic.startswith(_OWN):
        raise ConfigError("a topic of the broker's own has no key", topic=topic)
    return Path(folder) / f"{quote(topic, safe='')}.key"


def locking_key(topic: str) -> bytes | None:
    """The key that messages of a topic are locked with from now on; None: with none.

    Raises:
        ConfigError: its file has no keys, or others can read it.
        StorageError: the file cannot be read.
    """
    return next(iter(_keys_of(topic)), None)


def find_key(topic: str, name: str) -> bytes | None:
    """The key of a topic that has this name, ``key_name``; None: it is not here.

    Raises:
        ConfigError, StorageError: as ``locking_key``.
    """
    return next((key for key in _keys_of(topic) if key_name(key) == name), None)


def unlocking_key(topic: str, name: str, *, where: str) -> bytes:
    """The key of a topic that has this name.

    Args:
        where: the piece, for errors.

    Raises:
        KeyMissingError: it is not here.
        ConfigError, StorageError: as ``locking_key``.
    """
    key = find_key(topic, name)
    if key is None:
        raise KeyMissingError(
            "messages are locked with a key that is not here",
            topic=topic,
            key=name,
            file=where,
            setting=KEYS_VARIABLE,
        )
    return key


def key_name(key: bytes) -> str:
    """What names a key, and says nothing of it."""
    return key_id(key).hex()


def _keys_of(topic: str) -> list[bytes]:
    if topic.startswith(_OWN):
        return []
    path = key_file(topic)
    content = None if path is None else read_file(path)
    if path is None or content is None:
        return []
    with refused_as("key of a topic not read", file=path):
        mode = path.stat().st_mode
    if mode & _OTHERS:
        raise ConfigError(
            "others can read the key of a topic: chmod 600", file=str(path), mode=oct(mode & 0o777)
        )
    lines = content.split()
    if not 0 < len(lines) <= KEY_LINES_MAX or not all(map(_KEY.fullmatch, lines)):
        raise ConfigError(
            "no keys of a topic: 64 hexadecimal digits a line",
            file=str(path),
            lines=len(lines),
            limit=KEY_LINES_MAX,
        )
    return [bytes.fromhex(line.decode()) for line in lines]
