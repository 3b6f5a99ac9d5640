"""Cache of open descriptors: the least recently used is closed first."""

from __future__ import annotations

import os
import resource
from collections import OrderedDict

from ledgermq.store.files.disk_space import storage_error

DESCRIPTORS_MAX = 512
"""Half of the 1,024 descriptors that a process has where nobody raised the limit."""

DESCRIPTORS_OF_MANY = 16_384
_LIMIT_OF_MANY = 4_096
"""Below, the sockets and index files of a process may need as many as its queues."""


def descriptors_allowed() -> int:
    """How many queue files may stay open, so that thousands in use are not opened anew for each
    message: three quarters of what the process may open.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS_OF_MANY
    if soft < _LIMIT_OF_MANY:
        return DESCRIPTORS_MAX
    return min(3 * soft // 4, DESCRIPTORS_OF_MANY)


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
            fd = os.open(path, flags, 0o600)
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
