"""The loop that the package shows drives a group: elections, entries, a log that is cut."""

from __future__ import annotations

import doctest
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import ledgermq.raft
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import AppendEntries, Effects, LeaderChange, ReplicateTo
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import NO_ENTRY, Append, EntryId, HardState, Message, RaftRole
from ledgermq.raft.timing import FlowLimits, Timing

GROUP = Membership(frozenset({NodeId("n0"), NodeId("n1"), NodeId("n2")}))
Entry = tuple[Term, bytes]


def shown() -> str:
    """The code in the package's docstring."""
    (example,) = doctest.DocTestParser().get_examples(ledgermq.raft.__doc__ or "")
    return example.source


class Entries(NamedTuple):
    """Some of a log, as they go beside an append."""

    content: list[Entry]
    last: Index
    size: int


class Member:
    """Storage, writer, peers and clients of one core, in memory and at once durable."""

    def __init__(self, name: str, group: Group, seed: int) -> None:
        self.core = RaftCore(
            NodeId(name),
            GROUP,
            HardState(Term(0), None),
            commit=NO_INDEX,
            entries_have_terms=True,
            timing=Timing(),
            flow=FlowLimits(),
            seed=seed,
            now=0,
        )
        self.log: list[Entry] = []
        self.saved: list[HardState] = []
        self.acknowledged = NO_INDEX
        self.leader: NodeId | None = None
        self.is_cut_off = False
        self.events: deque[Callable[[], Effects]] = deque()
        self.events.append(lambda: self.core.log_ready(NO_ENTRY, EntryTerms()))
        self._group = group
        self._beside: list[Entry] = []
        self._first_beside = 0

    @property
    def last(self) -> EntryId:
        return EntryId(self.log[-1][0], Index(len(self.log) - 1)) if self.log else NO_ENTRY

    def save(self, state: HardState) -> None:
        self.saved.append(state)

    def read(self, request: ReplicateTo) -> Entries:
        content = self.log[request.next : request.until + 1]
        return Entries(content, Index(request.next + len(content) - 1), 100 * len(content))

    def revoke(self) -> None:
        self.events.append(lambda: self.core.writer_revoked(self.last))

    def cut(self, last: EntryId) -> None:
        del self.log[last.index + 1 :]
        self.events.append(lambda: self.core.log_truncated(self.last))

    def grant(self, term: Term) -> None:
        last = self.last
        self.events.append(lambda: self.core.writer_granted(term, last))

    def stamp(self, term: Term, content: bytes) -> None:
        self.log.append((term, content))
        last = self.last
        self.events.append(lambda: self.core.entries_written(last))
        self.events.append(lambda: self.core.entries_held(self.core.node, last.index))

    def append(self, accepted: AppendEntries) -> None:
        assert accepted.first == len(self.log)
        begin = accepted.first - self._first_beside
        self.log += self._beside[begin : begin + accepted.last - accepted.first + 1]
        self.events.append(lambda: self.core.entries_held(self.core.node, self.last.index))

    def send(self, peer: NodeId, message: Message, entries: Entries | None = None) -> None:
        target = self._group.members[peer]
        if not self.is_cut_off and not target.is_cut_off:
            target.events.append(lambda: target.take(self.core.node, message, entries))

    def take(self, source: NodeId, message: Message, entries: Entries | None) -> Effects:
        if isinstance(message, Append) and entries is not None:
            self._beside, self._first_beside = entries.content, message.previous.index + 1
        return self.core.receive(self._group.now, source, message)

    def acknowledge(self, commit: Index) -> None:
        self.acknowledged = commit

    def tell(self, change: LeaderChange) -> None:
        self.leader = change.leader


class Group:
    """Three members, driven by what the docstring says."""

    def __init__(self) -> None:
        self.now = 0
        names: dict[str, Any] = {"print": lambda note: None}
        exec(shown(), names)
        self._drive = names["drive"]
        self.members: dict[NodeId, Member] = {}
        for seed, name in enumerate(sorted(GROUP.members)):
            self.members[name] = Member(name, self, seed)

    def run(self, ticks: int) -> None:
        for now in range(self.now + 1, self.now + ticks + 1):
            self.now = now
            for member in self.members.values():
                if member.core.deadline <= now:
                    member.events.append(partial(member.core.tick, now))
            while busy := [member for member in self.members.values() if member.events]:
                for member in busy:
                    self._drive(member.core, member.events, member, member, member, member)

    def leader(self) -> Member:
        (found,) = (
            member
            for member in self.members.values()
            if member.core.role is RaftRole.LEADER and not member.is_cut_off
        )
        return found


def test_all_effects_are_carried_out_in_their_order() -> None:
    places = [shown().find(f"effects.{field.name}") for field in fields(Effects)]

    assert -1 not in places
    assert places == sorted(places)


def test_the_loop_elects_and_replicates() -> None:
    group = Group()
    group.run(2_000)
    leader = group.leader()
    leader.stamp(leader.core.term, b"hello")
    group.run(500)

    assert [member.log for member in group.members.values()] == [leader.log] * 3
    assert leader.log[-1] == (leader.core.term, b"hello")
    assert [member.acknowledged for member in group.members.values()] == [1, 1, 1]
    assert {member.leader for member in group.members.values()} == {leader.core.node}
    assert all(member.saved[-1].term == leader.core.term for member in group.members.values())


def test_the_loop_cuts_what_no_majority_has() -> None:
    group = Group()
    group.run(2_000)
    old = group.leader()
    old.is_cut_off = True
    old.stamp(old.core.term, b"lost")
    group.run(3_000)
    new = group.leader()
    new.stamp(new.core.term, b"kept")
    group.run(100)
    old.is_cut_off = False
    group.run(3_000)

    assert old is not new
    assert [content for _, content in group.leader().log if content] == [b"kept"]
    assert [member.log for member in group.members.values()] == [group.leader().log] * 3
