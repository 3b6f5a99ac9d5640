from __future__ import annotations

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.index_file import (
    IndexHeader,
    IndexItem,
    IndexLayout,
    fresh_header,
    get_header,
    get_item,
    put_header,
    query_key,
)
from ledgermq.formats.java_hash import index_key_hash
from ledgermq.model.errors import CorruptLogError
from tests.plain_codecs import index_keys, put_key

LAYOUT = IndexLayout(slots=4, items=8)
VECTOR = bytes.fromhex(
    """
    00000174876e8001 00000174876e976f 0000000000000030 000000000000012c 00000002 00000004
    00000000 00000003 00000002 00000000
    0000000000000000000000000000000000000000
    0026bfb5 0000000000000030 00000000 00000000
    0026bfb6 0000000000000030 00000000 00000000
    0026bfb5 000000000000012c 00000005 00000001
    """
).ljust(LAYOUT.file_size, b"\0")
GOLDEN_LAYOUT = IndexLayout(slots=500, items=400)

Put = tuple[str, int, int]


def _file(puts: list[Put], layout: IndexLayout = LAYOUT) -> memoryview:
    page = memoryview(bytearray(layout.file_size))
    for key, physical_offset, store_timestamp in puts:
        put_key(page, layout, key, physical_offset=physical_offset, store_timestamp=store_timestamp)
    return page


def _vector() -> memoryview:
    begin = 1_600_000_000_001
    return _file([("T#k1", 48, begin), ("T#k2", 48, begin), ("T#k1", 300, begin + 5_998)])


def test_the_vector_of_the_real_broker_is_written_and_read() -> None:
    page = _vector()

    assert bytes(page) == VECTOR
    assert query_key(page, LAYOUT, "T#k1") == [300, 48]
    assert query_key(page, LAYOUT, "T#k2") == [48]
    assert query_key(page, LAYOUT, "T#k3") == []


def test_the_default_file_has_the_size_of_the_real_one() -> None:
    assert IndexLayout().file_size == 420_000_040


def test_a_file_holds_one_key_less_than_items() -> None:
    layout = IndexLayout(slots=4, items=3)
    page = _file([], layout)
    taken = [
        put_key(page, layout, f"T#{number}", physical_offset=number, store_timestamp=1)
        for number in range(4)
    ]

    assert taken == [True, True, False, False]
    assert query_key(page, layout, "T#1") == [1]
    assert get_header(page, layout).index_count == 3


def test_the_first_key_is_measured_from_the_end_of_the_full_file_before() -> None:
    full = IndexHeader(1_000, 61_000, 48, 900, 3, 8)
    page = _file([])
    put_header(page, fresh_header(full))

    assert get_header(page, LAYOUT) == IndexHeader(61_000, 61_000, 900, 900, 0, 1)
    assert bytes(page[32:40]) == bytes(8)
    put_key(page, LAYOUT, "T#k1", physical_offset=950, store_timestamp=64_500)
    put_key(page, LAYOUT, "T#k1", physical_offset=999, store_timestamp=66_500)
    header = get_header(page, LAYOUT)
    assert header == IndexHeader(64_500, 66_500, 950, 999, 1, 3)
    assert get_item(page, LAYOUT, 1) == IndexItem(index_key_hash("T#k1"), 950, 3, 0)
    assert get_item(page, LAYOUT, 2) == IndexItem(index_key_hash("T#k1"), 999, 2, 1)


@pytest.mark.parametrize(
    ("begin", "stored", "expected"),
    [
        (1_000, 1_999, 0),
        (1_000, 2_000, 1),
        (1_000, 900, 0),
        (0, 5_000, 0),
        (1, 2**62, 2**31 - 1),
    ],
)
def test_time_differences_are_those_of_java(begin: int, stored: int, expected: int) -> None:
    page = _file([("T#a", 1, begin), ("T#a", 2, stored)])

    assert get_item(page, LAYOUT, 2).time_difference == expected


@pytest.mark.parametrize(
    ("properties", "sys_flag", "expected"),
    [
        ({}, 0, ()),
        ({"KEYS": "a  b "}, 0, ("T#a", "T#b")),
        ({"KEYS": "a", "UNIQ_KEY": "u"}, 0x4, ("T#u", "T#a")),
        ({"KEYS": "a", "UNIQ_KEY": "u"}, 0x8, ("T#u", "T#a")),
        ({"KEYS": "a", "UNIQ_KEY": "u"}, 0xC, ()),
    ],
)
def test_a_message_is_indexed_under_its_unique_id_and_its_keys(
    properties: dict[str, str], sys_flag: int, expected: tuple[str, ...]
) -> None:
    assert index_keys("T", properties, sys_flag=sys_flag) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefg"), st.integers(0, 2**40), st.integers(1, 10**6)),
        max_size=60,
    ),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_a_query_finds_every_message_newest_first(
    puts: list[Put], begin_timestamp: int, end_timestamp: int
) -> None:
    layout = IndexLayout(slots=3, items=64)
    puts = sorted(puts, key=lambda put: put[2])
    page = _file(puts, layout)

    for key in "abcdefg":
        assert query_key(page, layout, key) == [put[1] for put in reversed(puts) if put[0] == key]
        assert query_key(page, layout, key, count_max=1) == query_key(page, layout, key)[:1]
        found = query_key(
            page, layout, key, begin_timestamp=begin_timestamp, end_timestamp=end_timestamp
        )
        # An item knows its time by the second, from the first one's on.
        first = puts[0][2] if puts else 0
        times = [(put, first + (put[2] - first) // 1_000 * 1_000) for put in puts]
        assert found == [
            put[1]
            for put, time in reversed(times)
            if put[0] == key and begin_timestamp <= time <= end_timestamp
        ]


def test_chains_end_where_java_ends_them() -> None:
    own, out, newest = _vector(), _vector(), _vector()
    at = LAYOUT.item_at(3) + 16
    own[at : at + 4] = b"\0\0\0\x03"
    out[at : at + 4] = b"\0\0\0\x07"
    newest[LAYOUT.slot_at(1) : LAYOUT.slot_at(1) + 4] = b"\0\0\0\x05"

    assert query_key(own, LAYOUT, "T#k1") == [300]
    assert query_key(out, LAYOUT, "T#k1") == [300]
    assert query_key(newest, LAYOUT, "T#k1") == []


def test_a_slot_that_a_crash_left_ahead_is_treated_as_by_java() -> None:
    same, ahead = _vector(), _vector()
    slot_at = LAYOUT.slot_at(1)
    same[slot_at : slot_at + 4] = b"\0\0\0\x04"
    ahead[slot_at : slot_at + 4] = b"\0\0\0\x05"
    for page in (same, ahead):
        put_key(page, LAYOUT, "T#k1", physical_offset=400, store_timestamp=1_600_000_009_001)

    assert get_item(same, LAYOUT, 4).previous == 4
    assert get_header(same, LAYOUT).slot_count == 2
    assert query_key(same, LAYOUT, "T#k1") == [400]
    assert get_item(ahead, LAYOUT, 4).previous == 0
    assert get_header(ahead, LAYOUT).slot_count == 3
    assert query_key(ahead, LAYOUT, "T#k1") == [400]


def test_a_slot_of_a_full_file_cannot_lead_behind_its_end() -> None:
    page = _file([("T#k1", number, 1) for number in range(7)])
    assert get_header(page, LAYOUT).index_count == LAYOUT.items
    slot_at = LAYOUT.slot_at(1)
    page[slot_at : slot_at + 4] = b"\0\0\0\x08"

    assert query_key(page, LAYOUT, "T#k1") == []


def test_a_chain_that_leads_to_a_newer_item_is_corrupt() -> None:
    page = _vector()
    at = LAYOUT.item_at(1) + 16
    page[at : at + 4] = b"\0\0\0\x03"
    with pytest.raises(CorruptLogError) as caught:
        query_key(page, LAYOUT, "T#k1", file="20260101000000000")

    details = caught.value.details
    assert (details["file"], details["offset"], details["field"]) == (
        "20260101000000000",
        at,
        "previous",
    )


@pytest.mark.parametrize(
    ("at", "data", "field"),
    [
        (32, b"\x00\x00\x00\x05", "slot_count"),
        (32, b"\xff\xff\xff\xff", "slot_count"),
        (36, b"\x00\x00\x00\x09", "index_count"),
        (36, b"\xff\xff\xff\xff", "index_count"),
    ],
)
def test_a_header_that_cannot_be_is_corrupt(at: int, data: bytes, field: str) -> None:
    page = _vector()
    page[at : at + 4] = data

    with pytest.raises(CorruptLogError, match=field):
        query_key(page, LAYOUT, "T#k1")
    with pytest.raises(CorruptLogError, match=field):
        put_key(page, LAYOUT, "T#k1", physical_offset=1, store_timestamp=1)


def test_a_file_of_another_size_is_corrupt() -> None:
    with pytest.raises(CorruptLogError, match="size"):
        get_header(_vector()[:-1], LAYOUT)


def test_no_changed_byte_makes_a_query_fail_otherwise_or_run_on() -> None:
    page = _vector()
    for at, original in enumerate(VECTOR):
        for value in (0, 1, 3, 4, 0x7F, 0x80, 0xFF):
            page[at] = value
            try:
                found = query_key(page, LAYOUT, "T#k1")
            except CorruptLogError:
                continue
            finally:
                page[at] = original
            assert len(found) <= LAYOUT.items


def test_a_key_can_be_put_into_a_file_with_random_slots() -> None:
    seed = 20_260_101
    rng = random.Random(seed)
    for _ in range(200):
        page = _vector()
        page[40:56] = rng.randbytes(16)
        put_key(page, LAYOUT, "T#k1", physical_offset=900, store_timestamp=1_700_000_000_000)
        try:
            found = query_key(page, LAYOUT, "T#k1")
        except CorruptLogError:
            continue
        assert found[0] == 900, seed


def test_keys_are_found_in_the_files_of_the_real_broker(golden: Any, golden_json: Any) -> None:
    pages = [
        memoryview(file.read_bytes())
        for file in sorted((golden("gd0") / "index").iterdir(), reverse=True)
    ]
    queries = golden_json("gd0")["keyQueries"]

    assert queries
    for query in queries:
        key = f"{query['topic']}#{query['key']}"
        found = [offset for page in pages for offset in query_key(page, GOLDEN_LAYOUT, key)]
        assert set(query["physicalOffsets"]) <= set(found)


WRITER = """
import mmap, sys
from ledgermq.formats.index_file import IndexHeader, put_header
with open(sys.argv[1], "r+b") as file:
    page = memoryview(mmap.mmap(file.fileno(), 0))
for number in range(400_000):
    # The last octet of each field starts over when the one before it changes.
    put_header(page, IndexHeader(*(1_000 + number % 1_000,) * 5, 3_000 + number % 1_000))
"""


@pytest.mark.slow
def test_another_process_never_sees_a_header_in_part(tmp_path: Path) -> None:
    layout, path = IndexLayout(slots=5_000, items=5_000), tmp_path / "index"
    path.write_bytes(bytes(layout.file_size))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with path.open("r+b") as file:
        page = memoryview(mmap.mmap(file.fileno(), 0))
    put_header(page, IndexHeader(*(1_000,) * 5, 3_000))
    seen = set()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], env=environment) as writer:
        while writer.poll() is None:
            seen |= {get_header(page, layout) for _ in range(1_000)}

    assert writer.returncode == 0
    for header in seen:
        *stamps, slots, count = header
        assert all(1_000 <= one < 2_000 for one in (*stamps, slots)), header
        assert 3_000 <= count < 4_000, header
    assert len(seen) > 1
