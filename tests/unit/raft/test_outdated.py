"""A member whose log needs a newer version than it runs never leads, and votes all the same."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import BusyError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import (
    Append,
    AppendReply,
    EntryId,
    HardState,
    PreVoteReply,
    RaftRole,
    TimeoutNow,
    Vote,
    VoteReply,
)
from ledgermq.raft.timing import LAST_WAITS, FlowLimits, Timing
from tests.unit.raft.test_full_disk import TERM, B, C, follower, leader

LAST = EntryId(Term(3), Index(0))
WHY = "its log needs a newer version than it runs"


@pytest.mark.parametrize("fit", [True, False], ids=["others-could-lead", "nobody-else-could"])
def test_a_leader_stops_at_once_whoever_else_could_lead(fit: bool) -> None:
    node = leader(fit=fit)
    effects = node.version_is_outdated()

    assert effects.revoke
    assert (node.role, node.leader, node.granted) == (RaftRole.FOLLOWER, None, False)
    assert node.version_is_outdated().notes == ()


def test_no_wait_is_long_enough_for_it_to_campaign() -> None:
    node = follower()
    node.version_is_outdated()
    node.disk_is_sick(True)
    node.disk_is_sick(False)
    noted = [node.tick(node.deadline) for _ in range(LAST_WAITS * 10)]

    assert {effects.notes for effects in noted} == {(f"no candidate: {WHY}",)}
    assert not any(effects.send or effects.persist for effects in noted)


@pytest.mark.parametrize("pre", [True, False], ids=["pre-vote", "vote"])
def test_an_election_under_way_is_given_up(pre: bool) -> None:
    node = follower()
    now = node.deadline
    node.tick(now)
    if not pre:
        node.receive(now, B, PreVoteReply(Term(3), TERM, None))
    node.version_is_outdated()
    for peer in (B, C):
        node.receive(now, peer, PreVoteReply(Term(3), TERM, None))
        node.receive(now, peer, VoteReply(TERM, TERM, None))

    assert node.role is RaftRole.FOLLOWER


def test_it_says_that_it_could_not_lead_and_takes_no_hand_over() -> None:
    node = follower()
    node.version_is_outdated()
    ((_, told),) = node.receive(1, B, Append(Term(3), LAST, (), NO_INDEX, 1)).send
    handed = node.receive(1, B, TimeoutNow(Term(3)))

    assert isinstance(told, AppendReply) and told.accepted and not told.fit
    assert handed.notes == (f"{B} hands over in vain: {WHY}",)
    with pytest.raises(BusyError, match="cannot lead"):
        leader(fit=told.fit).transfer_leadership(B)


def test_it_votes_for_whoever_has_as_much() -> None:
    node = follower()
    node.version_is_outdated()
    ((_, told),) = node.receive(node.deadline, B, Vote(TERM, LAST, False)).send

    assert told == VoteReply(TERM, TERM, None)


def test_a_node_alone_does_not_lead_either() -> None:
    alone = NodeId("n0")
    node = RaftCore(
        alone,
        Membership(frozenset({alone})),
        HardState(Term(0), None),
        commit=NO_INDEX,
        entries_have_terms=False,
        timing=Timing(),
        flow=FlowLimits(),
        seed=1,
        now=0,
    )
    node.log_ready(LAST, EntryTerms(LAST))
    led = node.role
    node.writer_granted(node.term, LAST)
    effects = node.version_is_outdated()
    node.writer_revoked(LAST)
    node.tick(node.deadline)

    assert (led, node.role) == (RaftRole.LEADER, RaftRole.FOLLOWER)
    assert effects.revoke
