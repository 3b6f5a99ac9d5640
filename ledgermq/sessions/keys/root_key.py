"""Root key of a cluster of groups: a file that its operator keeps, and no node ever reads.

    {"cluster": NAME, "secret": KEY, "epoch": N, "home": NAME}

``epoch`` is the last one whose home was certified with it, and ``home`` that home: without them an
operator might certify two homes of one epoch.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.ed25519 import SECRET_SIZE
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.sessions.keys.secret_file import write_secret_file

ROOT_KEY_SIZE_MAX = 4_096


class RootKey(NamedTuple):
    """What the file says; ``epoch`` is 0 before anything was certified."""

    cluster: str
    secret: bytes
    epoch: int
    home: str


def new_root_key(cluster: str) -> RootKey:
    """A key that nobody has."""
    return RootKey(cluster, secrets.token_bytes(SECRET_SIZE), 0, "")


def read_root_key(path: Path) -> RootKey | None:
    """The key in a file that only its owner can read; None where there is no file.

    Raises:
        ConfigError: it is none, or others can read it.
        StorageError: the operating system refused.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(ROOT_KEY_SIZE_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of("root key not read", error, why="within", file=path) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "others can read or change the root key of the cluster: chmod 600, and begin anew if"
            " others may have read it",
            file=str(path),
            mode=f"{stat.S_IMODE(mode):04o}",
        )
    try:
        return _read(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("not a cluster's root key", file=str(path)) from error


def write_root_key(path: Path, key: RootKey) -> None:
    """Have the key in ``path``, readable by its owner alone, durable on return; all or nothing.

    Raises:
        StorageError: the operating system refused.
    """
    told = {**key._asdict(), "secret": base64.b64encode(key.secret).decode()}
    write_secret_file(path, json.dumps(told).encode() + b"\n", what="root key")


def _read(found: dict[str, object]) -> RootKey:
    secret = base64.b64decode(str(found["secret"]), validate=True)
    epoch, cluster, home = found["epoch"], found["cluster"], found["home"]
    if not (
        len(secret) == SECRET_SIZE
        and type(epoch) is int
        and isinstance(cluster, str)
        and isinstance(home, str)
    ):
        raise ValueError("fields of other types")
    return RootKey(cluster, secret, epoch, home)
