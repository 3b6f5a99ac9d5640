"""Comparison of the straight line with the long way through the core, after each event.

What the line takes is done once more by the core, with a copy of the state from before: effects and
state must be the same then. What it leaves must have changed nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import fields
from typing import TypeVar

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import NO_EFFECTS, AppendEntries, Effects, Outbox, ReplicateTo
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import EntryId, Message, RaftRole
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft.roles.progress import ProgressMode

Copied = TypeVar("Copied")

STEADY = {
    "follower": RaftRole.FOLLOWER,
    "idle": WriterState.IDLE,
    "granted": WriterState.GRANTED,
    "replicate": ProgressMode.REPLICATE,
}


class DifferentWaysError(AssertionError):
    """The straight line has done another thing than the core, or has changed what it left to it."""


class ComparedLine(SteadyLine):
    """The line of ``core``, for its place there; each event goes the long way, too.

    Attributes:
        taken, left: events of the one kind and of the other.
    """

    def __init__(self, core: RaftCore, line: SteadyLine | None = None) -> None:
        """Compare ``line``, or a line of its own."""
        state = core._state
        super().__init__(state, **STEADY)
        self._line = line or SteadyLine(state, **STEADY)
        self._state = state
        self.taken = self.left = 0

    def receive(
        self, now: int, source: Hashable, data: bytes | memoryview, has_entries: bool
    ) -> bool:
        before = self._copied()
        if not self._line.receive(now, source, data, has_entries):
            return self._was_left(before)
        long = before.receive(now, NodeId(str(source)), decode_message(data))
        return self._was_taken(before, long)

    def written(self, index: int) -> bool:
        before = self._copied()
        if not self._line.written(index):
            return self._was_left(before)
        long = before.entries_written(EntryId(before.term, Index(index)))
        return self._was_taken(before, long)

    def held(self, index: int) -> bool:
        before = self._copied()
        if not self._line.held(index):
            return self._was_left(before)
        return self._was_taken(before, before.entries_held(before.node, Index(index)))

    def replicated(self, peer: Hashable, first: int, last: int, size: int) -> bytes | None:
        before = self._copied()
        head = self._line.replicated(peer, first, last, size)
        if head is None:
            self._was_left(before)
            return None
        request = before.request(NodeId(str(peer)), Index(first), before.last.index)
        long = before.replicated(request, Index(last), size)
        self.more = self._line.more
        if [(to, encode_message(message)) for to, message in long.send] != [(peer, head)]:
            raise DifferentWaysError(f"sent {head!r}, not {long.send}")
        if bool(long.replicate) != self.more:
            raise DifferentWaysError(f"more={self.more}, not {long.replicate}")
        self._compare(before)
        self.taken += 1
        return head

    def _copied(self) -> RaftCore:
        copied = RaftCore.__new__(RaftCore)
        copied._state = copy_of(self._state)
        return copied

    def _was_left(self, before: RaftCore) -> bool:
        self._compare(before)
        self.left += 1
        return False

    def _was_taken(self, before: RaftCore, long: Effects) -> bool:
        line = self._line
        self.first, self.last, self.reply = line.first, line.last, line.reply
        self.wants, self.commit = line.wants, line.commit
        short = effects_of(line, self._state)
        if short != long:
            raise DifferentWaysError(f"effects: {short}, not {long}")
        self._compare(before)
        self.taken += 1
        return True

    def _compare(self, expected: RaftCore) -> None:
        ours, theirs = picture(self._state), picture(expected._state)
        if ours != theirs:
            found = [
                f"{one}, not {other}"
                for one, other in zip(ours, theirs, strict=True)
                if one != other
            ]
            raise DifferentWaysError(f"state: {'; '.join(found)}")


def compared_line(state: NodeState) -> ComparedLine:
    """The line that works on ``state``, which is no core's; each event goes the long way, too."""
    core = RaftCore.__new__(RaftCore)
    core._state = state
    return ComparedLine(core)


class LinedCore(RaftCore):
    """A core whose events try the straight line first, compared; what it takes comes as effects.

    For who drives a core by its methods, and not by messages as bytes.
    """

    def __init__(self, *arguments: object, **named: object) -> None:
        """A core as ``RaftCore`` makes it, with a line that is compared."""
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.line: ComparedLine = ComparedLine(self)

    def receive(self, now: int, source: NodeId, message: Message) -> Effects:
        has_entries = bool(getattr(message, "runs", ()))
        if self.line.receive(now, source, encode_message(message), has_entries):
            return effects_of(self.line, self._state)
        return super().receive(now, source, message)

    def entries_written(self, last: EntryId) -> Effects:
        if self.line.written(last.index):
            return effects_of(self.line, self._state)
        return super().entries_written(last)

    def entries_held(self, member: NodeId, last: Index) -> Effects:
        if self.line.held(last):
            return effects_of(self.line, self._state)
        return super().entries_held(member, last)

    def replicated(self, request: ReplicateTo, last: Index, size_bytes: int) -> Effects:
        head = None
        if request.term == self.term:
            head = self.line.replicated(request.peer, request.next, last, size_bytes)
        if head is None:
            return super().replicated(request, last, size_bytes)
        replicate: tuple[ReplicateTo, ...] = ()
        if self.line.more:
            replicate = (self.request(request.peer, Index(last + 1), self.last.index),)
        return Effects(send=((request.peer, decode_message(head)),), replicate=replicate)


def effects_of(line: SteadyLine, state: NodeState) -> Effects:
    """What the line has said of the event that it took, as the core says it."""
    send: tuple[tuple[NodeId, Message], ...] = ()
    if line.reply is not None:
        assert state.leader is not None
        send = ((state.leader, decode_message(line.reply)),)
    wanted = [
        ReplicateTo(
            NodeId(peer),
            Term(state.term),
            state.log.entry(Index(first - 1)),
            Index(first),
            Index(until),
        )
        for peer, first, until in line.wants
    ]
    if line.first < 0 and line.commit < 0 and not send and not wanted:
        return NO_EFFECTS
    return Effects(
        append=AppendEntries(Index(line.first), Index(line.last)) if line.first >= 0 else None,
        send=send,
        replicate=tuple(wanted),
        commit=Index(line.commit) if line.commit >= 0 else None,
    )


def copy_of(state: NodeState) -> NodeState:
    """A state of its own; what events change only as a whole is shared."""
    copied = copy(state)
    copied.log = _copied(state.log, "firsts", "terms")
    copied.history = _copied(state.history, "_known", "entry_indexes")
    copied.chance = copy(state.chance)
    copied.following = copy(state.following)
    copied.forwarded_reads = dict(state.forwarded_reads)
    copied.out = Outbox()
    lead = state.leadership
    if lead is not None:
        led = copied.leadership = copy(lead)
        led.reads = _copied(lead.reads, "waiting")
        led.transfer = copy(lead.transfer)
        led.progress = {}
        for peer, progress in lead.progress.items():
            led.progress[peer] = fed = copy(progress)
            fed.inflight = progress.inflight.copy()
    return copied


def picture(state: NodeState) -> list[tuple[str, object]]:
    """All that the state says, as pairs that can be compared."""
    found = dict(vars(state))
    for name in ("log", "history", "chance"):
        found[name] = vars(found[name])
    lead = state.leadership
    if lead is not None:
        parts = {field.name: getattr(lead, field.name) for field in fields(lead)}
        found["leadership"] = parts | {"reads": lead.reads.waiting}
    return list(found.items())


def _copied(value: Copied, *lists: str) -> Copied:
    """A copy with lists of its own."""
    made = copy(value)
    for name in lists:
        setattr(made, name, list(getattr(value, name)))
    return made
