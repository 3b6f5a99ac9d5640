"""Fence between raft and a writer that commits by itself: who holds it, the other one waits for.

A writer that commits by itself looks whether it still may, and publishes what it has committed,
with the fence held; raft takes the right back with the fence held. So nothing is published too
late. The lock is the kernel's, and goes with a process that dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ledgermq.model.errors import refused_as


class RunFence:
    """One process's end of the fence; ``with`` holds it, for some microseconds."""

    def __init__(self, path: Path) -> None:
        """Open the file, which is made where it is missing.

        Raises:
            StorageError: the operating system refused.
        """
        with refused_as("fence not opened", why="", path=path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def fileno(self) -> int:
        """Descriptor of the file, for who locks it by itself."""
        return self._fd

    def __enter__(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
