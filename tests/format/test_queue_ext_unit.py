from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.queue_ext_unit import (
    END_OF_FILE,
    QueueExtUnit,
    decode_ext_unit,
    encode_ext_unit,
    ext_address,
    ext_offset,
    is_ext_address,
)
from ledgermq.model.errors import CorruptLogError

_I64 = st.integers(-(2**63), 2**63 - 1)
_UNITS = st.builds(QueueExtUnit, _I64, _I64, st.binary(max_size=40))


def test_a_unit_is_written_field_by_field() -> None:
    data = encode_ext_unit(QueueExtUnit(2_598_919, 1_600_000_000_001, b"\x81"))

    assert data == bytes.fromhex("0015 000000000027a807 00000174876e8001 0001 81")


@given(_UNITS, st.binary(max_size=8))
def test_every_unit_is_read_as_it_was_written(unit: QueueExtUnit, before: bytes) -> None:
    view = memoryview(before + encode_ext_unit(unit))

    assert decode_ext_unit(view, len(before)) == unit
    assert len(view) == len(before) + unit.size


@pytest.mark.parametrize("data", [END_OF_FILE, bytes(4)])
def test_the_used_part_of_a_file_has_an_end(data: bytes) -> None:
    assert decode_ext_unit(memoryview(data)) is None


def test_every_truncation_is_found() -> None:
    data = encode_ext_unit(QueueExtUnit(1, 2, b"bitmap"))
    for size in range(len(data)):
        with pytest.raises(CorruptLogError):
            decode_ext_unit(memoryview(data)[:size])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_unit_or_an_end_or_corrupt(data: bytes) -> None:
    for record in (data, b"\0\x16" + data):
        try:
            unit = decode_ext_unit(memoryview(record))
        except CorruptLogError:
            continue
        assert unit is None or encode_ext_unit(unit) == record[: unit.size]


@given(st.integers(0, 2**62))
def test_an_address_is_never_taken_for_a_hash(offset: int) -> None:
    address = ext_address(offset)

    assert is_ext_address(address)
    assert ext_offset(address) == offset


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_hash_is_never_taken_for_an_address(tags_hash: int) -> None:
    assert not is_ext_address(tags_hash)
