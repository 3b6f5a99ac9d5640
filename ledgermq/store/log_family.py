"""Family of a log's files, in one folder or in two.

A DLedger log that began as a plain one goes on where the last file of ``commitlog/`` ends
(RocketMQ's ``dividedCommitlogOffset``). The older messages stay in that folder, without the headers
that entries have. Who reads a log learns here which file has a position, and how many bytes stand
before each message in it: of the files as they are listed (``LogFamily``), or of maps
(``MappedLog``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.records.message import MAGIC_AT, MAGICS, TIMESTAMP, WORD, store_fields_at
from ledgermq.model.errors import StorageError
from ledgermq.model.ids import Position
from ledgermq.store.files.descriptor_cache import with_descriptors
from ledgermq.store.files.file_names import is_position_name, starts_in
from ledgermq.store.files.mapped_files import MappedFiles

_HEAD_SIZE = 160
"""Bytes of a message that have its store time in any case."""


class LogFile(NamedTuple):
    """One file of a log: ``size`` bytes from position ``start`` on.

    Attributes:
        header_size: bytes of the entry header before each message; 0 in a plain log.
    """

    start: int
    size: int
    path: Path
    header_size: int

    @property
    def end(self) -> int:
        """Position behind its last byte."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Bytes of one file of a log: a view of a map, from position ``start`` to the file's end."""

    view: memoryview
    start: Position
    header_size: int
    path: Path

    @property
    def end(self) -> int:
        """Position behind the file."""
        return self.start + len(self.view)


class LogFolder(NamedTuple):
    """One folder of a log, and the size of its entries' headers."""

    path: Path
    header_size: int

    def files(self) -> list[LogFile]:
        """The files in it, ascending; none without the folder.

        Raises:
            StorageError: they cannot be listed.
        """
        found: list[LogFile] = []
        try:
            with with_descriptors(lambda: os.scandir(self.path)) as entries:
                for entry in entries:
                    if is_position_name(entry.name):
                        # Retention may be faster.
                        with suppress(FileNotFoundError):
                            size = entry.stat().st_size
                            path = Path(entry.path)
                            found.append(LogFile(int(entry.name), size, path, self.header_size))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError.of("log files not listed", error, directory=self.path) from error
        return sorted(found)


def first_store_ms(file: LogFile) -> int | None:
    """Store time of the file's first message, epoch ms; None when none stands at its beginning, or
    the file is gone.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        with file.path.open("rb") as opened:
            head = memoryview(os.pread(opened.fileno(), _HEAD_SIZE, file.header_size))
    except FileNotFoundError:
        # Recovery cuts the log while the dispatcher looks at it; retention may be faster, too.
        return None
    except OSError as error:
        raise StorageError.of("log file not read", error, file=file.path) from error
    if len(head) < _HEAD_SIZE or WORD.unpack_from(head, MAGIC_AT)[0] not in MAGICS:
        return None
    time_ms: int = TIMESTAMP.unpack_from(head, store_fields_at(head)[0])[0]
    return time_ms


class LogFamily:
    """Where the files of a log are, which may come and go: its folders, the oldest first."""

    def __init__(self, *folders: LogFolder) -> None:
        """The log in ``folders``; none of them need exist."""
        self.folders = folders

    def files(self) -> list[LogFile]:
        """All files, the oldest first.

        Raises:
            StorageError: they cannot be listed.
        """
        return [file for folder in self.folders for file in folder.files()]

    def first_file(self) -> Position | None:
        """First byte of the oldest file; None without a file."""
        starts = [starts[0] for folder in self.folders if (starts := starts_in(folder.path))]
        return Position(min(starts)) if starts else None

    def candidates(self, position: int) -> Iterator[tuple[LogFolder, Position]]:
        """The files that may have the byte at ``position``, those of the newest folder first.

        Of each folder that is the last file that begins at or before it: its folder, and its start.
        """
        for folder in reversed(self.folders):
            starts = [start for start in starts_in(folder.path) if start <= position]
            if starts:
                yield folder, Position(starts[-1])

    def file_start(self, position: int) -> Position:
        """First byte of the last file that begins at or before ``position``; 0 without one."""
        return max((start for _, start in self.candidates(position)), default=Position(0))

    def mapped(self, *, file_size: int | None = None) -> tuple[LogPart, ...]:
        """The files as parts of a ``MappedLog``.

        Args:
            file_size: of the newest folder's files, None to take the size that they have.

        Raises:
            CorruptLogError, StorageError: as ``MappedFiles``.
        """
        *old, new = self.folders
        parts = [LogPart(MappedFiles(path), header_size) for path, header_size in old]
        return (*parts, LogPart(MappedFiles(new.path, file_size=file_size), new.header_size))


@dataclass(frozen=True, slots=True)
class LogPart:
    """Files of one format: a plain CommitLog, or the data files of a DLedger log."""

    files: MappedFiles
    header_size: int


class MappedLog:
    """A log as maps of whole files; ``parts`` are those of its folders, the oldest first."""

    def __init__(self, parts: Sequence[LogPart]) -> None:
        """The files as they were when ``parts`` were made; nothing is mapped before it is read."""
        self.parts = tuple(parts)

    @property
    def first_position(self) -> int:
        """Where the log begins; 0 when there is no file."""
        # Asked with each pull.
        for part in self.parts:
            if not part.files.is_empty:
                return part.files.first
        return 0

    def part_with(self, position: int) -> LogPart | None:
        """The part that has the byte at ``position``; None when none has it."""
        for part in reversed(self.parts):
            if part.files.first <= position < part.files.end:
                return part
        return None

    def refresh(self) -> None:
        """Look again which files there are.

        Raises:
            CorruptLogError: a stray file, another size, a gap.
        """
        for part in self.parts:
            part.files.refresh()

    def close(self) -> None:
        """Let go of the maps; views that are held stay valid."""
        for part in self.parts:
            part.files.close()
