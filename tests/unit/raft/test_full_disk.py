"""A leader with a full disk hands over to a member with room; where there is none it leads on."""

from __future__ import annotations

import pytest

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
    TermRun,
    VoteReply,
)
from ledgermq.raft.timing import FlowLimits, Timing

A, B, C = NodeId("n0"), NodeId("n1"), NodeId("n2")
TERM = Term(4)


def follower() -> RaftCore:
    """A member of three, with one entry."""
    core = RaftCore(
        A,
        Membership(frozenset({A, B, C})),
        HardState(Term(3), None),
        commit=NO_INDEX,
        entries_have_terms=True,
        timing=Timing(),
        flow=FlowLimits(),
        seed=1,
        now=0,
    )
    first = EntryId(Term(3), Index(0))
    core.log_ready(first, EntryTerms(runs=[TermRun(Term(3), 1)]))
    return core


def leader(*, fit: bool) -> RaftCore:
    """A leader of three; whether the others say that they could lead."""
    core = follower()
    now = core.deadline
    core.tick(now)
    core.receive(now, B, PreVoteReply(Term(3), TERM, None))
    core.receive(now, B, VoteReply(TERM, TERM, None))
    core.writer_granted(TERM, EntryId(Term(3), Index(0)))
    last = Index(1)
    core.entries_written(EntryId(TERM, last))
    core.entries_held(A, last)
    for peer in (B, C):
        reply = AppendReply(
            term=TERM, round=1, accepted=True, verified=last, held=last, tail=None, fit=fit
        )
        core.receive(now, peer, reply)
    assert core.role is RaftRole.LEADER
    assert core.commit == last
    return core


def test_a_full_leader_hands_over_to_a_member_with_room() -> None:
    effects = leader(fit=True).disk_is_full(True)

    assert effects.revoke
    assert effects.notes == ("its disk is full", "hands over to n1")


def test_a_full_leader_leads_on_while_all_are_full() -> None:
    core = leader(fit=False)
    effects = core.disk_is_full(True)

    assert not effects.revoke
    assert (core.role, core.granted) == (RaftRole.LEADER, True)


def test_room_again_is_no_reason_to_hand_over() -> None:
    core = leader(fit=False)
    core.disk_is_full(True)

    assert not core.disk_is_full(False).notes


@pytest.mark.parametrize("full", [False, True])
def test_a_full_follower_says_that_it_should_not_lead_and_follows_on(full: bool) -> None:
    core = follower()
    core.disk_is_full(full)
    previous = EntryId(Term(3), Index(0))
    effects = core.receive(1, B, Append(Term(3), previous, (), NO_INDEX, 1))
    ((_, reply),) = effects.send

    assert isinstance(reply, AppendReply)
    assert (reply.accepted, reply.fit) == (True, not full)
