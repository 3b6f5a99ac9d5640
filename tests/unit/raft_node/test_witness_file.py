"""What a witness without bodies keeps is there after a restart, or the witness does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.messages import EntryId, HardState
from ledgermq.raft.roles.witness import KEEPS_NOTHING, WitnessState
from ledgermq.raft.term_slots import SLOT_SIZE
from ledgermq.raft_node.witness.witness_process import WitnessFile


def state(term: int, index: int, vote: str | None = "n1") -> WitnessState:
    hard_state = HardState(Term(term), NodeId(vote) if vote else None)
    return WitnessState(hard_state, EntryId(Term(max(0, term - 1)), Index(index)))


def reopened(path: Path) -> WitnessState:
    file = WitnessFile(path)
    file.close()
    return file.state


def test_what_is_persisted_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "ledgermq" / "witness"

    assert reopened(path) == KEEPS_NOTHING
    for kept in (state(1, -1, None), state(2, 7), state(2, 9), state(3, 9, "n12345678")):
        file = WitnessFile(path)
        file.persist(kept)
        file.close()
        assert reopened(path) == kept


@pytest.mark.parametrize("cut", [1, 20, 75])
def test_a_torn_write_leaves_what_was_there_before(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "witness"
    file = WitnessFile(path)
    file.persist(state(2, 7))
    before = path.read_bytes()
    file.persist(state(3, 9))
    file.close()
    after = path.read_bytes()
    at = next(at for at in (0, SLOT_SIZE) if before[at : at + 80] != after[at : at + 80])

    path.write_bytes(before[:at] + after[at : at + cut] + before[at + cut :])

    assert reopened(path) == state(2, 7)


def test_a_witness_that_cannot_read_what_it_knows_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "witness"
    file = WitnessFile(path)
    file.persist(state(2, 7))
    file.close()
    content = bytearray(path.read_bytes())
    for at in (0, SLOT_SIZE):
        content[at + 30] ^= 1

    path.write_bytes(bytes(content))

    with pytest.raises(CorruptLogError, match="neither slot is whole"):
        WitnessFile(path)
