"""Offset of the first entry of a DLedger log whose first file does not begin with one.

A RocketMQ follower that fell too far behind deletes its log and goes on in the middle of a file
(``MmapFileList.rebuildWithPos``). It remembers where in its memory alone: after a restart it takes
its own log for empty. The bytes before are zeros, and an entry begins with the number 1.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ledgermq.model.errors import refused_as

_FIRST_STEP = 4_096
ZEROS_STEP = 1 << 20
"""Where zeros are passed: most files begin with an entry, and one page says so."""

_MAGIC_ZEROS = 3
"""Zeros with which an entry itself begins: its magic number is a 1 of four bytes."""


def first_entry_offset(path: Path) -> int:
    """Offset of the first entry in the file at ``path``; 0 when the file holds none.

    Holes are not read.

    Raises:
        StorageError: the file cannot be read.
    """
    with refused_as("log file not read", file=path), path.open("rb", buffering=0) as file:
        found = _first_byte(file.fileno())
    return 0 if found is None else max(0, found - _MAGIC_ZEROS)


def _first_byte(fd: int) -> int | None:
    """Offset of the first byte that is not zero."""
    at = 0
    step = _FIRST_STEP
    while True:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
        end = os.lseek(fd, at, os.SEEK_HOLE)
        while at < end:
            part = os.pread(fd, min(step, end - at), at)
            if not part:
                return None
            if part != bytes(len(part)):
                return at + len(part) - len(part.lstrip(b"\0"))
            at += len(part)
            step = ZEROS_STEP
