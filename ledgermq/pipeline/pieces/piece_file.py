"""Piece that is sealed: its footer, queues, keys, times, the log that it has, and its verification.

All is read by ranges, each of which is compared with its sum before anything is made of it. Two
requests lead to a message of a queue: one of the footers, one of the row group.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from io import RawIOBase
from typing import NamedTuple, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledgermq.conversion.stream.log_facts import facts_of
from ledgermq.formats.records.inner_batch import is_batch, single_records
from ledgermq.formats.records.message import INNER_BATCH
from ledgermq.model.errors import CorruptLogError, MessageUnknownError
from ledgermq.pipeline.pieces.key_filter import filter_of, keys_of, may_have
from ledgermq.pipeline.pieces.locked_rows import OPEN_COLUMNS, LockedBytes, unlock
from ledgermq.pipeline.pieces.log_columns import LOG_COLUMNS, PIECE_SCHEMA, log_bytes, milliseconds
from ledgermq.pipeline.pieces.piece_footer import (
    END_SIZE,
    GROUP_PLAIN_BYTES_MAX,
    PARQUET_MARK,
    TRAILER_SIZE,
    FilePart,
    PieceEnd,
    PieceFooter,
    SealedGroup,
    SealedRun,
    damaged,
    decode_footer,
    decode_trailer,
    table_size,
)
from ledgermq.pipeline.pieces.piece_seal import locked_name, runs_of, times_of
from ledgermq.pipeline.pieces.topic_keys import find_key, unlocking_key

TAIL_BYTES = 256 << 10
"""Bytes of the first request where nobody knows how long the footers are: those of a piece of 128
MiB have a fifth of it."""

TEXT_BYTES_MAX, NUMBER_MAX = 1 << 20, 4 << 20
"""Bounds for what Parquet's footer says."""


class Ranges(Protocol):
    """Bytes of a file or an object that never changes.

    Attributes:
        name: as errors tell it.
        size: bytes of all.
    """

    name: str
    size: int

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``, fewer where it ends before.

        Raises:
            StorageError: they cannot be read.
        """
        ...


class BytesRanges:
    """``Ranges`` of a piece that is in memory."""

    def __init__(self, content: bytes, name: str) -> None:
        """All of the piece, and its name for errors."""
        self._content = content
        self.name = name
        self.size = len(content)

    def read(self, start: int, end: int) -> bytes:
        return self._content[start:end]


class PieceRecord(NamedTuple):
    """A record as it stands in the log.

    Attributes:
        position: of the record; its entry's header stands before.
        header: of the entry; empty in a plain log.
    """

    position: int
    header: bytes
    record: bytes


class PieceFile:
    """One piece; its footers are read when it is opened."""

    def __init__(self, ranges: Ranges, *, tail: int = TAIL_BYTES) -> None:
        """Read and check the footers.

        Args:
            tail: bytes of both footers, where they are known: then it is one request.

        Raises:
            CorruptLogError: it is no piece, or not what was sealed; names the part.
            ConfigError: a later version sealed it.
            StorageError: it cannot be read.
        """
        self._ranges = ranges
        self.name = ranges.name
        content = self._read(max(0, ranges.size - tail), ranges.size, "end")
        self.end = self._find_end(content)
        missing = (ranges.size - len(content)) - self.end.at
        if missing > 0:
            content = self._read(self.end.at, self.end.at + missing, "footer") + content
        content = content[len(content) - (ranges.size - self.end.at) :]
        size = self.end.footer.size
        self.footer: PieceFooter = decode_footer(content[:size], self.end, where=self.name)
        table = content[size + TRAILER_SIZE :]
        if zlib.crc32(table) != self.end.table.crc:
            raise damaged("table", self.name)
        self._metadata = self._checked_metadata(table)

    def closed_rows(self) -> Counter[str]:
        """How many rows of which topics are locked with keys that are not here.

        Raises:
            ConfigError, StorageError: as ``find_key``.
        """
        found: Counter[str] = Counter()
        for number, locked in self.footer.locked.items():
            if not self.is_open(number):
                found[locked.topic] += self.footer.groups[number].rows
        return found

    @property
    def tail(self) -> int:
        """Bytes of both footers, from the first one to the file's end."""
        return self._ranges.size - self.end.at

    def _find_end(self, content: bytes) -> PieceEnd:
        behind = table_size(content[-END_SIZE:], where=self.name)
        at = self._ranges.size - behind
        if at - TRAILER_SIZE < len(PARQUET_MARK):
            raise damaged("end", self.name)
        if len(content) < behind + TRAILER_SIZE:
            trailer = self._read(at - TRAILER_SIZE, at, "trailer")
        else:
            begin = len(content) - behind - TRAILER_SIZE
            trailer = content[begin : begin + TRAILER_SIZE]
        end = decode_trailer(trailer, at, where=self.name)
        if end.table.size != behind:
            raise damaged("end", self.name)
        return end

    def _checked_metadata(self, table: bytes) -> pq.FileMetaData:
        """Parquet's footer, which says what ours says."""
        try:
            found = pq.ParquetFile(
                pa.BufferReader(table),
                thrift_string_size_limit=TEXT_BYTES_MAX,
                thrift_container_size_limit=NUMBER_MAX,
            ).metadata
            names = found.schema.to_arrow_schema().names
        except (pa.ArrowException, OSError) as error:
            raise damaged("table", self.name, reason=str(error)) from error
        groups = self.footer.groups
        is_right = names == PIECE_SCHEMA.names and found.num_row_groups == len(groups)
        for number, place in enumerate(groups):
            is_right = is_right and _is_group(found.row_group(number), place)
        if not is_right:
            raise damaged("table", self.name, reason="it says something else than the footer")
        return found

    def group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a row group: one request.

        Args:
            columns: those that are made; all when left out.

        Raises:
            KeyMissingError: they are locked with a key that is not here.
            CorruptLogError: it is not what was sealed.
            StorageError: it cannot be read.
        """
        locked = self.footer.locked.get(number)
        if locked is None or (columns is not None and OPEN_COLUMNS.issuperset(columns)):
            return self.open_group(number, columns)
        key = unlocking_key(locked.topic, locked.key, where=self.name)
        return unlock(
            self.locked_bytes(number).content,
            key,
            locked_name(self.footer, locked.topic, locked.number),
            rows=self.footer.groups[number].rows,
            columns=columns,
            part=f"locked rows of group {number}",
            where=self.name,
        )

    def is_open(self, number: int) -> bool:
        """Whether all of a row group can be read: it is not locked, or its key is here.

        Raises:
            ConfigError, StorageError: as ``find_key``.
        """
        locked = self.footer.locked.get(number)
        return locked is None or find_key(locked.topic, locked.key) is not None

    def locked_bytes(self, number: int) -> LockedBytes:
        """The locked rows of a row group, as they are: one request.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        topic, key, kept, part = self.footer.locked[number]
        content = self._checked(part, f"locked rows of group {number}")
        return LockedBytes(topic, key, kept, content)

    def open_group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """What everybody may read of a row group; of rows that are locked all but
        ``OPEN_COLUMNS`` is null.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        place = self.footer.groups[number]
        part = f"group {number}"
        content = self._checked(FilePart(place.at, place.size, place.crc), part)
        file = pa.PythonFile(_Within(content, place.at, self._ranges.size), mode="r")
        try:
            reader = pq.ParquetFile(file, metadata=self._metadata, pre_buffer=False)
            table = reader.read_row_group(number, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise damaged(part, self.name, reason=str(error)) from error
        if table.num_rows != place.rows:
            raise damaged(part, self.name, rows=table.num_rows)
        return table

    def records(self, table: pa.Table) -> Iterator[PieceRecord]:
        """The records of rows of ``group``, which were read with ``LOG_COLUMNS`` at least.

        Raises:
            CorruptLogError: the rows are not those of a piece.
        """
        header = self.footer.header_size
        positions = table.column("physicalOffset").to_pylist()
        for position, content in zip(positions, log_bytes(table).to_pylist(), strict=True):
            yield PieceRecord(position, content[:header], content[header:])

    def runs(self, topic: str, queue_id: int) -> list[SealedRun]:
        """The runs of a queue, in the order of the log."""
        return [run for run in self.footer.runs.get(topic, ()) if run.queue_id == queue_id]

    def queue(self, topic: str, queue_id: int, offset: int) -> Iterator[PieceRecord]:
        """Messages of a queue from ``offset`` on, as far as the piece has them.

        Each row group is a request, when its first message is asked for. Of an offset that comes
        twice the last one counts.

        Raises:
            MessageUnknownError: it does not have this one, and later ones.
            CorruptLogError, StorageError: as ``group``.
        """
        for run, begin in self.runs_from(topic, queue_id, offset):
            yield from self.messages(run, begin)

    def messages(self, run: SealedRun, offset: int) -> Iterator[PieceRecord]:
        """Messages of a run from a queue offset of it on, each as a record of its own.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        for found in self.records(self.rows(run, offset)):
            if not run.span and not is_batch(memoryview(found.record)):
                yield found
                continue
            for _, record in single_records(memoryview(found.record), offset):
                yield PieceRecord(found.position, found.header, bytes(record))

    def runs_from(self, topic: str, queue_id: int, offset: int) -> Iterator[tuple[SealedRun, int]]:
        """Those runs that have the messages of a queue from ``offset`` on, and from which offset on
        they are wanted. What was dropped on purpose is passed over.

        Raises:
            MessageUnknownError: as ``queue``.
        """
        return following(
            self.runs(topic, queue_id),
            offset,
            topic=topic,
            queue_id=queue_id,
            # All records of its stretch of the log are there: RocketMQ leaves out numbers.
            is_thinned=topic in self.footer.thinned or topic in self.footer.batched,
        )

    def rows(self, run: SealedRun, offset: int) -> pa.Table:
        """The rows of a run that ``rows_of`` has, of which records can be made.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        return rows_of(self.group(run.group, LOG_COLUMNS), run, offset)

    def filters(self) -> list[bytes]:
        """The key filter of each row group: one request.

        Raises:
            CorruptLogError: they are not what was sealed.
            StorageError: they cannot be read.
        """
        content = self._checked(self.footer.filters, "filters")
        found, at = [], 0
        for group in self.footer.groups:
            found.append(content[at : at + group.filter_size])
            at += group.filter_size
        return found

    def with_key(self, topic: str, key: str) -> Iterator[PieceRecord]:
        """Messages of ``topic`` that have ``key``, or this id of their client's.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        groups = sorted({run.group for run in self.footer.runs.get(topic, ())})
        if not groups:
            return
        filters = self.filters()
        for number in groups:
            # Filters would tell of keys: rows that are locked have none.
            if number not in self.footer.locked and not may_have(filters[number], topic, key):
                continue
            table = self.group(number)
            table = table.filter(pc.equal(table.column("topic"), topic))
            rows = [rows.filter(pc.equal(texts, key)) for rows, texts in keys_of(table)]
            wanted = np.unique(np.concatenate([one.to_numpy(zero_copy_only=False) for one in rows]))
            yield from self.records(table.take(pa.array(wanted)))

    def at(self, position: int) -> PieceRecord | None:
        """The message whose record begins at ``position`` of the log; None: none does.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        for number in range(len(self.footer.groups)):
            if not _may_have(self._metadata.row_group(number), position):
                continue
            if number in self.footer.locked:
                # It may be of another topic, whose key is nobody's business.
                places = self.group(number, ["physicalOffset"]).column(0)
                if not pc.any(pc.equal(places, position)).as_py():
                    continue
            table = self.group(number, LOG_COLUMNS)
            found = table.filter(pc.equal(table.column("physicalOffset"), position))
            if found.num_rows:
                return next(self.records(found))
        return None

    def first_since(self, topic: str, queue_id: int, time_ms: int) -> int | None:
        """Queue offset of the first message that was stored at ``time_ms`` or later, epoch ms; None
        where all are older, or there are none.

        Raises:
            CorruptLogError, StorageError: as ``group``.
        """
        for run in self.runs(topic, queue_id):
            if run.max_ms < time_ms:
                continue
            table = self.group(run.group, ["queueOffset", "storeTimestamp"])
            rows = table.slice(run.row, run.rows)
            stored = milliseconds(rows.column("storeTimestamp"))
            later = np.flatnonzero(stored >= time_ms)
            if len(later):
                return int(rows.column("queueOffset")[int(later[0])].as_py())
        return None

    def log(self) -> memoryview:
        """All bytes that the piece has of the log, in memory, and no record of them checked.

        What was dropped is zeros.

        Raises:
            CorruptLogError: a part is not what was sealed; names it.
            StorageError: it cannot be read.
        """
        return self._log(lambda _number, _table: None)

    def _log(
        self, look: Callable[[int, pa.Table], None], left_out: Collection[int] = ()
    ) -> memoryview:
        """All bytes of the log but those of the row groups in ``left_out``, which are zeros."""
        footer = self.footer
        content = bytearray(footer.end - footer.start)
        for number in range(len(footer.groups)):
            table = self.open_group(number) if number in left_out else self.group(number)
            look(number, table)
            if number not in left_out:
                self._put(content, table, f"group {number}")
        plain = self.rest()
        content[len(content) - len(plain) :] = plain
        return memoryview(content)

    def rest(self) -> bytes:
        """What stands in the log behind the last record.

        Raises:
            CorruptLogError: it is not what was sealed.
            StorageError: it cannot be read.
        """
        size = self.footer.rest_bytes
        rest = self._checked(self.footer.rest, "rest")
        machine = zlib.decompressobj()
        try:
            plain = machine.decompress(rest, size or 1)
        except zlib.error as error:
            raise damaged("rest", self.name, reason=str(error)) from error
        if len(plain) != size or machine.unused_data:
            raise damaged("rest", self.name)
        return plain

    def _put(self, content: bytearray, table: pa.Table, part: str) -> None:
        """Have the rows' bytes at their places."""
        rows = log_bytes(table)
        _, bounds, octets = rows.buffers()
        ends = np.frombuffer(bounds, np.int32)[: len(rows) + 1]
        first = self.footer.start + self.footer.header_size
        places = table.column("physicalOffset").to_numpy() - first
        view = memoryview(b"" if octets is None else octets).cast("B")
        begin = int(ends[0])
        for at, end in zip(places.tolist(), ends[1:].tolist(), strict=True):
            if not 0 <= at <= len(content) - (end - begin):
                raise damaged(part, self.name, position=at + first)
            content[at : at + end - begin] = view[begin:end]
            begin = end

    def check_sums(self) -> None:
        """Read all, part by part, and compare each with its sum; nothing is made of it.

        Raises:
            CorruptLogError: a part is not what was sealed, and names it.
            StorageError: it cannot be read.
        """
        self._check_begin()
        for number, place in enumerate(self.footer.groups):
            self._checked(FilePart(place.at, place.size, place.crc), f"group {number}")
        self._checked(self.footer.rest, "rest")
        self._checked(self.footer.filters, "filters")
        for number in self.footer.locked:
            self.locked_bytes(number)

    def verify(self) -> int:
        """Read all, and compare it with what the footers say, and each record with its sums. Of
        rows whose key is not here the sum of the locked part is compared, and what is open.

        Returns:
            How many records there are.

        Raises:
            CorruptLogError: a part is not what was sealed, and names it; or a record is not whole.
            StorageError: it cannot be read.
        """
        self._check_begin()
        footer, filters = self.footer, self.filters()
        found: dict[str, list[SealedRun]] = {}
        places: list[tuple[int, int]] = []
        batched: set[str] = set()
        closed = {number for number in footer.locked if not self.is_open(number)}
        has_holes = bool(footer.dropped.records or closed)

        def look(number: int, table: pa.Table) -> None:
            runs_of(table, number, found, thinned=footer.thinned, batched=batched)
            if number in closed:
                self.locked_bytes(number)
            elif has_holes:
                sizes = pc.binary_length(log_bytes(table)).to_pylist()
                places.extend(zip(table.column("physicalOffset").to_pylist(), sizes, strict=True))
            place = footer.groups[number]
            if times_of(table) != (place.min_ms, place.max_ms):
                raise damaged("footer", self.name, group=number)
            if (b"" if number in footer.locked else filter_of(table)) != filters[number]:
                raise damaged("filters", self.name, group=number)

        view = self._log(look, closed)
        runs = {topic: tuple(runs) for topic, runs in found.items()}
        if runs != footer.runs or batched != set(footer.batched):
            raise damaged("footer", self.name, reason="it says something else than the groups")
        if has_holes:
            unread = sum(footer.groups[number].rows for number in closed)
            return unread + self._verify_left(view, places)
        facts = facts_of(view, 0, len(view), header_size=footer.header_size, base=footer.start)
        if facts != footer.facts:
            raise damaged("footer", self.name, reason="it says something else than the groups")
        return facts.records

    def _verify_left(self, view: memoryview, places: list[tuple[int, int]]) -> int:
        """Compare what is left of a piece, stretch by stretch."""
        header, base = self.footer.header_size, self.footer.start
        stretches: list[tuple[int, int]] = []
        for position, size in sorted(places):
            begin = position - header - base
            if stretches and stretches[-1][1] == begin:
                stretches[-1] = stretches[-1][0], begin + size
            else:
                stretches.append((begin, begin + size))
        found = sum(
            facts_of(view, begin, end, header_size=header, base=base).records
            for begin, end in stretches
        )
        if found != len(places):
            raise damaged("footer", self.name, reason="records are in the places of others")
        return found

    def _check_begin(self) -> None:
        if self._read(0, len(PARQUET_MARK), "begin") != PARQUET_MARK:
            raise damaged("begin", self.name)

    def _checked(self, place: FilePart, part: str) -> bytes:
        content = self._read(place.at, place.end, part)
        if zlib.crc32(content) != place.crc:
            raise damaged(part, self.name)
        return content

    def _read(self, start: int, end: int, part: str) -> bytes:
        if start == end:
            return b""
        content = self._ranges.read(start, end)
        if len(content) != end - start:
            raise damaged(part, self.name, reason="the file is cut off")
        return content


def rows_of(table: pa.Table, run: SealedRun, offset: int, end: int | None = None) -> pa.Table:
    """Those rows of a group that are of a run, from a queue offset of it on; the one before, too,
    where it has several messages.

    Args:
        table: with ``queueOffset`` and ``sysFlag`` at least.
        end: queue offset before which they are; None: to the run's end.
    """
    first, last = offset - run.offset, run.rows if end is None else end - run.offset
    if run.span:
        offsets = table.column("queueOffset").slice(run.row, run.rows).to_numpy()
        first, last = np.searchsorted(offsets, (offset, run.end if end is None else end)).tolist()
        if first and (first == len(offsets) or offsets[first] > offset):
            flags = table.column("sysFlag")[run.row + first - 1].as_py()
            first -= bool(flags & INNER_BATCH)
    return table.slice(run.row + first, max(0, min(last, run.rows) - first))


class OffsetRange(Protocol):
    """Messages of a queue, one behind the other."""

    @property
    def offset(self) -> int: ...

    @property
    def end(self) -> int: ...


Found = TypeVar("Found", bound=OffsetRange)


def following(
    found: Sequence[Found], offset: int, *, topic: str, queue_id: int, is_thinned: bool = False
) -> Iterator[tuple[Found, int]]:
    """Those of ``found`` that have the messages of a queue from ``offset`` on, and from which
    offset on they are wanted.

    Args:
        found: in the order of the log.
        is_thinned: what is in none of them is passed over.

    Raises:
        MessageUnknownError: a message is in none of them, and later ones are; says which.
    """
    has = [number for number, one in enumerate(found) if one.offset <= offset < one.end]
    for one in found[has[-1] :] if has else found:
        if one.offset <= offset < one.end:
            yield one, offset
            offset = one.end
        elif one.offset > offset:
            if is_thinned:
                yield one, one.offset
                offset = one.end
                continue
            raise MessageUnknownError(
                "message of this queue is in no piece",
                topic=topic,
                queue=queue_id,
                offset=offset,
                next=one.offset,
            )


def _is_group(found: pq.RowGroupMetaData, place: SealedGroup) -> bool:
    """Whether Parquet says the same of a row group, and nothing that is out of bounds."""
    if found.num_rows != place.rows or not 0 <= found.total_byte_size <= GROUP_PLAIN_BYTES_MAX:
        return False
    for number in range(found.num_columns):
        column = found.column(number)
        begins = [column.data_page_offset]
        if column.has_dictionary_page:
            begins.append(column.dictionary_page_offset)
        begin, size = min(begins), column.total_compressed_size
        if begin < place.at or size < 0 or begin + size > place.at + place.size:
            return False
    return True


def _may_have(group: pq.RowGroupMetaData, position: int) -> bool:
    """Whether a row group may have a record there, by what Parquet says of its least and largest
    position.
    """
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "physicalOffset":
            stats = column.statistics
            is_known = stats is not None and stats.has_min_max
            return not is_known or stats.min <= position <= stats.max
    return True


class _Within(RawIOBase):
    """A file of which only some bytes are there: all else is none of Parquet's business."""

    def __init__(self, content: bytes, at: int, size: int) -> None:
        self._content = memoryview(content)
        self._begin = at
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: object) -> int:
        target = memoryview(cast("bytearray", buffer)).cast("B")
        begin = self._at - self._begin
        if begin < 0:
            raise CorruptLogError("row group is read before its place", offset=self._at)
        chunk = self._content[begin : begin + len(target)]
        target[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)
