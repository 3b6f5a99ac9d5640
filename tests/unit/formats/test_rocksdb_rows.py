"""Rows of RocketMQ 5's RocksDB in its three layouts, and rows that are none."""

from __future__ import annotations

from struct import pack

import pytest

from ledgermq.formats.rocksdb_rows import (
    KeyedRow,
    QueuedUnit,
    QueueMax,
    ends_in,
    queue_prefix,
    tables_in,
    units_in,
)
from ledgermq.model.errors import CorruptLogError

TOPIC = b'{"attributes":{"message.type":"FIFO"},"perm":6,"topicName":"orders"}'
GROUP = b'{"groupName":"billing","retryMaxTimes":5}'
VERSION = b'{"counter":3,"stateVersion":0,"timestamp":1796075852941}'
OFFSETS = b'{"offsetTable":{"0":4,"1":5}}'

SEPARATE = {
    "config/topics": [
        KeyedRow("default", b"orders", TOPIC),
        KeyedRow("kvDataVersion", b"kvDataVersionKey", VERSION),
    ],
    "config/subscriptionGroups": [
        KeyedRow("default", b"billing", GROUP),
        KeyedRow("kvDataVersion", b"kvDataVersionKey", VERSION),
        KeyedRow("forbidden", b"billing", b'{"orders":2}'),
    ],
    "config/consumerOffsets": [
        KeyedRow("default", b"orders@billing", OFFSETS),
        KeyedRow("kvDataVersion", b"kvDataVersionKey", VERSION),
    ],
}
SINGLE = {
    "config/metadata": [
        KeyedRow("topic", b"orders", TOPIC),
        KeyedRow("topicVersion", b"kvDataVersionKey", VERSION),
        KeyedRow("subscriptionGroup", b"billing", GROUP),
        KeyedRow("subscriptionGroupVersion", b"kvDataVersionKey", VERSION),
        KeyedRow("forbidden", b"billing", b'{"orders":2}'),
        KeyedRow("consumerOffset", b"orders@billing", OFFSETS),
        KeyedRow("consumerOffsetVersion", b"kvDataVersionKey", VERSION),
    ]
}
_COUNTED = pack(">qqq", 0, 1796075852941, 3)
_AT = b"\x01\x00\x01\x02\x00\x07billing\x01\x00\x06orders\x01"
VERSION_2 = {
    "config/rdb": [
        KeyedRow("default", b"\x01\x00\x01\x01data_version", _COUNTED),
        KeyedRow("default", _AT + pack(">i", 0), pack(">q", 4)),
        KeyedRow("default", _AT + pack(">i", 1), pack(">q", 5)),
        KeyedRow(
            "default", _AT.replace(b"\x00\x01\x02", b"\x00\x02\x02") + pack(">i", 1), bytes(8)
        ),
        KeyedRow("default", b"\x01\x00\x02\x01data_version", _COUNTED),
        KeyedRow("default", b"\x01\x00\x03\x01data_version", _COUNTED),
        KeyedRow("default", b"\x01\x00\x03\x02\x00\x06orders", b"\x01" + TOPIC),
        KeyedRow("default", b"\x01\x00\x04\x01data_version", _COUNTED),
        KeyedRow("default", b"\x01\x00\x04\x02\x00\x07billing", b"\x01" + GROUP),
    ]
}


@pytest.mark.parametrize("rows", [SEPARATE, SINGLE, VERSION_2])
def test_each_layout_says_the_same_tables(rows: dict[str, list[KeyedRow]]) -> None:
    tables = tables_in(rows)
    forbidden = tables["subscriptionGroup.json"].pop("forbiddenTable", None)
    version = {"counter": 3, "stateVersion": 0, "timestamp": 1796075852941}

    assert forbidden == (None if rows is VERSION_2 else {"billing": {"orders": 2}})
    assert tables == {
        "topics.json": {
            "dataVersion": version,
            "topicConfigTable": {
                "orders": {
                    "attributes": {"message.type": "FIFO"},
                    "perm": 6,
                    "topicName": "orders",
                }
            },
        },
        "subscriptionGroup.json": {
            "dataVersion": version,
            "subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 5}},
        },
        "consumerOffset.json": {
            "dataVersion": version,
            "offsetTable": {"orders@billing": {"0": 4, "1": 5}},
        },
    }


def test_a_folder_that_is_not_there_makes_no_table() -> None:
    found = tables_in({"config/topics": SEPARATE["config/topics"]})

    assert list(found) == ["topics.json"]


@pytest.mark.parametrize(
    ("folder", "row"),
    [
        ("config/topics", KeyedRow("default", b"orders", b"{")),
        ("config/topics", KeyedRow("default", b"orders", b"[]")),
        ("config/topics", KeyedRow("default", b"\xff\xfe", TOPIC)),
        ("config/consumerOffsets", KeyedRow("default", b"orders@billing", b"{}")),
        ("config/consumerOffsets", KeyedRow("default", b"orders@billing", b'{"offsetTable":[]}')),
        ("config/metadata", KeyedRow("default", b"orders", TOPIC)),
        ("config/metadata", KeyedRow("another", b"orders", TOPIC)),
        ("config/rdb", KeyedRow("default", b"", b"")),
        ("config/rdb", KeyedRow("default", b"\x02\x00\x03\x02\x00\x06orders", b"\x01" + TOPIC)),
        ("config/rdb", KeyedRow("default", b"\x01\x00\x03\x03\x00\x06orders", b"\x01" + TOPIC)),
        ("config/rdb", KeyedRow("default", b"\x01\x00\x09\x02\x00\x06orders", b"\x01" + TOPIC)),
        ("config/rdb", KeyedRow("default", b"\x01\x00\x03\x02\x00\x09orders", b"\x01" + TOPIC)),
        ("config/rdb", KeyedRow("default", b"\x01\x00\x03\x02\x00\x06orders", b"\x02" + TOPIC)),
        ("config/rdb", KeyedRow("default", b"\x01\x00\x03\x02\x00\x06orders", b"")),
        ("config/rdb", KeyedRow("default", b"\x01\x00\x03\x01data_version", b"short")),
        ("config/rdb", KeyedRow("default", _AT + b"\x00", bytes(8))),
        ("config/rdb", KeyedRow("default", _AT[:-1] + pack(">i", 0), bytes(8))),
    ],
)
def test_a_row_that_is_none_of_rocketmqs_is_named(folder: str, row: KeyedRow) -> None:
    with pytest.raises(CorruptLogError) as refused:
        tables_in({folder: [row]})

    assert refused.value.details["folder"] == folder


def _bound(topic: bytes, kind: bytes, queue: int) -> bytes:
    return queue_prefix(topic) + kind + b"\x01" + pack(">i", queue)


def test_queues_end_where_their_last_message_is() -> None:
    rows = [
        KeyedRow("offset", _bound(b"orders", b"max", 1), pack(">qq", 5_000, 11)),
        KeyedRow("offset", _bound(b"orders", b"min", 1), pack(">qq", 100, 3)),
        KeyedRow("offset", _bound(b"CHECKPOINT_TOPIC", b"max", 0), pack(">q", 6_000)),
    ]

    assert ends_in(rows) == {(b"orders", 1): QueueMax(5_000, 11)}


def test_units_are_told_by_their_queue() -> None:
    key = queue_prefix(b"orders") + pack(">i", 2) + b"\x01" + pack(">q", 7)
    rows = [KeyedRow("default", key, pack(">qiqq", 5_000, 300, -4, 1_796_075_852_941))]

    assert list(units_in(rows)) == [((b"orders", 2), QueuedUnit(7, 5_000, 300, -4))]


@pytest.mark.parametrize(
    "row",
    [
        KeyedRow("offset", b"", b""),
        KeyedRow("offset", _bound(b"orders", b"mid", 1), bytes(16)),
        KeyedRow("offset", _bound(b"orders", b"max", 1), bytes(15)),
        KeyedRow("offset", _bound(b"orders", b"max", 1), pack(">qq", -1, 0)),
        KeyedRow("offset", _bound(b"orders", b"max", 1)[:-1], bytes(16)),
        KeyedRow("offset", b"\x00\x00\x00\x63\x01orders\x01max\x01\x00\x00\x00\x01", bytes(16)),
    ],
)
def test_a_bound_that_is_none_is_named(row: KeyedRow) -> None:
    with pytest.raises(CorruptLogError, match="not understood"):
        ends_in([row])


@pytest.mark.parametrize(
    "row",
    [
        KeyedRow("default", queue_prefix(b"orders"), bytes(28)),
        KeyedRow("default", queue_prefix(b"orders") + bytes(13), bytes(28)),
        KeyedRow("default", queue_prefix(b"orders") + bytes(4) + b"\x01" + bytes(8), bytes(20)),
    ],
)
def test_a_unit_that_is_none_is_named(row: KeyedRow) -> None:
    with pytest.raises(CorruptLogError, match="not understood"):
        list(units_in([row]))
