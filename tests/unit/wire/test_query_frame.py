"""QUERY and QUERIED: round trips, and nothing but ProtocolError for any other bytes."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.query_frame import (
    MESSAGES_MAX,
    TIMESTAMP_MAX,
    AnyQuery,
    KeyQuery,
    PositionQuery,
    decode_queried,
    decode_query,
    encode_queried,
    encode_query,
)

_TIMES = st.integers(0, TIMESTAMP_MAX)
_QUERIES = st.one_of(
    st.builds(PositionQuery, st.integers(0, 2**63 - 1)),
    st.builds(
        KeyQuery,
        st.text(max_size=20),
        st.text(min_size=1, max_size=20),
        st.integers(1, MESSAGES_MAX),
        _TIMES,
        _TIMES,
    ),
)
_KEY: dict[str, Any] = {"topic": "T", "key": "k", "messages_max": 9, "begin": 0, "end": 5}
_SIZES = st.lists(st.integers(1, 500), max_size=20)


@given(_QUERIES)
def test_a_query_comes_back(query: AnyQuery) -> None:
    head, body = encode_query(8, query)

    assert decode_header(head)[::2] == (Kind.QUERY, 8)
    assert decode_query(body) == query


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"position": -1},
        {"position": 2**63},
        {"position": "1"},
        {"position": True},
        {"topic": "T"},
        _KEY | {"topic": 1},
        _KEY | {"key": ""},
        _KEY | {"key": "k" * 32_768},
        _KEY | {"messages_max": 0},
        _KEY | {"messages_max": MESSAGES_MAX + 1},
        _KEY | {"begin": -1},
        _KEY | {"end": 2**63},
        _KEY | {"end": None},
    ],
)
def test_what_is_no_question_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        decode_query(json.dumps(fields).encode())


def queried(sizes: list[int]) -> tuple[bytes, int]:
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    message = encode_queried(
        5, starts=array("I", starts).tobytes(), sizes=array("I", sizes).tobytes(),
        has_more=True, index_timestamp=77, index_position=2**40,
    )  # fmt: skip
    return message, sum(sizes)


@given(_SIZES)
def test_a_queried_comes_back(sizes: list[int]) -> None:
    message, size = queried(sizes)

    found = decode_queried(message, records_size=size)

    assert found[:4] == (5, True, 77, 2**40)
    assert list(found.sizes) == sizes
    assert sum(found.sizes) == size


@given(_SIZES)
def test_a_cut_queried_is_refused(sizes: list[int]) -> None:
    message, size = queried(sizes)

    for cut in range(len(message)):
        with pytest.raises(ProtocolError):
            decode_queried(message[:cut], records_size=size)
    if sizes:
        with pytest.raises(ProtocolError, match="behind"):
            decode_queried(message, records_size=size - 1)


@given(st.binary(max_size=80))
def test_any_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_queried(content, records_size=0)
    with pytest.raises(ProtocolError):
        decode_query(content)
