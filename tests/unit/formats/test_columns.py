"""The kernel of columns, compiled and plain, against the scalar codecs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.head_field import HeadFault, HeadField
from ledgermq.formats.kernels import kernel
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import decode_properties
from tests.plain_codecs import as_version_2

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._columns")]
PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"value", b" "])
ROWS = st.lists(st.lists(PIECES, max_size=20).map(b"".join), max_size=5)


def edges(rows: list[bytes]) -> tuple[memoryview, np.ndarray, np.ndarray]:
    """Rows one behind the other, and where each begins and ends."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return memoryview(b"".join(rows) + b"\0"), ends[:-1].copy(), ends[1:].copy()


@pytest.mark.parametrize("columns", KERNELS)
@given(
    rows=st.lists(st.binary(max_size=300), max_size=9),
    skipped=st.integers(0, 3),
    cut=st.integers(0, 9),
)
def test_slices_stand_one_behind_the_other(
    columns: ModuleType, rows: list[bytes], skipped: int, cut: int
) -> None:
    span, starts, ends = edges(rows)
    starts = np.minimum(starts + skipped, ends)
    expected = [row[skipped:] for row in rows]
    bounds = np.zeros(len(rows) + 1, np.int32)
    out = np.zeros(sum(map(len, expected)) + 1, np.uint8)
    middle = min(cut, len(rows))
    for first, end in ((0, middle), (middle, len(rows))):
        columns.join_slices(span, starts.data, ends.data, first, end, bounds.data, out.data)

    assert out.tobytes()[:-1] == b"".join(expected)
    assert bounds.tolist() == [0, *np.cumsum([len(one) for one in expected], dtype=int)]


@pytest.mark.parametrize("columns", KERNELS)
@given(
    names=st.lists(st.binary(max_size=4), min_size=1, max_size=4),
    numbers=st.lists(st.integers(0, 3), max_size=9),
    wrong=st.integers(0, 9),
)
def test_the_first_slice_of_another_name_is_found(
    columns: ModuleType, names: list[bytes], numbers: list[int], wrong: int
) -> None:
    wanted = [number % len(names) for number in numbers]
    rows = [names[number] for number in wanted]
    rows[wrong : wrong + 1] = [row + b"x" for row in rows[wrong : wrong + 1]]
    span, starts, ends = edges(rows)
    bounds = np.cumsum([0, *map(len, names)], dtype=np.int32)
    found = columns.find_other(
        span,
        starts.data,
        ends.data,
        memoryview(b"".join(names)),
        bounds.data,
        np.array(wanted, np.int64).data,
    )

    assert found == min(wrong, len(rows))


HOSTS = st.sampled_from([("10.1.2.3", 4_567), ("2001:db8::7", 8_910)])
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["t", "orders"]),
    queue_id=st.integers(0, 2**31 - 1),
    body=st.binary(max_size=200),
    properties=st.binary(max_size=40),
    queue_offset=st.integers(0, 2**63 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp=st.integers(0, 2**63 - 1),
    born_host=HOSTS,
    store_timestamp=st.integers(0, 2**63 - 1),
    store_host=HOSTS,
    reconsume_times=st.integers(0, 100),
)


def log_of(
    messages: list[Message], *, base: int, version_2_from: int = 1_000
) -> tuple[bytearray, np.ndarray, np.ndarray]:
    """Messages with entry headers of ascending numbers before them."""
    span, starts, sizes = bytearray(), [], []
    for number, message in enumerate(messages):
        span += bytes(8) + number.to_bytes(8, "big") + (7).to_bytes(8, "big") + bytes(24)
        starts.append(len(span))
        record = encode_message(replace(message, physical_offset=base + len(span)))
        if number >= version_2_from:
            record = as_version_2(record, topic=b"t" * (100 + 50 * number))
        span += record
        sizes.append(len(span) - starts[-1])
    return span, np.array(starts, np.int64), np.array(sizes, np.int64)


def heads(
    columns: ModuleType, span: bytearray, starts: np.ndarray, sizes: np.ndarray, *, base: int
) -> tuple[int, np.ndarray]:
    stride = len(starts) + 3
    fields = np.zeros((len(HeadField), stride), np.int64)
    read = columns.read_heads(
        memoryview(bytes(span)), starts.data, sizes.data, 48, base, fields.reshape(-1).data, stride
    )
    return read, fields


@pytest.mark.parametrize("columns", KERNELS)
@given(messages=st.lists(MESSAGES, max_size=4), base=st.sampled_from([-1, 0, 1_000]))
def test_heads_say_what_each_message_says_alone(
    columns: ModuleType, messages: list[Message], base: int
) -> None:
    span, starts, sizes = log_of(messages, base=max(base, 0), version_2_from=2)
    read, fields = heads(columns, span, starts, sizes, base=base)

    assert read == len(messages)
    for row, start in enumerate(starts.tolist()):
        one = decode_message(memoryview(span), start)
        said = {field: int(fields[field, row]) for field in HeadField}
        body, behind = said[HeadField.BODY_START], said[HeadField.BODY_END]
        topic = span[said[HeadField.TOPIC_START] : said[HeadField.TOPIC_END]]

        assert (span[body:behind], topic.decode()) == (one.body, one.topic)
        assert said[HeadField.QUEUE_OFFSET] == one.queue_offset
        assert said[HeadField.PHYSICAL_OFFSET] == one.physical_offset
        assert said[HeadField.BORN_TIME] == one.born_timestamp
        assert said[HeadField.STORE_TIME] == one.store_timestamp
        assert said[HeadField.QUEUE_ID] == one.queue_id
        assert said[HeadField.FLAG] == one.flag
        assert said[HeadField.SYS_FLAG] == one.sys_flag
        assert said[HeadField.RECONSUME_TIMES] == one.reconsume_times
        assert said[HeadField.ENTRY_INDEX] == row
        assert said[HeadField.ENTRY_TERM] == 7


@pytest.mark.parametrize("columns", KERNELS)
def test_a_topic_that_could_not_be_a_folder_is_told(columns: ModuleType) -> None:
    span, starts, sizes = log_of([ORDERS] * 5, base=0, version_2_from=4)
    read, fields = heads(columns, span, starts, sizes, base=0)

    assert (read, HeadFault(int(fields[0, 4]))) == (4, HeadFault.TOPIC_SIZE)


ORDERS = Message(topic="orders", queue_id=1, body=b"body", properties=b"a\x01b\x02")


@pytest.mark.parametrize("columns", KERNELS)
@pytest.mark.parametrize(
    ("at", "fault"),
    [
        (0, HeadFault.TOTAL_SIZE), (4, HeadFault.MAGIC), (35, HeadFault.PHYSICAL_OFFSET),
        (84, HeadFault.BODY_SIZE), (92, HeadFault.TOPIC_SIZE), (99, HeadFault.PROPERTIES_SIZE),
    ],
)  # fmt: skip
def test_the_first_record_that_is_none_is_told_with_its_fault(
    columns: ModuleType, at: int, fault: HeadFault
) -> None:
    span, starts, sizes = log_of([ORDERS] * 4, base=0)
    span[starts[2] + at] ^= 0x40
    read, fields = heads(columns, span, starts, sizes, base=0)

    assert (read, HeadFault(int(fields[0, 2]))) == (2, fault)


@pytest.mark.parametrize("columns", KERNELS)
def test_places_that_cannot_hold_a_record_are_told(columns: ModuleType) -> None:
    span, starts, sizes = log_of([ORDERS] * 3, base=0)
    faults = []
    for change in (
        lambda: sizes.__setitem__(1, 88),
        lambda: starts.__setitem__(0, 40),
        lambda: starts.__setitem__(2, int(starts[1]) + 8),
        lambda: sizes.__setitem__(2, 10_000),
    ):
        before = starts.copy(), sizes.copy()
        change()
        read, fields = heads(columns, span, starts, sizes, base=0)
        faults.append((read, HeadFault(int(fields[0, read])).field))
        starts[:], sizes[:] = before

    assert faults == [
        (1, "size"), (0, "position"), (2, "overlap with the record before"), (2, "position"),
    ]  # fmt: skip


@pytest.mark.parametrize("columns", KERNELS)
@pytest.mark.parametrize("room", [1, 3, 100])
@given(rows=ROWS)
def test_pairs_are_those_that_rocketmq_reads(
    columns: ModuleType, room: int, rows: list[bytes]
) -> None:
    span, starts, ends = edges(rows)
    bounds = np.zeros(len(rows) + 1, np.int32)
    places = [np.empty(0, np.int64) for _ in range(3)]
    done = 0
    while done < len(rows):
        # It goes on with the row for which there was no room.
        places = [np.concatenate((one, np.empty(room, np.int64))) for one in places]
        done = columns.split_properties(
            span, starts.data, ends.data, done, bounds.data, *(one.data for one in places)
        )
    names = [bytes(span[a:b]).decode() for a, b in zip(*places[:2], strict=True)]
    values = [bytes(span[a + 1 : b]).decode() for a, b in zip(*places[1:], strict=True)]
    expected = [decode_properties(row) for row in rows]
    pairs = list(zip(names, values, strict=True))
    found = [pairs[a:b] for a, b in pairwise(bounds.tolist())]

    assert [dict(row) for row in found] == expected
    assert [len(row) for row in found] == [len(row) for row in expected]
    for name in ("TAGS", "a"):
        numbers = np.empty(len(rows), np.int64)
        count = columns.find_property(
            span, bounds.data, places[0].data, places[1].data, name.encode(), numbers.data
        )
        said = [values[number] if number >= 0 else None for number in numbers.tolist()]

        assert said == [row.get(name) for row in expected]
        assert count == sum(name in row for row in expected)
