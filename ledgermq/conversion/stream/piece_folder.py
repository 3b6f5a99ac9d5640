"""Place of the pieces of a backup stream: what it must be able to do, and a folder that does it.

Whole pieces under names, each put once: that is also what an object store can do. Nobody waits for
anybody here, and nothing is ever written over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from ledgermq.model.errors import CorruptLogError, StorageError, refused_as
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.files.small_file import create_file, write_all

if TYPE_CHECKING:
    # With the module comes a library for encryption, which a plain folder does without.
    from ledgermq.conversion.stream.sealed_piece import Bytes

ABOUT = "about"
"""The piece that says whose log a stream is of."""

PIECES_MANIFEST = "manifest"
"""The document by which a place of sealed pieces is told from a stream."""

_PARTIAL = ".partial-"
_WITHOUT_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class PiecePlace(Protocol):
    """Where pieces are, under names with ``/``."""

    def as_text(self, name: str = "") -> str:
        """Where the piece ``name`` is, or all of them, for people."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names of the pieces right below ``folder``, without it, in order.

        Raises:
            StorageError: the place refused.
        """
        ...

    def put(self, name: str, parts: Iterable[Bytes]) -> bool:
        """Have the piece, all or nothing, durable on return; False if there is one of that name,
        which is not written over.

        Raises:
            StorageError: the place refused.
        """
        ...

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """The piece, to be read within the block.

        Raises:
            CorruptLogError: there is none.
            StorageError: the place refused, also while it is read.
        """
        ...

    def delete(self, name: str) -> None:
        """Have the piece no more, if there is one.

        Raises:
            StorageError: the place refused.
        """
        ...


class PieceFolder:
    """``PiecePlace`` in a folder: a piece is a file."""

    def __init__(self, root: Path) -> None:
        """The folder ``root``, which is made when the first piece is put."""
        self._root = root

    def as_text(self, name: str = "") -> str:
        """Path of the piece's file."""
        return str(self._root / name)

    def names(self, folder: str) -> list[str]:
        try:
            found = [path.name for path in (self._root / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError.of(
                "piece of a backup stream not listed", error, file=self._root / folder
            ) from error
        return sorted(name for name in found if not is_of_others(name))

    def put(self, name: str, parts: Iterable[Bytes]) -> bool:
        """Have the piece, durable on return; False if there is one of that name. A crash leaves a
        file ``.partial-…`` at most.
        """
        path = self._root / name
        with refused_as("piece of a backup stream not written", file=path):
            make_directories(path.parent, mode=0o700)
            if path.exists():
                return False
            partial = path.with_name(f"{_PARTIAL}{os.getpid()}-{path.name}")
            partial.unlink(missing_ok=True)
            with create_file(partial) as file:
                # Free once this process has ended, however it did.
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)
                try:
                    for part in parts:
                        write_all(file.fileno(), part)
                    sync_file(file.fileno())
                    was_put = _named(partial, path)
                finally:
                    partial.unlink(missing_ok=True)
            sync_directory(path.parent)
        return was_put

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        path = self._root / name
        try:
            with path.open("rb") as file:
                yield file
        except FileNotFoundError as error:
            raise missing_piece(str(path)) from error
        except OSError as error:
            raise StorageError.of("piece of a backup stream not read", error, file=path) from error

    def delete(self, name: str) -> None:
        with refused_as("piece of a backup stream not deleted", file=self._root / name):
            (self._root / name).unlink(missing_ok=True)

    def sweep(self, *, older_than_s: float = 0) -> None:
        """Delete what was left by who was killed while it put a piece.

        Args:
            older_than_s: leave what was written to since: where several may put pieces, one may
                have begun a file, and not locked it yet.
        """
        before_s = time.time() - older_than_s
        for path in self._root.rglob(f"{_PARTIAL}*"):
            with suppress(OSError), path.open("rb") as file:
                # One that is being written is locked.
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.stat().st_mtime <= before_s:
                    path.unlink()


def missing_piece(where: str) -> CorruptLogError:
    """What is raised for a piece that is not there; ``where`` it should be."""
    return CorruptLogError("piece of a backup stream is missing", file=where)


def _named(partial: Path, path: Path) -> bool:
    """Give the file its name; False if there is one of that name."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        # Who was faster by a hair has put the same content, for the name says what it is.
        partial.rename(path)
    return True
