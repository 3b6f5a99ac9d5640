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
    PreVoteReply,
    RaftRole,
)
from ledgermq.raft.timing import ELECTION_DOUBLINGS_MAX, FlowLimits, Timing

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
