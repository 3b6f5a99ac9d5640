"""Records as they stand in the log, made to Arrow columns, some thousands at once.

Nothing here runs once a message but what is rare: bodies that are inflated, properties that are
not UTF-8, hosts that were not seen before. Layouts are those of ``message`` and ``dledger_entry``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.formats.body_compression import plain_body
from ledgermq.formats.crc32 import crc32
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.host_address import HOST_V4_SIZE, HOST_V6_SIZE, decode_host, is_v6
from ledgermq.formats.kernel import whole_records
from ledgermq.formats.message import (
    BORN_HOST_V6,
    COMPRESSED,
    MAGIC,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from ledgermq.model.errors import BodyUnreadableError, CorruptLogError
from ledgermq.pipeline.arrow_slices import Integers, Octets, as_text, slices
from ledgermq.pipeline.message_schema import ARROW_SCHEMA, arrow_schema
from ledgermq.pipeline.property_columns import PropertyColumns

HEAD_SIZE = 88
"""Bytes up to and with the body's size, where both hosts are IPv4."""

HEAD = np.dtype(
    {
        "names": [
            "size",
            "magic",
            "body_crc",
            "queue_id",
            "flag",
            "queue_offset",
            "physical_offset",
            "sys_flag",
            "born_time",
            "born_host",
            "store_time",
            "store_host",
            "reconsume_times",
            "body_size",
        ],
        "formats": [
            *(">i4", ">u4", ">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8"),
            *(">u8", ">i8", ">u8", ">i4", ">i4"),
        ],
        "offsets": [0, 4, 8, 12, 16, 20, 28, 36, 40, 48, 56, 64, 72, 84],
        "itemsize": HEAD_SIZE,
    }
)
"""The fixed part of a message, where both hosts are IPv4."""

_ENTRY = np.dtype(
    {
        "names": ["index", "term"],
        "formats": [">i8", ">i8"],
        "offsets": [8, 16],
        "itemsize": HEADER_SIZE,
    }
)
_V6 = BORN_HOST_V6 | STORE_HOST_V6
_V6_EXTRA = HOST_V6_SIZE - HOST_V4_SIZE
_CRC_MASK = 0x7FFF_FFFF
_US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class Records:
    """Some records within ``view``, by ascending place; an entry's header stands before each.

    Attributes:
        view: bytes that hold all records; Arrow columns never refer to them.
        base: position of the view's first byte in the log; None where that is not known, as in the
            answer of a node: then the records' own word is taken.
        starts: offset of each record in the view, behind its entry's header.
        sizes: bytes of each record.
        header_size: of the entries' headers: 48, or 0 where there are none.
        file: named in errors.
    """

    view: memoryview
    base: int | None
    starts: Integers
    sizes: Integers
    header_size: int
    file: str = ""


def gathered(octets: Octets, places: Integers, layout: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Copies of the fixed-size structures at ``places``, which all lie within ``octets``."""
    width = layout.itemsize
    windows = np.ndarray(
        (max(len(octets) - width + 1, 0),), np.dtype((np.void, width)), octets.data, 0, (1,)
    )
    found: npt.NDArray[np.void] = windows[places].view(layout)
    return found


class RecordColumns:
    """The columns of ``records``; each is made when it is asked for.

    After ``keep`` only the rows that are left are made.
    """

    def __init__(self, records: Records, *, inflate: bool = True) -> None:
        """Read the fixed part of all records, and check that each is a record.

        Args:
            inflate: whether compressed bodies are given as the application sent them.

        Raises:
            CorruptLogError: one is not, or of another place; names file, offset and field.
        """
        self._records = records
        self._inflate = inflate
        self._octets: Octets = np.frombuffer(records.view, np.uint8)
        self._starts = records.starts
        self._sizes = records.sizes
        self._properties: PropertyColumns | None = None
        self._topics: pa.StringArray | None = None
        self._head: npt.NDArray[np.void] = np.empty(0, HEAD)
        self._store_times = self._body_starts = self._body_ends = self._topic_ends = self._starts
        self._reconsume_times: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._read_heads()

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def queue_ids(self) -> npt.NDArray[np.int32]:
        """Queue id of each row."""
        ids: npt.NDArray[np.int32] = self._head["queue_id"].astype(np.int32)
        return ids

    @property
    def queue_offsets(self) -> Integers:
        """Queue offset of each row."""
        return self._integers("queue_offset")

    @property
    def physical_offsets(self) -> Integers:
        """Position of each row's record in the log."""
        return self._integers("physical_offset")

    @property
    def store_times(self) -> Integers:
        """Store time of each row, epoch ms."""
        return self._store_times

    @property
    def born_times(self) -> Integers:
        """Born time of each row, epoch ms."""
        return self._integers("born_time")

    @property
    def body_sizes(self) -> Integers:
        """Bytes of each row's body as it is stored."""
        return self._body_ends - self._body_starts

    @property
    def topics(self) -> pa.StringArray:
        """Topic of each row; what is not UTF-8 has U+FFFD in it."""
        if self._topics is None:
            self._topics = as_text(slices(self._octets, self._body_ends + 1, self._topic_ends))
        return self._topics

    @property
    def is_queued(self) -> npt.NDArray[np.bool_]:
        """Whether the row is a message of its queue: prepared and rolled back ones never were."""
        kind = self._integers("sys_flag") & TRANSACTION_MASK
        found: npt.NDArray[np.bool_]
        found = (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)
        return found

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Leave out all rows but those that are true in ``rows``."""
        if rows.all():
            return
        self._starts, self._sizes = self._starts[rows], self._sizes[rows]
        self._head, self._store_times = self._head[rows], self._store_times[rows]
        self._reconsume_times, self._body_starts = (
            self._reconsume_times[rows],
            self._body_starts[rows],
        )
        self._body_ends, self._topic_ends = self._body_ends[rows], self._topic_ends[rows]
        self._properties = self._topics = None

    def batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows, of which only ``columns`` are made.

        Raises:
            BodyUnreadableError: a compressed body cannot be inflated; names its position.
        """
        arrays = [self._column(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))

    def _column(self, name: str) -> pa.Array:
        made = _MAKERS.get(name)
        if made is not None:
            return made(self)
        array = pa.array(self._head[_FIELDS[name]].astype(_NATIVE[name]))
        return array.cast(ARROW_SCHEMA.field(name).type)

    def _read_heads(self) -> None:
        records, octets = self._records, self._octets
        starts, ends = self._starts, self._starts + self._sizes
        count = len(starts)
        if count:
            self._expect(self._sizes > HEAD_SIZE, "size")
            self._expect((starts >= records.header_size) & (ends <= len(octets)), "position")
            is_apart = np.concatenate(([True], starts[1:] >= ends[:-1]))
            self._expect(is_apart, "overlap with the record before")
        head = gathered(octets, starts, HEAD)
        self._head = head
        extra: Integers | int = 0
        self._store_times = self._integers("store_time")
        self._reconsume_times = head["reconsume_times"].astype(np.int32)
        body_sizes = self._integers("body_size")
        has_v6 = count > 0 and bool((head["sys_flag"] & _V6).any())
        if has_v6:
            extra = self._read_behind_hosts(body_sizes)
        self._expect(head["magic"] == MAGIC, "magic")
        self._expect(head["size"] == self._sizes, "total_size")
        if records.base is not None:
            self._expect(head["physical_offset"] == starts + records.base, "physical_offset")
        self._body_starts = starts + HEAD_SIZE + extra
        self._body_ends = self._body_starts + body_sizes
        self._expect((body_sizes >= 0) & (self._body_ends + 3 <= ends), "body_size")
        self._topic_ends = self._body_ends + 1 + octets[self._body_ends]
        self._expect(self._topic_ends + 2 <= ends, "topic_size")
        high, low = octets[self._topic_ends], octets[self._topic_ends + 1]
        sizes = (high.astype(np.int64) << 8) | low
        # As in Java, a negative length stands for no properties.
        sizes[high > 127] = 0
        self._expect(self._topic_ends + 2 + sizes == ends, "properties_size")

    def _read_behind_hosts(self, body_sizes: Integers) -> Integers:
        """Read again what an IPv6 host has moved; by how much the body's size is moved."""
        flags = self._head["sys_flag"]
        born = np.where(flags & BORN_HOST_V6, _V6_EXTRA, 0)
        both = born + np.where(flags & STORE_HOST_V6, _V6_EXTRA, 0)
        self._expect(self._sizes > HEAD_SIZE + both, "size")
        rows = np.flatnonzero(both)
        at = self._starts[rows]
        quad, word = np.dtype([("value", ">i8")]), np.dtype([("value", ">i4")])
        times = gathered(self._octets, at + born[rows] + 56, quad)
        self._store_times[rows] = times["value"]
        moved = at + both[rows]
        self._reconsume_times[rows] = gathered(self._octets, moved + 72, word)["value"]
        body_sizes[rows] = gathered(self._octets, moved + 84, word)["value"]
        return both.astype(np.int64)

    def _integers(self, field: str) -> Integers:
        values: Integers = self._head[field].astype(np.int64)
        return values

    def _expect(self, good: npt.NDArray[np.bool_], field: str) -> None:
        if not good.all():
            raise self._corrupt(int(np.argmin(good)), field)

    def _corrupt(self, row: int, field: str) -> CorruptLogError:
        records = self._records
        at = int(self._starts[row])
        where = {"file": records.file} if records.file else {}
        offset = at if records.base is None else at + records.base
        return CorruptLogError("record is not whole", **where, offset=offset, field=field)

    def _times(self, values: Integers) -> pa.Array:
        us = pa.array(values * _US_PER_MS)
        return us.cast(ARROW_SCHEMA.field("storeTimestamp").type)

    def _entry(self, field: str) -> pa.Array:
        header_size = self._records.header_size
        if not header_size:
            return pa.nulls(len(self), pa.int64())
        entries = gathered(self._octets, self._starts - header_size, _ENTRY)
        return pa.array(entries[field].astype(np.int64))

    def _bodies(self) -> pa.Array:
        bodies = slices(self._octets, self._body_starts, self._body_ends)
        flags = self._head["sys_flag"]
        if not self._inflate:
            return bodies
        rows = np.flatnonzero(flags & COMPRESSED)
        if not len(rows):
            return bodies
        values = bodies.to_pylist()
        for row in rows.tolist():
            values[row] = self._plain(values[row], int(flags[row]), row)
        return pa.array(values, pa.binary())

    def _plain(self, body: bytes, sys_flag: int, row: int) -> bytes:
        try:
            return bytes(plain_body(body, sys_flag))
        except BodyUnreadableError as error:
            error.details["physicalOffset"] = int(self.physical_offsets[row])
            error.details["option"] = "inflateBodies=false gives bodies as they are stored"
            raise

    def _crc_ok(self) -> pa.Array:
        """Whether bodies are what their CRCs say, by the kernel that checks whole records."""
        good = np.ones(len(self), np.bool_)
        view = self._octets.data
        starts = np.ascontiguousarray(self._starts)
        sizes = np.ascontiguousarray(self._sizes)
        row = 0
        while row < len(good):
            row += whole_records(view, starts[row:].data, sizes[row:].data, 0, crc32)
            if row < len(good):
                # It may also be a field that dispatch would refuse; then its body is whole.
                body = view[self._body_starts[row] : self._body_ends[row]]
                good[row] = crc32(body, 0) & _CRC_MASK == self._head["body_crc"][row]
                row += 1
        return pa.array(good)

    def _hosts(self, field: str, flag: int) -> pa.Array:
        """Hosts as ``address:port``, an IPv6 address in brackets."""
        is_moved = self._head["sys_flag"] & _V6 != 0
        if not is_moved.any():
            packed = pa.array(self._head[field].astype(np.uint64)).dictionary_encode()
            texts = [
                _host_text(value.to_bytes(8, "big")) for value in packed.dictionary.to_pylist()
            ]
            return pa.array(texts, pa.string()).take(packed.indices)
        flags = self._head["sys_flag"]
        born = np.where(flags & BORN_HOST_V6, HOST_V6_SIZE, HOST_V4_SIZE)
        at = self._starts + 48
        if field == "store_host":
            at = at + born + 8
        size = np.where(flags & flag, HOST_V6_SIZE, HOST_V4_SIZE)
        packed = slices(self._octets, at, at + size).dictionary_encode()
        texts = [_host_text(value) for value in packed.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(packed.indices)

    def _property_columns(self) -> PropertyColumns:
        if self._properties is None:
            ends = np.maximum(self._starts + self._sizes, self._topic_ends + 2)
            self._properties = PropertyColumns(self._octets, self._topic_ends + 2, ends)
        return self._properties


def _host_text(packed: bytes) -> str:
    host = decode_host(packed)
    return f"[{host[0]}]:{host[1]}" if is_v6(host) else f"{host[0]}:{host[1]}"


_FIELDS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "bodyCrc": "body_crc",
}
_NATIVE = {name: np.int64 if name.endswith("Offset") else np.int32 for name in _FIELDS}

_MAKERS: dict[str, Callable[[RecordColumns], pa.Array]] = {
    "topic": lambda rows: rows.topics,
    "raftIndex": lambda rows: rows._entry("index"),
    "raftTerm": lambda rows: rows._entry("term"),
    "keys": lambda rows: rows._property_columns().values_of("KEYS"),
    "tags": lambda rows: rows._property_columns().values_of("TAGS"),
    "properties": lambda rows: rows._property_columns().map(),
    "body": lambda rows: rows._bodies(),
    "bornTimestamp": lambda rows: rows._times(rows.born_times),
    "storeTimestamp": lambda rows: rows._times(rows.store_times),
    "bornHost": lambda rows: rows._hosts("born_host", BORN_HOST_V6),
    "storeHost": lambda rows: rows._hosts("store_host", STORE_HOST_V6),
    "reconsumeTimes": lambda rows: pa.array(rows._reconsume_times),
    "crcOk": lambda rows: rows._crc_ok(),
}
