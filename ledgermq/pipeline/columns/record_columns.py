"""Record columns: records of the log made to Arrow columns, some thousands at once.

Nothing here runs once a message but what is rare: bodies that are inflated, properties that are
not UTF-8, hosts that were not seen before. Layouts are those of ``message`` and ``dledger_entry``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgermq.formats.head_field import HeadFault, HeadField
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import (
    find_other,
    find_property,
    read_heads,
    split_properties,
    whole_records,
)
from ledgermq.formats.records.body_compression import PLAIN_SIZE_MAX, plain_body
from ledgermq.formats.records.host_address import HOST_V4_SIZE, HOST_V6_SIZE, decode_host, is_v6
from ledgermq.formats.records.message import (
    BORN_HOST_V6,
    COMPRESSED,
    CRC_MASK,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.errors import BodyUnreadableError, CorruptLogError
from ledgermq.pipeline.columns.arrow_slices import Integers, Octets, as_text, checked_text, slices
from ledgermq.pipeline.columns.message_schema import ARROW_SCHEMA, BODY_WHY

PAIRS_PER_ROW = 8
"""For so many properties a message there is room at first; for as many more when it is short."""


class PropertyColumns:
    """The properties that lie in ``octets`` at ``[starts, ends)``, one row a message.

    Invariant: ``bounds`` has one item more than there are rows, and delimits the names and values
    of each; no name comes twice in a row.
    """

    def __init__(self, octets: Octets, starts: Integers, ends: Integers) -> None:
        """Find where all names and values lie; never fails, as in Java."""
        self._octets = octets
        self._starts, self._ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
        count = len(starts)
        self.bounds: npt.NDArray[np.int32] = np.zeros(count + 1, np.int32)
        columns = [np.empty(0, np.int64) for _ in range(3)]
        done = 0
        while done < count:
            more = np.empty(PAIRS_PER_ROW * count, np.int64)
            columns = [np.concatenate((column, more)) for column in columns]
            places = [column.data for column in columns]
            rows = self._starts.data, self._ends.data
            done = split_properties(octets.data, *rows, done, self.bounds.data, *places)
        pairs = int(self.bounds[-1])
        self._name_starts, self._name_ends, self._value_ends = (c[:pairs] for c in columns)

    def map(self) -> pa.MapArray:
        """The properties of each row."""
        names = slices(self._octets, self._name_starts, self._name_ends)
        values = slices(self._octets, self._name_ends + 1, self._value_ends)
        try:
            items = checked_text(names), checked_text(values)
        except pa.ArrowInvalid:
            return self._decoded()
        return pa.MapArray.from_arrays(pa.array(self.bounds), *items)

    def values_of(self, name: str) -> pa.StringArray:
        """The property ``name``, which is ASCII, of each row; null where it is not."""
        found = np.empty(len(self.bounds) - 1, np.int64)
        columns = self.bounds.data, self._name_starts.data, self._name_ends.data
        count = find_property(self._octets.data, *columns, memoryview(name.encode()), found.data)
        if not count:
            return pa.nulls(len(found), pa.string())
        is_there = found >= 0
        starts, ends = self._name_ends[found] + 1, self._value_ends[found]
        if count == len(found):
            return as_text(slices(self._octets, starts, ends))
        starts[~is_there] = ends[~is_there] = 0
        return as_text(slices(self._octets, starts, ends, is_there=is_there))

    def _decoded(self) -> pa.MapArray:
        """Row by row, where something is not UTF-8: two names may be the same as texts."""
        rows = [
            decode_properties(self._octets[start:end].tobytes())
            for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        ]
        names = pa.array([name for row in rows for name in row], pa.string())
        values = pa.array([value for row in rows for value in row.values()], pa.string())
        bounds = np.cumsum([0, *map(len, rows)]).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, values)


_V6 = BORN_HOST_V6 | STORE_HOST_V6
US_PER_MS = 1_000
_LINE = 8
"""Integers of 64 bits in a line of the processor's cache."""

BATCH_BODIES_BYTES = 64 << 20
"""Most bytes of the bodies of one batch once they are inflated: a few stored bytes may become any
number."""

WHY_CHARACTERS_MAX = 200

Fields = npt.NDArray[np.int64]


class PlainBodies(NamedTuple):
    """Bodies of rows as applications sent them; where ``why`` is a text, as they are stored."""

    bodies: list[bytes]
    why: list[str | None]

    def between(self, first: int, end: int) -> PlainBodies:
        """Those of some of the rows."""
        return PlainBodies(self.bodies[first:end], self.why[first:end])


@dataclass(frozen=True, slots=True)
class RecordBlock:
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


def heads_of(records: RecordBlock) -> tuple[Fields, int]:
    """The fields of records, a row for each ``HeadField``; and how many are records.

    Of the first one that is none the first field is its ``HeadFault``.
    """
    count = len(records.starts)
    # Rows that are a power of two apart would fall into the same lines of the processor's cache.
    stride = count + _LINE
    fields: Fields = np.empty((len(HeadField), stride), np.int64)
    read = read_heads(
        records.view,
        np.ascontiguousarray(records.starts, np.int64).data,
        np.ascontiguousarray(records.sizes, np.int64).data,
        records.header_size,
        -1 if records.base is None else records.base,
        fields.reshape(-1).data,
        stride,
    )
    return fields[:, :count], read


class RecordColumns:
    """The columns of ``records``; each is made when it is asked for.

    After ``keep`` only the rows that are left are made.
    """

    def __init__(
        self, records: RecordBlock, *, inflate: bool = True, size_max: int = PLAIN_SIZE_MAX
    ) -> None:
        """Read the fixed part of all records, and check that each is a record.

        Args:
            inflate: whether compressed bodies are given as the application sent them.
            size_max: bytes of a body once it is inflated; one with more is as it is stored.

        Raises:
            CorruptLogError: one is not, or of another place; names file, offset and field.
        """
        self._records = records
        self._inflate = inflate
        self._size_max = size_max
        self._plain: PlainBodies | None = None
        self._octets: Octets = np.frombuffer(records.view, np.uint8)
        self._starts = np.ascontiguousarray(records.starts, np.int64)
        self._sizes = np.ascontiguousarray(records.sizes, np.int64)
        self._properties: PropertyColumns | None = None
        self._topics: pa.StringArray | None = None
        self._good: npt.NDArray[np.bool_] | None = None
        self._fields, read = heads_of(records)
        if read < len(self):
            raise self._corrupt(read, HeadFault(int(self._fields[0, read])).field)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def queue_ids(self) -> npt.NDArray[np.int32]:
        """Queue id of each row."""
        ids: npt.NDArray[np.int32] = self._fields[HeadField.QUEUE_ID].astype(np.int32)
        return ids

    @property
    def queue_offsets(self) -> Integers:
        """Queue offset of each row."""
        return self._field(HeadField.QUEUE_OFFSET)

    @property
    def physical_offsets(self) -> Integers:
        """Position of each row's record in the log."""
        return self._field(HeadField.PHYSICAL_OFFSET)

    @property
    def store_times(self) -> Integers:
        """Store time of each row, epoch ms."""
        return self._field(HeadField.STORE_TIME)

    @property
    def born_times(self) -> Integers:
        """Born time of each row, epoch ms."""
        return self._field(HeadField.BORN_TIME)

    @property
    def body_sizes(self) -> Integers:
        """Bytes of each row's body as it is stored."""
        return self._field(HeadField.BODY_END) - self._field(HeadField.BODY_START)

    @property
    def topics(self) -> pa.StringArray:
        """Topic of each row; what is not UTF-8 has U+FFFD in it."""
        if self._topics is None:
            starts = self._fields[HeadField.TOPIC_START]
            self._topics = as_text(slices(self._octets, starts, self._fields[HeadField.TOPIC_END]))
        return self._topics

    def first_of_other_topic(self, topics: Sequence[str], numbers: Integers) -> int:
        """The first row that is not of the topic that its number says; as many as there are rows
        when all are.
        """
        names = [topic.encode() for topic in topics]
        bounds = np.cumsum([0, *map(len, names)], dtype=np.int32)
        return find_other(
            self._octets.data,
            self._fields[HeadField.TOPIC_START].data,
            self._fields[HeadField.TOPIC_END].data,
            memoryview(b"".join(names)),
            bounds.data,
            np.ascontiguousarray(numbers, np.int64).data,
        )

    @property
    def is_queued(self) -> npt.NDArray[np.bool_]:
        """Whether the row is a message of its queue: prepared and rolled back ones never were."""
        kind = self._fields[HeadField.SYS_FLAG] & TRANSACTION_MASK
        found: npt.NDArray[np.bool_]
        found = (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)
        return found

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Leave out all rows but those that are true in ``rows``."""
        if rows.all():
            return
        self._starts, self._sizes = self._starts[rows], self._sizes[rows]
        self._fields = np.compress(rows, self._fields, axis=1)
        self._properties = self._topics = self._plain = None
        self._good = None

    def parts(self) -> Iterator[RecordColumns]:
        """The same rows in their order, in parts of at most ``BATCH_BODIES_BYTES`` of inflated
        bodies, or of one row; a part has them inflated while it is there.
        """
        flags = self._field(HeadField.SYS_FLAG)
        if not (flags & COMPRESSED).any():
            yield self
            return
        first, size, found = 0, 0, PlainBodies([], [])
        for row, stored in enumerate(self._stored_bodies()):
            body, why = _inflated(stored.as_py(), int(flags[row]), self._size_max)
            if row > first and size + len(body) > BATCH_BODIES_BYTES:
                yield self.part(first, row, found)
                first, size, found = row, 0, PlainBodies([], [])
            found.bodies.append(body)
            found.why.append(why)
            size += len(body)
        if first < len(self):
            yield self.part(first, len(self), found)

    def plain_bodies(self) -> PlainBodies:
        """The bodies of all rows, inflated as long as they have ``BATCH_BODIES_BYTES`` together: of
        ``parts`` all are.
        """
        if self._plain is None:
            flags, left = self._field(HeadField.SYS_FLAG), BATCH_BODIES_BYTES
            found = PlainBodies([], [])
            for row, stored in enumerate(self._stored_bodies()):
                flag, limit = int(flags[row]), min(self._size_max, left)
                body, why = _inflated(stored.as_py(), flag, limit)
                left -= len(body) if flag & COMPRESSED and why is None else 0
                found.bodies.append(body)
                found.why.append(why)
            self._plain = found
        return self._plain

    def batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows, of which only ``columns`` are made; of many large bodies see ``parts``."""
        bodies = self._bodies(with_sums="crcOk" in columns) if "body" in columns else None
        arrays = [bodies if name == "body" else self._column(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def part(self, first: int, end: int, plain: PlainBodies) -> RecordColumns:
        """The rows from ``first`` to ``end``, whose bodies are ``plain``."""
        part = copy.copy(self)
        part._starts, part._sizes = self._starts[first:end], self._sizes[first:end]
        part._fields = np.ascontiguousarray(self._fields[:, first:end])
        part._properties = part._topics = part._good = None
        part._plain = plain
        return part

    def property_values(self, name: str) -> pa.StringArray:
        """The property ``name``, which is ASCII, of each row; null where it is not."""
        return self._property_columns().values_of(name)

    def _column(self, name: str) -> pa.Array:
        made = _MAKERS.get(name)
        if made is not None:
            return made(self)
        values = pa.array(self._fields[_FIELDS[name]])
        # What the field holds has 32 bits where the column does.
        return values.cast(ARROW_SCHEMA.field(name).type, safe=False)

    def _field(self, field: HeadField) -> Integers:
        values: Integers = self._fields[field]
        return values

    def _corrupt(self, row: int, field: str) -> CorruptLogError:
        records = self._records
        at = int(self._starts[row])
        where = {"file": records.file} if records.file else {}
        offset = at if records.base is None else at + records.base
        return CorruptLogError("record is not whole", **where, offset=offset, field=field)

    def _times(self, values: Integers) -> pa.Array:
        us = pa.array(values * US_PER_MS)
        return us.cast(ARROW_SCHEMA.field("storeTimestamp").type)

    def _entry(self, field: HeadField) -> pa.Array:
        if not self._records.header_size:
            return pa.nulls(len(self), pa.int64())
        return pa.array(self._fields[field])

    def _bodies(self, *, with_sums: bool) -> pa.Array:
        if self._inflate and (self._field(HeadField.SYS_FLAG) & COMPRESSED).any():
            return pa.array(self.plain_bodies().bodies, pa.binary())
        if not with_sums:
            return self._stored_bodies()
        starts, ends = self._fields[HeadField.BODY_START], self._fields[HeadField.BODY_END]
        self._good = np.ones(len(self), np.bool_)
        return slices(self._octets, starts, ends, before=self._sum_bodies)

    def _stored_bodies(self) -> pa.BinaryArray:
        fields = self._fields
        return slices(self._octets, fields[HeadField.BODY_START], fields[HeadField.BODY_END])

    def _body_why(self) -> pa.Array:
        why = self.plain_bodies().why if self._inflate else [None] * len(self)
        return pa.array(why, pa.string())

    def _crc_ok(self) -> pa.Array:
        """Whether bodies are what their CRCs say."""
        if self._good is None:
            self._good = np.ones(len(self), np.bool_)
            self._sum_bodies(0, len(self))
        return pa.array(self._good)

    def _sum_bodies(self, first: int, end: int) -> None:
        """Note of some rows which bodies are not, by the kernel that checks whole records."""
        assert self._good is not None
        view = self._octets.data
        starts, sizes = self._starts, self._sizes
        row = first
        while row < end:
            row += whole_records(view, starts[row:end].data, sizes[row:end].data, 0, crc32)
            if row < end:
                # It may also be a field that dispatch would refuse; then its body is whole.
                begin, behind, _ = self._fields[:3, row]
                stored = self._fields[HeadField.BODY_CRC, row]
                self._good[row] = crc32(view[begin:behind], 0) & CRC_MASK == stored
                row += 1

    def _hosts(self, field: HeadField, flag: int) -> pa.Array:
        """Hosts as ``address:port``, an IPv6 address in brackets."""
        flags = self._fields[HeadField.SYS_FLAG]
        if not (flags & _V6).any():
            packed = pa.array(self._fields[field]).dictionary_encode()
            texts = [
                _host_text(value.to_bytes(8, "big", signed=True))
                for value in packed.dictionary.to_pylist()
            ]
            return pa.array(texts, pa.string()).take(packed.indices)
        born = np.where(flags & BORN_HOST_V6, HOST_V6_SIZE, HOST_V4_SIZE)
        at = self._starts + 48
        if field is HeadField.STORE_HOST:
            at = at + born + 8
        size = np.where(flags & flag, HOST_V6_SIZE, HOST_V4_SIZE)
        packed = slices(self._octets, at, at + size).dictionary_encode()
        texts = [_host_text(value) for value in packed.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(packed.indices)

    def _property_columns(self) -> PropertyColumns:
        if self._properties is None:
            starts = self._fields[HeadField.TOPIC_END] + 2
            ends = self._starts + self._sizes
            self._properties = PropertyColumns(self._octets, starts, ends)
        return self._properties


def _inflated(stored: bytes, sys_flag: int, size_max: int) -> tuple[bytes, str | None]:
    """The body as the application sent it; or as it is stored, and why."""
    if not sys_flag & COMPRESSED:
        return stored, None
    try:
        return bytes(plain_body(stored, sys_flag, size_max=max(0, size_max))), None
    except BodyUnreadableError as error:
        return stored, str(error.details.get("reason") or error)[:WHY_CHARACTERS_MAX]


def _host_text(packed: bytes) -> str:
    host = decode_host(packed)
    return f"[{host[0]}]:{host[1]}" if is_v6(host) else f"{host[0]}:{host[1]}"


_FIELDS = {
    "queueId": HeadField.QUEUE_ID,
    "queueOffset": HeadField.QUEUE_OFFSET,
    "physicalOffset": HeadField.PHYSICAL_OFFSET,
    "sysFlag": HeadField.SYS_FLAG,
    "flag": HeadField.FLAG,
    "reconsumeTimes": HeadField.RECONSUME_TIMES,
    "bodyCrc": HeadField.BODY_CRC,
}

_MAKERS: dict[str, Callable[[RecordColumns], pa.Array]] = {
    "topic": lambda rows: rows.topics,
    "raftIndex": lambda rows: rows._entry(HeadField.ENTRY_INDEX),
    "raftTerm": lambda rows: rows._entry(HeadField.ENTRY_TERM),
    "keys": lambda rows: rows.property_values("KEYS"),
    "tags": lambda rows: rows.property_values("TAGS"),
    "properties": lambda rows: rows._property_columns().map(),
    "bornTimestamp": lambda rows: rows._times(rows.born_times),
    "storeTimestamp": lambda rows: rows._times(rows.store_times),
    "bornHost": lambda rows: rows._hosts(HeadField.BORN_HOST, BORN_HOST_V6),
    "storeHost": lambda rows: rows._hosts(HeadField.STORE_HOST, STORE_HOST_V6),
    "crcOk": lambda rows: rows._crc_ok(),
    BODY_WHY: lambda rows: rows._body_why(),
}
