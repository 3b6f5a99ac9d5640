"""The kernel of rows, compiled and plain, against the codec of one record."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.sending.record_encoder import Column
from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import Message, decode_message, encode_message

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._rows")]
TOPIC = b"orders"
PREFIX = b"7F0000010000"
MODEL = Message(topic="orders", queue_id=3, body=b"", flag=-7, born_timestamp=1_700_000_000_123)

ROWS = st.lists(
    st.tuples(
        st.binary(max_size=300),
        st.binary(max_size=90),
        st.booleans(),
        st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=9,
)
"""Body, properties, whether a unique id is drawn, flag."""


def head_of(model: Message, hole: int) -> bytes:
    """A record up to its body, behind a hole."""
    return bytes(hole) + encode_message(model)[: -3 - len(TOPIC)]


def measured(
    rows: ModuleType,
    bodies: Column,
    properties: Column,
    drawn: bytes,
    *,
    first: int = 0,
    limits: tuple[int, int, int] = (1_000, 1_000, 10_000),
    hole: int = 0,
) -> tuple[tuple[int, int, int], array[int]]:
    count = len(drawn) - first
    sizes = array("I", bytes(4 * count))
    told = rows.measure_rows(
        memoryview(sizes), bodies.bounds, properties.bounds, drawn, first, count,
        len(head_of(MODEL, hole)) + 1 + len(TOPIC) + 2, len(PREFIX) + 12, *limits,
    )  # fmt: skip
    return told, sizes


@pytest.mark.parametrize("rows", KERNELS)
@given(
    given=ROWS,
    skipped=st.integers(0, 8),
    form=st.tuples(st.sampled_from([0, 48]), st.booleans()),
    number=st.integers(0, 2**48 - 20),
)
def test_rows_become_the_records_that_the_codec_makes(
    rows: ModuleType,
    given: list[tuple[bytes, bytes, bool, int]],
    skipped: int,
    form: tuple[int, bool],
    number: int,
) -> None:
    hole, has_flags = form
    first = min(skipped, len(given) - 1)
    bodies = Column.of([body for body, _, _, _ in given])
    properties = Column.of([own for _, own, _, _ in given])
    drawn = bytes(is_drawn for _, _, is_drawn, _ in given)
    flags = memoryview(array("i", [flag for _, _, _, flag in given] if has_flags else []))
    (total, fault, _), sizes = measured(rows, bodies, properties, drawn, first=first, hole=hole)
    records = bytearray(total)
    rows.write_rows(
        records, memoryview(sizes), bodies.data, bodies.bounds, properties.data,
        properties.bounds, flags, drawn, first, len(given) - first, hole, head_of(MODEL, hole),
        bytes((len(TOPIC),)) + TOPIC, PREFIX, number, crc32,
    )  # fmt: skip

    assert (fault, sum(sizes)) == (0, total)
    at = 0
    for row, (body, own, is_drawn, flag) in enumerate(given[first:]):
        message = decode_message(memoryview(records), at + hole)
        unique_id = PREFIX + b"%012X" % (number + row) if is_drawn else b""
        assert (bytes(message.body), message.properties) == (body, own + unique_id)
        assert message.flag == (flag if has_flags else -7)
        assert (message.topic, message.queue_id) == ("orders", 3)
        assert records[at : at + hole] == bytes(hole)
        assert message.size == sizes[row] - hole
        at += sizes[row]


@pytest.mark.parametrize("rows", KERNELS)
@pytest.mark.parametrize(
    ("limits", "expected"),
    [((4, 1_000, 10_000), (3, 2)), ((1_000, 30, 10_000), (4, 1)), ((1_000, 1_000, 130), (5, 1))],
)
def test_the_first_row_that_is_too_large_is_named_with_what_is(
    rows: ModuleType, limits: tuple[int, int, int], expected: tuple[int, int]
) -> None:
    bodies, properties = Column.of([b"", b"four", b"five."]), Column.of([b"", b"seven..", b""])
    (_, fault, record), _ = measured(rows, bodies, properties, bytes([0, 1, 1]), limits=limits)

    assert (fault, record) == expected


@pytest.mark.parametrize("rows", KERNELS)
@given(records=st.lists(st.binary(max_size=300), min_size=1, max_size=9), hole=st.integers(0, 48))
def test_records_are_spread_with_a_hole_before_each(
    rows: ModuleType, records: list[bytes], hole: int
) -> None:
    sizes = memoryview(array("I", [hole + len(record) for record in records]))
    spread = bytearray(sum(sizes) or 1)
    payload = b"".join(records) or b"-"
    rows.spread_records(memoryview(payload), sizes, hole, spread)

    assert bytes(spread) == (b"".join(bytes(hole) + record for record in records) or bytes(1))
