"""Read side of a DLedger log for replication: index items, and the bytes of whole entries.

Everything is read with ``pread`` from the page cache: the files may be cut by the writer at any
time, and a process that only passes entries on should not count gigabytes of maps as its own.
(Java: ``DLedgerMmapFileStore.get``, ``getListFromSelectMappedBuffer``.)
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import CHAIN_CRC_AT, HEADER_SIZE
from ledgermq.formats.dledger_index import FILE_SIZE, ITEM_SIZE
from ledgermq.model.errors import CorruptLogError, StorageError, refused_as
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.store.files.descriptor_cache import with_descriptors
from ledgermq.store.files.file_names import file_name, own_names, starts_in
from ledgermq.store.log.first_entry import first_entry_offset
from ledgermq.store.log.log_writer import LogEnd

FITTING_MIN = 256
"""Items that are read at least, 8 KiB: fewer cost the same."""

FILES_OPEN_MAX = 16
_ITEM_FIELDS = Struct(">4xqiq8x")
"""Position, size and index of an item."""

_ITEM_INDEX = slice(16, 24)
"""Where an item has the index of its entry."""

assert ENTRY_ITEM.itemsize == ITEM_SIZE == _ITEM_FIELDS.size

Items = npt.NDArray[np.void]


class LogPlaces(NamedTuple):
    """Folders of a log's data and index files, and the bytes of a file of each."""

    data: Path
    index_folder: Path
    file_size: int
    index_file_size: int


class EntrySpan(NamedTuple):
    """Whole entries, one behind the other in one file; ``data`` belongs to the caller."""

    first: Index
    last: Index
    position: Position
    data: bytes
    items: Items


class TermStart(NamedTuple):
    """Consecutive entries of one term: the index of the first, and the term."""

    first: Index
    term: Term


class EntryFiles:
    """The log's data and index files, opened when they are read; at most a few stay open."""

    def __init__(
        self, data: Path, index: Path, *, file_size: int, index_file_size: int = FILE_SIZE
    ) -> None:
        """Nothing is opened yet.

        Args:
            file_size: bytes of a data file.
            index_file_size: bytes of an index file.
        """
        self.file_size = file_size
        self._data = data
        self._index = index
        self.index_file_size = index_file_size
        self._open: dict[tuple[bool, int], int] = {}
        self._fitting = FITTING_MIN

    def first_index(self, last: Index = NO_INDEX) -> Index:
        """Index of the oldest entry that is there; -1 in an empty log.

        Args:
            last: the log's last entry. With it the index says which entry stands where the oldest
                file begins, also when a disk has spoilt that.

        Raises:
            CorruptLogError: the entry is not where its index item says.
            StorageError: the files cannot be read, or lack the item.
        """
        begin = self.first_position()
        if not (self._data / file_name(begin - begin % self.file_size)).exists():
            return NO_INDEX
        header = self._read(self._data, begin, HEADER_SIZE, self.file_size)
        is_entry = int.from_bytes(header[:4], "big") == 1
        first = Index(int.from_bytes(header[8:16], "big", signed=True) if is_entry else -1)
        if first >= 0 and self._position_of(first) == begin:
            return first
        stated = self._first_stated(begin, last)
        if is_entry and stated == NO_INDEX:
            raise CorruptLogError(
                "first entry is not where its index says", index=first, position=int(begin)
            )
        return stated

    def first_position(self) -> Position:
        """Where the oldest entry begins; the oldest file if it has none, 0 when there is none.

        Zeros at the beginning of that file are no entries after a rebase of RocketMQ's, and a page
        that a disk has lost where the index has an entry before the first one that is not zero.
        """
        start = min(starts_in(self._data), default=None)
        return Position(0) if start is None else self.first_in(start)

    def first_in(self, start: int) -> Position:
        """Where the first entry begins of the oldest file, which begins at ``start``.

        Raises:
            CorruptLogError, StorageError: as ``first_position``.
        """
        offset = first_entry_offset(self._data / file_name(start))
        if not offset or offset + HEADER_SIZE > self.file_size:
            return Position(start)
        header = self._read(self._data, start + offset, HEADER_SIZE, self.file_size)
        index = int.from_bytes(header[8:16], "big", signed=True)
        is_entry = int.from_bytes(header[:4], "big") == 1 and index > 0
        if not is_entry or int.from_bytes(header[24:32], "big") != start + offset:
            return Position(start)
        return Position(start if self._position_of(index - 1) >= 0 else start + offset)

    def index_at(self, position: Position) -> Index:
        """Index of the entry that begins at ``position``.

        Raises:
            CorruptLogError: there is no entry.
            StorageError: the files cannot be read.
        """
        header = self._read(self._data, position, HEADER_SIZE, self.file_size)
        found = int.from_bytes(header[24:32], "big")
        if int.from_bytes(header[:4], "big") != 1 or found != position:
            raise CorruptLogError("no entry where one must begin", position=position, found=found)
        return Index(int.from_bytes(header[8:16], "big"))

    def entry_before(self, position: int, last: Index) -> Position:
        """Where the entry begins that has the byte at ``position``, or that stands before it.

        Args:
            last: the log's last entry; the first one must not begin behind ``position``.

        Raises:
            CorruptLogError: an item is not there.
            StorageError: the files cannot be read.
        """
        low, high = int(self.first_index(last)), int(last)
        while low < high:
            middle = (low + high + 1) // 2
            if self._position(middle) <= position:
                low = middle
            else:
                high = middle - 1
        return self._position(low)

    def items(self, first: Index, last: Index) -> Items:
        """The items of the entries from ``first`` to ``last``, both included.

        Raises:
            CorruptLogError: there is no item of that index.
            StorageError: the files cannot be read.
        """
        data = self._items_bytes(first, last)
        found = int.from_bytes(data[_ITEM_INDEX], "big", signed=True)
        if found != first or int.from_bytes(data[-ITEM_SIZE:][_ITEM_INDEX], "big") != last:
            raise CorruptLogError("index item of another entry", index=first, found=found)
        return np.frombuffer(data, ENTRY_ITEM)

    def _items_bytes(self, first: Index, last: Index) -> bytes:
        assert 0 <= first <= last, (first, last)
        parts: list[bytes] = []
        at, end = first * ITEM_SIZE, (last + 1) * ITEM_SIZE
        while at < end:
            room = self.index_file_size - at % self.index_file_size
            parts.append(self._read(self._index, at, min(room, end - at), self.index_file_size))
            at += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end_of(self, index: Index) -> LogEnd:
        """The log's end if ``index`` were its last entry.

        Raises:
            CorruptLogError: there is no such entry.
            StorageError: the files cannot be read.
        """
        if index < 0:
            # A log that a store was upgraded to does not begin at 0.
            return LogEnd(self.first_position(), NO_INDEX, Term(0), 0)
        item = self.items(index, index)[0]
        position = int(item["position"])
        header = self._read(self._data, position, HEADER_SIZE, self.file_size)
        if int.from_bytes(header[8:16], "big") != index:
            raise CorruptLogError("entry of another index", index=index, position=position)
        chain = int.from_bytes(header[CHAIN_CRC_AT : CHAIN_CRC_AT + 4], "big")
        return LogEnd(Position(position + int(item["size"])), index, Term(int(item["term"])), chain)

    def span(self, first: Index, last: Index, *, size_max: int) -> EntrySpan:
        """Entries from ``first`` on, up to ``last``: those that one file and ``size_max`` bytes
        hold.

        The first entry is given whatever its size.

        Raises:
            CorruptLogError: the files hold something else.
            StorageError: the files cannot be read.
        """
        if first == last:
            # What a leader sends while one message is under way: arrays cost more than the read.
            return self._one_entry(first)
        # As many as fitted into the last span: there may be four times as many up to ``last``.
        upto = Index(min(last, first + self._fitting))
        items = self.items(first, upto)
        count, end = self._fit(items, size_max)
        if count == len(items) and upto < last:
            items = self.items(first, last)
            count, end = self._fit(items, size_max)
        self._fitting = max(FITTING_MIN, count + count // 4)
        begin = int(items["position"][0])
        return self._span_of(first, begin, end - begin, items[:count])

    def _fit(self, items: Items, size_max: int) -> tuple[int, int]:
        """How many entries, from the first on, one file and ``size_max`` bytes hold; their end."""
        ends = items["position"].astype(np.int64) + items["size"]
        begin = int(items["position"][0])
        limit = min(begin + size_max, begin - begin % self.file_size + self.file_size)
        count = max(1, int(np.searchsorted(ends, limit, "right")))
        return count, int(ends[count - 1])

    def _one_entry(self, index: Index) -> EntrySpan:
        item = self._read(self._index, index * ITEM_SIZE, ITEM_SIZE, self.index_file_size)
        begin, size, found = _ITEM_FIELDS.unpack_from(item)
        if found != index:
            raise CorruptLogError("index item of another entry", index=index, found=found)
        return self._span_of(index, begin, size, np.frombuffer(item, ENTRY_ITEM))

    def _span_of(self, first: Index, begin: int, size: int, items: Items) -> EntrySpan:
        if not 0 < size <= self.file_size:
            raise CorruptLogError("index items are damaged", index=first, size=size)
        data = self._read(self._data, begin, size, self.file_size)
        return EntrySpan(first, Index(first + len(items) - 1), Position(begin), data, items)

    def will_need(self, begin: Position, end: Position) -> None:
        """Have the kernel read from ``begin`` to ``end`` into its page cache, without waiting.

        Raises:
            StorageError: the files cannot be read.
        """
        at = int(begin)
        while at < end:
            start = at - at % self.file_size
            size = min(int(end), start + self.file_size) - at
            try:
                fd = self._descriptor(self._data, start)
                os.posix_fadvise(fd, at - start, size, os.POSIX_FADV_WILLNEED)
            except OSError as error:
                raise _not_read(error, self._data, start) from error
            at += size

    def term_runs(self, first: Index, last: Index) -> list[TermStart]:
        """The terms of the entries from ``first`` to ``last``: where each begins.

        Raises:
            CorruptLogError: an item is not there.
            StorageError: the files cannot be read.
        """
        runs: list[TermStart] = []
        at = int(first)
        while at <= last:
            term = self._term(at)
            runs.append(TermStart(Index(at), term))
            # Terms never decrease: what is of this one ends where a bisection says.
            low, high = at, int(last)
            while low < high:
                middle = (low + high + 1) // 2
                if self._term(middle) == term:
                    low = middle
                else:
                    high = middle - 1
            at = low + 1
        return runs

    def forget(self) -> None:
        """Close what is open: after a cut, a file of the same name is another file."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _first_stated(self, begin: Position, last: Index) -> Index:
        """The first entry that does not stand before ``begin``, by the index; -1 for none."""
        low, end = min(starts_in(self._index), default=0) // ITEM_SIZE, last + 1
        high = end
        while low < high:
            middle = (low + high) // 2
            if self._position_of(middle) >= begin:
                high = middle
            else:
                low = middle + 1
        return Index(low) if low < end else NO_INDEX

    def _position_of(self, index: int) -> int:
        """Where entry ``index`` begins by its item; -1 where it has none."""
        try:
            return int(self.items(Index(index), Index(index))["position"][0])
        except (CorruptLogError, StorageError):
            return -1

    def _position(self, index: int) -> Position:
        return Position(int(self.items(Index(index), Index(index))["position"][0]))

    def _term(self, index: int) -> Term:
        return Term(int(self.items(Index(index), Index(index))["term"][0]))

    def _read(self, folder: Path, at: int, size: int, file_size: int) -> bytes:
        """``size`` bytes of the family in ``folder``; they do not cross a file's end."""
        start = at - at % file_size
        try:
            data = os.pread(self._descriptor(folder, start), size, at - start)
        except OSError as error:
            raise _not_read(error, folder, start) from error
        if len(data) != size:
            file = str(folder / file_name(start))
            raise CorruptLogError("log ends too early", file=file, offset=at - start, size=size)
        return data

    def _descriptor(self, folder: Path, start: int) -> int:
        # Not by its path: to make one for each read costs more than the read.
        key = folder is self._data, start
        fd = self._open.get(key)
        if fd is None:
            if len(self._open) >= FILES_OPEN_MAX:
                os.close(self._open.pop(next(iter(self._open))))
            path = folder / file_name(start)
            fd = with_descriptors(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self._open[key] = fd
            # Reads are large and follow the end of the log: what the kernel would read ahead is a
            # hole, and it would fill pages with zeros for it.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd


def file_size_in(folder: Path, default: int) -> int:
    """Size of the files in ``folder``; the last one may just be made, and have none yet.

    The first ones may just be deleted.
    """
    sizes = [0]
    for name in own_names(folder):
        with suppress(FileNotFoundError):
            sizes.append((folder / name).stat().st_size)
    return max(sizes) or default


def _not_read(error: OSError, folder: Path, start: int) -> StorageError:
    return StorageError(
        "log not read",
        errno=error.errno,
        file=str(folder / file_name(start)),
        reason=error.strerror,
    )


def first_entry_position(data: Path, start: int) -> Position:
    """What ``EntryFiles.first_in`` says of the log whose data files are in the folder ``data``.

    For who does not know the sizes of its files, or asks once; the index stands beside ``data``.

    Raises:
        CorruptLogError: a file is shorter than when it was looked at.
        StorageError: the file cannot be read; with ENOENT it was deleted meanwhile.
    """
    path = data / file_name(start)
    if not first_entry_offset(path):
        # As mostly: it begins with an entry, or holds none.
        return Position(start)
    index = data.parent / "index"
    with refused_as("log not looked at", file=path):
        file_size = path.stat().st_size
        index_file_size = file_size_in(index, FILE_SIZE)
    # One that was just made may have no size yet.
    files = EntryFiles(data, index, file_size=file_size, index_file_size=index_file_size)
    try:
        return files.first_in(start)
    finally:
        files.forget()
