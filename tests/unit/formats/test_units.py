"""The kernel of batches, compiled and plain, against the scalar codecs."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import Message, decode_message, encode_message
from tests.plain_codecs import BatchItem, encode_batch

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._units")]
HOLE = 48
TOPIC = b"orders"
ADDED = b"CLUSTER\x01c"
MODEL = Message(
    topic="orders",
    queue_id=3,
    body=b"",
    born_timestamp=1_700_000_000_123,
    born_host=("10.0.0.1", 4711),
)
JAVA_UNIT = bytes.fromhex(
    "00000035 00000000 00000000 00000000 00000005 68656c6c6f 001a 4b455953016b02"
    "57414954 01 74727565 02 54414753 01 54616741"
)
"""Written by RocketMQ 4.9.4: "hello", the key k, the tag TagA."""

ITEMS = st.lists(
    st.builds(
        BatchItem,
        st.integers(-(2**31), 2**31 - 1),
        st.binary(max_size=300),
        st.sampled_from([b"", b"A\x01b", b"A\x01b\x02", b"KEYS\x01k\x02TAGS\x01t"]),
    ),
    min_size=1,
    max_size=9,
)


def head_of(model: Message) -> bytes:
    """A record up to its body, behind a hole."""
    return bytes(HOLE) + encode_message(model)[: -3 - len(TOPIC)]


def measured(
    units: ModuleType, payload: bytes, *, room: int = 100, body_max: int = 1_000
) -> tuple[tuple[int, int, int], array[int]]:
    sizes = array("I", bytes(4 * room))
    environment = len(head_of(MODEL)) + 1 + len(TOPIC) + 2
    told = units.measure_units(
        memoryview(payload), memoryview(sizes), environment, len(ADDED), body_max, 40, 2_000
    )
    return told, sizes


@pytest.mark.parametrize("units", KERNELS)
@given(items=ITEMS)
def test_units_become_the_records_that_the_codec_makes(
    units: ModuleType, items: list[BatchItem]
) -> None:
    payload = encode_batch(items)
    (count, total, fault), sizes = measured(units, payload)
    records = bytearray(total)
    units.write_units(
        memoryview(payload),
        records,
        memoryview(sizes),
        count,
        HOLE,
        head_of(MODEL),
        bytes((len(TOPIC),)) + TOPIC,
        ADDED,
        crc32,
    )

    assert (count, fault) == (len(items), 0)
    at = 0
    for item, size in zip(items, sizes, strict=False):
        message = decode_message(memoryview(records), at + HOLE)
        own = item.properties.removesuffix(b"\x02")
        expected = own + b"\x02" + ADDED if own else ADDED
        assert (bytes(message.body), message.properties) == (item.body, expected)
        assert (message.flag, message.queue_id, message.topic) == (item.flag, 3, "orders")
        assert message.born_host == MODEL.born_host
        assert records[at : at + HOLE] == bytes(HOLE)
        at += size
        assert message.size == size - HOLE
    assert at == total


@pytest.mark.parametrize("units", KERNELS)
@given(items=ITEMS, cut=st.integers(1, 400))
def test_a_unit_that_is_cut_is_found(units: ModuleType, items: list[BatchItem], cut: int) -> None:
    payload = encode_batch(items)
    left = payload[: max(1, len(payload) - cut)]
    ends = [len(encode_batch(items[: number + 1])) for number in range(len(items))]
    (count, _, fault), _ = measured(units, left)

    assert count == sum(end <= len(left) for end in ends)
    assert fault == (0 if len(left) in ends else 1)


@pytest.mark.parametrize("units", KERNELS)
@given(at=st.integers(0, 60), value=st.integers(0, 255))
def test_sizes_that_lie_are_found_or_change_nothing_else(
    units: ModuleType, at: int, value: int
) -> None:
    payload = bytearray(encode_batch([BatchItem(0, b"body", b"A\x01b"), BatchItem(1, b"2", b"")]))
    payload[at % len(payload)] = value
    (count, total, fault), sizes = measured(units, bytes(payload))

    assert fault in (0, 1)
    assert total == sum(sizes[:count])


@pytest.mark.parametrize("units", KERNELS)
@pytest.mark.parametrize(
    ("item", "room", "fault"),
    [
        (BatchItem(0, b"1", b""), 1, 2),
        (BatchItem(0, bytes(1_001), b""), 9, 3),
        (BatchItem(0, b"1", b"A\x01" + b"b" * 30), 9, 4),
    ],
)
def test_a_limit_is_told_with_the_number_of_the_unit(
    units: ModuleType, item: BatchItem, room: int, fault: int
) -> None:
    (count, _, told), _ = measured(units, encode_batch([BatchItem(0, b"1", b""), item]), room=room)

    assert (count, told) == (1, fault)


@pytest.mark.parametrize("units", KERNELS)
@pytest.mark.parametrize(
    ("payload", "count", "fault"),
    [
        (JAVA_UNIT * 2, 2, 0),
        (b"", 0, 0),
        (JAVA_UNIT[:-1], 0, 1),
        (JAVA_UNIT + b"\0", 1, 1),
        (b"\0\0\0\x34" + JAVA_UNIT[4:], 0, 1),
        (JAVA_UNIT[:16] + b"\xff\xff\xff\xff" + JAVA_UNIT[20:], 0, 1),
        (b"\x80\0\0\0" + JAVA_UNIT[4:], 0, 1),
    ],
)
def test_javas_units_are_counted_as_far_as_they_are_whole(
    units: ModuleType, payload: bytes, count: int, fault: int
) -> None:
    (counted, _, told), _ = measured(units, payload)

    assert (counted, told) == (count, fault)
