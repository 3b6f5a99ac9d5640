"""Runtime directory: owner, modes, and who gets in."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.store.files.disk_sync import make_directories

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_directory(path: Path, *, mode: int = 0o700) -> None:
    """Make a folder that is missing, durably, with this mode whatever the umask is.

    Raises:
        StorageError: the operating system refused.
    """
    try:
        if make_directories(path, mode=mode):
            path.chmod(mode)
    except OSError as error:
        raise StorageError(
            f"directory not made: {error.strerror}", errno=error.errno, path=str(path)
        ) from error


def make_runtime_directory(path: Path, *, socket_mode: int) -> None:
    """Make the runtime directory, where nobody else has, and see whose it is.

    Args:
        socket_mode: of the sockets; whoever may write to them has to get to them.

    Raises:
        ConfigError: it is another account's, or others can write to it.
        StorageError: the operating system refused.
    """
    others = (0o050 if socket_mode & 0o060 else 0) | (0o005 if socket_mode & 0o006 else 0)
    make_directory(path, mode=0o700 | others)
    check_runtime_directory(path)


def check_runtime_directory(path: Path) -> None:
    """Refuse a runtime directory into which others can put anything: orders there cut the log.

    Raises:
        ConfigError: it is another account's, or others can write to it.
    """
    found = path.stat()
    own = os.geteuid()
    if found.st_uid not in (own, 0) or found.st_mode & WRITABLE_BY_OTHERS:
        raise ConfigError(
            "others can write to the runtime directory: give it to the node's account alone",
            path=str(path),
            owner=found.st_uid,
            mode=oct(stat.S_IMODE(found.st_mode)),
            expected_owner=own,
            expected_mode=oct(0o750),
            setting="listen.runtime_dir",
        )
