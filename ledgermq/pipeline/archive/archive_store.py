"""Store of an archive, as the job sees it: documents, staged files, and one writer at a time.

A folder (``folder_store.py``) and a bucket (``object_store.py``) are the two there are. Paths are
those of the manifest, with ``/``, below the archive's root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from ledgermq.model.errors import CorruptLogError

OWN_FOLDER = "_ledgermq"
"""Readers of Parquet folders pass over what begins with an underscore."""

CHUNK_BYTES = 1 << 20
"""Bytes of a file that are read at once."""


class RunDocument(NamedTuple):
    """A document of the manifest, and the name that errors give it."""

    number: int
    content: dict[str, object]
    file: str


class StagingArea(Protocol):
    """Where the files of one run are written until they are part of the archive.

    It goes to the workers, pickled.
    """

    def as_text(self) -> str:
        """Its name, for errors."""

    def create(self, path: str) -> StagedFile:
        """A new file, to be written once.

        Raises:
            OSError, StorageError: the store refused.
        """

    def finish(self, paths: Iterable[str]) -> None:
        """Let files that are closed be durable under these paths.

        Raises:
            OSError, StorageError: the store refused.
        """


class StoreWriter(Protocol):
    """The one who may change the archive, until the block of ``ArchiveStore.written`` ends."""

    def staging(self) -> StagingArea:
        """A new area for the files of a run.

        Raises:
            StorageError: the store refused.
        """

    def commit(self, run: RunDocument, staged: StagingArea) -> None:
        """Let the files below ``staged`` be part of the archive, all or none; durable on return.

        Raises:
            StoreLockedError: another one writes the archive by now; nothing was added.
            StorageError: the store refused; whether it was added is seen by who opens it next.
        """

    def publish(self, paths: Sequence[str]) -> int:
        """Move those files of the last run that are staged to their places; how many there were.

        Raises:
            StorageError: the store refused.
        """

    def discard(self) -> None:
        """Delete what is staged, by this writer or one before it.

        Raises:
            StorageError: the store refused.
        """


class ArchiveStore(Protocol):
    """Where an archive is. It is read by anybody, and goes to the workers, pickled."""

    def as_text(self) -> str:
        """Its directory or address, as it was given."""

    def documents(self) -> Iterator[RunDocument]:
        """The manifest, in the order of the runs; nothing where there is no archive.

        Raises:
            CorruptLogError: one is missing or damaged.
            StorageError: the store refused.
        """

    def parquet_paths(self) -> list[str]:
        """All Parquet files that readers see, those of the archive and others.

        Raises:
            StorageError: the store refused.
        """

    def fetched(self, path: str) -> AbstractContextManager[Path]:
        """A file of the archive as one of this machine, within the block.

        Raises:
            FileNotFoundError: there is none.
            OSError, StorageError: the store refused.
        """

    def written(self) -> AbstractContextManager[StoreWriter]:
        """The archive, made if need be, for this process alone.

        Raises:
            ConfigError: there is something else.
            StoreLockedError: another run writes it.
            StorageError: the store refused.
        """


class WrittenFile(Protocol):
    """A raw file, or a stream into a store of objects."""

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""

    def write(self, content: memoryview, /) -> int | None:
        """Write some of it; how many bytes."""

    def close(self) -> None:
        """Let go of it."""


class StagedFile:
    """A file that is written once, and knows the digest of what it has; as Arrow wants a file."""

    def __init__(self, file: WrittenFile, finish: Callable[[], None]) -> None:
        """``finish`` makes it durable, once all is written; the file is closed behind it."""
        self._file = file
        self._finish: Callable[[], None] | None = finish
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def closed(self) -> bool:
        """Whether the file is closed, which Arrow asks for."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """SHA-256 of what was written, in hexadecimal digits."""
        return self._digest.hexdigest()

    def write(self, content: bytes) -> int:
        """Write all of it."""
        view = memoryview(content)
        self._digest.update(view)
        while view:
            view = view[self._file.write(view) :]
        self.size += len(content)
        return len(content)

    def tell(self) -> int:
        """How many bytes it has."""
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def abandon(self) -> None:
        """Nobody wants it: it need not be durable when it is closed."""
        self._finish = None

    def close(self) -> None:
        """Make it durable; once."""
        if not self._file.closed:
            try:
                if self._finish is not None:
                    self._finish()
            finally:
                self._file.close()


def check_numbers(numbers: Sequence[int], *, directory: str, last: int | None = None) -> None:
    """Runs are numbered from 1 on, without holes.

    Args:
        numbers: ascending.
        last: the one that must be there; None for that of ``numbers``.

    Raises:
        CorruptLogError: one is missing.
    """
    expected = last if last is not None else len(numbers)
    if list(numbers) != list(range(1, expected + 1)):
        raise CorruptLogError(
            "manifest lacks a document",
            directory=directory,
            found=len(numbers),
            last=last or numbers[-1],
        )
