"""Archive store in a folder: files are renamed to their places, and a lock file has one writer.

A document names no staging folder, so staged files stand in ``staging/current`` when it is written:
whoever comes next finds them there.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    StoreLockedError,
    refused_as,
)
from ledgermq.pipeline.archive.archive_store import (
    OWN_FOLDER,
    RunDocument,
    StagedFile,
    StagingArea,
    check_numbers,
)
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.files.folders import delete_folder

_CURRENT = "current"
"""The staged folder whose files the next document, or the last one, names."""


@dataclass(frozen=True, slots=True)
class FolderStore:
    """``ArchiveStore`` below ``root``, which all workers see under this name."""

    root: Path

    def as_text(self) -> str:
        """The directory."""
        return str(self.root)

    def documents(self) -> Iterator[RunDocument]:
        folder = self.root / OWN_FOLDER / "manifest"
        with refused_as("archive not read", file=folder):
            numbers = sorted(
                int(path.stem)
                for path in folder.glob("*.json")
                if path.stem.isascii() and path.stem.isdigit()
            )
        check_numbers(numbers, directory=str(folder))
        for number in numbers:
            path = folder / f"{number:08d}.json"
            document = read_document(path)
            if document is None:
                raise CorruptLogError("manifest lacks a document", file=str(path))
            yield RunDocument(number, document, str(path))

    def parquet_paths(self) -> list[str]:
        with refused_as("archive not read", file=self.root):
            found = [str(path.relative_to(self.root)) for path in self.root.rglob("*.parquet")]
        own = f"{OWN_FOLDER}{os.sep}"
        return sorted(path for path in found if not path.startswith(own))

    @contextmanager
    def fetched(self, path: str) -> Iterator[Path]:
        """The file itself; whether it is there is seen by who reads it."""
        yield self.root / path

    @contextmanager
    def written(self) -> Iterator[FolderWriter]:
        """The archive, made if need be, for this process alone; the lock also ends with the
        process.
        """
        root, own = self.root, self.root / OWN_FOLDER
        if root.is_dir() and not own.is_dir() and not _is_empty(root):
            raise ConfigError("not empty, and no archive", directory=str(root))
        _make(own / "manifest")
        with refused_as("archive not locked", file=own / "lock"):
            lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreLockedError(
                    "another run writes the archive", directory=str(root)
                ) from error
            yield FolderWriter(root)
        finally:
            os.close(lock)


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """A folder for the files of one run, below the archive's own."""

    folder: Path

    def as_text(self) -> str:
        """The folder."""
        return str(self.folder)

    def create(self, path: str) -> StagedFile:
        """A new file, to be written once; durable when it is closed, but for its name."""
        file = self.folder / path
        # Not the staging folder itself: it has gone when this task's run is over.
        for folder in (file.parent.parent, file.parent):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
        opened = file.open("xb", buffering=0)
        return StagedFile(opened, lambda: sync_file(opened.fileno()))

    def finish(self, paths: Iterable[str]) -> None:
        """Make the names durable."""
        folders = {(self.folder / path).parent for path in paths}
        for folder in sorted(folders | {folder.parent for folder in folders}):
            sync_directory(folder)


class FolderWriter:
    """``StoreWriter`` of the one who has locked the folder."""

    def __init__(self, root: Path) -> None:
        """Nothing is changed yet."""
        self._root = root
        self._own = root / OWN_FOLDER
        self._staging = self._own / "staging"

    def staging(self) -> StagingFolder:
        folder = self._staging / uuid.uuid4().hex
        _make(folder)
        return StagingFolder(folder)

    def commit(self, run: RunDocument, staged: StagingArea) -> None:
        assert isinstance(staged, StagingFolder)
        # The document names no staging folder: the next run must find the files by itself.
        _rename(staged.folder, self._staging / _CURRENT)
        _sync(self._staging)
        write_document(self._own / "manifest" / f"{run.number:08d}.json", run.content)

    def publish(self, paths: Sequence[str]) -> int:
        if not self._staging.is_dir():
            return 0
        current = self._staging / _CURRENT
        folders: set[Path] = set()
        moved = 0
        for path in paths:
            source, target = current / path, self._root / path
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

    def discard(self) -> None:
        """Delete what is staged; workers of a killed run may still write there.

        They make no folder above the one that they were given: once it has another name, nothing
        is added to it.
        """
        discarded = self._own / "discarded"
        delete_folder(discarded)
        if self._staging.is_dir():
            _rename(self._staging, discarded)
            delete_folder(discarded)


def _is_empty(root: Path) -> bool:
    return all(is_of_others(path.name) for path in root.iterdir())


def _make(folder: Path) -> None:
    with refused_as("folder not made", file=folder):
        make_directories(folder)
    for parent in (folder.parent, folder.parent.parent):
        _sync(parent)


def _sync(folder: Path) -> None:
    with refused_as("folder not synced", file=folder):
        sync_directory(folder)


def _rename(source: Path, target: Path) -> None:
    with refused_as("file not renamed", file=target):
        source.rename(target)
