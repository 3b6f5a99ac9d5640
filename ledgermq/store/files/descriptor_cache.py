"""Descriptors of a process: a cache that closes the least recently used, bounds, some for files.

What a process may open is bounded by its soft limit (RLIMIT_NOFILE). Connections of clients get a
part of it, and a few descriptors are kept back: files that must be opened find them when all others
are taken.
"""

from __future__ import annotations

import logging
import os
import resource
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar, TypeVar

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import OUT_OF_DESCRIPTORS
from ledgermq.store.files.disk_space import storage_error

logger = logging.getLogger(__name__)

DESCRIPTORS_MAX = 512
"""Half of the 1,024 descriptors that a process has where nobody raised the limit."""

DESCRIPTORS_OF_MANY = 16_384
_LIMIT_OF_MANY = 4_096
"""Descriptors below which the sockets and index files of a process may need as many as its
queues."""


def descriptors_allowed() -> int:
    """How many queue files may stay open, so that thousands in use are not opened anew for each
    message: three quarters of what the process may open.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS_OF_MANY
    if soft < _LIMIT_OF_MANY:
        return min(DESCRIPTORS_MAX, soft // 2)
    return min(3 * soft // 4, DESCRIPTORS_OF_MANY)


FILES_MIN = 64
"""Fewest descriptors that connections leave to files, and to what processes share."""

SESSION_FILES = 7
"""Descriptors of one session of a process with its own node."""

PASSED_FILES = 3
"""Descriptors of a gRPC client's connection: its own, and both ends of what passes it on."""

SPARE = 8
"""Descriptors that are kept back for files that must be opened."""

_Opened = TypeVar("_Opened")


class _Spare:
    """Descriptors of this process that stand for nothing."""

    held: ClassVar[list[int]] = []


def connections_allowed(
    connections: int, per_address: int = 0, *, files: int = 1
) -> tuple[int, int]:
    """How many connections one socket may have at a time, and how many of them one address.

    The two numbers of the settings, or less where this process may not open as many files: a
    quarter of those, at least ``FILES_MIN``, is for others, and two sockets of clients share the
    rest.

    Args:
        files: descriptors of one connection.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections, per_address
    most = max(2, (soft - max(FILES_MIN, soft // 4)) // (2 * files))
    if connections <= most:
        return connections, per_address
    return most, min(per_address, most // 2)


def users_allowed(users: int) -> int:
    """For how many users a process may have a session with its own node: the setting, or less where
    it may not open as many files. Their sessions have the part of a second socket of clients.
    """
    return connections_allowed(users, files=SESSION_FILES)[0]


def with_descriptors(opens: Callable[[], _Opened]) -> _Opened:
    """What ``opens`` returns; where no descriptor is left, those are given up that are kept back.

    Args:
        opens: can be repeated after an ``OSError``.
    """
    _keep_spare()
    while True:
        try:
            return opens()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not _Spare.held:
                raise
            os.close(_Spare.held.pop())


def _keep_spare() -> None:
    while len(_Spare.held) < SPARE:
        try:
            _Spare.held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            # None is left now: what is needed takes those that are held.
            return


class DescriptorCache:
    """Descriptors by path; invariant: ``0 <= open files <= capacity``."""

    def __init__(self, capacity: int = DESCRIPTORS_MAX) -> None:
        assert capacity > 0, capacity
        self._capacity = capacity
        self._open: OrderedDict[str, int] = OrderedDict()

    def descriptor(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing, valid until the next call.

        Raises:
            StorageError: the file cannot be opened.
        """
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            fd = with_descriptors(lambda: os.open(path, flags, 0o600))
        except OSError as error:
            raise storage_error("file not opened", error, file=path) from error
        if len(self._open) == self._capacity:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = fd
        return fd

    def forget(self, path: str) -> None:
        """Close the file if it is open: its name is about to go."""
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close all."""
        while self._open:
            os.close(self._open.popitem()[1])


def write_fully(fd: int, data: memoryview, offset: int, path: str) -> None:
    """Write all of ``data`` at ``offset``.

    Raises:
        StorageError: the operating system refused; a part may stand in the file.
    """
    done = 0
    try:
        done = os.pwrite(fd, data, offset)
        while done < len(data):
            done += os.pwrite(fd, data[done:], offset + done)
    except OSError as error:
        raise storage_error("write refused", error, file=path, offset=offset + done) from error


def raise_and_tell(settings: Settings) -> None:
    """Have the node's processes open as many files as they may; warn where settings want more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limits = settings.limits
    most, share = connections_allowed(limits.connections_max, limits.connections_per_address)
    bounded = {
        "limits.connections_max": (limits.connections_max, most),
        "limits.connections_per_address": (limits.connections_per_address, share),
    }
    if settings.listen.remoting is not None:
        wanted = settings.remoting.connections_max
        bounded["remoting.connections_max"] = wanted, connections_allowed(wanted)[0]
    if settings.listen.grpc is not None:
        wanted = settings.grpc.connections_max
        allowed, _ = connections_allowed(wanted, files=PASSED_FILES)
        bounded["grpc.connections_max"] = wanted, allowed
        wanted = settings.grpc.users_max
        bounded["grpc.users_max"] = wanted, users_allowed(wanted)
    if settings.listen.http is not None:
        wanted = settings.http.connections_max
        bounded["http.connections_max"] = wanted, connections_allowed(wanted)[0]
    fewer = [
        f"{name}={allowed} instead of {wanted}"
        for name, (wanted, allowed) in bounded.items()
        if allowed < wanted
    ]
    if fewer:
        logger.warning(
            "each process may open %d files (ulimit -n, LimitNOFILE=), so fewer connections are"
            " taken than the settings say: %s",
            hard,
            ", ".join(fewer),
        )
