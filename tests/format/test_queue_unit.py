from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import CorruptLogError
from tests.plain_codecs import PREFILL, QueueUnit, get_unit, put_unit, tags_hash

_UNITS = st.builds(
    QueueUnit,
    st.integers(0, 2**63 - 1),
    st.integers(1, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)


@pytest.mark.parametrize(
    ("data", "unit"),
    [
        ("000000000000051d 000004bd 000000000027a807", QueueUnit(0x51D, 0x4BD, tags_hash("TagA"))),
        (
            "0000000000000030 00000075 fffffffff4c68374",
            QueueUnit(48, 117, tags_hash("Tag-negative-xyz")),
        ),
    ],
)
def test_the_vectors_of_the_real_broker_are_written_and_read(data: str, unit: QueueUnit) -> None:
    page = bytearray(UNIT_SIZE)
    put_unit(memoryview(page), 0, unit)

    assert bytes(page) == bytes.fromhex(data)
    assert get_unit(memoryview(page), 0, log_end=0x51D + 0x4BD) == unit


def test_no_tag_has_the_hash_0() -> None:
    assert tags_hash("") == 0


@given(_UNITS, st.integers(0, 3))
def test_every_unit_is_read_as_it_was_written_and_touches_no_other(
    unit: QueueUnit, number: int
) -> None:
    page = memoryview(bytearray(4 * UNIT_SIZE))
    put_unit(page, number, unit)

    assert get_unit(page, number) == unit
    assert [get_unit(page, other) for other in range(4) if other != number] == [None] * 3


def test_what_stands_before_a_queue_that_begins_in_a_file_is_told_apart() -> None:
    page = memoryview(bytearray(UNIT_SIZE))
    put_unit(page, 0, PREFILL)

    assert bytes(page) == bytes.fromhex("0000000000000000 7fffffff 0000000000000000")
    assert get_unit(page, 0, log_end=100) == PREFILL


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ("0000000000000030 00000035 0000000000000000", "physical_offset"),
        ("ffffffffffffffff 00000001 0000000000000000", "physical_offset"),
        ("0000000000000000 ffffffff 0000000000000000", "size"),
    ],
)
def test_a_unit_that_points_outside_the_log_is_corrupt(data: str, field: str) -> None:
    page = memoryview(bytes(UNIT_SIZE) + bytes.fromhex(data))
    with pytest.raises(CorruptLogError) as caught:
        get_unit(page, 1, log_end=100, file="0")

    details = caught.value.details
    assert (details["file"], details["offset"], details["field"]) == ("0", 20, field)


@given(st.binary(min_size=20, max_size=20), st.integers(0, 2**63 - 1))
def test_any_bytes_are_a_unit_or_nothing_or_corrupt(data: bytes, log_end: int) -> None:
    try:
        unit = get_unit(memoryview(data), 0, log_end=log_end)
    except CorruptLogError:
        return

    assert unit is None or unit == PREFILL or unit.physical_offset + unit.size <= log_end
