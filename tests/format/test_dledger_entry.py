from __future__ import annotations

import tracemalloc
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.dledger_entry import (
    EntryHeader,
    chain_checksum,
    check_entry,
    decode_entry_header,
)
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.store_markers import is_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, Term
from tests.plain_codecs import Entry, decode_entry, encode_entry, encode_entry_header

VECTOR_HEADER = bytes.fromhex(
    """
    00000001 000000a8 0000000000000000 0000000000000003 0000000000000000
    00000000 00000000 00000000 00000078
    """
)
JAVA_ENTRY = VECTOR_HEADER + b"\x40" * 120
LIVE_HEADER = bytes.fromhex(
    """
    00000001 000004ed 0000000000000000 0000000000000001 0000000000000000
    00000000 00000000 00000000 000004bd
    """
)
PREVIOUS_CHAIN_CRC = 0xCAFEBABE

_FIELDS = {
    "magic": (0, 4),
    "size": (4, 8),
    "index": (8, 16),
    "term": (16, 24),
    "position": (24, 32),
    "channel": (32, 36),
    "chain_crc": (36, 40),
    "body_crc": (40, 44),
    "body_size": (44, 48),
    "body": (48, 168),
}
_U63 = st.integers(0, 2**63 - 1)


def _entry() -> bytes:
    message = Message(topic="T", queue_id=2, body=b"hello", properties=b"TAGS\x01TagA")
    return encode_entry(
        encode_message(message),
        index=Index(7),
        term=Term(3),
        position=Position(4_096),
        previous_chain_crc=PREVIOUS_CHAIN_CRC,
    )


def test_the_vectors_of_the_real_broker_are_written_and_read() -> None:
    header = EntryHeader(168, Index(0), Term(3), Position(0), 0, 0)
    live = EntryHeader(0x4ED, Index(0), Term(1), Position(0), 0, 0)

    assert encode_entry_header(header) == VECTOR_HEADER
    assert encode_entry_header(live) == LIVE_HEADER
    assert decode_entry_header(memoryview(LIVE_HEADER + bytes(0x4BD))) == live
    entry = decode_entry(memoryview(JAVA_ENTRY), previous_chain_crc=None)
    assert entry == Entry(header, memoryview(JAVA_ENTRY)[48:])
    assert not entry.header.is_protected


def test_both_checksums_are_what_the_docstring_says() -> None:
    record = _entry()
    header = decode_entry_header(memoryview(record))
    blank = record[:36] + bytes(4) + record[40:48]

    assert header.is_protected
    assert header.body_crc == crc32(record[48:])
    assert header.chain_crc == crc32(blank, PREVIOUS_CHAIN_CRC)
    assert chain_checksum(record[:48], PREVIOUS_CHAIN_CRC) == header.chain_crc


@given(
    st.binary(max_size=300),
    st.tuples(_U63, _U63, _U63),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=20),
    st.binary(max_size=20),
)
def test_every_entry_is_read_as_it_was_written(
    body: bytes, place: tuple[int, int, int], previous: int, before: bytes, after: bytes
) -> None:
    index, term, position = place
    record = encode_entry(
        body,
        index=Index(index),
        term=Term(term),
        position=Position(position),
        previous_chain_crc=previous,
    )
    header, found = decode_entry(
        memoryview(before + record + after),
        len(before),
        previous_chain_crc=previous,
        end=len(before) + len(record),
        position=Position(position),
    )

    assert (header.index, header.term, header.position) == (index, term, position)
    assert (header.size, header.body_size) == (len(record), len(body))
    assert found == body
    assert encode_entry_header(header) + bytes(found) == record


@pytest.mark.slow
def test_every_changed_byte_of_an_entry_that_we_wrote_is_found() -> None:
    original = _entry()
    record = bytearray(original)
    view = memoryview(record)
    for at, byte in enumerate(original):
        for value in range(256):
            if value == byte:
                continue
            record[at] = value
            with pytest.raises(CorruptLogError):
                decode_entry(view, previous_chain_crc=PREVIOUS_CHAIN_CRC)
        record[at] = byte

    assert decode_entry(view, previous_chain_crc=PREVIOUS_CHAIN_CRC).header.size == len(record)


@pytest.mark.parametrize("record", [_entry(), JAVA_ENTRY], ids=["ours", "java"])
def test_every_truncation_is_found(record: bytes) -> None:
    for size in range(len(record)):
        with pytest.raises(CorruptLogError):
            decode_entry(memoryview(record)[:size], previous_chain_crc=PREVIOUS_CHAIN_CRC)
        with pytest.raises(CorruptLogError):
            decode_entry(memoryview(record), end=size, previous_chain_crc=PREVIOUS_CHAIN_CRC)


def test_an_entry_in_another_ones_place_is_found() -> None:
    view = memoryview(_entry())

    with pytest.raises(CorruptLogError, match="chain_crc"):
        decode_entry(view, previous_chain_crc=PREVIOUS_CHAIN_CRC + 1)
    with pytest.raises(CorruptLogError, match="position"):
        decode_entry(view, previous_chain_crc=PREVIOUS_CHAIN_CRC, position=Position(8_192))


def test_without_the_entry_before_the_body_is_still_checked() -> None:
    record = bytearray(_entry())
    header = decode_entry(memoryview(record), previous_chain_crc=None).header
    record[-1] ^= 1

    with pytest.raises(CorruptLogError, match="body_crc"):
        check_entry(memoryview(record), 0, header, previous_chain_crc=None)


def test_only_these_fields_of_an_entry_that_java_wrote_can_change_unseen() -> None:
    unseen = set()
    for field, (begin, end) in _FIELDS.items():
        for at in range(begin, end):
            for mask in (0x01, 0x10, 0x80):
                record = bytearray(JAVA_ENTRY)
                record[at] ^= mask
                try:
                    decode_entry(memoryview(record), previous_chain_crc=0, position=Position(0))
                except CorruptLogError:
                    continue
                unseen.add(field)

    # The body is a message, whose own body has a CRC; index and term must follow the entry before.
    assert unseen == {"index", "term", "body"}


@pytest.mark.parametrize(
    ("at", "data", "field"),
    [
        (0, b"\xff\xff\xff\xff", "magic"),
        (0, b"\x00\x00\x00\x02", "magic"),
        (4, b"\x7f\xff\xff\xff", "size"),
        (4, b"\xff\xff\xff\xff", "size"),
        (4, b"\x00\x00\x00\x2f", "size"),
        (8, b"\xff", "index"),
        (16, b"\xff", "term"),
        (24, b"\xff", "position"),
        (32, b"\x00\x00\x00\x01", "channel"),
        (36, b"\x00\x00\x00\x00", "chain_crc"),
        (40, b"\x00\x00\x00\x00", "body_crc"),
        (44, b"\x00", "body_size"),
        (44, b"\x7f\xff\xff\xff", "body_size"),
    ],
)
def test_an_error_names_file_place_and_field(at: int, data: bytes, field: str) -> None:
    record = bytearray(8) + _entry()
    record[8 + at : 8 + at + len(data)] = data
    if field == "body_size" and data == b"\x00":
        record[8 + 47] ^= 1
    with pytest.raises(CorruptLogError) as caught:
        decode_entry(memoryview(record), 8, previous_chain_crc=PREVIOUS_CHAIN_CRC, file="0")

    details = caught.value.details
    assert (details["file"], details["field"], details["offset"]) == (
        "0",
        field,
        8 + _FIELDS[field][0],
    )


@given(st.binary(max_size=120))
def test_any_bytes_are_an_entry_or_corrupt(data: bytes) -> None:
    for record in (data, b"\0\0\0\1" + data, b"\0\0\0\1\0\0\0\x30" + data):
        try:
            entry = decode_entry(memoryview(record), previous_chain_crc=0)
        except CorruptLogError:
            continue
        assert entry.header.size <= len(record)


def test_a_huge_size_allocates_nothing() -> None:
    record = bytearray(_entry())
    record[4:8] = b"\x7f\xff\xff\xff"
    record[44:48] = b"\x7f\xff\xff\xcf"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptLogError):
            decode_entry(memoryview(record), previous_chain_crc=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def test_the_log_of_the_real_broker_is_read_to_its_end(golden: Any) -> None:
    index = 0
    position = 0
    for file in sorted((golden("gd0") / "dledger-n0" / "data").iterdir()):
        view = memoryview(file.read_bytes())
        start = int(file.name)
        while view[position - start : position - start + 4] == b"\0\0\0\1":
            at = position - start
            entry = decode_entry(
                view, at, previous_chain_crc=0, position=Position(position), file=file.name
            )
            message = decode_message(entry.body, file=file.name)
            assert (entry.header.index, message.physical_offset) == (index, position + 48)
            assert encode_message(message) == entry.body
            index += 1
            position += entry.header.size
        if is_blank(view, position - start, log=LogKind.DLEDGER, file=file.name):
            position = start + len(view)

    assert index == 444
