"""Read-only spans of the log for the dispatcher, also of the log that a store was taken over with.

A span is a view of a map of one file, which is valid until the next span is asked for. Who asks
keeps within the committed part: nothing here knows where the log ends.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from ledgermq.model.errors import StorageError
from ledgermq.model.ids import Position
from ledgermq.model.settings import LogKind, Settings
from ledgermq.process.store_paths import StorePaths
from ledgermq.store.entry_files import first_entry_position

ENTRY_HEADER_SIZE = 48
RELEASE_STEP = 16 * 1024 * 1024


class LogSpan(NamedTuple):
    """Bytes of one file, from its first one on; ``base`` is their position."""

    view: memoryview
    base: Position
    header_size: int

    @property
    def end(self) -> Position:
        """Position behind the file."""
        return Position(self.base + len(self.view))


@dataclass(slots=True)
class _Mapped:
    span: LogSpan
    map: mmap.mmap
    released: int = 0

    def close(self) -> None:
        self.span.view.release()
        self.map.close()


class LogSpans:
    """The log's files, oldest folder first; at most one is mapped."""

    def __init__(self, folders: tuple[tuple[Path, int], ...]) -> None:
        """Read what ``folders`` hold: each a folder, and the size of its entries' header."""
        self._folders = folders
        self._mapped: _Mapped | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The log that the settings name, behind the plain one that it may have grown from."""
        paths = StorePaths.of(settings)
        if settings.store.log is LogKind.COMMITLOG:
            return cls(((paths.data, 0),))
        return cls(((paths.root / "commitlog", 0), (paths.data, ENTRY_HEADER_SIZE)))

    def start(self) -> Position:
        """Where the first record begins that there is; 0 when there is no file."""
        for folder, header_size in self._folders:
            starts = _starts(folder)
            if starts:
                if header_size:
                    return first_entry_position(folder, starts[0])
                return Position(starts[0])
        return Position(0)

    def file_start(self, position: Position) -> Position:
        """First byte of the last file that begins at or before ``position``; 0 without one."""
        starts = [start for folder, _ in self._folders for start in _starts(folder)]
        return Position(max((start for start in starts if start <= position), default=0))

    def first_file(self) -> Position:
        """First byte of the oldest file that there is; 0 when there is none."""
        starts = [starts[0] for folder, _ in self._folders if (starts := _starts(folder))]
        return Position(min(starts, default=0))

    def span(self, position: Position) -> LogSpan | None:
        """The file that has the byte at ``position``, None when none has (any more).

        Raises:
            StorageError: it cannot be mapped.
        """
        if self._mapped is not None:
            if self._mapped.span.base <= position < self._mapped.span.end:
                return self._mapped.span
            self.close()
        for folder, header_size in reversed(self._folders):
            starts = [start for start in _starts(folder) if start <= position]
            if not starts:
                continue
            mapped = _map(folder / f"{starts[-1]:020d}", Position(starts[-1]), header_size)
            if position < mapped.span.end:
                self._mapped = mapped
                return mapped.span
            mapped.close()
        return None

    def release_before(self, position: Position) -> None:
        """Give back the memory of what was read before ``position``, in large steps.

        What is mapped counts as the process's own until then; it stays in the page cache.
        """
        mapped = self._mapped
        if mapped is None:
            return
        read = min(position, mapped.span.end) - mapped.span.base
        if read - mapped.released >= RELEASE_STEP:
            end = read - read % mmap.PAGESIZE
            mapped.map.madvise(mmap.MADV_DONTNEED, mapped.released, end - mapped.released)
            mapped.released = end

    def close(self) -> None:
        """Unmap."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None


def _starts(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    names = (path.name for path in folder.iterdir())
    return sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())


def _map(path: Path, base: Position, header_size: int) -> _Mapped:
    try:
        with path.open("rb") as file:
            map_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        # A ValueError is an empty file: one that the writer is about to extend.
        number = error.errno if isinstance(error, OSError) else None
        raise StorageError("log file not mapped", errno=number, file=str(path)) from error
    return _Mapped(LogSpan(memoryview(map_), base, header_size), map_)
