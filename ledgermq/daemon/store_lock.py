"""Store locks, one that Java honours and one that children share, and whose a directory is.

``ROOT/lock`` is RocketMQ's: it holds the text ``lock``, and its owner has a POSIX lock on byte 0.
The kernel drops a POSIX lock as soon as its process closes any descriptor of the file, so nothing
in the supervisor opens this file again while it holds the lock.

A POSIX lock belongs to one process. When a supervisor is killed, its lock is gone before its
children are: for a moment (or for as long as an fsync hangs) an orphan may still write. So there is
a second kind, a ``flock`` that the children inherit and that is free only once the last of them is
gone; one of it guards the store (``ROOT/ledgermq/lock``), one the runtime directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Self

from ledgermq.formats.store_markers import LOCK_CONTENT
from ledgermq.model.errors import ConfigError, StorageError, StoreLockedError, refused_as
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.record_locks import lock_holder

RETRY_S = 0.01

_FileId = tuple[int, int]


class JavaLock:
    """The lock of ``ROOT/lock``, exactly as RocketMQ's ``DefaultMessageStore`` takes it."""

    _held: ClassVar[set[_FileId]] = set()

    def __init__(self, path: Path, fd: int, file_id: _FileId) -> None:
        self.path = path
        self._fd = fd
        self._file_id = file_id

    @classmethod
    def take(cls, path: Path) -> Self:
        """Lock byte 0 of ``path``, and write the text into it if it is not there.

        Raises:
            StoreLockedError: another process has it; names its pid.
            StorageError: the file cannot be opened or written.
        """
        # The second open of one process would get the lock, and its close would drop the first.
        if path.exists() and _file_id(path.stat()) in cls._held:
            raise StoreLockedError(
                "the store is held by this process", pid=os.getpid(), path=str(path)
            )
        fd = _open(path)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            if os.pread(fd, len(LOCK_CONTENT) + 1, 0) != LOCK_CONTENT:
                os.ftruncate(fd, 0)
                os.pwrite(fd, LOCK_CONTENT, 0)
        except OSError as error:
            pid = lock_holder(fd, length=1) if error.errno in (errno.EACCES, errno.EAGAIN) else None
            os.close(fd)
            if pid is None:
                raise StorageError(
                    f"store not locked: {error.strerror}", errno=error.errno, path=str(path)
                ) from error
            raise StoreLockedError(
                f"the store is held by process {pid}", pid=pid, path=str(path)
            ) from error
        file_id = _file_id(os.fstat(fd))
        cls._held.add(file_id)
        return cls(path, fd, file_id)

    def release(self) -> None:
        """Give the lock back; the file stays, as RocketMQ's does."""
        self._held.discard(self._file_id)
        os.close(self._fd)


class FamilyLock:
    """A lock that a process and all that it forks hold together, until the last one is gone."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def take(cls, path: Path, *, wait_ms: int) -> Self:
        """Lock ``path`` and write our pid into it, for whoever is refused.

        Args:
            path: file to lock; made when it is missing, and left behind.
            wait_ms: how long orphans of a killed supervisor may take to die.

        Raises:
            StoreLockedError: another family has it; names the pid of the one that took it.
            StorageError: the file cannot be opened or written.
        """
        fd = _open(path)
        deadline_ns = time.monotonic_ns() + wait_ms * 1_000_000
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                return cls(path, fd)
            except BlockingIOError as error:
                if time.monotonic_ns() < deadline_ns:
                    time.sleep(RETRY_S)
                    continue
                pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise StoreLockedError(
                    f"the directory is held by the node of process {pid}, or by what is left of it",
                    pid=pid,
                    path=str(path),
                    waited_ms=wait_ms,
                ) from error
            except OSError as error:
                # The file system is read-only, say, or has no locks.
                os.close(fd)
                raise StorageError(
                    f"directory not locked: {error.strerror}", errno=error.errno, path=str(path)
                ) from error

    def release(self) -> None:
        """Close our descriptor; the lock is free once those of our children are closed, too."""
        os.close(self._fd)


@contextmanager
def stopped_store(root: Path, *, as_owner: bool = True) -> Iterator[None]:
    """Both locks of the store in ``root``: inside, no broker and no node has it open.

    Args:
        root: the store's directory.
        as_owner: a superuser acts as the store's owner inside, for what is written must be the
            broker's own. Not so where files elsewhere are read or written, which that one may not.

    Raises:
        ConfigError: there is no such directory.
        StoreLockedError: the store is open; names the pid.
        StorageError: a lock file cannot be made.
    """
    if not root.is_dir():
        raise ConfigError("no such store directory", directory=str(root))
    if as_owner:
        with acting_as_owner(root), _locked(root):
            yield
        return
    with ExitStack() as locks:
        with acting_as_owner(root):
            locks.enter_context(_locked(root))
        yield


def holder_of(root: Path) -> int | None:
    """Pid of the broker or node that has the store in ``root`` open; None when nobody has.

    Nothing is locked or made.

    Raises:
        StorageError: the lock file cannot be read.
    """
    try:
        fd = os.open(root / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(
            "lock file not opened", error, why="within", path=root / "lock"
        ) from error
    try:
        return lock_holder(fd, length=1) or None
    finally:
        os.close(fd)


@contextmanager
def acting_as_owner(root: Path) -> Iterator[None]:
    """A superuser acts as the owner of the store in ``root`` inside, anybody else as himself."""
    owner = root.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group = os.getegid()
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    own = root / "ledgermq"
    with refused_as("store not locked", why="within", path=own):
        make_directories(own)
    java = JavaLock.take(root / "lock")
    try:
        family = FamilyLock.take(own / "lock", wait_ms=0)
        try:
            yield
        finally:
            family.release()
    finally:
        java.release()


def _open(path: Path) -> int:
    with refused_as("lock file not opened", why="within", path=path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _file_id(status: os.stat_result) -> _FileId:
    return (status.st_dev, status.st_ino)


WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_directory(path: Path, *, mode: int = 0o700) -> None:
    """Make a folder that is missing, durably, with this mode whatever the umask is.

    Raises:
        StorageError: the operating system refused.
    """
    with refused_as("directory not made", why="within", path=path):
        if make_directories(path, mode=mode):
            path.chmod(mode)


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
