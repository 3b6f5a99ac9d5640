"""File of the cursor page: made anew by the supervisor, mapped by all.

What stands in it is ``cursor_page.py``'s.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ledgermq.model.errors import StaleGenerationError, StorageError

MAGIC = 0x4547415051_4D4C
_HEADER_CELLS = 3
"""Magic, version and generation, as in a page of any version."""


def make_file(path: Path, size: int) -> int:
    """Put a file of ``size`` zeros in the place of the page at ``path``; the generation that is
    next after that one's, which may be of another version of the program.

    Raises:
        StorageError: the operating system refused.
    """
    generation = 1
    if path.exists():
        generation = _generation_at(path) + 1
        path.unlink()
    fresh = path.with_suffix(".new")
    try:
        fresh.unlink(missing_ok=True)
        # Whatever the umask says: who can write the page can cut the log.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600), "wb") as file:
            # Written, not only made long: a map of a hole is a SIGBUS when the disk is full.
            file.write(bytes(size))
        fresh.rename(path)
    except OSError as error:
        raise StorageError(
            f"cursor page not made: {error.strerror}",
            errno=error.errno,
            path=str(path),
            size=size,
            setting="listen.runtime_dir",
        ) from error
    return generation


def map_file(path: Path, size: int) -> mmap.mmap:
    """The file at ``path``, writable.

    Raises:
        StaleGenerationError: it is of another size.
        StorageError: the operating system refused.
    """
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:
        raise StorageError("cursor page not opened", errno=error.errno, path=str(path)) from error
    try:
        if os.fstat(fd).st_size != size:
            raise StaleGenerationError("cursor page of another size", path=str(path))
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def _generation_at(path: Path) -> int:
    """That of the page at ``path``; 0 when it is none.

    Raises:
        StorageError: the operating system refused.
    """
    size = _HEADER_CELLS * 8
    try:
        with path.open("rb") as file:
            content = file.read(size)
    except OSError as error:
        raise StorageError("cursor page not read", errno=error.errno, path=str(path)) from error
    if len(content) < size:
        return 0
    magic, _, generation = memoryview(content).cast("q").tolist()
    return generation if magic == MAGIC else 0
