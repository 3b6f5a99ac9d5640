"""Columns of a piece: those of a message, and three more from which its bytes in the log are made.

All that stands in the log before a body, and behind it, follows from the columns that everybody
reads, but for sums and constants: these are ``logSums`` and ``logRest``. A row whose bytes do not
follow, as one with an IPv6 host, has them in ``logBytes``. Whoever seals makes the bytes of each
row and compares them, so that nothing has to be known of what else a log may hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import HEAD_SIZE
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.columns.arrow_slices import Integers, Octets, slices
from ledgermq.pipeline.columns.message_schema import ARROW_SCHEMA, COLUMNS
from ledgermq.pipeline.columns.record_columns import US_PER_MS, RecordBlock, RecordColumns

LOG_SUMS, LOG_REST, LOG_BYTES = "logSums", "logRest", "logBytes"

PIECE_SCHEMA = pa.schema(
    [*ARROW_SCHEMA, (LOG_SUMS, pa.int64()), (LOG_REST, pa.binary()), (LOG_BYTES, pa.binary())]
)
"""Columns of the Parquet file."""

LOG_COLUMNS = tuple(
    name
    for name in PIECE_SCHEMA.names
    if name not in ("keys", "tags", "bornHost", "storeHost", "crcOk")
)
"""Columns of which the bytes in the log are made."""

_ENTRY = [
    ("entry_magic", ">u4"), ("entry_size", ">u4"), ("index", ">i8"), ("term", ">i8"),
    ("position", ">i8"), ("channel", ">u4"), ("chain_crc", ">u4"), ("entry_crc", ">u4"),
    ("entry_body", ">u4"),
]  # fmt: skip
_RECORD = [
    ("size", ">u4"), ("magic", ">u4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("physical", ">i8"), ("sys_flag", ">i4"), ("born", ">i8"),
    ("born_host", ">u8"), ("stored", ">i8"), ("store_host", ">u8"), ("reconsumed", ">i4"),
    ("prepared", ">i8"), ("body_size", ">u4"),
]  # fmt: skip
_RECORD_HEAD = np.dtype(_RECORD)
_ENTRY_HEAD = np.dtype(_ENTRY + _RECORD)
assert _RECORD_HEAD.itemsize == HEAD_SIZE
assert _ENTRY_HEAD.itemsize == HEADER_SIZE + HEAD_SIZE

_BY_COLUMN = {
    "body_crc": "bodyCrc",
    "queue_id": "queueId",
    "flag": "flag",
    "queue_offset": "queueOffset",
    "physical": "physicalOffset",
    "sys_flag": "sysFlag",
    "reconsumed": "reconsumeTimes",
}
"""Fields of a record that a column has as it is."""

_OF_ENTRY = ("entry_size", "index", "term", "position", "chain_crc", "entry_crc", "entry_body")
_OF_RECORD = (*_BY_COLUMN, "size", "born", "stored", "body_size")

_VALUE_END = 2

Heads = npt.NDArray[np.void]


def piece_table(records: RecordBlock, order: Integers) -> pa.Table:
    """The rows of ``records`` in ``order``, with all columns of a piece.

    Raises:
        CorruptLogError: something is no record; names file, offset and field.
    """
    rows = RecordColumns(records, inflate=False)
    batch = rows.batch(COLUMNS)
    octets = np.frombuffer(records.view, np.uint8)
    starts = np.ascontiguousarray(records.starts, np.int64)
    ends = starts + records.sizes
    begins = starts - records.header_size
    heads = _heads_at(octets, begins, records.header_size)
    columns = [*batch.columns, _sums_of(heads), _rest_of(heads, octets[ends - 1])]
    table = pa.Table.from_arrays(
        [*columns, pa.nulls(len(starts), pa.binary())], schema=PIECE_SCHEMA
    ).take(pa.array(order))
    stored = slices(octets, begins[order], ends[order])
    is_same = pc.equal(log_bytes(table), stored)
    if not pc.all(is_same).as_py():
        others = pc.if_else(is_same, pa.scalar(None, pa.binary()), stored)
        table = table.set_column(len(COLUMNS) + 2, PIECE_SCHEMA.field(LOG_BYTES), others)
    return table


def log_bytes(table: pa.Table) -> pa.BinaryArray:
    """The bytes that each row has in the log, its entry's header with them.

    Args:
        table: with ``LOG_COLUMNS`` at least, of which one file of a log has been made.

    Raises:
        CorruptLogError: the columns are not those of a piece.
    """
    if not table.num_rows:
        return pa.array([], pa.binary())
    columns = {name: _joined(table, name) for name in LOG_COLUMNS}
    rest = columns[LOG_REST]
    body = columns["body"]
    topic = columns["topic"].cast(pa.binary())
    heads, ends_with_mark = _heads_of_rest(rest)
    texts = property_texts(columns["properties"], ends_with_mark)
    sizes = [
        pc.fill_null(pc.binary_length(part), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        for part in (body, topic, texts)
    ]
    _fill(heads, columns, sizes)
    made = pc.binary_join_element_wise(
        _fixed(heads),
        body,
        _fixed(sizes[1].astype(np.uint8)),
        topic,
        _fixed(sizes[2].astype(">u2")),
        texts,
        b"",
    )
    stored = columns[LOG_BYTES]
    found = made if stored.null_count == len(stored) else pc.coalesce(stored, made)
    if found.null_count:
        raise CorruptLogError("piece has a row without its bytes in the log")
    return found


def milliseconds(times: pa.Array | pa.ChunkedArray) -> Integers:
    """Times of a column, epoch ms."""
    found: Integers = _numbers(times.cast(pa.int64())) // US_PER_MS
    return found


def _joined(table: pa.Table, name: str) -> pa.Array:
    """One array of the column, of the type that a piece has it in."""
    try:
        column = table.column(name).cast(PIECE_SCHEMA.field(name).type)
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    except (KeyError, pa.ArrowException) as error:
        raise CorruptLogError("piece lacks a column", field=name, reason=str(error)) from error


def _heads_at(octets: Octets, begins: Integers, header_size: int) -> Heads:
    """What stands before the bodies, where both hosts are IPv4; the size says what else is there.

    A record of less has other bytes behind it here, and is found out by whoever compares.
    """
    dtype = _ENTRY_HEAD if header_size else _RECORD_HEAD
    at = begins[:, None] + np.arange(dtype.itemsize)
    np.minimum(at, len(octets) - 1, out=at)
    heads: Heads = octets[at].reshape(-1).view(dtype)
    return heads


def _sums_of(heads: Heads) -> pa.Array:
    """Both sums of an entry's header; null without one."""
    if heads.dtype != _ENTRY_HEAD:
        return pa.nulls(len(heads), pa.int64())
    sums = heads["chain_crc"].astype(np.uint64) << np.uint64(32) | heads["entry_crc"]
    return pa.array(sums.view(np.int64))


def _rest_of(heads: Heads, last: Octets) -> pa.Array:
    """The heads without what columns say, and whether a mark ends the properties."""
    rest = heads.copy()
    for name in _OF_RECORD + (_OF_ENTRY if rest.dtype == _ENTRY_HEAD else ()):
        rest[name] = 0
    octets = rest.view(np.uint8).reshape(len(rest), -1)
    return _fixed(np.hstack((octets, (last == _VALUE_END).astype(np.uint8)[:, None])))


def _heads_of_rest(rest: pa.BinaryArray) -> tuple[Heads, npt.NDArray[np.bool_]]:
    """The inverse of ``_rest_of``."""
    sizes = pc.unique(pc.binary_length(rest)).to_pylist()
    known = {dtype.itemsize + 1: dtype for dtype in (_ENTRY_HEAD, _RECORD_HEAD)}
    if len(sizes) != 1 or sizes[0] not in known:
        raise CorruptLogError("piece has heads of another size", field=LOG_REST, found=sizes[:9])
    (size,) = sizes
    values = np.frombuffer(pc.binary_join_element_wise(rest, b"").buffers()[2], np.uint8)
    octets = values[: size * len(rest)].reshape(-1, size)
    heads: Heads = np.ascontiguousarray(octets[:, :-1]).reshape(-1).view(known[size])
    return heads, octets[:, -1] != 0


def _fill(heads: Heads, columns: dict[str, pa.Array], sizes: list[Integers]) -> None:
    """Have in the heads what columns say."""
    body, topic, texts = sizes
    total = HEAD_SIZE + body + 1 + topic + 2 + texts
    for field, column in _BY_COLUMN.items():
        heads[field] = _numbers(columns[column])
    heads["size"] = total
    heads["body_size"] = body
    heads["born"] = milliseconds(columns["bornTimestamp"])
    heads["stored"] = milliseconds(columns["storeTimestamp"])
    if heads.dtype == _ENTRY_HEAD:
        heads["entry_size"] = total + HEADER_SIZE
        heads["entry_body"] = total
        heads["index"] = _numbers(columns["raftIndex"])
        heads["term"] = _numbers(columns["raftTerm"])
        heads["position"] = heads["physical"] - HEADER_SIZE
        sums = _numbers(columns[LOG_SUMS]).view(np.uint64)
        heads["chain_crc"] = sums >> np.uint64(32)
        heads["entry_crc"] = sums & np.uint64(0xFFFF_FFFF)


def _numbers(column: pa.Array) -> Integers:
    filled = pc.fill_null(column, 0) if column.null_count else column
    found: Integers = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def property_texts(maps: pa.MapArray, marked: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Properties as the log has them: names and values with marks between them.

    Args:
        marked: rows with a mark behind the last one, too.
    """
    if maps.null_count:
        raise CorruptLogError("piece has a row without properties", field="properties")
    bounds = maps.offsets.to_numpy().astype(np.int64)
    first, end = int(bounds[0]), int(bounds[-1])
    bounds = bounds - first
    names = maps.keys.slice(first, end - first).cast(pa.binary())
    values = maps.items.slice(first, end - first).cast(pa.binary())
    if values.null_count:
        raise CorruptLogError("piece has a property without its value", field="properties")
    is_last = np.zeros(end - first, np.bool_)
    is_last[bounds[1:][(bounds[1:] > bounds[:-1]) & ~marked] - 1] = True
    marks = pc.if_else(pa.array(is_last), pa.scalar(b""), pa.scalar(bytes((_VALUE_END,))))
    pairs = pc.binary_join_element_wise(names, pa.scalar(b"\x01"), values, marks, b"")
    _, places, content = pairs.buffers()
    at = np.frombuffer(places, np.int32)[pairs.offset : pairs.offset + len(pairs) + 1]
    starts = np.ascontiguousarray(at[bounds]) if len(pairs) else np.zeros(len(bounds), np.int32)
    return pa.Array.from_buffers(pa.binary(), len(maps), [None, pa.py_buffer(starts), content])


def _fixed(rows: npt.NDArray[np.generic]) -> pa.BinaryArray:
    """Rows of one size as an array of bytes."""
    octets = np.ascontiguousarray(rows)
    size = octets.nbytes // len(octets)
    places = np.arange(len(octets) + 1, dtype=np.int64) * size
    buffers = [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(octets.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(octets), buffers)
