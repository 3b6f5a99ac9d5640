from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.dledger_index import (
    FILE_SIZE,
    DLedgerIndexItem,
    decode_index_item,
    encode_index_item,
)
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, Term

_U63 = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("data", "item"),
    [
        (
            "00000001 0000000000000000 000000a8 0000000000000000 0000000000000003",
            DLedgerIndexItem(Position(0), 168, Index(0), Term(3)),
        ),
        (
            "00000001 00000000000000a8 000000a8 0000000000000001 0000000000000003",
            DLedgerIndexItem(Position(168), 168, Index(1), Term(3)),
        ),
        (
            "00000001 00000000000004ed 000004ed 0000000000000001 0000000000000001",
            DLedgerIndexItem(Position(0x4ED), 0x4ED, Index(1), Term(1)),
        ),
    ],
)
def test_the_vectors_of_the_real_broker_are_written_and_read(
    data: str, item: DLedgerIndexItem
) -> None:
    record = bytes.fromhex(data)

    assert encode_index_item(item) == record
    assert decode_index_item(memoryview(record), index=item.index) == item


def test_a_file_has_the_size_that_dledger_gives_it() -> None:
    assert FILE_SIZE == 167_772_160


@given(_U63, st.integers(48, 2**31 - 1), _U63, _U63)
def test_every_item_is_read_as_it_was_written(
    position: int, size: int, index: int, term: int
) -> None:
    item = DLedgerIndexItem(Position(position), size, Index(index), Term(term))
    view = memoryview(bytes(3) + encode_index_item(item))

    assert decode_index_item(view, 3, index=Index(index)) == item


def test_nothing_was_written_where_zeros_are() -> None:
    assert decode_index_item(memoryview(bytes(32)), index=Index(0)) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_an_item_or_nothing_or_corrupt(data: bytes) -> None:
    for record in (data, b"\0\0\0\1" + data):
        try:
            item = decode_index_item(memoryview(record))
        except CorruptLogError:
            continue
        assert len(record) >= 32
        assert item is None or encode_index_item(item) == record[:32]


@pytest.mark.parametrize(
    ("at", "data", "field"),
    [
        (0, b"\xff\xff\xff\xff", "magic"),
        (4, b"\xff", "position"),
        (12, b"\x00\x00\x00\x2f", "size"),
        (12, b"\xff", "size"),
        (16, b"\xff", "index"),
        (23, b"\x06", "index"),
        (24, b"\xff", "term"),
    ],
)
def test_an_error_names_file_place_and_field(at: int, data: bytes, field: str) -> None:
    record = bytearray(encode_index_item(DLedgerIndexItem(Position(9), 168, Index(5), Term(3))))
    record[at : at + len(data)] = data
    with pytest.raises(CorruptLogError) as caught:
        decode_index_item(memoryview(record), index=Index(5), file="0")

    place = {"magic": 0, "position": 4, "size": 12, "index": 16, "term": 24}[field]
    details = caught.value.details
    assert (details["file"], details["field"], details["offset"]) == ("0", field, place)
