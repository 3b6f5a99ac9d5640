from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.model.errors import MessageIllegalError

_TEXT = st.characters(codec="utf-8", exclude_characters="\x01\x02")


def _decode_by_the_rules_of_java(text: str) -> dict[str, str]:
    """Java's loop over positions, word for word, to compare with."""
    properties: dict[str, str] = {}
    start = 0
    while start < len(text):
        end = text.find("\x02", start)
        end = len(text) if end < 0 else end
        if end - start >= 3:
            separator = text.find("\x01", start)
            if start < separator < end - 1:
                properties[text[start:separator]] = text[separator + 1 : end]
        start = end + 1
    return properties


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02c\x01\x02d\x01e\x02", {"a": "b", "d": "e"}),
        (b"\x01x\x02k\x01v", {"k": "v"}),
        (b"k\x01v\x02", {"k": "v"}),
        (b"k\x01v\x02k\x01w", {"k": "w"}),
        (b"k\x01v\x01w", {"k": "v\x01w"}),
        (b"k\x01\xff", {"k": "\ufffd"}),
    ],
)
def test_what_java_reads_is_read(data: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(data) == expected


@given(st.text(st.sampled_from("ab\x01\x02ä😀")))
def test_any_text_is_read_as_java_reads_it(text: str) -> None:
    assert decode_properties(text.encode()) == _decode_by_the_rules_of_java(text)


@given(st.binary())
def test_any_bytes_can_be_read(data: bytes) -> None:
    properties = decode_properties(data)

    assert decode_properties(memoryview(data)) == properties
    assert all(name and value for name, value in properties.items())


@given(st.dictionaries(st.text(_TEXT, min_size=1), st.text(_TEXT, min_size=1)))
def test_what_was_encoded_is_read_in_its_order(properties: dict[str, str]) -> None:
    data = encode_properties(properties)

    assert list(decode_properties(data).items()) == list(properties.items())


def test_nothing_stands_behind_the_last_property() -> None:
    data = encode_properties({"TAGS": "TagA", "KEYS": "k1 k2"})

    assert data == b"TAGS\x01TagA\x02KEYS\x01k1 k2"


@pytest.mark.parametrize(
    "properties",
    [{"": "v"}, {"k": ""}, {"a\x01b": "v"}, {"a\x02b": "v"}, {"k": "a\x02b"}, {"k": "\ud800"}],
)
def test_a_property_that_a_reader_would_lose_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageIllegalError):
        encode_properties(properties)
