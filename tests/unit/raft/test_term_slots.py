"""Two slots, written in turn: one torn write loses at most what was never promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NodeId, Term
from ledgermq.raft.messages import HardState
from ledgermq.raft.term_slots import FILE_SIZE, SLOT_SIZE, StoredState, decode_slots, encode_slot

OLD = HardState(Term(6), NodeId("n1"))
NEW = HardState(Term(7), NodeId("n2"))


def file_with(*states: HardState) -> bytearray:
    content = bytearray(FILE_SIZE)
    for sequence, state in enumerate(states, 1):
        offset, slot = encode_slot(sequence, state)
        content[offset : offset + SLOT_SIZE] = slot
    return content


@given(st.integers(0, 2**63 - 1), st.none() | st.from_regex(r"[a-z][0-9]{1,9}", fullmatch=True))
def test_what_was_written_is_read(term: int, vote: str | None) -> None:
    state = HardState(Term(term), NodeId(vote) if vote else None)

    assert decode_slots(bytes(file_with(state))) == StoredState(1, state)


def test_the_newer_slot_counts() -> None:
    assert decode_slots(bytes(file_with(OLD, NEW))) == StoredState(2, NEW)
    assert decode_slots(bytes(file_with(OLD, OLD, NEW))) == StoredState(3, NEW)


def test_a_file_that_was_never_written_has_no_state() -> None:
    assert decode_slots(bytes(FILE_SIZE)) is None
    assert decode_slots(b"") is None


def test_every_changed_byte_of_the_newer_slot_leaves_the_older_one() -> None:
    good = file_with(OLD, NEW)
    for at in range(60):
        bad = bytearray(good)
        bad[at] ^= 0xFF

        assert decode_slots(bytes(bad)) == StoredState(1, OLD), at


def test_without_a_whole_slot_the_node_must_not_start() -> None:
    bad = file_with(OLD, NEW)
    bad[10] ^= 1
    bad[SLOT_SIZE + 10] ^= 1

    with pytest.raises(CorruptLogError, match="neither slot is whole"):
        decode_slots(bytes(bad))
