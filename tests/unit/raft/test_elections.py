"""Elections that take longer than members wait: they are won all the same."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import pytest

from ledgermq.model.ids import NO_INDEX, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import (
    Append,
    EntryId,
    HardState,
    PreVote,
    PreVoteReply,
    RaftRole,
    VoteRefusal,
)
from ledgermq.raft.timing import ELECTION_DOUBLINGS_MAX, TURN_OF_GONE, FlowLimits, Timing

A, B, C = MEMBERS = NodeId("n0"), NodeId("n1"), NodeId("n2")
TIMING = Timing()
NOTHING_HELD = EntryId(Term(0), NO_INDEX)


def member(node: NodeId, seed: int) -> RaftCore:
    """A member whose log is empty, and read."""
    made = RaftCore(
        node,
        Membership(frozenset(MEMBERS)),
        HardState(Term(0), None),
        commit=NO_INDEX,
        entries_have_terms=True,
        timing=TIMING,
        flow=FlowLimits(),
        seed=seed,
        now=0,
    )
    made.log_ready(NOTHING_HELD)
    return made


def fail_election(node: RaftCore) -> int:
    """Have the node campaign, and nobody answer; how long it waits for that."""
    now = node.deadline
    node.tick(now)
    asked = Term(node.term + 1)
    node.receive(now, B, PreVoteReply(node.term, asked, None))
    assert (node.role, node.term) == (RaftRole.CANDIDATE, asked)
    return node.deadline - now


def test_who_fails_waits_twice_as_long_for_the_next_election_up_to_a_bound() -> None:
    node = member(A, seed=1)

    for number in range(ELECTION_DOUBLINGS_MAX + 3):
        factor = 2 ** min(number, ELECTION_DOUBLINGS_MAX)
        waited = fail_election(node)
        assert TIMING.election_min * factor <= waited <= TIMING.election_max * factor


def test_a_leader_ends_the_long_waits() -> None:
    node = member(A, seed=1)
    for _ in range(4):
        fail_election(node)
    now = node.deadline - 1
    node.receive(now, B, Append(node.term, NOTHING_HELD, (), NO_INDEX, 1))

    assert node.leader == B
    assert node.deadline - now <= TIMING.election_max
    assert fail_election(node) <= TIMING.election_max


class SlowDisks:
    """Three members, each of which does nothing else while it makes term and vote durable."""

    def __init__(self, *, seed: int, persist_ticks: int) -> None:
        self._persist_ticks = persist_ticks
        self._nodes = {
            node: member(node, seed=10 * seed + number) for number, node in enumerate(MEMBERS)
        }
        self._free_at = dict.fromkeys(MEMBERS, 0)
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, NodeId, Callable[[int], Effects]]] = []

    def leader_until(self, end: int) -> NodeId | None:
        """Who leads first, up to a tick."""
        now = 0
        while now < end:
            idle = [
                (max(core.deadline, self._free_at[node]), node)
                for node, core in self._nodes.items()
            ]
            tick_at, ticked = min(idle)
            if self._due and self._due[0][0] <= tick_at:
                now, _, node, event = heapq.heappop(self._due)
                if now < self._free_at[node]:
                    self._later(self._free_at[node], node, event)
                    continue
            else:
                now, node, event = tick_at, ticked, self._nodes[ticked].tick
            self._carry_out(now, node, event(now))
            if self._nodes[node].role is RaftRole.LEADER:
                return node
        return None

    def _carry_out(self, now: int, node: NodeId, effects: Effects) -> None:
        if effects.persist is not None:
            now += self._persist_ticks
        self._free_at[node] = now
        for target, message in effects.send:
            receive = self._nodes[target].receive
            self._later(
                now + 1,
                target,
                lambda at, receive=receive, message=message: receive(at, node, message),  # type: ignore[misc]
            )

    def _later(self, at: int, node: NodeId, event: Callable[[int], Effects]) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), node, event))


@pytest.mark.parametrize("persist_ticks", [1, 200, 500, 1_000, 3_000, 5_000])
def test_a_leader_is_elected_on_disks_that_need_longer_than_members_wait(
    persist_ticks: int,
) -> None:
    for seed in range(20):
        group = SlowDisks(seed=seed, persist_ticks=persist_ticks)
        assert group.leader_until(120_000) is not None, seed


def follower(node: NodeId = B) -> RaftCore:
    """A follower of ``A`` that has heard of round 2 at 1,100, and of the leader last at 1,140."""
    made = member(node, seed=1)
    for now, round_ in [(1_000, 1), (1_100, 2), (1_140, 2)]:
        made.receive(now, A, Append(Term(1), NOTHING_HELD, (), NO_INDEX, round_))
    return made


def asked(node: RaftCore, now: int, by: NodeId = C) -> VoteRefusal | None:
    """What the node says to somebody who would campaign."""
    ((_, reply),) = node.receive(now, by, PreVote(Term(2), NOTHING_HELD)).send
    assert isinstance(reply, PreVoteReply)
    return reply.reason


HONOURED = 1_100 + TIMING.lease_honoured
"""Up to then a leader may take itself for the only one, by a round that a follower has answered."""


def test_who_loses_the_leaders_connection_campaigns_when_its_lease_is_over() -> None:
    first, second = follower(B), follower(C)
    without = first.deadline
    for one in (first, second):
        one.peer_gone(1_150, A)
    due = first.deadline
    asks = [target for target, _ in first.tick(due).send]

    assert HONOURED < due < second.deadline < 1_140 + TIMING.election_min <= without
    assert asks == [A, C]
    assert first.role is RaftRole.PRE_CANDIDATE


def test_those_who_have_lost_it_campaign_one_after_the_other() -> None:
    due = [follower(node) for node in (B, C)]
    for one in due:
        one.peer_gone(1_150, A)

    assert due[1].deadline - due[0].deadline == TURN_OF_GONE


def test_nobody_votes_within_the_lease_of_a_leader_whose_connection_has_ended() -> None:
    node = follower()
    node.peer_gone(1_150, A)

    assert asked(node, HONOURED - 1) is VoteRefusal.HEARS_LEADER
    assert asked(node, HONOURED) is None
    assert asked(follower(), HONOURED) is VoteRefusal.HEARS_LEADER


def test_a_leader_that_is_heard_of_again_is_none_that_is_gone() -> None:
    node = follower()
    node.peer_gone(1_150, A)
    node.receive(1_151, A, Append(Term(1), NOTHING_HELD, (), NO_INDEX, 2))

    assert node.deadline >= 1_151 + TIMING.election_min
    assert asked(node, 1_150 + TIMING.election_min) is VoteRefusal.HEARS_LEADER


def test_who_campaigns_for_an_ended_connection_in_vain_waits_as_without_it() -> None:
    node = follower()
    without = node.deadline
    node.peer_gone(1_150, A)
    node.tick(node.deadline)
    node.receive(node.deadline, C, PreVoteReply(node.term, Term(2), VoteRefusal.HEARS_LEADER))

    assert node.deadline == without


def test_connections_of_others_say_nothing_of_the_leader() -> None:
    node, leader = follower(), member(A, seed=1)
    without = node.deadline, leader.deadline
    node.peer_gone(1_150, C)
    leader.peer_gone(1_150, B)

    assert (node.deadline, leader.deadline) == without
