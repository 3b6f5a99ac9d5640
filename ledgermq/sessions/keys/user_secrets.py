"""Sealing keys of users' secrets: the same on all members of a group, or of a cluster.

``users.key`` in ``raft.keys_dir`` has a key a line (Z85). The first one seals; the others only
open, so that a key can be changed while messages flow; a file that is put in its place counts as
soon as something is sealed, or cannot be opened. A node that has no file keeps secrets as they are
given; one that is alone makes itself a key when it is given its first secret.

``cluster-users.key`` beside it is such a file for the users of a cluster, the same in all of its
groups. Nobody makes it by itself, and without it no such user has a secret.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import stat
import struct
from pathlib import Path

from zmq.utils import z85

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.rules.access.sealed_secret import (
    KEY_SIZE,
    PLAIN_SIZE_MAX,
    is_sealed,
    open_sealed,
    seal,
)
from ledgermq.sessions.keys.peer_keys import (
    CLUSTER_USERS_FILE,
    KEYS_SETTING,
    USERS_FILE,
    USERS_KEY_SIZE,
    is_alone,
    keys_directory,
)
from ledgermq.sessions.keys.secret_file import write_secret_file

logger = logging.getLogger(__name__)

KEYS_MAX = 8
_SIZE_MAX = 64 * KEYS_MAX
_OPENED_MAX = 10_000
assert USERS_KEY_SIZE == KEY_SIZE


class UserSecrets:
    """Seals and opens with the keys of one node.

    Invariant: ``_opened`` has what the keys of now open.
    """

    def __init__(self, settings: Settings) -> None:
        """Read the keys.

        Raises:
            ConfigError: a line is no key, or others can read the file.
            StorageError: the operating system refused.
        """
        folder = keys_directory(settings)
        self._own = _KeyFile(folder / USERS_FILE)
        self._of_cluster = _KeyFile(folder / CLUSTER_USERS_FILE)
        self._is_alone = is_alone(settings)
        self._opened: dict[tuple[str, str], str] = {}

    def read_again(self) -> None:
        """Take the keys that are there now; those of before go on where they cannot be read."""
        self._own.read_again()
        self._of_cluster.read_again()
        self._opened.clear()

    def sealed(self, user: str, secret: str, *, of_cluster: bool = False) -> str:
        """A secret as it is to stand in the log; as it was given where there is no key.

        Args:
            of_cluster: for a user of the cluster, which is never given out as it is.

        Raises:
            ConfigError: a secret begins as a sealed one does, or is too long to be sealed; or there
                is no key for those of the cluster's users.
            StorageError: the key of a node that is alone cannot be written.
        """
        if is_sealed(secret):
            raise ConfigError("secret key begins as a sealed one does: choose another", user=user)
        if of_cluster:
            self._look()
        else:
            self._make_missing()
        keys = (self._of_cluster if of_cluster else self._own).keys
        if of_cluster and not keys:
            raise ConfigError(
                "there is no key to seal secrets of the cluster's users with: make one with"
                f" `ledgermq acl keys --users {CLUSTER_USERS_FILE}`, and copy it to raft.keys_dir"
                " of all members of all groups",
                user=user,
                file=str(self._of_cluster.path),
            )
        if not keys:
            logger.warning(
                "secret of a user stands in the log as it is, for the group has no key: user=%s"
                " file=%s",
                user,
                self._own.path,
            )
            return secret
        size = len(secret.encode())
        if size > PLAIN_SIZE_MAX:
            raise ConfigError(
                "secret key is too long to be sealed: members of older versions could not take it",
                user=user,
                size=size,
                limit=PLAIN_SIZE_MAX,
            )
        return seal(keys[0], user, secret)

    def derived(self, purpose: bytes, *, makes: bool = False) -> list[bytes]:
        """Secrets for something else, ``KEY_SIZE`` bytes each: one of each key of the group's, the
        first one's first. Members with the same file have the same ones; whoever has one has none
        of the keys.

        Args:
            makes: a node that is alone and has no key is given one.

        Raises:
            StorageError: the key of a node that is alone cannot be written.
        """
        if makes:
            self._make_missing()
        else:
            self._look()
        return [hmac.digest(key, purpose, "sha256") for key in self._own.keys]

    def _make_missing(self) -> None:
        self._look()
        if not self._own.keys and self._is_alone:
            make_user_key(self._own.path)
            self.read_again()

    def opened(self, user: str, text: str) -> str:
        """The secret of a user, from how it stands in the table.

        Raises:
            ConfigError: it was sealed with another key; names the file.
        """
        if not is_sealed(text):
            return text
        known = self._opened.get((user, text))
        if known is None:
            self._look()
            try:
                known = open_sealed((*self._own.keys, *self._of_cluster.keys), user, text)
            except ConfigError as error:
                raise ConfigError(
                    error.message,
                    **error.details,
                    file=str(self._own.path),
                    of_cluster=str(self._of_cluster.path),
                    setting=KEYS_SETTING,
                ) from error
            if len(self._opened) >= _OPENED_MAX:
                self._opened.clear()
            self._opened[user, text] = known
        return known

    def _look(self) -> None:
        """Take keys that were put there meanwhile."""
        if self._own.is_another or self._of_cluster.is_another:
            self.read_again()

    def opens(self, user: str, text: str) -> bool:
        """Whether ``opened`` would."""
        try:
            self.opened(user, text)
        except ConfigError:
            return False
        return True

    def renewed(self, user: str, text: str, *, of_cluster: bool = False) -> str:
        """A secret of the table as it is to stand there from now on: sealed with the first key.

        What this node cannot open stays as it is.
        """
        try:
            plain = self.opened(user, text) if text else ""
            return self.sealed(user, plain, of_cluster=of_cluster) if plain else ""
        except ConfigError:
            return text


class _KeyFile:
    """The keys of one file, as they were when it was read last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = read_user_keys(path)
        self._seen = self._stamp()

    def read_again(self) -> None:
        self._seen = self._stamp()
        try:
            self.keys = read_user_keys(self.path)
        except (ConfigError, StorageError) as error:
            logger.error("keys of users' secrets not read again: %s", error)

    @property
    def is_another(self) -> bool:
        return self._seen != self._stamp()

    def _stamp(self) -> tuple[int, int, int]:
        """Another one whenever there is another file."""
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_mtime_ns, found.st_mode)


def read_user_keys(path: Path) -> tuple[bytes, ...]:
    """The keys in a file, the one that seals first; none when there is no file.

    Raises:
        ConfigError: a line is no key, there are too many, or others can read the file.
        StorageError: the operating system refused.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read(_SIZE_MAX + 1).split()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise StorageError.of(
            "key not read", error, why="within", file=path, setting=KEYS_SETTING
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "others can read or change the key of users' secrets: chmod 600, and set the secrets"
            " anew if others may have read it",
            file=str(path),
            mode=f"{stat.S_IMODE(mode):04o}",
            setting=KEYS_SETTING,
        )
    if not 0 < len(lines) <= KEYS_MAX:
        raise ConfigError("no key, or too many", file=str(path), keys=len(lines), limit=KEYS_MAX)
    return tuple(_decoded(line, path) for line in lines)


def make_user_key(path: Path) -> None:
    """Write a new key to ``path``, before those that are there: it seals from then on.

    Raises:
        ConfigError: what is there cannot be used, or has as many keys as there may be.
        StorageError: the operating system refused.
    """
    before = read_user_keys(path)
    if len(before) >= KEYS_MAX:
        raise ConfigError("too many keys: remove the last lines", file=str(path), limit=KEYS_MAX)
    write_user_keys(path, (secrets.token_bytes(KEY_SIZE), *before))


def write_user_keys(path: Path, keys: tuple[bytes, ...]) -> None:
    """Have these keys in ``path``, readable by its owner alone; all or nothing.

    Raises:
        StorageError: the operating system refused.
    """
    text = b"".join(z85.encode(key) + b"\n" for key in keys)
    write_secret_file(path, text, what="key", makes_folder=True)


def _decoded(line: bytes, path: Path) -> bytes:
    try:
        key = z85.decode(line)
    except (struct.error, KeyError, ValueError):
        key = b""
    if len(key) != KEY_SIZE:
        raise ConfigError("not a key: 40 characters of Z85 are expected", file=str(path))
    return key
