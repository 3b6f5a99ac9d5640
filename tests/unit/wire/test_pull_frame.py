"""PULL and PULLED: round trips, and nothing but ProtocolError for any other bytes."""

from __future__ import annotations

import contextlib
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import FilterIllegalError, ProtocolError
from ledgermq.model.message_filter import EXPRESSION_SIZE_MAX
from ledgermq.wire.header import VERSION, VERSION_MIN, Kind, decode_header, encode_header
from ledgermq.wire.pull_frame import (
    BYTES_MAX,
    EXPRESSION_VERSION,
    HOLD_MS_MAX,
    MESSAGES_MAX,
    Pull,
    PullStatus,
    decode_pull,
    decode_pulled,
    encode_pull,
    encode_pulled,
)

_VERSION_AND_EXPRESSION = st.one_of(
    st.tuples(st.integers(VERSION_MIN, EXPRESSION_VERSION - 1), st.just("")),
    st.tuples(st.integers(EXPRESSION_VERSION, VERSION), st.text(max_size=200)),
)
_OFFSET = st.integers(-(2**63), 2**63 - 1)
_PLAIN_PULLS = st.builds(
    Pull,
    request_id=st.integers(0, 2**64 - 1),
    topic=st.text("abcXYZ_-%|09é", min_size=1, max_size=60),
    queue_id=st.integers(0, 65_535),
    queue_offset=_OFFSET,
    messages_max=st.integers(1, MESSAGES_MAX),
    bytes_max=st.integers(0, BYTES_MAX),
    hold_ms=st.integers(0, HOLD_MS_MAX),
    tag_hashes=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8).map(tuple),
    with_headers=st.booleans(),
    version=st.just(1),
)
_PULLS = st.builds(
    lambda pull, form: pull._replace(version=form[0], expression=form[1]),
    _PLAIN_PULLS,
    _VERSION_AND_EXPRESSION,
)
_SIZES = st.lists(st.integers(1, 500), min_size=1, max_size=20)


def _pulled(sizes: list[int], status: PullStatus = PullStatus.FOUND) -> tuple[bytes, int]:
    starts = [48 + sum(sizes[:n]) + 48 * n for n in range(len(sizes))]
    message = encode_pulled(
        5, status, next_offset=70, begin=10, end=90,
        starts=array("I", starts).tobytes(), sizes=array("I", sizes).tobytes(),
    )  # fmt: skip
    return message, starts[-1] + sizes[-1] if sizes else 0


@given(_PULLS)
def test_a_pull_comes_back(pull: Pull) -> None:
    decoded = decode_pull(encode_pull(pull))

    assert decoded == pull


@given(_PULLS)
def test_a_cut_or_longer_pull_is_refused(pull: Pull) -> None:
    message = encode_pull(pull)

    for size in range(len(message)):
        with pytest.raises(ProtocolError):
            decode_pull(message[:size])
    with pytest.raises(ProtocolError):
        decode_pull(message + b"x")


@pytest.mark.parametrize(
    ("field", "changes", "limit"),
    [
        ("queue id", {"queue_id": -1}, 65_535),
        ("queue id", {"queue_id": 65_536}, 65_535),
        ("most messages", {"messages_max": 0}, MESSAGES_MAX),
        ("most messages", {"messages_max": MESSAGES_MAX + 1}, MESSAGES_MAX),
        ("most bytes", {"bytes_max": BYTES_MAX + 1}, BYTES_MAX),
        ("hold", {"hold_ms": HOLD_MS_MAX + 1}, HOLD_MS_MAX),
        ("tag hashes", {"tag_hashes": (0,) * 257}, 256),
        ("topic size", {"topic": ""}, 127),
        ("topic size", {"topic": "T" * 128}, 127),
    ],
)
def test_a_number_behind_its_limit_is_refused_with_both(
    field: str, changes: dict[str, Any], limit: int
) -> None:
    pull = Pull(1, "T", 0, 0, 32, 1_000, 0)._replace(**changes)

    with pytest.raises(ProtocolError, match=field) as caught:
        decode_pull(encode_pull(pull))

    assert caught.value.details["limit"] == limit


def test_a_topic_that_is_not_text_is_refused() -> None:
    message = bytearray(encode_pull(Pull(1, "T", 0, 0, 32, 1_000, 0, version=1)))
    message[-1] = 0xFF

    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_pull(bytes(message))


@given(_SIZES)
def test_a_pulled_comes_back(sizes: list[int]) -> None:
    message, records_size = _pulled(sizes)

    pulled = decode_pulled(message, records_size=records_size)

    assert pulled[:5] == (5, PullStatus.FOUND, 70, 10, 90)
    assert list(pulled.sizes) == sizes
    assert pulled.starts[-1] + sizes[-1] == records_size


@given(_SIZES)
def test_the_size_of_headers_before_messages_is_told(sizes: list[int]) -> None:
    starts = [48 + sum(sizes[:n]) + 48 * n for n in range(len(sizes))]
    tables = array("I", starts).tobytes(), array("I", sizes).tobytes()
    message = encode_pulled(
        5, PullStatus.FOUND, next_offset=70, begin=10, end=90,
        starts=tables[0], sizes=tables[1], entry_header_size=48,
    )  # fmt: skip

    assert decode_pulled(message, records_size=10**6).entry_header_size == 48


def test_a_message_without_room_for_its_header_is_refused() -> None:
    message = encode_pulled(
        5, PullStatus.FOUND, next_offset=70, begin=10, end=90,
        starts=array("I", [47]).tobytes(), sizes=array("I", [9]).tobytes(), entry_header_size=48,
    )  # fmt: skip

    with pytest.raises(ProtocolError, match="begin of a message"):
        decode_pulled(message, records_size=1_000)


@given(_SIZES)
def test_a_cut_pulled_is_refused(sizes: list[int]) -> None:
    message, records_size = _pulled(sizes)

    for size in range(len(message)):
        with pytest.raises(ProtocolError):
            decode_pulled(message[:size], records_size=records_size)


@given(_SIZES)
def test_a_message_behind_its_part_is_refused(sizes: list[int]) -> None:
    message, records_size = _pulled(sizes)

    with pytest.raises(ProtocolError) as caught:
        decode_pulled(message, records_size=records_size - 1)

    assert caught.value.details == {"end": records_size, "limit": records_size - 1}


@pytest.mark.parametrize(
    ("status", "told"),
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 1), (6, 2), (7, 2), (8, 4)],
)
def test_a_client_of_version_1_is_told_what_it_knows(status: int, told: int) -> None:
    table = array("I", [0]).tobytes() if status == 0 else b""
    message = encode_pulled(
        5, PullStatus(status), next_offset=7, begin=1, end=9,
        starts=table, sizes=table, suggested="n2", version=1,
    )  # fmt: skip

    assert decode_header(message).version == 1
    # A byte more than the tables and such a client would refuse it.
    assert (len(message), message[16], message[17]) == (48 + 2 * len(table), told, 0)


@given(_SIZES, st.sampled_from(["", "n0", "z12345678"]))
def test_a_suggested_node_comes_back(sizes: list[int], node: str) -> None:
    table = array("I", [0] * len(sizes)).tobytes()
    message = encode_pulled(
        5, PullStatus.FOUND, next_offset=7, begin=1, end=9,
        starts=table, sizes=array("I", sizes).tobytes(), suggested=node,
    )  # fmt: skip

    pulled = decode_pulled(message, records_size=500)

    assert (pulled.suggested, list(pulled.sizes)) == (node, sizes)
    with pytest.raises(ProtocolError):
        decode_pulled(message + b"x", records_size=500)


@pytest.mark.parametrize("status", list(PullStatus)[1:])
def test_an_answer_without_messages_says_where_the_queue_is(status: PullStatus) -> None:
    message, _ = _pulled([], status)

    pulled = decode_pulled(message, records_size=0)

    assert pulled[:5] == (5, status, 70, 10, 90)


def test_found_nothing_is_refused() -> None:
    message, _ = _pulled([])

    with pytest.raises(ProtocolError, match="found no message"):
        decode_pulled(message, records_size=0)


@given(st.binary(max_size=200), st.integers(0, 1_000))
def test_wild_bytes_are_refused(tail: bytes, records_size: int) -> None:
    with contextlib.suppress(ProtocolError):
        pull = decode_pull(encode_header(Kind.PULL, 1) + tail)

        assert encode_pull(pull) == encode_header(Kind.PULL, 1) + tail
    with contextlib.suppress(ProtocolError):
        pulled = decode_pulled(encode_header(Kind.PULLED, 1) + tail, records_size=records_size)

        assert len(tail) == 32 + 8 * len(pulled.sizes)


def test_an_old_node_is_asked_no_expression() -> None:
    pull = Pull(1, "T", 0, 0, 32, 1_000, 0, version=2, expression="a > 5")

    with pytest.raises(FilterIllegalError, match="too old"):
        encode_pull(pull)


def test_an_expression_has_a_limit() -> None:
    pull = Pull(1, "T", 0, 0, 32, 1_000, 0, expression="a" * (EXPRESSION_SIZE_MAX + 1))

    with pytest.raises(ProtocolError, match="expression") as caught:
        decode_pull(encode_pull(pull))

    assert caught.value.details["limit"] == EXPRESSION_SIZE_MAX
