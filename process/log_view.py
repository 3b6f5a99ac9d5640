"""The log as the broker reads it: whole files by position, without a copy.

A log that was taken over from a plain CommitLog has two folders, one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Self

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.host_address import HOST_V4_SIZE, HOST_V6_SIZE
from ledgermq.formats.message import (
    BORN_HOST_AT,
    BORN_HOST_V6,
    MAGIC,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    SIZE_MIN,
    SYS_FLAG_AT,
)
from ledgermq.model.settings import LogKind, Settings
from ledgermq.process.store_paths import StorePaths
from ledgermq.store.mapped_files import MappedFiles, VanishedError

_WORD = Struct(">I")
_TIMESTAMP = Struct(">q")
_SIZE_AND_MAGIC = Struct(">iI")
_POSITION = Struct(">q")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log; ``start`` is the position of its first byte.

    Attributes:
        header_size: bytes of the entry header before each record; 0 in a plain log.
    """

    start: int
    path: Path
    view: memoryview
    header_size: int

    @property
    def end(self) -> int:
        """Position behind its last byte."""
        return self.start + len(self.view)


class LogView:
    """Who asks keeps within the dispatched part: nothing here knows where the log ends."""

    def __init__(self, folders: tuple[Path, ...], header_sizes: tuple[int, ...] = ()) -> None:
        """The log in ``folders``, oldest first, with so many bytes before each first message."""
        self._header_sizes = header_sizes or (0,) * len(folders)
        self._open: Callable[[], list[MappedFiles]] = lambda: [
            MappedFiles(folder) for folder in folders
        ]
        self._families = self._open()
        # The one that was asked for last; of a file that is gone it would keep the blocks.
        self._last: LogFile | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The log that the settings name, behind the plain one that it may have grown from."""
        paths = StorePaths.of(settings)
        if settings.store.log is LogKind.COMMITLOG:
            return cls((paths.data,))
        return cls((paths.root / "commitlog", paths.data), (0, ENTRY_HEADER_SIZE))

    @property
    def first_position(self) -> int:
        """Where the log begins; 0 when there is no file."""
        # Asked with each pull.
        for family in self._families:
            if not family.is_empty:
                return family.first
        return 0

    def refresh(self) -> None:
        """Look again which files there are.

        Raises:
            CorruptLogError: a stray file, another size, a gap.
        """
        self._last = None
        for family in self._families:
            family.refresh()

    def drop(self) -> None:
        """Forget all maps, and look again which files there are."""
        self._last = None
        self._families = self._open()

    def release_pages(self) -> None:
        """Give touched pages back; they come again from the page cache."""
        for family in self._families:
            family.release_pages()

    def advise(self, position: int, size: int, advice: int) -> None:
        """``madvise`` for what is mapped of the log at ``position``; nothing if it is removed."""
        family = self._family_of(position)
        if family is not None:
            family.advise(position, size, advice)

    def file_of(self, position: int) -> LogFile | None:
        """The file that has the byte at ``position``, ``None`` when none has (any more).

        Raises:
            StorageError: it cannot be mapped.
        """
        last = self._last
        if last is not None and 0 <= position - last.start < len(last.view):
            return last
        family = self._family_of(position)
        if family is None:
            self.refresh()
            family = self._family_of(position)
            if family is None:
                return None
        start = family.start_of(position)
        try:
            view = family.view(start, family.file_size)
        except VanishedError:
            # Retention was faster; from now on the log begins behind it.
            self.refresh()
            return None
        header_size = self._header_sizes[self._families.index(family)]
        self._last = LogFile(start, family.path(start), view, header_size)
        return self._last

    @property
    def first_message(self) -> int | None:
        """Where the first message of the log lies, if there is one."""
        for family, header_size in zip(self._families, self._header_sizes, strict=True):
            if family.starts:
                return family.first + header_size
        return None

    def record_at(self, position: int, *, end: int) -> memoryview | None:
        """The record at ``position`` that ends at ``end`` or before; ``None`` if there is none.

        Its size, its magic and its own position are those of one; no more is looked at.
        """
        file = self.file_of(position)
        if file is None:
            return None
        at, room = position - file.start, min(file.end, end) - position
        if room < SIZE_MIN:
            return None
        size, magic = _SIZE_AND_MAGIC.unpack_from(file.view, at)
        if not SIZE_MIN <= size <= room or magic != MAGIC:
            return None
        if _POSITION.unpack_from(file.view, at + PHYSICAL_OFFSET_AT)[0] != position:
            return None
        return file.view[at : at + size]

    def store_time(self, position: int, size: int) -> int:
        """Store timestamp of the message at ``position``, epoch ms; -1 if there is none."""
        file = self.file_of(position)
        if file is None or position + size > file.end:
            return -1
        at = position - file.start
        if _WORD.unpack_from(file.view, at + MAGIC_AT)[0] != MAGIC:
            return -1
        (sys_flag,) = _WORD.unpack_from(file.view, at + SYS_FLAG_AT)
        host_size = HOST_V6_SIZE if sys_flag & BORN_HOST_V6 else HOST_V4_SIZE
        timestamp: int = _TIMESTAMP.unpack_from(file.view, at + BORN_HOST_AT + host_size)[0]
        return timestamp

    def _family_of(self, position: int) -> MappedFiles | None:
        for family in reversed(self._families):
            if family.first <= position < family.end:
                return family
        return None
