"""Small files: read as a whole, replaced atomically. Every small file of ours goes this way."""

from __future__ import annotations

import os
import stat
from io import FileIO
from pathlib import Path

from ledgermq.formats.config_json import DOCUMENT_SIZE_MAX
from ledgermq.model.errors import StorageError, refused_as
from ledgermq.store.files.descriptor_cache import with_descriptors
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.store.files.disk_sync import sync_directory, sync_file

_AT_ONCE = os.O_CLOEXEC | os.O_NONBLOCK

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW
"""A link in the place of a file that is about to be made is somebody else's: an error."""


def read_file(path: Path) -> bytes | None:
    """The file's content; None when there is no such file.

    Raises:
        StorageError: the operating system refused, it is no plain file, or larger than any of ours.
    """
    try:
        return with_descriptors(lambda: _content(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of("file not read", error, file=path) from error


def replace_file(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` so that a crash leaves the old content or the new one, durable.

    On a full disk the node's reserve is used (``disk_space.with_reserve``).

    Raises:
        DiskFullError: there is no space, and no reserve is left; the file is as it was.
        StorageError: the operating system refused.
    """
    fresh = path.with_name(path.name + ".tmp")
    with refused_as("file not replaced", writes=True, file=path):
        with_reserve(lambda: _write_fresh(fresh, content))
    with refused_as("file not replaced", writes=True, file=path):
        with_reserve(lambda: fresh.rename(path))
    with refused_as("file not replaced", file=path):
        sync_directory(path.parent)


def create_file(path: Path) -> FileIO:
    """A new file at ``path``, to be written and read, which its owner alone may open.

    Raises:
        FileExistsError: there is one of that name.
        OSError: the operating system refused.
    """
    return open(path, "x+b", buffering=0, opener=_private)


def write_new_file(path: Path, content: bytes) -> None:
    """A new file with ``content``, durable but for its name; raises as ``create_file``."""
    with create_file(path) as file:
        write_all(file.fileno(), content)
        sync_file(file.fileno())


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write all of ``content`` where the file stands.

    Raises:
        OSError: the operating system refused; a part may be written.
    """
    # A disk that is nearly full takes a part, and says so only at the next call.
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _content(path: Path) -> bytes:
    # A pipe in the file's place would be waited for, for ever.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise StorageError("file not read", file=str(path), reason="it is no plain file")
        if found.st_size > DOCUMENT_SIZE_MAX:
            raise StorageError(
                "file not read: it is larger than any of its kind",
                file=str(path),
                bytes=found.st_size,
                limit=DOCUMENT_SIZE_MAX,
            )
        return file.read()


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | _OPEN, 0o600)


def _write_fresh(fresh: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN
    fd = with_descriptors(lambda: os.open(fresh, flags, 0o600))
    try:
        write_all(fd, content)
        sync_file(fd)
    finally:
        os.close(fd)
