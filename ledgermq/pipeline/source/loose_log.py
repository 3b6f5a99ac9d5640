"""Log files of one replica, each on its own: a missing or cut one does not spoil the others.

``LogReader`` reads a log that is whole, and refuses gaps and files of wrong sizes. Where other
replicas have what one lacks, each of its files is worth something.
"""

from __future__ import annotations

import logging
import mmap
from bisect import bisect_right
from pathlib import Path

from ledgermq.model.errors import LedgerError, StorageError
from ledgermq.store.log_family import LogFile, LogFolder
from ledgermq.store.store_directory import log_in, names_in

logger = logging.getLogger(__name__)


class LooseLog:
    """The log files in ``root``, as of the last ``refresh``; what cannot be read is not there."""

    def __init__(self, root: Path, *, self_id: str | None) -> None:
        """Look for them; a folder that cannot be read has none, and a warning says so."""
        self._root = root
        self._self_id = self_id
        self._files: list[LogFile] = []
        self._starts: list[int] = []
        self._views: dict[Path, memoryview] = {}
        self._told: set[str] = set()
        self.refresh()

    @property
    def first(self) -> int | None:
        """Position of the first byte; None without a file."""
        return self._files[0].start if self._files else None

    @property
    def end(self) -> int | None:
        """Position behind the last byte; None without a file."""
        return self._files[-1].end if self._files else None

    @property
    def starts(self) -> list[int]:
        """First positions of the files, ascending."""
        return self._starts

    def refresh(self) -> None:
        """Look for files that came or went."""
        try:
            folders = log_in(self._root, names_in(self._root), self._self_id).folders
        except LedgerError as error:
            self._tell(str(self._root), error)
            folders = ()
        self._files = sorted(file for folder in folders for file in self._listed(folder))
        self._starts = [file.start for file in self._files]
        kept = {file.path for file in self._files}
        self._views = {path: view for path, view in self._views.items() if path in kept}

    def close(self) -> None:
        """Let go of the maps; views that are held stay valid."""
        self._views.clear()

    def file_at(self, position: int) -> LogFile | None:
        """The file that holds ``position``, None without one."""
        at = bisect_right(self._starts, position) - 1
        if at < 0 or position >= self._files[at].end:
            return None
        return self._files[at]

    def view(self, file: LogFile) -> memoryview | None:
        """All bytes of a file, valid as long as held; None if they cannot be had."""
        view = self._views.get(file.path)
        if view is not None and len(view) == file.size:
            return view
        try:
            with file.path.open("rb") as opened:
                map_ = mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            # ValueError: the file has become shorter.
            self.tell(file.path, error)
            return None
        view = self._views[file.path] = memoryview(map_)
        return view

    def tell(self, path: Path, reason: object) -> None:
        """Say once that another replica is read in place of a file."""
        self._tell(str(path), reason)

    def _listed(self, folder: LogFolder) -> list[LogFile]:
        try:
            return folder.files()
        except StorageError as error:
            self._tell(str(folder.path), error)
            return []

    def _tell(self, place: str, reason: object) -> None:
        if place not in self._told:
            self._told.add(place)
            logger.warning("replica is replaced by another: %s: %s", place, reason)
