"""Read-only spans of the log for the dispatcher: a map of one file at a time.

A span is valid until the next one is asked for. Who asks keeps within the committed part: nothing
here knows where the log ends.
"""

from __future__ import annotations

import mmap
from typing import Self

from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import StorageError
from ledgermq.model.ids import Position
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.files.mapped_files import MappedFile
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import first_entry_position
from ledgermq.store.log_family import LogFamily, LogFolder, LogSpan

RELEASE_STEP = 16 * 1024 * 1024


class LogSpans:
    """The files of ``family``; at most one is mapped."""

    def __init__(self, family: LogFamily) -> None:
        """Nothing is mapped yet."""
        self.family = family
        self._file: MappedFile | None = None
        self._span: LogSpan | None = None
        self._released = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The log that the settings name, behind the plain one that it may have grown from."""
        return cls(StorePaths.of(settings).log)

    def start(self) -> Position:
        """Where the first record begins that there is; 0 when there is no file.

        Raises:
            CorruptLogError, StorageError: as ``first_entry_position``.
        """
        for path, header_size in self.family.folders:
            starts = starts_in(path)
            if starts:
                return first_entry_position(path, starts[0]) if header_size else Position(starts[0])
        return Position(0)

    def span(self, position: Position) -> LogSpan | None:
        """The file that has the byte at ``position``, None when none has (any more).

        Raises:
            StorageError: it cannot be mapped.
        """
        if self._span is not None:
            if self._span.start <= position < self._span.end:
                return self._span
            self.close()
        for folder, start in self.family.candidates(position):
            file, span = _mapped(folder, start)
            if position < span.end:
                self._file, self._span, self._released = file, span, 0
                return span
            file.close()
        return None

    def release_before(self, position: Position) -> None:
        """Give back the memory of what was read before ``position``, in large steps.

        What is mapped counts as the process's own until then; it stays in the page cache.
        """
        if self._file is None or self._span is None:
            return
        read = min(position, self._span.end) - self._span.start
        if read - self._released >= RELEASE_STEP:
            end = read - read % mmap.PAGESIZE
            self._file.map.madvise(mmap.MADV_DONTNEED, self._released, end - self._released)
            self._released = end

    def close(self) -> None:
        """Unmap."""
        if self._file is not None:
            self._file.close()
            self._file = self._span = None


def _mapped(folder: LogFolder, start: Position) -> tuple[MappedFile, LogSpan]:
    path = folder.path / file_name(start)
    try:
        file = MappedFile(path)
    except (OSError, ValueError) as error:
        # A ValueError is an empty file: one that the writer is about to extend.
        number = error.errno if isinstance(error, OSError) else None
        raise StorageError("log file not mapped", errno=number, file=str(path)) from error
    return file, LogSpan(file.view, start, folder.header_size, path)
