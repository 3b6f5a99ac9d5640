"""Columns made of many records at once say what each record says alone."""

from __future__ import annotations

import dataclasses
import zlib
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.body_compression import Compression, compress_body
from ledgermq.formats.records.message import CRC_MASK, Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.columns import record_columns
from ledgermq.pipeline.columns.message_schema import ARROW_SCHEMA, COLUMNS
from ledgermq.pipeline.columns.record_columns import RecordBlock, RecordColumns

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
V4, V6 = ("10.1.2.3", 4_567), ("2001:db8::7", 8_910)
PLAIN = Message(
    topic="orders",
    queue_id=3,
    body=b"what was ordered",
    properties=encode_properties({"UNIQ_KEY": "A" * 32, "TAGS": "new", "KEYS": "k1 k2"}),
    queue_offset=77,
    flag=-5,
    born_timestamp=1_600_000_000_123,
    born_host=V4,
    store_timestamp=1_600_000_000_456,
    store_host=V4,
    reconsume_times=2,
)


def records_of(messages: list[Message], *, base: int = 1_000) -> RecordBlock:
    data, starts, sizes = bytearray(b"\0" * 48), [], []
    for message in messages:
        starts.append(len(data))
        data += encode_message(dataclasses.replace(message, physical_offset=base + len(data)))
        sizes.append(len(data) - starts[-1])
        data += b"\0" * 48
    view = memoryview(bytes(data))
    return RecordBlock(view, base, np.array(starts), np.array(sizes), 0, "the file")


def rows_of(records: RecordBlock, *, inflate: bool = True) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        RecordColumns(records, inflate=inflate).batch(COLUMNS).to_pylist()
    )
    return rows


def test_every_column_has_the_field_that_it_is_named_for() -> None:
    (row,) = rows_of(records_of([PLAIN]))
    names = dict(row["properties"])  # type: ignore[call-overload]

    assert {**row, "properties": names} == {
        "topic": "orders",
        "queueId": 3,
        "queueOffset": 77,
        "physicalOffset": 1_048,
        "raftIndex": None,
        "raftTerm": None,
        "keys": "k1 k2",
        "tags": "new",
        "properties": {"UNIQ_KEY": "A" * 32, "TAGS": "new", "KEYS": "k1 k2"},
        "body": b"what was ordered",
        "bornTimestamp": EPOCH + timedelta(milliseconds=1_600_000_000_123),
        "storeTimestamp": EPOCH + timedelta(milliseconds=1_600_000_000_456),
        "bornHost": "10.1.2.3:4567",
        "storeHost": "10.1.2.3:4567",
        "sysFlag": 0,
        "flag": -5,
        "reconsumeTimes": 2,
        "bodyCrc": zlib.crc32(b"what was ordered") & 0x7FFF_FFFF,
        "crcOk": True,
    }


def test_hosts_of_both_families_in_one_batch() -> None:
    hosts = [(V4, V4), (V6, V4), (V4, V6), (V6, V6)]
    messages = [
        dataclasses.replace(PLAIN, born_host=born, store_host=store) for born, store in hosts
    ]
    rows = rows_of(records_of(messages))
    texts = {V4: "10.1.2.3:4567", V6: "[2001:db8::7]:8910"}

    assert [(row["bornHost"], row["storeHost"]) for row in rows] == [
        (texts[born], texts[store]) for born, store in hosts
    ]
    assert {row["storeTimestamp"] for row in rows} == {
        EPOCH + timedelta(milliseconds=1_600_000_000_456)
    }
    assert {row["reconsumeTimes"] for row in rows} == {2}
    assert {row["body"] for row in rows} == {b"what was ordered"}


@pytest.mark.parametrize("kind", list(Compression))
def test_a_compressed_body_is_inflated_when_asked_for(kind: Compression) -> None:
    packed = compress_body(b"x" * 1_000, kind, 1)
    message = dataclasses.replace(PLAIN, body=packed, sys_flag=kind.sys_flag)
    records = records_of([PLAIN, message])

    assert rows_of(records)[1]["body"] == b"x" * 1_000
    assert rows_of(records, inflate=False)[1]["body"] == packed
    assert [row["crcOk"] for row in rows_of(records)] == [True, True]


def test_a_body_that_cannot_be_inflated_is_a_row_as_it_is_stored_with_why() -> None:
    broken = dataclasses.replace(PLAIN, body=b"no zlib", sys_flag=1)
    large = dataclasses.replace(PLAIN, body=zlib.compress(bytes(1_001)), sys_flag=1)
    fits = dataclasses.replace(PLAIN, body=zlib.compress(bytes(1_000)), sys_flag=1)
    rows = RecordColumns(records_of([PLAIN, broken, large, fits]), size_max=1_000)

    made = rows.batch(["body", "bodyWhy", "bodyCrc"]).to_pydict()
    assert made["body"] == [PLAIN.body, b"no zlib", large.body, bytes(1_000)]
    assert [bool(why) for why in made["bodyWhy"]] == [False, True, True, False]
    # So much tells it without the column, too, as of an archive.
    is_stored = [
        crc32(body, 0) & CRC_MASK == crc
        for body, crc in zip(made["body"], made["bodyCrc"], strict=True)
    ]
    assert is_stored == [True, True, True, False]
    assert RecordColumns(records_of([broken]), inflate=False).batch(["bodyWhy"]).to_pydict() == {
        "bodyWhy": [None]
    }


def test_a_batch_ends_by_the_bytes_of_its_inflated_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_columns, "BATCH_BODIES_BYTES", 3_000)
    packed = dataclasses.replace(PLAIN, body=zlib.compress(bytes(1_000)), sys_flag=1)
    messages = [packed, PLAIN, packed, packed, packed, PLAIN, packed]
    large = dataclasses.replace(PLAIN, body=zlib.compress(bytes(9_000)), sys_flag=1)
    messages += [large, packed]
    rows = RecordColumns(records_of(messages))

    parts = [part.batch(["physicalOffset", "body", "crcOk"]) for part in rows.parts()]
    whole = RecordColumns(records_of(messages), inflate=False).batch(["physicalOffset"])
    sizes = [[len(body.as_py()) for body in part.column("body")] for part in parts]
    small = len(PLAIN.body)
    assert sizes == [[1_000, small, 1_000], [1_000, 1_000, small], [1_000], [9_000], [1_000]]
    assert pa.Table.from_batches(parts).column(0).to_pylist() == whole.column(0).to_pylist()
    assert all(one.as_py() for part in parts for one in part.column("crcOk"))
    # One batch of all has no more either: what is left is as it is stored.
    made = rows.batch(["body", "bodyWhy"]).to_pydict()
    assert sum(map(len, made["body"])) < 3_000 + len(messages) * 100
    assert all(bool(why) == (body in {packed.body, large.body})
               for body, why in zip(made["body"], made["bodyWhy"], strict=True))  # fmt: skip


def test_rows_without_compressed_bodies_are_one_part() -> None:
    rows = RecordColumns(records_of([PLAIN, PLAIN]))

    assert [part is rows for part in rows.parts()] == [True]


def test_a_turned_byte_of_a_body_is_a_row_whose_crc_is_wrong() -> None:
    records = records_of([PLAIN, PLAIN, PLAIN])
    data = bytearray(records.view)
    data[int(records.starts[1]) + 90] ^= 1
    rows = rows_of(dataclasses.replace(records, view=memoryview(bytes(data))))

    assert [row["crcOk"] for row in rows] == [True, False, True]


@pytest.mark.parametrize(
    ("offset", "field"),
    [(0, "total_size"), (4, "magic"), (28, "physical_offset"), (84, "body_size")],
)
def test_what_is_no_record_is_named(offset: int, field: str) -> None:
    records = records_of([PLAIN, PLAIN])
    data = bytearray(records.view)
    data[int(records.starts[1]) + offset] ^= 0x40

    with pytest.raises(CorruptLogError) as caught:
        RecordColumns(dataclasses.replace(records, view=memoryview(bytes(data))))

    assert caught.value.details == {
        "file": "the file",
        "offset": 1_000 + int(records.starts[1]),
        "field": field,
    }


def test_rows_that_are_left_out_are_in_no_column() -> None:
    messages = [dataclasses.replace(PLAIN, queue_offset=number) for number in range(4)]
    rows = RecordColumns(records_of(messages))
    rows.keep(np.array([False, True, False, True]))

    assert rows.batch(["queueOffset", "tags", "crcOk"]).to_pydict() == {
        "queueOffset": [1, 3],
        "tags": ["new", "new"],
        "crcOk": [True, True],
    }


def test_no_record_is_an_empty_batch() -> None:
    empty = np.empty(0, np.int64)
    batch = RecordColumns(RecordBlock(memoryview(b""), 0, empty, empty, 0)).batch(COLUMNS)

    assert (batch.num_rows, batch.schema) == (0, ARROW_SCHEMA)


def test_the_columns_do_not_keep_the_log_mapped() -> None:
    records = records_of([PLAIN, PLAIN])
    data = bytearray(records.view)
    batch = RecordColumns(dataclasses.replace(records, view=memoryview(data))).batch(COLUMNS)
    before = pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema)
    data[:] = bytes(len(data))

    assert batch.equals(before)
