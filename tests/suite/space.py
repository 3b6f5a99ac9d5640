"""Whether the temporary folder has room for the suite, before it begins."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

WANTED_MIB = 1_536
"""More than the folder holds at one time while all tests run on two cores; each run says at its end
what that was."""

NAME_BYTES_MAX = 40
"""A unix socket's path has at most 107 bytes, and folders of tests have names of their own."""


def short_folder() -> str:
    """The temporary folder, for what has sockets in it; ``/tmp`` if its name is too long."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= NAME_BYTES_MAX else "/tmp"


class Peak:
    """How much more than at the beginning the temporary folders' file systems have held."""

    def __init__(self) -> None:
        self._folders = sorted({tempfile.gettempdir(), short_folder()})
        self._began = self._used()
        self.bytes = 0

    def look(self) -> None:
        """Take what is used now into account."""
        self.bytes = max(self.bytes, self._used() - self._began)

    def _used(self) -> int:
        return max(shutil.disk_usage(folder).used for folder in self._folders)


def complaint(folder: Path, free_bytes: int, wanted_bytes: int) -> str | None:
    """What is wrong with ``folder`` as the one for temporary files, and what to do; None if
    nothing is."""
    if free_bytes >= wanted_bytes:
        return None
    return (
        f"{folder} has {free_bytes >> 20:,} MiB free, and the tests want"
        f" {wanted_bytes >> 20:,} MiB; name another folder: TMPDIR=/var/tmp make test"
    )


def look() -> str | None:
    """The same of the folders that the tests take."""
    for folder in {tempfile.gettempdir(), short_folder()}:
        free = shutil.disk_usage(folder).free
        if found := complaint(Path(folder), free, WANTED_MIB << 20):
            return found
    return None
