"""What ``raft status`` says of a group with a witness without bodies."""

from __future__ import annotations

from ledgermq.cli.node.raft_command import describe
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, HardState, RaftRole
from ledgermq.raft.roles.node_state import WriterState
from ledgermq.raft.roles.witness import WitnessCore, WitnessState
from ledgermq.raft.status import CoreStatus, witness_status
from ledgermq.raft.timing import Timing
from ledgermq.raft_node.raft_control import status_document

N0, N1, N2 = NodeId("n0"), NodeId("n1"), NodeId("n2")
WITNESS = frozenset({N2})
MEMBERS = Membership(frozenset({N0, N1, N2}), witnesses=WITNESS, bodiless=WITNESS)


def leader(*, leans: bool, copies: int | None, membership: Membership = MEMBERS) -> CoreStatus:
    last = EntryId(Term(3), Index(40))
    return CoreStatus(
        node=N0, role=RaftRole.LEADER, term=Term(3), vote=N0, leader=N0, last=last, held=Index(40),
        commit=Index(40), writer=WriterState.GRANTED, sick=False, outdated=False, lost=None,
        membership=membership, membership_index=NO_INDEX, transfer=None, peers=(), leans=leans,
        copies=copies,
    )  # fmt: skip


def lines_of(status: CoreStatus) -> list[str]:
    return list(describe(status_document(status, {})))


def test_a_leader_says_how_many_hold_what_is_committed_and_whether_it_leans() -> None:
    whole, leaning = (lines_of(leader(leans=at < 2, copies=at)) for at in (2, 1))

    assert "bodies      of all that is committed: 2 members" in whole
    assert "bodies      of all that is committed: 1 members, leans on its witness" in leaning
    assert "bodiless    n2" in whole


def test_a_group_whose_members_all_hold_bodies_is_told_nothing_of_it() -> None:
    told = lines_of(leader(leans=False, copies=None, membership=Membership(frozenset({N0, N1}))))

    assert not any("bod" in line for line in told)


def test_a_witness_says_what_it_knows_of_and_has_no_writer() -> None:
    kept = WitnessState(HardState(Term(3), N0), EntryId(Term(3), Index(40)))
    core = WitnessCore(N2, kept, timing=Timing(), now=0)
    document = {**status_document(witness_status(core, MEMBERS), {}), "role": "witness"}

    told = list(describe(document))

    assert "node        n2, witness in term 3" in told
    assert "log         last entry 40 of term 3" in told
    assert not any(line.startswith("writer") for line in told)
