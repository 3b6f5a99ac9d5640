"""Reader of a store directory's whole log by position, plain, DLedger or upgraded.

An upgraded log is read as one: its plain part ends with a blank, and its DLedger part begins where
the next plain file would.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import EntryHeader, decode_entry_header
from ledgermq.formats.dledger_index import ITEM_SIZE, decode_index_item
from ledgermq.formats.kernels.kernel import ScanStatus, scan_entries
from ledgermq.formats.records.message import SIZE_MIN, Message, decode_message
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import NO_INDEX, Index, Position
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.mapped_files import MappedFiles, VanishedError
from ledgermq.store.files.properties_file import decode_dledger_checkpoint
from ledgermq.store.files.small_file import read_file
from ledgermq.store.log.entry_files import first_entry_position
from ledgermq.store.log.first_entry import first_entry_offset
from ledgermq.store.log_family import LogPart, LogSpan, MappedLog
from ledgermq.store.store_directory import StoreDirectory

_ROWS = 4_096


class LogRecord(NamedTuple):
    """One record: where it begins, its entry header (none in a plain log), and its message."""

    position: Position
    header: EntryHeader | None
    message: Message


class LogReader(MappedLog):
    """The log of ``directory``, read-only.

    Invariants: ``first <= committed_end <= end``, unless an entry behind a crash's cut is said to
    be committed; then ``committed_end`` is ``end``.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        """Open the log; its end is looked for when somebody asks.

        Raises:
            CorruptLogError: the files are not those of a log.
            StorageError: they cannot be read.
        """
        # Ours may say what size the files have; a plain log's tell it themselves.
        file_size = None if directory.dledger is None else directory.log_file_size
        super().__init__(directory.log_family.mapped(file_size=file_size))
        self.directory = directory
        self.index_files: MappedFiles | None = None
        if directory.dledger is not None:
            self.index_files = MappedFiles(directory.dledger / "index")
        self._first = self._find_first()
        self._found_end: Position | None = None

    @property
    def first(self) -> Position:
        """Position of the first record; of the first byte, if there is no record."""
        return self._first

    @property
    def end(self) -> Position:
        """Position behind the last whole record; looked for once, and again after ``refresh``."""
        if self._found_end is None:
            self._found_end = self._find_end()
        return self._found_end

    def committed_end(self) -> Position:
        """Position behind the last entry that the store says is committed.

        In a DLedger log that is what its ``checkpoint`` tells, which a running broker renews every
        three seconds; a plain log is committed to its end.

        Raises:
            CorruptLogError: ``checkpoint`` or the index item cannot be read.
        """
        if self.directory.dledger is None or self.index_files is None:
            return self.end
        divided = Position(self.parts[-1].files.first)
        path = self.directory.dledger / "checkpoint"
        content = read_file(path)
        if content is None:
            return divided
        committed = decode_dledger_checkpoint(content, file=str(path)).committed
        if committed == NO_INDEX:
            return divided
        return Position(min(self.end, self._end_of_entry(committed)))

    def refresh(self) -> None:
        """Look for files and records that came since."""
        super().refresh()
        if self.index_files is not None:
            self.index_files.refresh()
        self._first = self._find_first()
        self._found_end = None

    def close(self) -> None:
        super().close()
        if self.index_files is not None:
            self.index_files.close()

    def part_of(self, position: int) -> LogPart:
        """The part that holds ``position``.

        Raises:
            CorruptLogError: none does.
        """
        part = self.part_with(position)
        if part is not None:
            return part
        raise CorruptLogError(
            "not within the log",
            file=str(self.parts[-1].files.path(position)),
            offset=position,
            field="position",
            first=self.first,
            end=self.end,
        )

    def span(self, position: int) -> LogSpan:
        """What its file holds from ``position`` on, which is within the log."""
        part = self.part_of(position)
        view = part.files.view(position, part.files.room(position))
        path = part.files.path(position)
        return LogSpan(view, Position(position), part.header_size, path)

    def has_record(self, position: int, size: int, crc: int) -> bool | None:
        """Whether the ``size`` bytes from ``position`` on have this CRC-32; None where the log does
        not have that place.
        """
        part = self.part_with(position)
        if part is None:
            return None
        files = part.files
        return files.room(position) >= size and crc32(files.view(position, size)) == crc

    def message_at(
        self, physical_offset: int, size: int | None = None, *, check_crc: bool = True
    ) -> Message:
        """The message at ``physical_offset``; its body is part of a map, valid as long as held.

        Args:
            size: bytes of the message, as a queue unit tells; ``None`` takes its own word.

        Raises:
            CorruptLogError: there is no such message; names file, offset and field.
        """
        files = self.part_of(physical_offset).files
        room = files.room(physical_offset)
        file = str(files.path(physical_offset))
        offset = physical_offset - files.start_of(physical_offset)
        if room < SIZE_MIN or not 0 <= (size or 0) <= room:
            raise CorruptLogError(
                "message does not fit into its file",
                file=file,
                offset=offset,
                field="total_size",
                value=size,
                room=room,
            )
        view = files.view(physical_offset - offset, files.file_size)
        message = decode_message(view, offset, check_crc=check_crc, file=file)
        if message.physical_offset != physical_offset:
            raise CorruptLogError(
                "message of another place",
                file=file,
                offset=offset + 28,
                field="physical_offset",
                value=message.physical_offset,
                expected=physical_offset,
            )
        if size is not None and message.size != size:
            raise CorruptLogError(
                "message of another size than its queue unit says",
                file=file,
                offset=offset,
                field="total_size",
                value=message.size,
                expected=size,
            )
        return message

    def store_time_at(self, physical_offset: int, size: int) -> int:
        """Store time of a message, epoch ms; -1 if it cannot be read, as in Java."""
        try:
            return self.message_at(physical_offset, size, check_crc=False).store_timestamp
        except CorruptLogError:
            return -1

    def iterate(self, first: int | None = None, end: int | None = None) -> Iterator[LogRecord]:
        """The records from ``first`` on, where one begins, to ``end``; all when left out.

        Raises:
            CorruptLogError: a record before ``end`` is not whole; names file, offset and field.
        """
        position = self.first if first is None else first
        end = self.end if end is None else end
        starts, sizes = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
        while position < end:
            span = self.span(position)
            view, base, header_size = span.view, span.start, span.header_size
            upto = min(len(view), end - position)
            count, reached, status = scan_entries(
                view, 0, upto, header_size, base, starts.data, sizes.data
            )
            file = str(span.path)
            for at in starts[:count].tolist():
                yield self._record(view, at - header_size, base, header_size, file)
            if ScanStatus(status).corrupt or (count == 0 and reached == 0):
                raise CorruptLogError(
                    "record is not whole",
                    file=file,
                    offset=self._offset(base + reached),
                    field=ScanStatus(status).name.lower().removeprefix("bad_"),
                )
            position += reached

    def _record(
        self, view: memoryview, at: int, base: int, header_size: int, file: str
    ) -> LogRecord:
        position = Position(base + at)
        header = None
        if header_size:
            header = decode_entry_header(view, at, position=position, file=file)
        message = decode_message(view, at + header_size, file=file)
        return LogRecord(position, header, message)

    def _offset(self, position: int) -> int:
        return position - self.part_of(position).files.start_of(position)

    def _end_of_entry(self, index: Index) -> int:
        files = self.index_files
        assert files is not None
        position = index * ITEM_SIZE
        item = decode_index_item(
            files.view(position, ITEM_SIZE), index=index, file=str(files.path(position))
        )
        if item is None:
            raise CorruptLogError(
                "no index item of the committed entry",
                file=str(files.path(position)),
                offset=position - files.start_of(position),
                field="index",
                value=index,
            )
        return item.position + item.size

    def _find_first(self) -> Position:
        for part in self.parts:
            if part.files.starts:
                first = Position(part.files.first)
                return _first_entry(part.files.directory, first) if part.header_size else first
        return Position(0)

    def _find_end(self) -> Position:
        """Scan the last file that begins with a record, or with the blank of an old log."""
        for part in reversed(self.parts):
            for start in reversed(part.files.starts):
                begin = max(0, self._first - start)
                reached = self._scan(part, start, begin)
                if reached == begin and part.header_size and start <= self._first:
                    # A page that a disk has lost ends no log: who reads over it is told.
                    begin = self._entry_behind(first_entry_offset(part.files.path(start)), start)
                    reached = self._scan(part, start, begin)
                if reached > begin:
                    return Position(start + reached)
        return self.first

    def _entry_behind(self, offset: int, start: int) -> int:
        """Offset of the first entry, by the index, not before ``offset`` of the file at ``start``;
        0 without one."""
        files = self.index_files
        for begin in files.starts if files is not None and offset else ():
            assert files is not None
            items = np.frombuffer(files.view(begin, files.file_size), ENTRY_ITEM)
            found = np.flatnonzero((items["size"] > 0) & (items["position"] >= start + offset))
            if len(found):
                return int(items["position"][found[0]]) - start
        return 0

    def _scan(self, part: LogPart, start: int, at: int) -> int:
        """Where the records end that begin at offset ``at`` of the file at ``start``."""
        starts, sizes = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
        view = part.files.view(start, part.files.file_size)
        status = ScanStatus.FULL
        while status is ScanStatus.FULL:
            _, at, number = scan_entries(
                view, at, len(view), part.header_size, start, starts.data, sizes.data
            )
            status = ScanStatus(number)
        return at


def _first_entry(folder: Path, start: int) -> Position:
    try:
        return first_entry_position(folder, start)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise VanishedError(
            "file was deleted meanwhile", errno=errno.ENOENT, file=str(folder / file_name(start))
        ) from error
