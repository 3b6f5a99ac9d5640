"""Bodies between a mirror and its source: what was said is heard, and nothing else is taken."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.wire.mirror_frames import (
    NUMBER_MAX,
    PARTS_MAX,
    SourceState,
    join_parts,
    split_parts,
)

STATE = SourceState(
    "c", "g", "n1", True, True, 65_536, Index(3), Position(9_000), Index(40), Term(7)
)


@given(st.lists(st.binary(max_size=200), max_size=PARTS_MAX))
def test_parts_are_heard_as_they_were_said(parts: list[bytes]) -> None:
    assert [bytes(part) for part in split_parts(join_parts(parts))] == parts


@pytest.mark.parametrize(
    "body",
    [
        b"\x01",
        b"\x05\x00\x00\x00abcd",
        b"\xff\xff\xff\xff",
        join_parts([b"a"]) + b"\x00\x00\x00",
        join_parts([b""] * (PARTS_MAX + 1)),
    ],
)
def test_a_body_that_its_parts_do_not_fill_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        split_parts(body)


def test_a_state_is_heard_as_it_was_said_also_of_a_newer_version() -> None:
    newer = json.dumps({**asdict(STATE), "more": [1]}).encode()

    assert SourceState.decode(STATE.encode()) == STATE == SourceState.decode(newer)


@pytest.mark.parametrize("field", [*asdict(STATE)])
@pytest.mark.parametrize("value", [None, [], -2, NUMBER_MAX + 1, 1.5, "x" * 300, {}])
def test_a_state_with_a_field_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(ProtocolError):
        SourceState.decode(json.dumps({**asdict(STATE), field: value}).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{" * 100_000, b"7"])
def test_what_is_no_state_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        SourceState.decode(content)
