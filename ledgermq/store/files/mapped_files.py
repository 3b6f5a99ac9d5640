"""Read side of a family of fixed-size files: maps of whole files, found by position.

The files are named by the 20 digits of their first position, have one size and no gap between
them. A reader may live beside the process that writes them: a map and ``pwrite`` show the same
bytes, and ``refresh`` finds what was created or deleted since.

A view stays valid as long as somebody holds it, whatever happens to its file: a map is never
closed but let go, and the last view of it unmaps it.

Invariants: ``first <= end``; ``end - first`` is the number of files times ``file_size``;
``first == end == 0`` when there is no file.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.store.files.descriptor_cache import with_descriptors
from ledgermq.store.files.file_names import file_name, is_position_name


class MappedFile:
    """A map of one whole file, until it is closed; nothing of ``view`` may be held longer."""

    def __init__(self, path: Path, *, advice: int = mmap.MADV_NORMAL) -> None:
        """Map it.

        Args:
            advice: ``madvise`` for all of it.

        Raises:
            OSError, ValueError: it cannot be mapped; a ValueError says that it has no bytes yet.
        """
        with path.open("rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.map.madvise(advice)
        self.view = memoryview(self.map)

    def close(self) -> None:
        """Unmap."""
        self.view.release()
        self.map.close()

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(self, *_: object) -> None:
        self.close()


class VanishedError(StorageError):
    """A file was deleted between the look at its folder and now; ``refresh`` notices it."""


class MappedFiles:
    """Read-only files of one family in ``directory``, which need not exist yet."""

    def __init__(self, directory: Path, *, file_size: int | None = None) -> None:
        """Look which files there are; none is mapped before it is read.

        Args:
            file_size: what the settings say, None to take the size that the files have.

        Raises:
            CorruptLogError: a stray file, another size, a gap; names file, size and expected.
            StorageError: the directory cannot be read.
        """
        assert file_size is None or file_size > 0, file_size
        self.directory = directory
        self._file_size = file_size or 0
        self._starts: list[int] = []
        self._maps: dict[int, tuple[mmap.mmap, memoryview]] = {}
        self.refresh()

    @property
    def file_size(self) -> int:
        """Bytes of a file; 0 while that is not known, because there is none."""
        return self._file_size

    @property
    def starts(self) -> tuple[int, ...]:
        """First positions of the files, ascending."""
        return tuple(self._starts)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file."""
        return not self._starts

    @property
    def first(self) -> int:
        """Position of the first byte of the first file."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """Position behind the last byte of the last file."""
        return self._starts[-1] + self._file_size if self._starts else 0

    def start_of(self, position: int) -> int:
        """First position of the file that holds ``position``.

        Raises:
            CorruptLogError: there is no such file.
        """
        if not self.first <= position < self.end:
            raise self._outside(position, 1)
        return position - (position - self._starts[0]) % self._file_size

    def path(self, position: int) -> Path:
        """Path of the file that holds ``position``, whether it is there or not."""
        start = position
        if self._file_size:
            start -= (position - self.first) % self._file_size
        return self.directory / file_name(max(start, 0))

    def room(self, position: int) -> int:
        """Bytes from ``position`` to the end of its file.

        Raises:
            CorruptLogError: there is no such file.
        """
        return self.start_of(position) + self._file_size - position

    def view(self, position: int, size: int) -> memoryview:
        """The ``size`` bytes at ``position``; valid as long as it is held.

        Raises:
            CorruptLogError: not within one file.
            VanishedError: the file was deleted since it was seen.
            StorageError: the file cannot be mapped.
        """
        if not self.first <= position < self.end:
            raise self._outside(position, size)
        at = (position - self._starts[0]) % self._file_size
        if size < 0 or at + size > self._file_size:
            raise self._outside(position, size)
        mapped = self._maps.get(position - at)
        view = mapped[1] if mapped is not None else self._map(position - at)
        return view[at : at + size]

    def read(self, position: int, size: int) -> bytes:
        """A copy of the ``size`` bytes at ``position``, past the map.

        For places that may never have been written: on a tmpfs a map takes a page for each that is
        looked at, and kills the process (SIGBUS) when there is none left; a read takes nothing.

        Raises:
            CorruptLogError: not within one file, or the file has become shorter.
            VanishedError: the file was deleted since it was seen.
            StorageError: the file cannot be read.
        """
        at = position - self.start_of(position)
        if size < 0 or at + size > self._file_size:
            raise self._outside(position, size)
        path = self.path(position)
        try:
            with with_descriptors(lambda: path.open("rb", buffering=0)) as file:
                data = os.pread(file.fileno(), size, at)
        except FileNotFoundError as error:
            raise VanishedError(
                "file was deleted meanwhile", errno=error.errno, file=str(path)
            ) from error
        except OSError as error:
            raise self._error("file not read", path, error) from error
        if len(data) != size:
            raise CorruptLogError(
                "file of a wrong size",
                file=str(path),
                size=at + len(data),
                expected=self._file_size,
            )
        return data

    def refresh(self) -> bool:
        """Look again which files there are; whether that changed.

        Raises:
            CorruptLogError: as when it was made.
            StorageError: the directory cannot be read.
        """
        starts = self._listed()
        if starts == self._starts:
            return False
        self._starts = starts
        kept = set(starts)
        for start in [start for start in self._maps if start not in kept]:
            del self._maps[start]
        return True

    def release_pages(self) -> None:
        """Give the memory of all maps back; what is read again is taken from the page cache."""
        for map_, _ in self._maps.values():
            map_.madvise(mmap.MADV_DONTNEED)

    def advise(self, position: int, size: int, advice: int) -> None:
        """``madvise`` for the pages at ``position``, in one file and on a page's border in it.

        Nothing happens when the file is not mapped.
        """
        start = self.start_of(position)
        mapped = self._maps.get(start)
        if mapped is not None:
            mapped[0].madvise(advice, position - start, size)

    def close(self) -> None:
        """Let go of all maps; views that are still held stay valid."""
        self._maps.clear()

    def _listed(self) -> list[int]:
        known = self._file_size
        while True:
            names = self._names()
            try:
                return self._starts_of(names)
            except CorruptLogError:
                # A listing is not of one moment: it may lack a file and have a younger one.
                if self._names() == names:
                    raise
                self._file_size = known

    def _starts_of(self, names: list[str]) -> list[int]:
        """Starts of the files there are, of which all but a fresh last one have their size."""
        # Names first, sizes then: files are deleted from the oldest on, so one whose successor
        # is missing from the list is not there any more when it is asked for its size.
        paths = [self.directory / name for name in names]
        sizes = [self._size_of(path) for path in paths]
        found = [(path, size) for path, size in zip(paths, sizes, strict=True) if size is not None]
        if found and found[-1][1] == 0:
            # Its writer is about to extend it.
            found.pop()
        if found and not self._file_size:
            # Names tell the size too, and are not what gets truncated.
            self._file_size = int(found[1][0].name) - int(found[0][0].name) if found[1:] else 0
            if not self._file_size or all(size != self._file_size for _, size in found):
                self._file_size = found[0][1]
        starts: list[int] = []
        for path, size in found:
            self._check(path, size, starts)
            starts.append(int(path.name))
        return starts

    def _names(self) -> list[str]:
        try:
            # Asked at each turn of a busy node for queues that have no file yet.
            names = with_descriptors(lambda: os.listdir(self.directory))  # noqa: PTH208
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("directory not read", self.directory, error) from error
        return sorted(filter(is_position_name, names))

    def _size_of(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("file not looked at", path, error) from error

    def _check(self, path: Path, size: int, before: list[int]) -> None:
        if size != self._file_size or not size:
            raise CorruptLogError(
                "file of a wrong size", file=str(path), size=size, expected=self._file_size
            )
        if before and int(path.name) != before[-1] + size:
            raise CorruptLogError(
                "gap before a file",
                file=str(path),
                offset=int(path.name),
                expected=before[-1] + size,
            )

    def _map(self, start: int) -> memoryview:
        path = self.directory / file_name(start)
        try:
            with path.open("rb") as file:
                map_ = mmap.mmap(file.fileno(), self._file_size, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise CorruptLogError(
                "file of a wrong size",
                file=str(path),
                size=self._size_of(path),
                expected=self._file_size,
            ) from error
        except FileNotFoundError as error:
            raise VanishedError(
                "file was deleted meanwhile", errno=error.errno, file=str(path)
            ) from error
        except OSError as error:
            raise self._error("file not mapped", path, error) from error
        view = memoryview(map_)
        self._maps[start] = (map_, view)
        return view

    def _outside(self, position: int, size: int) -> CorruptLogError:
        return CorruptLogError(
            "not within one of the files",
            file=str(self.path(position)),
            offset=position,
            size=size,
            first=self.first,
            end=self.end,
        )

    @staticmethod
    def _error(text: str, path: Path, error: OSError) -> StorageError:
        return StorageError(text, errno=error.errno, file=str(path), reason=error.strerror)
