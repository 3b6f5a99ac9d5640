"""Append side of the log: frames of checked records, stamped and written.

One class for both of RocketMQ's logs. With a DLedger log every record carries a 48-byte entry
header and gets an index item; with a plain CommitLog neither, and an entry's *index* is the
position of its end (docs/architecture.md, Words).

Invariants, for the cursor ``end``: ``synced <= end``; everything below ``end.position`` is in the
files; index items are written before ``end`` moves.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE as INDEX_ITEM_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import stamp_run
from ledgermq.formats.store_markers import BLANK, BLANK_SIZE, COMMITLOG_BLANK_MAGIC
from ledgermq.model.errors import DiskFullError, MessageIllegalError, StorageError
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.store.files.append_files import AppendFiles, FileTail

_ARENA_SIZE = 4 * 1024 * 1024
"""Batches are staged in one buffer that stays warm; it grows when a batch is larger."""

_BLANK_DLEDGER = Struct(">iI")


class LogEnd(NamedTuple):
    """End of a log: the first free position and the last entry (index -1: there is none)."""

    position: Position
    index_: Index
    term: Term
    chain: int


class Span(NamedTuple):
    """Where consecutive records of one run went: one behind the other in one file."""

    first: int
    records: int
    physical_offset: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class StampedRun:
    """Records of one queue in a frame: how many, and the queue offset of the first."""

    records: int
    queue_offset: QueueOffset


class LogWriter:
    """Appends batches; owned by the writer process, which holds the put lock meanwhile."""

    def __init__(
        self,
        data: AppendFiles,
        index: AppendFiles | None,
        *,
        end: LogEnd,
        store_host: bytes,
    ) -> None:
        """Go on at ``end``, which recovery has found.

        Args:
            data: the log's files, positioned at ``end.position``.
            index: DLedger's index files, positioned at the next item; None with a CommitLog.
            store_host: this node's address and port as on disk, 8 or 20 bytes.
        """
        assert data.position == end.position, (data.position, end)
        assert index is None or index.position == (end.index_ + 1) * INDEX_ITEM_SIZE
        self.end = end
        self.header_size = ENTRY_HEADER_SIZE if index is not None else 0
        self._data = data
        self._index = index
        self._store_host = store_host
        self._published = end
        self._fresh: tuple[LogEnd, LogEnd | None] = end, None
        self._wanted = 0, 0
        self._batch, self._batch_size = bytearray(_ARENA_SIZE), _ARENA_SIZE
        self._staged = self._fresh_size = 0
        self._items, self._items_size = bytearray(_ARENA_SIZE // 8), _ARENA_SIZE // 8
        self._staged_items = 0
        self._one_size = memoryview(array("I", [0]))

    @property
    def record_size_max(self) -> int:
        """Largest record, its entry header included, that a file of this log can hold."""
        return self._data.file_size - BLANK_SIZE

    @property
    def files_made(self) -> int:
        """Files that were made since the log was opened: it changes when the disk gets fuller."""
        return self._data.files_made

    def reserve(self, sizes: Sequence[int] | memoryview) -> None:
        """Have blocks for records of these sizes behind what is staged.

        After it neither ``put`` nor ``publish`` of them can fail because the disk is full.

        Raises:
            DiskFullError: there is no space; nothing has changed.
        """
        position = self._data.position + self._staged
        room = self._data.room - self._staged - BLANK_SIZE
        count = len(sizes)
        total = sizes[0] if count == 1 else sum(sizes)
        if total > room:
            file_size = self._data.file_size
            for size in sizes:
                if size > room:
                    # To the file's end: where it is full, that is here.
                    position += room + BLANK_SIZE
                    room = file_size - BLANK_SIZE
                position += size
                room -= size
        else:
            position += total
        self._reserve(position, (self.end.index_ + 1 + count) * INDEX_ITEM_SIZE)

    def _reserve(self, position: int, items: int) -> None:
        try:
            self._data.reserve(position)
            if self._index is not None:
                self._index.reserve(items)
        except DiskFullError:
            self._wanted = position, items
            raise

    def try_write(self) -> None:
        """Have the blocks that were refused last, and write where the next records go.

        What stands behind the log's end is zeros then.

        Raises:
            DiskFullError: that does not work now.
        """
        assert not self._staged
        position, items = self._wanted
        has_items = 0 if self._index is None else self._index.position
        self._reserve(max(position, self._data.position), max(items, has_items))
        self._data.try_write()
        if self._index is not None:
            self._index.try_write()

    def reserve_entries(self, end: LogEnd) -> None:
        """Have blocks for entries up to ``end``, for ``append_entries``.

        Raises:
            DiskFullError: there is no space; nothing has changed.
        """
        assert self._index is not None and not self._staged
        self._reserve(end.position, (end.index_ + 1) * INDEX_ITEM_SIZE)

    def put(
        self,
        payload: memoryview | bytes,
        sizes: memoryview,
        runs: Sequence[StampedRun],
        *,
        term: Term,
        store_timestamp: int,
    ) -> list[Span]:
        """Stamp a copy of ``payload`` and stage it; ``publish`` writes what is staged.

        The payload has passed ``kernel.check_run``. It is cut between records where a file ends.
        Only whole frames are staged, so a failure in ``publish`` concerns all of them.

        Args:
            payload: the frame's records, entry header holes included.
            sizes: unsigned 32-bit sizes of its records.
            runs: its runs, in order.
            term: the granted term; ignored with a CommitLog.
            store_timestamp: epoch milliseconds.

        Returns:
            where the records will be: at least one span a run.
        """
        spans: list[Span] = []
        first = 0
        at = 0
        for run in runs:
            left = run.records
            queue_offset = int(run.queue_offset)
            while left:
                count, size = self._fitting(sizes, first, left)
                if count == 0:
                    self._roll()
                    continue
                chunk = payload[at : at + size]
                spans.append(
                    self._stage(
                        chunk,
                        sizes,
                        first=first,
                        count=count,
                        queue_offset=queue_offset,
                        term=term,
                        store_timestamp=store_timestamp,
                    )
                )
                first += count
                left -= count
                queue_offset += count
                at += size
        return spans

    def put_one(
        self, record: bytes, size: int, *, term: Term, queue_offset: int, store_timestamp: int
    ) -> Span | None:
        """Stage one record as ``put`` does, where that needs neither another file nor more blocks.

        Args:
            size: of the record.

        Returns:
            where it will be; None: nothing has changed, and it is for ``reserve`` and ``put``.
        """
        index = self._index
        if not self._data.has_blocks(self._staged + size + BLANK_SIZE) or not (
            index is None or index.has_blocks(self._staged_items + INDEX_ITEM_SIZE)
        ):
            return None
        self._one_size[0] = size
        return self._stage(
            record,
            self._one_size,
            first=0,
            count=1,
            queue_offset=queue_offset,
            term=term,
            store_timestamp=store_timestamp,
        )

    def publish(self) -> None:
        """Write what was staged: one call for the data, one for the index items.

        Raises:
            StorageError: what was staged is discarded; ``end`` is again what was published.
        """
        if not self._staged:
            return
        try:
            self._data.append(memoryview(self._batch)[: self._staged])
            index, items = self._index, memoryview(self._items)[: self._staged_items]
            if index is not None:
                if index.has_blocks(self._staged_items):
                    index.append(items)
                else:
                    self._append_items(items)
        except BaseException:
            # What was written of it stands behind the end, and is written over.
            self._data.position = self._published.position
            self.end = self._published
            self._fresh = self.end, None
            raise
        finally:
            size, self._staged = self._staged, 0
            self._staged_items = 0
        self._fresh_size = size
        self._fresh = self._published, self.end
        self._published = self.end

    def fresh(self, first: Index, last: Index, *, size_max: int) -> tuple[Position, bytes] | None:
        """Entries from ``first`` to ``last``, and where they begin, if ``publish`` has written
        just these, and nothing was done since: they need not be read from the files.

        None also where they have more bytes than ``size_max``.
        """
        before, end = self._fresh
        if (
            end is not self._published
            or self._staged
            or end.index_ != last
            or before.index_ + 1 != first
            or self._fresh_size > size_max
        ):
            return None
        return before.position, bytes(memoryview(self._batch)[: self._fresh_size])

    def append_entries(self, data: memoryview, items: memoryview, *, end: LogEnd) -> None:
        """Append entries that another node's leader has stamped, exactly as they are.

        Args:
            data: whole entries, verified (``kernel.verify_span``), all of one file of the log. They
                begin at this log's end, or at the next file: then the rest of this one is blank
                there as it will be here.
            items: their index items.
            end: the log's end behind them.

        Raises:
            StorageError: nothing counts as appended.
        """
        assert self.header_size and not self._staged
        begin = end.position - len(data)
        if begin != self.end.position:
            assert begin == self._data.start + self._data.file_size, (begin, self.end)
            self._roll()
        if self._data.room == 0:
            self._data.roll()
        before = self.end
        try:
            self._data.append(data)
            self._append_items(items)
        except BaseException:
            self._data.position = before.position
            raise
        self.end = self._published = end

    def lend(self) -> tuple[FileTail, FileTail | None]:
        """The open files of the log and its index, for who appends stamped or verified entries to
        both, where there are blocks for them, and then calls ``take_back``.
        """
        assert not self._staged
        return self._data.tail, None if self._index is None else self._index.tail

    def take_back(self, end: LogEnd) -> None:
        """Who was lent the files has written entries up to ``end``."""
        self._data.position = end.position
        if self._index is not None:
            self._index.position = (end.index_ + 1) * INDEX_ITEM_SIZE
        self.end = self._published = end

    def truncate(self, end: LogEnd) -> None:
        """Take back every entry behind ``end``; they were never committed.

        No ``sync`` may run meanwhile.

        Raises:
            StorageError: the operating system refused; the process must end, and recover.
        """
        assert self.header_size and not self._staged
        assert end.index_ <= self.end.index_, (end, self.end)
        assert self._index is not None
        # The items first: a crash between leaves entries without an item, which recovery gives
        # them, and never an item without its entry.
        self._index.rewind((end.index_ + 1) * INDEX_ITEM_SIZE)
        self._data.rewind(end.position)
        self.end = self._published = end

    def sync(self) -> None:
        """Return when all that was published is on the disk; any thread may call it."""
        self._data.sync()
        if self._index is not None:
            self._index.sync()

    def close(self) -> None:
        """Close the files; nothing is synced."""
        self._data.close()
        if self._index is not None:
            self._index.close()

    def _fitting(self, sizes: memoryview, first: int, count: int) -> tuple[int, int]:
        """How many of ``count`` records fit into the open file, and their bytes."""
        room = self._data.room - self._staged - BLANK_SIZE
        total = sizes[first] if count == 1 else sum(sizes[first : first + count])
        if total <= room:
            return count, total
        fit = 0
        total = 0
        for number in range(first, first + count):
            if total + sizes[number] > room:
                break
            total += sizes[number]
            fit += 1
        if fit == 0 and self._data.room == self._data.file_size and not self._staged:
            raise MessageIllegalError(
                "record larger than a file of the log",
                size=sizes[first],
                limit=self.record_size_max,
                setting="store.mapped_file_size_commit_log",
            )
        return fit, total

    def _stage(
        self,
        chunk: memoryview | bytes,
        sizes: memoryview,
        *,
        first: int,
        count: int,
        queue_offset: int,
        term: Term,
        store_timestamp: int,
    ) -> Span:
        at = self._staged
        size = len(chunk)
        position = self._data.position + at
        if at + size > self._batch_size:
            self._batch = _grown(self._batch, at, at + size)
            self._batch_size = len(self._batch)
        self._batch[at : at + size] = chunk
        items_at = self._staged_items
        items_end = items_at + (count * INDEX_ITEM_SIZE if self.header_size else 0)
        if items_end > self._items_size:
            self._items = _grown(self._items, items_at, items_end)
            self._items_size = len(self._items)
        chain = stamp_run(
            self._batch,
            at,
            sizes,
            first,
            count,
            self.header_size,
            position,
            self.end.index_ + 1 if self.header_size else 0,
            term,
            queue_offset,
            store_timestamp,
            self._store_host,
            self.end.chain,
            self._items,
            items_at,
            crc32,
        )
        self._staged = at + size
        self._staged_items = items_end
        end = position + size
        # With each message: a tuple's own constructor costs half of a named one's.
        if self.header_size:
            fields = end, self.end.index_ + count, term, chain
        else:
            fields = end, end, Term(0), chain
        self.end = tuple.__new__(LogEnd, fields)
        place = first, count, position + self.header_size, queue_offset
        return tuple.__new__(Span, place)

    def _append_items(self, items: memoryview) -> None:
        index = self._index
        assert index is not None
        before = index.position
        try:
            index.append_over(items)
        except StorageError as error:
            if index.start > before:
                # The file before is full of items of entries that were not published: only
                # recovery can put that right, so this error must end the process.
                raise StorageError("index file left half written", cause=str(error)) from error
            index.position = before
            raise

    def _roll(self) -> None:
        """Close the open file with a blank and go on in the next one."""
        # What is staged belongs into this file, before the blank.
        self.publish()
        room = self._data.room
        if room:
            assert room >= BLANK_SIZE, room
            if self.header_size:
                blank = _BLANK_DLEDGER.pack(-1, room)
            else:
                blank = BLANK.pack(room, COMMITLOG_BLANK_MAGIC)
            self._data.append(blank)
        self._data.roll()
        position = self._data.position
        index = self.end.index_ if self.header_size else position
        self.end = self.end._replace(position=Position(position), index_=Index(index))
        self._published = self.end


def _grown(buffer: bytearray, used: int, size: int) -> bytearray:
    """A larger buffer with the first ``used`` bytes of ``buffer``."""
    larger = bytearray(max(size, 2 * len(buffer)))
    larger[:used] = memoryview(buffer)[:used]
    return larger
