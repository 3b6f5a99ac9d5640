"""Scrub of a DLedger log in use: reads its files, and says which bytes are damaged.

What is read was committed, so nothing may change it but a repair and the deletion of old files.
Three kinds of damage are told apart: entries, which only another member has; index items and the
blanks at the ends of files, which the entries themselves tell (``Damage.patch``).

Reads take from the page cache what is there, and leave nothing in it that was not. A block that the
disk cannot give counts as zeros.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import CHAIN_CRC_AT, HEADER_SIZE, chain_checksum
from ledgermq.formats.dledger_index import ITEM_SIZE, DLedgerIndexItem, decode_index_item
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.log.entry_check import EntryPoint, check_entries, whole_entry
from ledgermq.store.log.entry_files import LogPlaces

STEP_SIZE = 1024 * 1024

RUN_ENTRIES_MAX = 256
"""Most damaged entries in a row that are one damage; more are several, one found behind the
other."""

_ENTRY_SIZE_MIN = HEADER_SIZE + 91
_BLANK = Struct(">iI")
_PAGE = 4_096
_NOT_CACHED = (errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Family(IntEnum):
    """Files of the log; numbers are those of the orders to the writer."""

    DATA = 0
    INDEX = 1


class Damage(NamedTuple):
    """Bytes that are not what was written.

    Attributes:
        point: the place before the first damaged entry.
        last: index of the last one.
        end: position of the whole entry behind them in the same file; None when that is not known.
        position: of the first damaged byte, in ``family``.
        fault: what is wrong, for people.
        patch: what belongs there; empty when only another member can tell.
    """

    family: Family
    point: EntryPoint
    last: Index
    end: Position | None
    position: int
    fault: str
    patch: bytes = b""

    @property
    def first(self) -> Index:
        """Index of the first damaged entry."""
        return self.point.index


class Step(NamedTuple):
    """What one step read.

    Attributes:
        point: where to go on; None at the end.
        size: bytes read.
        damage: what ended the step before it had read all.
    """

    point: EntryPoint | None
    size: int
    damage: Damage | None


@dataclass(frozen=True, slots=True)
class ScrubEnd:
    """How far the log may be read: position behind the last committed entry, and its index."""

    position: Position
    index: Index


class LogScrub:
    """Used by one thread at a time; every call opens the file that it reads, and closes it."""

    def __init__(self, places: LogPlaces) -> None:
        """Nothing is opened."""
        self._data, self._index, self._file_size, self._index_file_size = places

    def path(self, damage: Damage) -> tuple[Path, int]:
        """File and offset of the first damaged byte."""
        return self._place(damage.family, damage.position)

    def begin(self, end: ScrubEnd) -> EntryPoint | None:
        """The place before the first entry that there is; None in an empty log.

        Raises:
            StorageError: the files cannot be read.
        """
        try:
            starts = starts_in(self._data)
        except OSError as error:
            raise StorageError.of("log folder not read", error, file=self._data) from error
        if not starts or starts[0] >= end.position:
            return None
        first = self._point_of_file(starts[0])
        if first is not None:
            return first
        index = self._index_of_file(starts[0], end)
        if index is None:
            return self._next_file(starts[0], end)
        chain = 0 if index == 0 else None
        return EntryPoint(Position(starts[0]), index, Term(0), chain)

    def point_before(self, index: Index) -> EntryPoint | None:
        """The place before entry ``index``, as its index item tells; None when that is damaged.

        Raises:
            StorageError: the files cannot be read, or are gone.
        """
        item = self._item(index)
        if item is None:
            return None
        point = EntryPoint(item.position, index, Term(0), None)
        if index == 0:
            return replace(point, chain=0)
        before = self._item(index - 1) if self._has_item(index - 1) else None
        if before is None or not self._holds(before.position):
            return point
        data = self._read(Family.DATA, before.position, before.size)
        place = EntryPoint(before.position, Index(index - 1), Term(0), None)
        if whole_entry(memoryview(data), place) is None:
            return point
        chain = int.from_bytes(data[CHAIN_CRC_AT : CHAIN_CRC_AT + 4], "big")
        return replace(point, term=before.term, chain=chain)

    def index_at(self, position: int, end: ScrubEnd) -> Index | None:
        """The entry that has the byte at ``position``, by the index items; None when none has.

        Raises:
            StorageError: the files cannot be read, or are gone.
        """
        begin = self.begin(end)
        if begin is None:
            return None
        low, high = begin.index, int(end.index)
        while low < high:
            middle = (low + high + 1) // 2
            item = self._item(middle)
            # A damaged item says nothing: one of the next must.
            at = middle
            while item is None and at < high:
                at += 1
                item = self._item(at)
            if item is not None and item.position <= position:
                low = Index(at)
            else:
                high = middle - 1
        return Index(low)

    def step(self, point: EntryPoint, end: ScrubEnd, size_max: int) -> Step:
        """Read on from ``point``, at most ``size_max`` bytes unless an entry is larger.

        Raises:
            StorageError: the files cannot be read, or are gone.
        """
        if point.index > end.index or point.position >= end.position:
            return Step(None, 0, None)
        start = point.position - point.position % self._file_size
        room = min(start + self._file_size, end.position) - point.position
        wanted = min(room, max(size_max, _PAGE))
        data = memoryview(self._read(Family.DATA, point.position, wanted))
        checked = check_entries(data, point)
        if checked.size == 0 and wanted < room:
            needed = int.from_bytes(data[4:8], "big")
            if wanted < needed <= room:
                wanted = needed
                data = memoryview(self._read(Family.DATA, point.position, wanted))
                checked = check_entries(data, point)
        damage = self._compare_items(point, checked.items)
        if damage is not None:
            # The entries are whole: the items go on from them.
            return Step(checked.point, checked.size, damage)
        behind = checked.point
        if behind.index > end.index:
            # What is between the last entry and ``end`` is the blank of a file that was just left.
            return Step(None, checked.size, None)
        if checked.size == wanted or (checked.size and wanted < room):
            return Step(behind, checked.size, None)
        following = Position(start + self._file_size)
        if self._begins(following, behind.index, end):
            return self._check_blank(behind, following, checked.size)
        damage, on = self._find_end(behind, end, checked.fault)
        return Step(on, checked.size, damage)

    def look_at(self, place: int, end: ScrubEnd, *, is_position: bool) -> tuple[Damage, ...]:
        """What is damaged at one place: the byte at a position, or the entry of an index.

        Raises:
            StorageError: the files cannot be read, or are gone.
        """
        index = self.index_at(place, end) if is_position else Index(place)
        if index is None or index > end.index:
            return ()
        point = self.point_before(index)
        if point is None:
            point = self.begin(end)
        return self.damages(point, Index(min(end.index, index + 1)), end)

    def damages(self, point: EntryPoint | None, last: Index, end: ScrubEnd) -> tuple[Damage, ...]:
        """What is damaged from ``point`` on, up to entry ``last`` at least.

        Raises:
            StorageError: the files cannot be read, or are gone.
        """
        found: list[Damage] = []
        while point is not None and point.index <= last:
            step = self.step(point, end, STEP_SIZE)
            if step.damage is not None:
                found.append(step.damage)
            point = step.point
        return tuple(found)

    def whole_entries(self, first: Index, last: Index, *, size_max: int) -> bytes | None:
        """Entries from ``first`` on, up to ``last``: those that one file and ``size_max`` bytes
        hold.

        The first one is given whatever its size. None when it, or its index item, is damaged.

        Raises:
            StorageError: the files cannot be read, or are gone.
        """
        point = self.point_before(first)
        item = self._item(first)
        if point is None or item is None:
            return None
        room = self._file_size - point.position % self._file_size
        size = min(room, max(size_max, item.size))
        data = memoryview(self._read(Family.DATA, point.position, size))
        checked = check_entries(data, point)
        items = np.frombuffer(checked.items, ENTRY_ITEM)[: last - first + 1]
        return bytes(data[: int(items["size"].sum())]) if len(items) else None

    def joins(self, damage: Damage, chain: int) -> bool:
        """Whether the entry behind ``damage`` follows one whose ``chain`` is stored so.

        Raises:
            StorageError: the file cannot be read.
        """
        if damage.end is None:
            return True
        header = self._read(Family.DATA, damage.end, HEADER_SIZE)
        stored = int.from_bytes(header[CHAIN_CRC_AT : CHAIN_CRC_AT + 4], "big")
        if not any(header[CHAIN_CRC_AT : CHAIN_CRC_AT + 8]):
            return True
        return chain_checksum(header, chain) == stored

    def is_patched(self, damage: Damage) -> bool:
        """Whether ``damage.patch`` stands in the file.

        Raises:
            StorageError: the file cannot be read.
        """
        return self._read(damage.family, damage.position, len(damage.patch)) == damage.patch

    def forget(self, family: Family, position: int, size: int) -> None:
        """Have the next read of these bytes come from the disk, as far as nobody has them mapped.

        Raises:
            StorageError: the file is gone.
        """
        path, offset = self._place(family, position)
        begin = offset - offset % _PAGE
        fd = _open(path)
        try:
            os.posix_fadvise(fd, begin, offset + size - begin, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def _compare_items(self, point: EntryPoint, made: bytearray) -> Damage | None:
        """The index items that are not those of the entries from ``point`` on."""
        at = point.index * ITEM_SIZE
        wanted = memoryview(made)
        while wanted:
            size = min(len(wanted), self._index_file_size - at % self._index_file_size)
            found = self._read(Family.INDEX, at, size)
            if found != wanted[:size]:
                rows = [
                    row
                    for row in range(0, size, ITEM_SIZE)
                    if found[row : row + ITEM_SIZE] != wanted[row : row + ITEM_SIZE]
                ]
                # What lies between two that are wrong is right, and may be written again.
                number, stop = rows[0], rows[-1] + ITEM_SIZE
                first = Index((at + number) // ITEM_SIZE)
                last = Index((at + stop) // ITEM_SIZE - 1)
                return Damage(
                    Family.INDEX,
                    replace(point, index=first, chain=None),
                    last,
                    None,
                    at + number,
                    "index item",
                    bytes(wanted[number:stop]),
                )
            wanted = wanted[size:]
            at += size
        return None

    def _begins(self, following: Position, index: Index, end: ScrubEnd) -> bool:
        """Whether entry ``index`` is the first one of the file at ``following``."""
        if following >= end.position:
            return False
        if not self._holds(following):
            return False
        item = self._item(index)
        if item is not None:
            return item.position == following
        found = self._point_of_file(following)
        return found is not None and found.index == index

    def _check_blank(self, behind: EntryPoint, following: Position, size: int) -> Step:
        """Compare the blank at ``behind``, whose next entry begins the file at ``following``."""
        on = replace(behind, position=following)
        room = following - behind.position
        if not room:
            return Step(on, size, None)
        blank = _BLANK.pack(-1, room)
        if room < len(blank) or self._read(Family.DATA, behind.position, len(blank)) == blank:
            return Step(on, size, None)
        damage = Damage(
            Family.DATA,
            behind,
            Index(behind.index - 1),
            following,
            behind.position,
            "blank at the end of the file",
            blank,
        )
        return Step(on, size, damage)

    def _find_end(
        self, point: EntryPoint, end: ScrubEnd, fault: RecordFault
    ) -> tuple[Damage, EntryPoint | None]:
        """The damaged entries from ``point`` on, and the place before the next whole one."""
        text = "entry" if fault is RecordFault.NONE else fault.field
        last = min(end.index, point.index + RUN_ENTRIES_MAX - 1)
        start = point.position - point.position % self._file_size
        for index in range(point.index + 1, last + 2):
            if index > end.index:
                same = end.position <= start + self._file_size
                damage = Damage(
                    Family.DATA,
                    point,
                    end.index,
                    end.position if same else None,
                    point.position,
                    text,
                )
                return damage, None
            item = self._item(index)
            if item is None or item.position <= point.position or not self._is_whole(item):
                continue
            same = item.position < start + self._file_size
            damage = Damage(
                Family.DATA,
                point,
                Index(index - 1),
                item.position if same else None,
                point.position,
                text,
            )
            return damage, EntryPoint(item.position, item.index, Term(0), None)
        damage = Damage(Family.DATA, point, Index(last), None, point.position, text)
        return damage, self._next_file(start, end)

    def _next_file(self, start: int, end: ScrubEnd) -> EntryPoint | None:
        following = start + self._file_size
        while following < end.position:
            point = self._point_of_file(following) if self._holds(following) else None
            if point is not None:
                return point
            following += self._file_size
        return None

    def _is_whole(self, item: DLedgerIndexItem) -> bool:
        if not self._holds(item.position):
            return False
        data = self._read(Family.DATA, item.position, item.size)
        found = whole_entry(
            memoryview(data), EntryPoint(item.position, item.index, item.term, None)
        )
        return found == item

    def _point_of_file(self, start: int) -> EntryPoint | None:
        """The place before the first entry of a file; None when that entry is not whole."""
        header = self._read(Family.DATA, start, HEADER_SIZE)
        size = int.from_bytes(header[4:8], "big")
        index = Index(int.from_bytes(header[8:16], "big"))
        if not _ENTRY_SIZE_MIN <= size <= self._file_size:
            return None
        point = EntryPoint(Position(start), index, Term(0), 0 if index == 0 else None)
        data = self._read(Family.DATA, start, size)
        return point if whole_entry(memoryview(data), point) is not None else None

    def _index_of_file(self, start: int, end: ScrubEnd) -> Index | None:
        """Which entry begins the file at ``start``, as the index items tell; None if they do not.

        Items of entries whose files were deleted may be zeros.
        """
        if start == 0:
            return Index(0)
        low, high = min(starts_in(self._index), default=0) // ITEM_SIZE, int(end.index)
        while low < high:
            middle = (low + high) // 2
            item = self._item(middle)
            if item is None or item.position < start:
                low = middle + 1
            else:
                high = middle
        found = self._item(low)
        return Index(low) if found is not None and found.position == start else None

    def _has_item(self, index: int) -> bool:
        return self._place(Family.INDEX, index * ITEM_SIZE)[0].exists()

    def _item(self, index: int) -> DLedgerIndexItem | None:
        """The index item of ``index``; None when it is damaged."""
        raw = self._read(Family.INDEX, index * ITEM_SIZE, ITEM_SIZE)
        try:
            item = decode_index_item(memoryview(raw), index=Index(index))
        except CorruptLogError:
            return None
        if item is None or item.size < _ENTRY_SIZE_MIN:
            return None
        fits = item.position % self._file_size + item.size <= self._file_size
        return item if fits else None

    def _holds(self, position: int) -> bool:
        return self._place(Family.DATA, position)[0].exists()

    def _place(self, family: Family, position: int) -> tuple[Path, int]:
        folder = self._data if family is Family.DATA else self._index
        size = self._file_size if family is Family.DATA else self._index_file_size
        offset = position % size
        return folder / file_name(position - offset), offset

    def _read(self, family: Family, position: int, size: int) -> bytes:
        """``size`` bytes; zeros for what the disk cannot give.

        Raises:
            StorageError: the file is gone, or cannot be opened.
        """
        path, offset = self._place(family, position)
        fd = _open(path)
        try:
            return _read_quietly(fd, offset, size, path)
        finally:
            os.close(fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError.of("log file not opened", error, file=path) from error


def _read_quietly(fd: int, offset: int, size: int, path: Path) -> bytes:
    """Bytes of a file, without pushing out of the page cache what others read."""
    buffer = bytearray(size)
    try:
        if os.preadv(fd, [buffer], offset, os.RWF_NOWAIT) == size:
            return bytes(buffer)
    except OSError as error:
        if error.errno not in _NOT_CACHED:
            return _read_pages(fd, offset, size)
    os.posix_fadvise(fd, offset, size, os.POSIX_FADV_RANDOM)
    try:
        data = os.pread(fd, size, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise StorageError.of("log not read", error, file=path) from error
        return _read_pages(fd, offset, size)
    begin = offset - offset % _PAGE
    os.posix_fadvise(fd, begin, offset + size - begin, os.POSIX_FADV_DONTNEED)
    return data.ljust(size, b"\0")


def _read_pages(fd: int, offset: int, size: int) -> bytes:
    """Page by page, with zeros for those that the disk cannot give."""
    parts = []
    at = offset
    while at < offset + size:
        near = min(offset + size, at - at % _PAGE + _PAGE)
        try:
            parts.append(os.pread(fd, near - at, at).ljust(near - at, b"\0"))
        except OSError:
            parts.append(bytes(near - at))
        at = near
    return b"".join(parts)
