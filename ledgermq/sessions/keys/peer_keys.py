"""CURVE keys of a group's members: made for all at once, and read by each.

One folder a member, flat, which is copied to the member's ``raft.keys_dir``:

    n0.secret   secret key of the member itself, readable by its user alone
    n0.public   public keys of all members, this one too
    n1.public
    …
    users.key   with which secrets of users are sealed in the log (``user_secrets``), for all alike

A file holds one key as text: the 40 characters of Z85, and a newline.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.secret_file import check_folder
from ledgermq.store.files.disk_sync import make_directories, sync_directory

USERS_FILE = "users.key"
CLUSTER_USERS_FILE = "cluster-users.key"
"""File of the key for the users of a cluster, alike in all of its groups; ``init_keys`` makes
none."""

USERS_KEY_SIZE = 32
_KEY_SIZE_MAX = 64
_KEY = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
KEYS_SETTING = "raft.keys_dir"
_WAY_OUT = (
    "members of a group talk encrypted (raft.curve);"
    " make keys with `ledgermq keys init`, or set raft.curve = false"
)


class PeerKeys(NamedTuple):
    """Keys as Z85 text; ``public`` has those of all members, and grows with the group."""

    secret: bytes
    public: dict[NodeId, bytes]


def keys_directory(settings: Settings) -> Path:
    """Where this node's keys are."""
    return settings.raft.keys_dir or settings.store.path_root_dir / "ledgermq" / "keys"


def members(settings: Settings) -> tuple[NodeId, ...]:
    """The ids in ``node.peers``; of a group of one, its own."""
    named = [NodeId(peer.partition("-")[0]) for peer in settings.node.peers]
    return tuple(named) or (NodeId(settings.node.self_id),)


def load_keys(settings: Settings) -> PeerKeys | None:
    """The keys that the settings ask for, None when they ask for none, as a group of one does.

    Raises:
        ConfigError: keys are missing, do not belong together, or others can read the secret one.
        StorageError: the operating system refused.
    """
    nodes = members(settings)
    if not settings.raft.curve or is_alone(settings):
        return None
    directory = keys_directory(settings)
    own = NodeId(settings.node.self_id)
    secret = _read_secret(directory / f"{own}.secret")
    public = {node: _read_key(directory / f"{node}.public") for node in nodes}
    if zmq.curve_public(secret) != public[own]:
        raise ConfigError(
            "secret and public key do not belong together",
            secret=str(directory / f"{own}.secret"),
            public=str(directory / f"{own}.public"),
            setting="raft.keys_dir",
        )
    for node, key in public.items():
        _check_unique(directory, node, key, public)
    return PeerKeys(secret, public)


def is_alone(settings: Settings) -> bool:
    """Whether this node talks with no other one, now or ever: a group of one that cannot grow.

    One whose ``node.peers`` has its own address can, if it has what it takes to talk.
    """
    if len(settings.node.peers) != 1:
        return not settings.node.peers
    secret = keys_directory(settings) / f"{settings.node.self_id}.secret"
    return settings.raft.curve and not secret.exists()


def read_public_key(directory: Path, node: NodeId, *, others: Mapping[NodeId, bytes]) -> bytes:
    """The public key of a member that joins.

    Args:
        others: the keys that are known.

    Raises:
        ConfigError: there is none, or it is another member's.
        StorageError: the operating system refused.
    """
    key = _read_key(directory / f"{node}.public")
    _check_unique(directory, node, key, others)
    return key


def _check_unique(
    directory: Path, node: NodeId, key: bytes, others: Mapping[NodeId, bytes]
) -> None:
    twin = next((other for other, known in others.items() if known == key), node)
    if twin != node:
        raise ConfigError(
            "two members have the same key: keys tell members apart",
            nodes=[twin, node],
            directory=str(directory),
            setting="raft.keys_dir",
        )


def init_keys(directory: Path, nodes: Sequence[NodeId]) -> list[Path]:
    """Make keys for ``nodes``, and a folder below ``directory`` for each; the folders.

    Raises:
        ConfigError: there is something in the place of one of the folders, or others may put it
            there.
        StorageError: the operating system refused.
    """
    folders = [directory / node for node in nodes]
    for folder in folders:
        if folder.exists():
            raise ConfigError(
                "keys are not overwritten: move them away first, or name another folder",
                folder=str(folder),
            )
    users_key = z85.encode(os.urandom(USERS_KEY_SIZE))
    pairs = {node: zmq.curve_keypair() for node in nodes}
    try:
        check_folder(directory)
        make_directories(directory, mode=0o700)
        for node, folder in zip(nodes, folders, strict=True):
            make_directories(folder, mode=0o700)
            for other, (public, _) in pairs.items():
                _write_key(folder / f"{other}.public", public, mode=0o644)
            _write_key(folder / f"{node}.secret", pairs[node][1], mode=0o600)
            if len(nodes) > 1:
                # One that is made alone joins others, and gets theirs.
                _write_key(folder / USERS_FILE, users_key, mode=0o600)
            sync_directory(folder)
    except OSError as error:
        raise StorageError(
            "keys not written",
            errno=error.errno,
            path=str(error.filename or directory),
            reason=error.strerror,
        ) from error
    return folders


def _write_key(path: Path, key: bytes, *, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        # Whatever the umask of who types it: public keys are read by the account of the service.
        os.fchmod(fd, mode)
        file.write(key + b"\n")
        file.flush()
        os.fsync(fd)


def read_secret_key(path: Path, *, setting: str, way_out: str) -> bytes:
    """The secret key (Z85) in a file that only its owner can read.

    Args:
        setting: that names the file.
        way_out: what to do when there is none.

    Raises:
        ConfigError: it is missing, no key, or others can read it.
        StorageError: the operating system refused.
    """
    check_private(path, setting=setting, way_out=way_out)
    return _read_key(path, setting, way_out)


def check_private(path: Path, *, setting: str, way_out: str) -> None:
    """Refuse a file of a secret key that others than its owner can read.

    Raises:
        ConfigError: they can, or there is none.
        StorageError: the operating system refused.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise _unreadable(path, error, setting, way_out) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "others can read or change the secret key: chmod 600, and make new keys if others"
            " may have read it",
            file=str(path),
            mode=f"{stat.S_IMODE(mode):04o}",
            setting=setting,
        )


def _read_secret(path: Path) -> bytes:
    return read_secret_key(path, setting=KEYS_SETTING, way_out=_WAY_OUT)


def _read_key(path: Path, setting: str = KEYS_SETTING, way_out: str = _WAY_OUT) -> bytes:
    try:
        with path.open("rb") as file:
            key = file.read(_KEY_SIZE_MAX).strip()
    except OSError as error:
        raise _unreadable(path, error, setting, way_out) from error
    if not (_KEY.fullmatch(key) and _is_z85(key)):
        raise ConfigError(
            "not a key: 40 characters of Z85 are expected",
            file=str(path),
            size=len(key),
            setting=setting,
        )
    return key


def _is_z85(key: bytes) -> bool:
    """Whether each five characters stand for four bytes; some are a number that is too large."""
    try:
        return len(z85.decode(key)) == 32
    except struct.error:
        return False


def _unreadable(
    path: Path, error: OSError, setting: str, way_out: str
) -> ConfigError | StorageError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ConfigError(f"no key: {way_out}", file=str(path), setting=setting)
    return StorageError(
        f"key not read: {error.strerror}",
        errno=error.errno,
        file=str(path),
        setting=setting,
    )
