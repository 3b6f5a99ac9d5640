"""What a node may do whose log lost durable entries (docs/decisions/0010)."""

from __future__ import annotations

import pytest

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import (
    NO_ENTRY,
    Append,
    AppendReply,
    EntryId,
    HardState,
    Message,
    PreVote,
    PreVoteReply,
    RaftRole,
    TermRun,
    TimeoutNow,
    Vote,
    VoteRefusal,
    VoteReply,
)
from ledgermq.raft.timing import FlowLimits, Timing

A, B, C = NodeId("n0"), NodeId("n1"), NodeId("n2")


def entry(term: int, index: int) -> EntryId:
    return EntryId(Term(term), Index(index))


def damaged(*voters: NodeId, lost: EntryId, kept: int) -> RaftCore:
    """A member of term 3 with ``kept`` entries of term 2, which once had entries up to ``lost``."""
    core = RaftCore(
        A,
        Membership(frozenset(voters)),
        HardState(Term(3), None),
        commit=NO_INDEX,
        entries_have_terms=True,
        timing=Timing(),
        flow=FlowLimits(),
        seed=1,
        now=0,
    )
    core.log_damaged(lost)
    last = entry(2, kept - 1)
    core.log_ready(last, EntryTerms(NO_ENTRY, [TermRun(Term(2), kept)]))
    core.entries_held(A, last.index)
    return core


def sent(effects: Effects, kind: type[Message]) -> list[Message]:
    return [message for _, message in effects.send if isinstance(message, kind)]


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (entry(2, 7), VoteRefusal.LOG_BEHIND),
        (entry(2, 8), None),
        (entry(3, 5), None),
    ],
)
def test_it_votes_as_if_it_had_what_it_lost(candidate: EntryId, reason: VoteRefusal | None) -> None:
    node = damaged(A, B, C, lost=entry(2, 8), kept=4)

    (pre,) = sent(node.receive(2_000, B, PreVote(Term(4), candidate)), PreVoteReply)
    (vote,) = sent(node.receive(2_000, B, Vote(Term(4), candidate, transfer=False)), VoteReply)

    assert isinstance(pre, PreVoteReply) and pre.reason is reason
    assert isinstance(vote, VoteReply) and vote.reason is reason


def test_it_does_not_campaign_and_says_why() -> None:
    node = damaged(A, B, C, lost=entry(2, 8), kept=4)

    effects = node.tick(10_000)

    assert (effects.send, effects.persist) == ((), None)
    assert node.role is RaftRole.FOLLOWER
    assert any("lost entries to damage" in reason for reason in node.why_no_leader())
    assert node.status().lost == entry(2, 8)


def test_it_does_not_succeed_a_leader_that_hands_over() -> None:
    node = damaged(A, B, C, lost=entry(2, 8), kept=4)
    node.receive(10, B, Append(Term(3), entry(2, 3), (), NO_INDEX, 1))

    effects = node.receive(20, B, TimeoutNow(Term(3)))

    assert sent(effects, Vote) == []


def test_alone_it_does_not_lead_either() -> None:
    node = damaged(A, lost=entry(2, 8), kept=4)

    assert node.role is RaftRole.FOLLOWER


def test_it_acknowledges_only_what_it_has_and_could_not_lead() -> None:
    node = damaged(A, B, C, lost=entry(2, 8), kept=4)

    (reply,) = sent(node.receive(10, B, Append(Term(3), entry(2, 3), (), Index(8), 1)), AppendReply)

    assert isinstance(reply, AppendReply)
    assert (reply.held, reply.fit) == (3, False)


@pytest.mark.parametrize(
    ("runs", "is_back"),
    [
        ((TermRun(Term(2), 4),), False),
        ((TermRun(Term(2), 5),), True),
        ((TermRun(Term(2), 1), TermRun(Term(3), 1)), True),
    ],
    ids=["one is missing", "all again", "a later leader has less"],
)
def test_it_is_a_member_like_others_when_it_has_as_much_again(
    runs: tuple[TermRun, ...], is_back: bool
) -> None:
    node = damaged(A, B, C, lost=entry(2, 8), kept=4)
    node.receive(10, B, Append(Term(3), entry(2, 3), runs, NO_INDEX, 1))
    written_only = node.status().lost
    node.entries_held(A, node.last.index)

    assert written_only == entry(2, 8)
    assert (node.status().lost is None) == is_back
    assert bool(sent(node.tick(10_000), PreVote)) == is_back


def test_a_leader_that_is_told_of_damage_steps_down() -> None:
    node = damaged(A, lost=entry(2, 3), kept=4)
    leads = node.log_ready(entry(2, 3))

    effects = node.log_damaged(entry(4, 9))

    assert leads.grant is not None
    assert effects.revoke
    assert node.role is RaftRole.FOLLOWER
