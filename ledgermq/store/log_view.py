"""Read-only view of the log for the broker: mapped files by position, without a copy."""

from __future__ import annotations

from typing import Self

from ledgermq.formats.records.host_address import HOST_V4_SIZE, HOST_V6_SIZE
from ledgermq.formats.records.message import (
    BORN_HOST_AT,
    BORN_HOST_V6,
    MAGIC,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    POSITION,
    SIZE_AND_MAGIC,
    SIZE_MIN,
    SYS_FLAG_AT,
    TIMESTAMP,
    WORD,
)
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Position
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import first_entry_position
from ledgermq.store.log_family import LogFamily, LogSpan, MappedLog


class LogView(MappedLog):
    """Who asks keeps within the dispatched part: nothing here knows where the log ends."""

    def __init__(self, family: LogFamily) -> None:
        """The log of ``family``.

        Raises:
            CorruptLogError: a stray file, another size, a gap.
        """
        super().__init__(family.mapped())
        self._family = family
        # The one that was asked for last; of a file that is gone it would keep the blocks.
        self._last: LogSpan | None = None
        self._first_file = self._first = -1

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The log that the settings name, behind the plain one that it may have grown from."""
        return cls(StorePaths.of(settings).log)

    def refresh(self) -> None:
        self._last = None
        super().refresh()

    def drop(self) -> None:
        """Forget all maps, and look again which files there are."""
        self._last = None
        self.parts = self._family.mapped()

    def release_pages(self) -> None:
        """Give touched pages back; they come again from the page cache."""
        for part in self.parts:
            part.files.release_pages()

    def advise(self, position: int, size: int, advice: int) -> None:
        """``madvise`` for what is mapped of the log at ``position``; nothing if it is removed."""
        part = self.part_with(position)
        if part is not None:
            part.files.advise(position, size, advice)

    def file_of(self, position: int) -> LogSpan | None:
        """The file that has the byte at ``position``, ``None`` when none has (any more).

        Raises:
            StorageError: it cannot be mapped.
        """
        last = self._last
        if last is not None and 0 <= position - last.start < len(last.view):
            return last
        part = self.part_with(position)
        if part is None:
            self.refresh()
            part = self.part_with(position)
            if part is None:
                return None
        files = part.files
        start = files.start_of(position)
        try:
            view = files.view(start, files.file_size)
        except VanishedError:
            # Retention was faster; from now on the log begins behind it.
            self.refresh()
            return None
        self._last = LogSpan(view, Position(start), part.header_size, files.path(start))
        return self._last

    @property
    def first_position(self) -> int:
        """Where the log begins; within its first file, after a rebase of RocketMQ's."""
        start = super().first_position
        # Asked with each pull; it is looked for once a file.
        if start != self._first_file:
            self._first_file, self._first = start, self._first_record(start)
        return self._first

    @property
    def first_message(self) -> int | None:
        """Where the first message of the log lies, if there is one."""
        for part in self.parts:
            if part.files.starts:
                return self.first_position + part.header_size
        return None

    def _first_record(self, start: int) -> int:
        part = self.part_with(start)
        if part is None or not part.header_size:
            return start
        try:
            return first_entry_position(part.files.directory, start)
        except (CorruptLogError, StorageError):
            # Whoever reads it says so; of a file that retention has deleted nobody asks any more.
            return start

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
        size, magic = SIZE_AND_MAGIC.unpack_from(file.view, at)
        if not SIZE_MIN <= size <= room or magic != MAGIC:
            return None
        if POSITION.unpack_from(file.view, at + PHYSICAL_OFFSET_AT)[0] != position:
            return None
        return file.view[at : at + size]

    def store_time(self, position: int, size: int) -> int:
        """Store timestamp of the message at ``position``, epoch ms; -1 if there is none."""
        file = self.file_of(position)
        if file is None or position + size > file.end:
            return -1
        at = position - file.start
        if WORD.unpack_from(file.view, at + MAGIC_AT)[0] != MAGIC:
            return -1
        (sys_flag,) = WORD.unpack_from(file.view, at + SYS_FLAG_AT)
        host_size = HOST_V6_SIZE if sys_flag & BORN_HOST_V6 else HOST_V4_SIZE
        timestamp: int = TIMESTAMP.unpack_from(file.view, at + BORN_HOST_AT + host_size)[0]
        return timestamp
