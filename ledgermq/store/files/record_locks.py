"""Locks of other processes on files (``fcntl``), as Java and RocksDB take them: who has one."""

from __future__ import annotations

import fcntl
import os
from struct import Struct

_FLOCK = Struct("@hhqqi4x")
"""``struct flock`` of Linux on 64-bit machines: type, whence, start, length, pid."""


def lock_holder(fd: int, *, length: int) -> int:
    """Pid of the process that has a lock on the first bytes of a file; 0 when nobody has.

    Args:
        fd: open for writing: the kernel tells of such locks only where the file may be written.
        length: how many bytes; 0 for all.

    Raises:
        OSError: the operating system refused.
    """
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, length, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return 0 if kind == fcntl.F_UNLCK else int(pid)
