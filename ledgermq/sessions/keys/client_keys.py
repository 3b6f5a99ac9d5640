"""CURVE keys between a node and its clients over tcp.

The node's is the secret key alone, one line of Z85, in ``listen.curve_secret_file``, the same on
all members of a group or one each. A client's file has three lines, which ``client.core.keys``
reads:

    server = "…"    public key of the node
    public = "…"    the client's own, which the node has for its user
    secret = "…"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import zmq

from ledgermq.model.config.settings import ListenSection
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.sessions.keys.peer_keys import read_secret_key
from ledgermq.sessions.keys.secret_file import check_folder

SETTING = "listen.curve_secret_file"


def load_client_secret(listen: ListenSection) -> bytes | None:
    """The secret key (Z85) that the settings name; None when they name none.

    Raises:
        ConfigError: it is missing, no key, or others can read it.
        StorageError: the operating system refused.
    """
    if listen.curve_secret_file is None:
        return None
    return read_secret_key(
        listen.curve_secret_file,
        setting=SETTING,
        way_out="make one with `ledgermq acl keys --node FILE`",
    )


def key_pair() -> tuple[bytes, bytes]:
    """A new public and secret key of CURVE, Z85; the public one can be typed as a word.

    One in 85 would begin with ``-``, which a command takes for an option.
    """
    while True:
        public, secret = zmq.curve_keypair()
        if not public.startswith(b"-"):
            return public, secret


def make_node_key(path: Path) -> str:
    """Write a new secret key to ``path``; the public key that belongs to it, Z85.

    Raises:
        ConfigError: there is something already, or others may change the folder.
        StorageError: the operating system refused.
    """
    public, secret = key_pair()
    write_new_key(path, secret.decode() + "\n")
    return public.decode()


def make_client_keys(path: Path, *, server: str) -> str:
    """Write the three keys of a new client to ``path``; its public key, Z85.

    Args:
        server: public key of the node.

    Raises:
        ConfigError: there is something already, or others may change the folder.
        StorageError: the operating system refused.
    """
    public, secret = key_pair()
    keys: Mapping[str, str] = {
        "server": server,
        "public": public.decode(),
        "secret": secret.decode(),
    }
    write_new_key(path, "".join(f'{name} = "{key}"\n' for name, key in keys.items()))
    return public.decode()


def write_new_key(path: Path, text: str) -> None:
    """Have ``text`` in a new file, readable by its owner alone, durable on return.

    Raises:
        ConfigError: there is something already.
        StorageError: the operating system refused.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        check_folder(path.parent)
        with os.fdopen(os.open(path, flags, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise ConfigError(
            "keys are not overwritten: move the file away first, or name another", file=str(path)
        ) from error
    except OSError as error:
        raise StorageError.of("keys not written", error, file=path) from error
