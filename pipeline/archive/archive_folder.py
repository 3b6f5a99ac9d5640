"""Archive folder: the manifest, and how the files of a run become part of it.

A run writes its files into a staging folder. They belong to the archive as soon as their document
of the manifest is written, all at once; after that they are renamed to where readers find them.
What a killed run leaves is put right by the next one: files that are in the manifest are renamed,
all others deleted. So who reads the folder with Spark never sees a row twice.

Only the one who has opened it for writing changes anything in it.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.pipeline.archive.archive_layout import (
    OWN_FOLDER,
    ArchiveRun,
    ArchiveState,
    decode_run,
    encode_run,
)
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import make_directories, sync_directory
from ledgermq.store.files.folders import delete_folder

_CURRENT = "current"
"""The staged folder whose files the next document, or the last one, names."""


class ArchiveFolder:
    """An archive below ``root``; ``state`` is what its manifest says.

    Invariant: a file of the manifest is at its place, or staged under the same path.
    """

    def __init__(self, root: Path) -> None:
        """Read the manifest; nothing is changed, and an empty folder is an empty archive.

        Raises:
            ConfigError: the layout is of a later version.
            CorruptLogError: a document cannot be read, or one is missing.
            StorageError: the operating system refused.
        """
        self.root = root
        self._own = root / OWN_FOLDER
        self._documents = self._own / "manifest"
        self._staging = self._own / "staging"
        self.state = ArchiveState.of(self._runs())

    def runs(self) -> Iterator[ArchiveRun]:
        """The runs, in their order, as their documents say.

        Raises:
            CorruptLogError, StorageError: as opening it.
        """
        for number in range(1, self.state.runs + 1):
            yield self._read_run(number)

    def staging(self) -> Path:
        """A new folder for the files of a run."""
        folder = self._staging / uuid.uuid4().hex
        _make(folder)
        return folder

    def commit(self, run: ArchiveRun, staged: Path) -> None:
        """Let the files of ``run``, which stand below ``staged``, be part of the archive.

        On return it is durable. Where it raises or dies, either all of them are or none is.

        Raises:
            StorageError: the operating system refused.
        """
        assert run.number == self.state.runs + 1, (run.number, self.state.runs)
        # The document names no staging folder: the next run must find the files by itself.
        _rename(staged, self._staging / _CURRENT)
        _sync(self._staging)
        write_document(self._documents / f"{run.number:08d}.json", encode_run(run))
        self.state.add(run)
        self._publish(run)
        self._discard_staged()

    def recover(self) -> int:
        """Put right what a run has left that was killed; how many files had to be moved.

        Raises:
            StorageError: the operating system refused.
        """
        moved = 0
        if self._staging.is_dir() and self.state.runs:
            moved = self._publish(self._read_run(self.state.runs))
        self._discard_staged()
        return moved

    def _discard_staged(self) -> None:
        """Delete what is staged, although workers of a killed run may still write there.

        They make no folder above the one that they were given: once it has another name, nothing
        is added to it.
        """
        discarded = self._own / "discarded"
        delete_folder(discarded)
        if self._staging.is_dir():
            _rename(self._staging, discarded)
            delete_folder(discarded)

    def _publish(self, run: ArchiveRun) -> int:
        """Rename the files of a run that are still staged."""
        current = self._staging / _CURRENT
        folders: set[Path] = set()
        moved = 0
        for file in run.files:
            source, target = current / file.path, self.root / file.path
            if not source.exists():
                continue
            if target.parent not in folders:
                _make(target.parent)
                folders.add(target.parent)
            _rename(source, target)
            moved += 1
        for folder in sorted(folders):
            _sync(folder)
        return moved

    def _runs(self) -> Iterator[ArchiveRun]:
        try:
            numbers = sorted(
                int(path.stem)
                for path in self._documents.glob("*.json")
                if path.stem.isascii() and path.stem.isdigit()
            )
        except OSError as error:
            raise _refused("archive not read", error, self._documents) from error
        if numbers != list(range(1, len(numbers) + 1)):
            raise CorruptLogError(
                "manifest lacks a document",
                directory=str(self._documents),
                found=len(numbers),
                last=numbers[-1],
            )
        for number in numbers:
            yield self._read_run(number)

    def _read_run(self, number: int) -> ArchiveRun:
        path = self._documents / f"{number:08d}.json"
        document = read_document(path)
        if document is None:
            raise CorruptLogError("manifest lacks a document", file=str(path))
        run = decode_run(document, file=str(path))
        if run.number != number:
            raise CorruptLogError(
                "document of another run", file=str(path), found=run.number, expected=number
            )
        return run


def existing_archive(root: Path) -> ArchiveFolder:
    """The archive in ``root``, to be read.

    Raises:
        ConfigError: there is none.
        CorruptLogError, StorageError: as opening it.
    """
    folder = ArchiveFolder(root)
    if not folder.state.runs:
        raise ConfigError("no archive in the directory", directory=str(root))
    return folder


@contextmanager
def writable_archive(root: Path) -> Iterator[ArchiveFolder]:
    """The archive in ``root``, made if need be, for this process alone; what a killed run left is
    put right.

    Raises:
        ConfigError: the directory has something else in it.
        StoreLockedError: another run writes it.
        CorruptLogError, StorageError: as opening it.
    """
    own = root / OWN_FOLDER
    if root.is_dir() and not own.is_dir() and any(root.iterdir()):
        raise ConfigError("not empty, and no archive", directory=str(root))
    _make(own / "manifest")
    try:
        lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise _refused("archive not locked", error, own / "lock") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLockedError("another run writes the archive", directory=str(root)) from error
        folder = ArchiveFolder(root)
        folder.recover()
        yield folder
    finally:
        os.close(lock)


def strange_files(root: Path, known: Iterable[str]) -> list[str]:
    """Paths of Parquet files below ``root`` that are not among ``known``.

    Raises:
        StorageError: the operating system refused.
    """
    named = set(known)
    try:
        found = [str(path.relative_to(root)) for path in root.rglob("*.parquet")]
    except OSError as error:
        raise _refused("archive not read", error, root) from error
    own = f"{OWN_FOLDER}{os.sep}"
    return sorted(path for path in found if path not in named and not path.startswith(own))


def _make(folder: Path) -> None:
    try:
        make_directories(folder)
    except OSError as error:
        raise _refused("folder not made", error, folder) from error
    for parent in (folder.parent, folder.parent.parent):
        _sync(parent)


def _sync(folder: Path) -> None:
    try:
        sync_directory(folder)
    except OSError as error:
        raise _refused("folder not synced", error, folder) from error


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        raise _refused("file not renamed", error, target) from error


def _refused(what: str, error: OSError, path: Path) -> StorageError:
    return StorageError(what, errno=error.errno, file=str(path), reason=error.strerror)
