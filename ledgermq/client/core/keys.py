"""CURVE keys of a client: a file with the node's public key and its own two.

    server = "…"
    public = "…"
    secret = "…"

``ledgermq acl keys`` makes it. Only its owner may read it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import ConfigError

SIZE_MAX = 4_096
_LINE = re.compile(r'(server|public|secret)\s*=\s*"([0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40})"')


class ClientKeys(NamedTuple):
    """Keys as Z85 text."""

    server: bytes
    public: bytes
    secret: bytes


def load_client_keys(path: str) -> ClientKeys:
    """The keys in the file at ``path``.

    Raises:
        ConfigError: it cannot be read, others can read it, or a key is missing.
    """
    try:
        with Path(path).open("rb") as file:
            mode = Path(path).stat().st_mode
            text = file.read(SIZE_MAX).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(
            "keys of the client not read", file=path, reason=error.strerror
        ) from error
    if hasattr(os, "geteuid") and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "others can read or change the keys: chmod 600, and make new ones if others may have"
            " read them",
            file=path,
            mode=f"{stat.S_IMODE(mode):04o}",
        )
    found = {
        match[1]: match[2].encode()
        for line in text.splitlines()
        if (match := _LINE.fullmatch(line.strip())) is not None
    }
    missing = [name for name in ClientKeys._fields if name not in found]
    if missing:
        raise ConfigError(
            "file lacks keys: make it with `ledgermq acl keys`", file=path, missing=missing
        )
    return ClientKeys(found["server"], found["public"], found["secret"])
