from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.java_hash import index_key_hash, java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2_598_919),
        ("T#k1", 2_539_445),
        ("T#k2", 2_539_446),
        ("polygenelubricants", -2_147_483_648),
        ("Tag-negative-xyz", -188_316_812),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_a_character_beyond_16_bits_counts_as_its_two_surrogates() -> None:
    assert java_hash("😀") == 31 * 0xD83D + 0xDE00
    assert java_hash("\ud83d") == 0xD83D


@given(st.text(st.characters(codec=None)))
def test_the_hash_is_the_polynomial_over_utf16_units(text: str) -> None:
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    polynomial = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    expected = (polynomial + 2**31) % 2**32 - 2**31

    assert java_hash(text) == expected


def test_the_hash_of_a_key_is_never_negative() -> None:
    assert index_key_hash("polygenelubricants") == 0
    assert index_key_hash("Tag-negative-xyz") == 188_316_812
    assert index_key_hash("T#k1") == 2_539_445
