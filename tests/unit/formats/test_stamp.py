"""The write path's kernel: what it checks, what it stamps, and that both variants agree."""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.kernels.crc32 import crc32, native_address
from ledgermq.formats.kernels.kernel import load_plain
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.record_fault import RecordFault
from tests.plain_codecs import as_version_2, decode_entry
from tests.unit.store.records import HEADER_SIZE, TOPIC, frame_of, record

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
VARIANTS = {
    "loaded": importlib.import_module("ledgermq.formats.kernels._stamp"),
    "plain": load_plain("ledgermq.formats.kernels._stamp"),
}


@pytest.fixture(params=sorted(VARIANTS))
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return VARIANTS[request.param]


def check(kernel: ModuleType, payload: bytes, sizes: memoryview, **changes: object) -> tuple:
    arguments = {"queue_id": 0, "topic": TOPIC.encode(), "body_max": 4096, "size_max": 8192}
    arguments.update(changes)
    return kernel.check_run(
        memoryview(payload),
        0,
        sizes,
        0,
        len(sizes),
        HEADER_SIZE,
        8,
        arguments["size_max"],
        arguments["body_max"],
        arguments["queue_id"],
        arguments["topic"],
        crc32,
    )


def stamp(
    kernel: ModuleType, payload: bytes, sizes: memoryview
) -> tuple[bytearray, bytearray, int]:
    buffer = bytearray(payload)
    items = bytearray(32 * len(sizes))
    numbers = {"position": 7_000, "index": 40, "term": 3, "queue_offset": 11, "time": 1_700}
    run = (buffer, 0, sizes, 0, len(sizes), HEADER_SIZE)
    chain = kernel.stamp_run(*run, *numbers.values(), HOST, 5, items, 0, crc32)
    return buffer, items, chain


def test_good_records_pass(kernel: ModuleType) -> None:
    payload, sizes = frame_of([record(b"a" * size) for size in (0, 1, 100, 1_000)])

    assert check(kernel, payload, sizes) == (RecordFault.NONE, -1, len(payload))


def test_each_rule_has_its_fault_and_names_the_record(kernel: ModuleType) -> None:
    payload, sizes = frame_of([record(b"first"), record(b"second")])
    second = sizes[0]

    def fault(at: int, value: bytes, **changes: object) -> tuple[RecordFault, int]:
        bad = bytearray(payload)
        bad[second + HEADER_SIZE + at : second + HEADER_SIZE + at + len(value)] = value
        found = check(kernel, bytes(bad), sizes, **changes)
        return RecordFault(found[0]), found[1]

    assert fault(0, b"\0\0\0\1") == (RecordFault.SIZE, 1)
    assert fault(4, b"\0") == (RecordFault.MAGIC, 1)
    assert fault(8, b"\0") == (RecordFault.BODY_CRC, 1)
    assert fault(12, b"\0\0\0\7") == (RecordFault.QUEUE_ID, 1)
    assert fault(36, b"\0\0\0\4") == (RecordFault.SYS_FLAG, 1)
    assert fault(76, b"\1") == (RecordFault.PREPARED, 1)
    assert fault(84, b"\x7f\xff\xff\xff") == (RecordFault.BODY_SIZE, 1)
    assert fault(88, b"S") == (RecordFault.BODY_CRC, 1)
    assert fault(94, b"\x80") == (RecordFault.TOPIC, 1)
    assert fault(95, b"x") == (RecordFault.TOPIC, 1)
    assert fault(101, b"\xff") == (RecordFault.PROPERTIES, 1)
    assert check(kernel, payload, sizes, body_max=5)[:2] == (RecordFault.BODY_SIZE, 1)
    assert check(kernel, payload, sizes, size_max=100)[:2] == (RecordFault.SIZE, 0)
    assert check(kernel, payload, sizes, topic=b"other")[:2] == (RecordFault.TOPIC, 0)


@given(st.integers(0, 400), st.integers(1, 255))
def test_no_changed_byte_makes_the_check_read_outside_or_pass_a_wrong_size(
    at: int, change: int
) -> None:
    payload, sizes = frame_of([record(b"first"), record(b"second" * 20)])
    bad = bytearray(payload)
    bad[at % len(bad)] ^= change
    results = {name: check(kernel, bytes(bad), sizes) for name, kernel in VARIANTS.items()}

    assert results["loaded"] == results["plain"]
    assert results["loaded"][0] == RecordFault.NONE or results["loaded"][1] in (0, 1)


def version_2(number: int, topic: bytes) -> bytes:
    made = record(b"body" * 9, number=number)
    return made[:HEADER_SIZE] + as_version_2(made[HEADER_SIZE:], topic=topic)


def test_a_record_of_version_2_is_no_clients(kernel: ModuleType) -> None:
    payload, sizes = frame_of([record(b"first"), version_2(1, TOPIC.encode())])

    assert check(kernel, payload, sizes)[:2] == (RecordFault.MAGIC, 1)


@pytest.mark.parametrize("size", [1, 127, 128, 255])
def test_a_record_of_version_2_is_verified(kernel: ModuleType, size: int) -> None:
    payload, sizes = frame_of([version_2(number, b"t" * size) for number in range(3)])
    content, items, chain = stamp(kernel, payload, sizes)
    found = bytearray()
    view = memoryview(bytes(content))

    assert kernel.verify_span(view, 0, len(view), 48, 7_000, 40, 3, 5, found, crc32) == (
        len(view), 3, 43, 3, chain, RecordFault.END,
    )  # fmt: skip
    assert found == items
    # Of entries without CRCs, as Java writes them, the record's own structure counts.
    for start in (0, sizes[0], sizes[0] + sizes[1]):
        content[start + 36 : start + 44] = bytes(8)
    view = memoryview(bytes(content))
    assert kernel.verify_span(view, 0, len(view), 48, 7_000, 40, 3, 5, found, crc32)[1] == 3
    topic_at = sizes[0] + HEADER_SIZE + 88 + 36
    for at, fault in ((topic_at, RecordFault.TOPIC), (topic_at + 1, RecordFault.PROPERTIES)):
        bad = bytearray(content)
        bad[at] ^= 1
        verified = kernel.verify_span(
            memoryview(bytes(bad)), 0, len(bad), 48, 7_000, 40, 3, 5, found, crc32
        )
        # A size of 255 that becomes 254, and one of 1 that becomes 0.
        assert verified[1] == 1
        assert verified[-1] in (fault, RecordFault.TOPIC)


def test_a_stamped_record_is_an_entry_of_the_log(kernel: ModuleType) -> None:
    payload, sizes = frame_of([record(b"first", number=1), record(b"x" * 500, number=2)])
    buffer, items, chain = stamp(kernel, payload, sizes)
    view = memoryview(buffer)
    at = sizes[0]
    first_chain = struct.unpack_from(">I", buffer, 36)[0]
    entry = decode_entry(view, at, previous_chain_crc=first_chain)
    message = decode_message(view, at + HEADER_SIZE)
    header = bytearray(buffer[at : at + HEADER_SIZE])
    header[36:40] = bytes(4)

    assert (entry.header.index, entry.header.term) == (41, 3)
    assert entry.header.position == 7_000 + at
    assert (message.queue_offset, message.physical_offset) == (12, 7_000 + at + HEADER_SIZE)
    assert (message.store_timestamp, message.store_host) == (1_700, ("127.0.0.1", 10_911))
    assert entry.header.body_crc == zlib.crc32(view[at + HEADER_SIZE :])
    assert zlib.crc32(header, first_chain) == chain
    assert struct.unpack_from(">IqIqq", items, 32) == (1, 7_000 + at, sizes[1], 41, 3)


def test_both_variants_stamp_the_same_bytes() -> None:
    payload, sizes = frame_of([record(bytes(size)) for size in (0, 3, 191, 192, 193, 2_000)])

    assert stamp(VARIANTS["loaded"], payload, sizes) == stamp(VARIANTS["plain"], payload, sizes)


@pytest.fixture(params=[True, False])
def native(request: pytest.FixtureRequest) -> Iterator[None]:
    """With isal's C function, where there is one, and without."""
    loaded = VARIANTS["loaded"]
    loaded.use_native_crc32(native_address() if request.param else 0)
    yield
    loaded.use_native_crc32(native_address())


@given(st.binary(max_size=700))
def test_the_kernels_own_sum_is_crc_32(data: bytes) -> None:
    sums = {kernel.crc_of(memoryview(data + b"!"), 0, len(data)) for kernel in VARIANTS.values()}

    assert sums == {zlib.crc32(data)}


def test_a_wrong_sum_of_a_body_in_an_entry_with_sums_is_found_when_asked_for() -> None:
    good = record(b"a body of some length", number=1)
    payload, sizes = frame_of([good[: HEADER_SIZE + 8] + b"\0\0\0\1" + good[HEADER_SIZE + 12 :]])

    def verify(kernel: ModuleType, *, sums_bodies: bool) -> RecordFault:
        content, _, _ = stamp(kernel, payload, sizes)
        span = (memoryview(content), 0, len(content), 48, 7_000, 40, 3, 5, bytearray(), crc32)
        return RecordFault(kernel.verify_span(*span, sums_bodies=sums_bodies)[-1])

    for kernel in VARIANTS.values():
        assert verify(kernel, sums_bodies=False) is RecordFault.END
        assert verify(kernel, sums_bodies=True) is RecordFault.BODY_CRC


def test_bodies_that_only_their_own_sum_covers_are_left_alone_when_asked_for(
    kernel: ModuleType,
) -> None:
    payload, sizes = frame_of([record(bytes(500), number=number) for number in range(2)])
    content, _, _ = stamp(kernel, payload, sizes)

    def verified(content: bytearray, *, heads_alone: bool) -> int:
        span = (memoryview(content), 0, len(content), 48, 7_000, 40, 3, 5, bytearray(), crc32)
        return int(kernel.verify_span(*span, heads_alone=heads_alone)[1])

    for has_sums in (True, False):
        changed = bytearray(content)
        if not has_sums:
            for start in (0, sizes[0]):
                changed[start + 36 : start + 44] = bytes(8)
        body_at = sizes[0] + HEADER_SIZE + 88
        changed[body_at] ^= 1
        assert verified(changed, heads_alone=False) == 1
        assert verified(changed, heads_alone=True) == (1 if has_sums else 2)
        # The offset in the log.
        changed[sizes[0] + HEADER_SIZE + 35] ^= 1
        assert verified(changed, heads_alone=True) == 1


def test_a_walk_tells_the_latest_store_time_and_the_first_that_is_not_certain(
    kernel: ModuleType,
) -> None:
    payload, sizes = frame_of([record(b"body", number=number) for number in range(4)])
    content, _, _ = stamp(kernel, payload, sizes)
    size, stored_at = sizes[0], HEADER_SIZE + 56
    for number, stored_ms in enumerate((5, 9, 7, 0)):
        struct.pack_into(">q", content, number * size + stored_at, stored_ms)

    def walked(header_size: int, tearable_from: int, certain_ms: int) -> tuple[int, int, int]:
        span = (memoryview(content), 0, len(content), header_size)
        found: tuple[int, int, int] = kernel.walk_records(*span, tearable_from, certain_ms)
        return found

    # Entries with sums need no look at their sectors.
    assert walked(HEADER_SIZE, 0, 5) == (-1, 9, size)
    for start in range(0, len(content), size):
        content[start + 36 : start + 44] = bytes(8)
    assert walked(HEADER_SIZE, 0, 5) == (3 * size, 9, size)
    assert walked(HEADER_SIZE, 3 * size + 1, 4) == (-1, 9, 0)
    assert walked(HEADER_SIZE, 0, 9) == (3 * size, 9, -1)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("body", [b"first", b"longer than what the kernel sums itself" * 20])
def test_every_changed_byte_of_a_stamped_entry_ends_the_verified_span(body: bytes) -> None:
    payload, sizes = frame_of([record(body, number=1), record(b"second", number=2)])
    kernel = VARIANTS["loaded"]
    good, items, _ = stamp(kernel, payload, sizes)

    def verify(content: bytearray) -> tuple:
        found = bytearray()
        view = memoryview(bytes(content))
        return (*kernel.verify_span(view, 0, len(view), 48, 7_000, 40, 3, 5, found, crc32), found)

    assert verify(good)[:2] == (len(good), 2)
    assert verify(good)[-1] == items
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x55

        assert verify(bad)[1] == (0 if at < sizes[0] else 1), at
