"""When a majority was heard of last: what a node's health goes by."""

from __future__ import annotations

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.messages import Append, AppendReply, EntryId, RaftRole
from ledgermq.raft.timing import Timing
from tests.unit.raft.test_core import A, core, entry
from tests.unit.raft.test_full_disk import TERM, B, C, follower, leader


def answer(node: object, now: int, *peers: NodeId) -> None:
    for peer in peers:
        node.receive(  # type: ignore[attr-defined]
            now, peer, AppendReply(TERM, 1, True, Index(1), Index(1), None, True)
        )


def test_who_is_alone_is_its_own_majority() -> None:
    node = core(A)
    before = node.majority_heard(5)
    node.log_ready(entry(3, 7), None)

    assert before is None
    assert node.majority_heard(1_234) == 1_234


def test_a_leader_goes_by_the_slower_half_of_its_majority() -> None:
    node = leader(fit=True)
    answer(node, 1_000, B)
    answer(node, 1_100, C)
    both = node.majority_heard(1_200)
    answer(node, 1_300, B)

    assert both == 1_100
    assert node.majority_heard(1_400) == 1_300
    assert node.majority_heard(9_999) == 1_300


def test_a_leader_that_nobody_answers_keeps_its_last_proof_until_it_steps_down() -> None:
    node = leader(fit=True)
    answer(node, 1_000, B, C)
    node.tick(1_000 + Timing().election_max)
    last = node.majority_heard(1_000 + Timing().election_max)
    node.tick(1_001 + Timing().election_max)

    assert last == 1_000
    assert node.majority_heard(1_001 + Timing().election_max) is None


def test_a_follower_goes_by_its_leaders_word() -> None:
    node = follower()
    before = node.majority_heard(400)
    node.receive(500, B, Append(TERM, EntryId(Term(3), Index(0)), (), NO_INDEX, 1))
    heard = node.majority_heard(900)
    node.tick(node.deadline)
    campaigns = node.role

    assert before is None
    assert heard == 500
    assert campaigns is RaftRole.PRE_CANDIDATE
    assert node.majority_heard(9_000) is None
