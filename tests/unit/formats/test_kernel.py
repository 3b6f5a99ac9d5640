"""The kernels, compiled and plain, against the scalar codecs and against what Java computed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.index_file import (
    IndexHeader,
    IndexLayout,
    fresh_header,
    get_header,
    put_header,
)
from ledgermq.formats.java_hash import index_key_hash, java_hash
from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.kernel import MALFORMED, NO_UNIT, ScanStatus
from ledgermq.formats.records.message import (
    MAGIC_V2,
    TRANSACTION_ROLLBACK,
    Message,
    encode_message,
)
from ledgermq.model.ids import Index, Position, Term
from tests.plain_codecs import as_version_2, encode_entry, index_keys, put_key

PLAIN_SCAN = kernel.load_plain("ledgermq.formats.kernels._scan")
PLAIN_LINK = kernel.load_plain("ledgermq.formats.kernels._link")
DELAYS = (0, 1_000, 5_000, 10_000)
BASE = 4_096


@pytest.fixture(params=["loaded", "plain"])
def scan(request: pytest.FixtureRequest) -> ModuleType:
    """The kernel that was loaded (compiled, where it is built), and the plain one."""
    return PLAIN_SCAN if request.param == "plain" else kernel  # type: ignore[return-value]


@pytest.fixture(params=["loaded", "plain"])
def link(request: pytest.FixtureRequest) -> ModuleType:
    return PLAIN_LINK if request.param == "plain" else kernel  # type: ignore[return-value]


def walk(
    scan: Any, log: bytes, *, header_size: int = 0, base: int = BASE, room: int = 256
) -> tuple[list[tuple[int, int]], int, ScanStatus]:
    starts, sizes = np.zeros(room, np.int64), np.zeros(room, np.int64)
    count, at, status = scan.scan_entries(
        memoryview(log), 0, len(log), header_size, base, starts.data, sizes.data
    )
    found = list(zip(starts[:count].tolist(), sizes[:count].tolist(), strict=True))
    return found, at, ScanStatus(status)


def dispatch(
    scan: Any,
    log: bytes,
    *,
    with_keys: bool = True,
    with_tags: bool = False,
    key_room: int = 64,
    first: int = 0,
) -> SimpleNamespace:
    found, _, _ = walk(scan, log)
    starts = np.array([start for start, _ in found] or [0], np.int64)
    sizes = np.array([size for _, size in found] or [0], np.int64)
    rows = len(starts)
    columns = [np.zeros(rows, np.int64) for _ in range(3)]
    groups = np.zeros(rows, np.int32)
    hashes, key_rows = np.zeros(key_room, np.int32), np.zeros(key_room, np.int32)
    topics, queues = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    table = np.zeros(1 << (2 * rows).bit_length(), np.int32)
    last, keys, group_count, malformed = scan.dispatch_span(
        memoryview(log), BASE, starts.data, sizes.data, first, len(found),
        np.array(DELAYS, np.int64).data, with_keys, with_tags, columns[0].data, columns[1].data,
        columns[2].data, groups.data, hashes.data, key_rows.data, topics.data, queues.data,
        table.data, np.zeros(10, np.int64).data,
    )  # fmt: skip
    named = [
        (log[at : at + log[at - 1]].decode(errors="replace"), queue)
        for at, queue in zip(topics[:group_count], queues[:group_count].tolist(), strict=True)
    ]
    return SimpleNamespace(
        last=last,
        malformed=malformed,
        queue_offsets=columns[0][first:last].tolist(),
        store_times=columns[1][first:last].tolist(),
        tags=columns[2][first:last].tolist(),
        queues=[named[group] if group >= 0 else group for group in groups[first:last].tolist()],
        keys=list(zip(key_rows[:keys].tolist(), hashes[:keys].tolist(), strict=True)),
    )


def message(**fields: Any) -> Message:
    defaults = {"topic": "T", "queue_id": 0, "body": b"x", "store_timestamp": 1_600_000_000_000}
    return Message(**{**defaults, **fields})


def log_of(messages: list[Message]) -> bytes:
    log = b""
    for item in messages:
        log += encode_message(replace(item, physical_offset=BASE + len(log)))
    return log


def properties(pairs: list[tuple[str, str]]) -> bytes:
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()


texts = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), max_size=12
)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "TAG", "KEYZ", "WAIT", "UNIQ_KEX"])
messages = st.builds(
    message,
    topic=st.sampled_from(["T", "orders", "тема", "SCHEDULE_TOPIC_XXXY", "t" * 127]),
    queue_id=st.integers(-1, 3),
    body=st.binary(max_size=40),
    sys_flag=st.sampled_from([0, 4, 8, 12, 0x103]),
    queue_offset=st.integers(0, 2**40),
    store_timestamp=st.integers(0, 2**45),
    born_host=st.sampled_from([("10.0.0.1", 1), ("::1", 2)]),
    store_host=st.sampled_from([("10.0.0.1", 1), ("::1", 2)]),
    properties=st.lists(st.tuples(names, texts), max_size=6).map(properties),
)


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        (b"", 0),
        (b"TagA", 2598919),
        (b"T#k1", 2539445),
        (b"polygenelubricants", -2147483648),
        (b"Tag-negative-xyz", -188316812),
        ("𝄞".encode(), 1_772_394),
        # Java's decoder, not Python's: one replacement for a whole encoded surrogate.
        (b"\xed\xa0\x80", 65533),
        (b"\xed\xa0", 65533),
        (b"\xf4\x90\x80\x80", 2_017_367_872),
        (b"A\xc0\x80", 2_159_521),
    ],
)
def test_a_hash_is_the_one_that_java_computes(
    scan: ModuleType, octets: bytes, expected: int
) -> None:
    value = scan.java_hash(memoryview(octets), 0, len(octets), 0)

    assert value - ((value >> 31) << 32) == expected


@given(texts, texts)
def test_a_hash_continues_the_hash_of_what_precedes(before: str, after: str) -> None:
    octets = (before + after).encode()
    cut = len(before.encode())
    for module in (kernel, PLAIN_SCAN):
        seed = module.java_hash(memoryview(octets), 0, cut, 0)
        value = module.java_hash(memoryview(octets), cut, len(octets), seed)

        assert value == java_hash(before + after) & 0xFFFF_FFFF


LONG = "%RETRY%" + "g" * 60 + "_" + "t" * 187


@given(st.lists(messages, max_size=8), st.integers(0, 255), st.booleans())
def test_dispatch_agrees_with_the_scalar_codecs(
    batch: list[Message], of_version_2: int, with_tags: bool
) -> None:
    log = b""
    for row, item in enumerate(batch):
        record = encode_message(replace(item, physical_offset=BASE + len(log)))
        if of_version_2 >> row & 1:
            batch[row] = replace(item, topic=LONG)
            record = as_version_2(record, topic=LONG.encode())
        log += record
    expected_keys: list[tuple[int, int]] = []
    queues: list[Any] = []
    tags: list[int] = []
    for row, item in enumerate(batch):
        parsed = item.parsed_properties()
        for key in index_keys(item.topic, parsed, sys_flag=item.sys_flag):
            expected_keys.append((row, index_key_hash(key)))
        if with_tags and parsed.get("TAGS") and item.transaction != TRANSACTION_ROLLBACK:
            expected_keys.append((row, index_key_hash(f"{item.topic}#T#{parsed['TAGS']}")))
        tags.append(java_hash(parsed.get("TAGS", "")))
        queues.append(NO_UNIT if item.transaction in (4, 12) else (item.topic, item.queue_id))
    for module in (kernel, PLAIN_SCAN):
        result = dispatch(module, log, with_tags=with_tags)

        assert result.keys == expected_keys
        assert result.tags == tags
        assert result.queues == queues
        assert result.queue_offsets == [item.queue_offset for item in batch]
        assert result.store_times == [item.store_timestamp for item in batch]


@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_both_variants_read_damaged_messages_alike(batch: list[Message], data: Any) -> None:
    log = bytearray(log_of(batch))
    if data.draw(st.booleans()):
        # What is told to be of version 2 is none, and may not make anybody read elsewhere.
        log[7] = MAGIC_V2 & 0xFF
    sizes = [size for _, size in walk(kernel, bytes(log))[0]]
    for _ in range(data.draw(st.integers(1, 4))):
        start = sum(sizes[: data.draw(st.integers(0, len(sizes) - 1))])
        # Size and magic stay: the walk must still find the message.
        at = start + data.draw(st.integers(8, sizes[0] - 1 if start == 0 else 90))
        # A time near the end of 64 bits would make the plain variant's sum too large.
        log[at] = data.draw(st.integers(0, 255))
    compiled, plain = (dispatch(module, bytes(log)) for module in (kernel, PLAIN_SCAN))

    assert compiled == plain


@pytest.mark.parametrize(
    ("segments", "tag"),
    [
        (b"TAGS\x01a\x02TAGS\x01b", "b"),
        (b"TAGS\x01a\x02TAGS\x01", "a"),
        (b"TAGS\x01a\x02", "a"),
        (b"\x01TAGS\x01a\x02TAGS", ""),
        (b"TAGS\x02TAGS\x01a\x01b", "a\x01b"),
        (b"\x02\x02TAGS\x01a", "a"),
    ],
)
def test_segments_are_accepted_as_java_does(scan: ModuleType, segments: bytes, tag: str) -> None:
    result = dispatch(scan, log_of([message(properties=segments)]))

    assert result.tags == [java_hash(tag)]


@pytest.mark.parametrize(
    ("level", "added"), [("1", 1_000), ("3", 10_000), ("99", 10_000), ("+2", 5_000)]
)
def test_a_delayed_message_carries_its_time_of_delivery(
    scan: ModuleType, level: str, added: int
) -> None:
    delayed = message(
        topic="SCHEDULE_TOPIC_XXXX", properties=properties([("TAGS", "a"), ("DELAY", level)])
    )

    assert dispatch(scan, log_of([delayed])).tags == [1_600_000_000_000 + added]


@pytest.mark.parametrize(("topic", "level"), [("SCHEDULE_TOPIC_XXXX", "0"), ("T", "2")])
def test_a_message_that_is_not_delayed_carries_its_tag(
    scan: ModuleType, topic: str, level: str
) -> None:
    plain = message(topic=topic, properties=properties([("DELAY", level), ("TAGS", "a")]))

    assert dispatch(scan, log_of([plain])).tags == [97]


def test_a_delay_that_is_no_number_makes_the_message_unreadable(scan: ModuleType) -> None:
    log = log_of([message(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01soon"), message()])
    result = dispatch(scan, log)

    assert result.malformed == 1
    assert result.queues == [MALFORMED, ("T", 0)]


def test_a_message_that_says_to_lie_elsewhere_is_unreadable(scan: ModuleType) -> None:
    log = log_of([message()])[: -0 or None] + encode_message(message(physical_offset=7))

    assert dispatch(scan, log).queues == [("T", 0), MALFORMED]


def test_rows_whose_keys_find_no_room_are_left_for_the_next_call(scan: ModuleType) -> None:
    log = log_of([message(properties=b"KEYS\x01a b  c ")] * 3)
    result = dispatch(scan, log, key_room=8)
    rest = dispatch(scan, log, key_room=8, first=result.last)

    assert (result.last, len(result.keys)) == (2, 6)
    assert rest.last == 3
    assert [row for row, _ in rest.keys] == [2, 2, 2]


def test_no_keys_are_hashed_without_an_index(scan: ModuleType) -> None:
    result = dispatch(scan, log_of([message(properties=b"KEYS\x01a")]), with_keys=False)

    assert (result.last, result.keys) == (1, [])


def entry_log(bodies: list[bytes]) -> bytes:
    log = b""
    for number, body in enumerate(bodies):
        log += encode_entry(
            body,
            index=Index(number),
            term=Term(1),
            position=Position(BASE + len(log)),
            previous_chain_crc=0,
        )
    return log


def test_entries_are_walked_over_a_blank(scan: ModuleType) -> None:
    record = encode_message(message())
    log = entry_log([record]) + bytes.fromhex("ffffffff 00000010") + bytes(8)
    log += encode_entry(
        record,
        index=Index(1),
        term=Term(1),
        position=Position(BASE + len(log)),
        previous_chain_crc=0,
    )
    found, at, status = walk(scan, log, header_size=48)

    assert [start for start, _ in found] == [48, 48 + 48 + len(record) + 16]
    assert (at, status) == (len(log), ScanStatus.END)


def test_records_of_a_plain_log_are_walked_over_a_blank(scan: ModuleType) -> None:
    record = encode_message(message())
    log = record + bytes.fromhex("00000014 cbd43194") + bytes(12) + record
    found, at, status = walk(scan, log)

    assert found == [(0, len(record)), (len(record) + 20, len(record))]
    assert (at, status) == (len(log), ScanStatus.END)


@pytest.mark.parametrize(
    ("at", "octets", "status"),
    [
        (0, b"\0\0\0\2", ScanStatus.BAD_MAGIC),
        (4, b"\0\0\0\x30", ScanStatus.BAD_SIZE),
        (4, b"\x80\0\0\0", ScanStatus.BAD_SIZE),
        (4, b"\0\1\0\0", ScanStatus.CUT),
        (31, b"\7", ScanStatus.BAD_POSITION),
        (47, b"\7", ScanStatus.BAD_BODY_SIZE),
        (51, b"\7", ScanStatus.BAD_MESSAGE_SIZE),
        (55, b"\7", ScanStatus.BAD_MESSAGE_MAGIC),
    ],
)
def test_a_walk_stops_at_a_wrong_field_and_names_it(
    scan: ModuleType, at: int, octets: bytes, status: ScanStatus
) -> None:
    good = entry_log([encode_message(message())])
    log = bytearray(good + entry_log([encode_message(message())]))
    second = len(good)
    log[second + 24 : second + 32] = (BASE + second).to_bytes(8, "big")
    log[second + at : second + at + len(octets)] = octets

    found, end, reason = walk(scan, bytes(log), header_size=48)

    assert (len(found), end, reason) == (1, second, status)


def test_a_walk_stops_when_the_columns_are_full(scan: ModuleType) -> None:
    record = encode_message(message())
    found, at, status = walk(scan, record * 3, room=2)

    assert (len(found), at, status) == (2, 2 * len(record), ScanStatus.FULL)


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_cut_record_is_left_for_later(scan: ModuleType, cut: int) -> None:
    record = encode_message(message())
    found, at, status = walk(scan, record + record[:cut])

    assert (len(found), at) == (1, len(record))
    assert status is ScanStatus.CUT


@pytest.mark.parametrize("seed", range(4))
def test_keys_are_linked_as_one_after_the_other(link: ModuleType, seed: int) -> None:
    random_ = random.Random(seed)
    layout = IndexLayout(slots=7, items=60)
    expected, page = bytearray(layout.file_size), bytearray(layout.file_size)
    for file in (expected, page):
        put_header(memoryview(file), fresh_header(IndexHeader(1, 5_000 * seed, 1, 7, 1, 60)))
    time = 5_000 * seed
    keys: list[tuple[str, int, int]] = []
    for row in range(50):
        time += random_.randrange(3_000)
        keys.append((f"T#{random_.randrange(20)}", row, time - 2_000))
    for key, row, store_time in keys:
        assert put_key(
            memoryview(expected), layout, key, physical_offset=row, store_timestamp=store_time
        )
    hashes = np.array([index_key_hash(key) for key, _, _ in keys], np.int32)
    rows = np.arange(50, dtype=np.int32)
    times = np.array([store_time for _, _, store_time in keys], np.int64)
    slots = memoryview(page)[layout.slot_at(0) : layout.item_at(0)]
    begin, used, first = 5_000 * seed, 0, 0
    for last in (1, 20, 50):
        items = memoryview(page)[layout.item_at(first + 1) : layout.item_at(last + 1)]
        heads = np.full(256, 9, np.int32)
        used += link.link_keys(
            slots, hashes.data, rows.data, first, last, rows.astype(np.int64).data, times.data,
            first + 1, begin, items, heads.data,
        )  # fmt: skip
        link.set_slots(slots, hashes.data, first, last, first + 1)
        begin, first = int(times[0]), last

    assert page[layout.slot_at(0) :] == expected[layout.slot_at(0) :]
    assert used == get_header(memoryview(expected), layout).slot_count


def test_plain_kernels_need_of_cython_what_its_stand_in_has() -> None:
    """As where pyzmq alone is installed, and nothing was compiled."""
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "cython" else found(name, *more)
from ledgermq.formats.kernels import kernel
print(kernel.compiled, "cython" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LEDGERMQ_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("False False\n", "")
