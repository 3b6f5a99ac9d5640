"""A witness without bodies: votes, and one entry that it knows of; never a leader, never a log.

It is driven as ``RaftCore`` is, but for this: what a turn brings is handed over message by message,
and ``close_turn`` then says what has to be durable, once for all of them, before the answers leave.

Invariants:

* what it keeps never goes back: not its term, not its vote within a term, not the entry that it
  knows of;
* it votes for nobody whose log ends before that entry (Raft paper, section 5.4.1);
* that entry is committed (``attesting``), so all leaders of later terms have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.effects import LeaderChange
from ledgermq.raft.messages import (
    NO_ENTRY,
    Append,
    AppendReply,
    Attest,
    EntryId,
    HardState,
    Message,
    PreVote,
    PreVoteReply,
    Vote,
    VoteRefusal,
    VoteReply,
    VoteRequest,
)
from ledgermq.raft.timing import Timing


@dataclass(frozen=True, slots=True)
class WitnessState:
    """All that a witness without bodies keeps; ``last``: the entry that it knows of."""

    hard_state: HardState
    last: EntryId


KEEPS_NOTHING = WitnessState(HardState(Term(0), None), NO_ENTRY)
"""That of a witness that was never told anything."""


@dataclass(frozen=True, slots=True)
class WitnessEffects:
    """What is to be done behind a turn: ``persist`` first, durably, then ``send``."""

    persist: WitnessState | None
    send: tuple[tuple[NodeId, Message], ...]
    leader: LeaderChange | None
    notes: tuple[str, ...]


class WitnessCore:
    """Term, vote and last known entry of one witness without bodies."""

    def __init__(self, node: NodeId, kept: WitnessState, *, timing: Timing, now: int) -> None:
        """It knows no leader.

        Args:
            kept: what was persisted last.
        """
        self.node = node
        self.kept = kept
        self.leader: NodeId | None = None
        self.heard = now - timing.election_max
        self._timing = timing
        self._now = now
        self._round = 0
        self._durable = kept
        self._published = LeaderChange(None, Term(-1))
        self._owes = False
        self._send: list[tuple[NodeId, Message]] = []
        self._notes: list[str] = []

    @property
    def term(self) -> Term:
        """Current term."""
        return self.kept.hard_state.term

    @property
    def last(self) -> EntryId:
        """The entry that it knows of."""
        return self.kept.last

    def receive(self, now: int, source: NodeId, message: Message) -> None:
        """A message of ``source`` has come at ``now``; what follows from it says ``close_turn``.

        Raises:
            CorruptLogError: a leader lacks what was committed when this witness was told of it.
        """
        self._now = max(self._now, now)
        match message:
            case Attest():
                self._attest(source, message)
            case Append():
                self._refuse_entries(source, message)
            case PreVote() | Vote():
                self._answer_vote(source, message)
            case _:
                pass

    def close_turn(self) -> WitnessEffects | None:
        """What has to be done now for all that was received; None: nothing."""
        if self._owes and self.leader is not None:
            known = self.last.index if self.last.term == self.term else NO_INDEX
            self._send.append((self.leader, self._reply(accepted=True, known=known)))
        self._owes = False
        persist = self.kept if self.kept != self._durable else None
        now = LeaderChange(self.leader, self.term)
        change = now if now != self._published else None
        if persist is None and change is None and not self._send and not self._notes:
            return None
        effects = WitnessEffects(persist, tuple(self._send), change, tuple(self._notes))
        self._durable, self._published = self.kept, now
        self._send, self._notes = [], []
        return effects

    def _attest(self, source: NodeId, message: Attest) -> None:
        if not self._accepts(source, message.term):
            return
        self._round = max(self._round, message.round)
        self._owes = True
        told, known = EntryId(message.term, message.last), self.last
        if message.last == NO_INDEX or (told.term == known.term and told.index <= known.index):
            return
        if told.index <= known.index:
            raise CorruptLogError("a leader lacks what was committed", told=told, known=known)
        self.kept = replace(self.kept, last=told)

    def _refuse_entries(self, source: NodeId, message: Append) -> None:
        """The leader takes this node for one that holds bodies: it must not count as one."""
        if self._accepts(source, message.term):
            self._round = max(self._round, message.round)
            self._notes.append(f"{source} sends entries, and this witness holds none")
            self._send.append((source, self._reply(accepted=False)))

    def _accepts(self, source: NodeId, term: Term) -> bool:
        """Follow the leader of ``term``; one whose time is over is told so."""
        if term < self.term:
            self._send.append((source, self._reply(accepted=False)))
            return False
        if term > self.term:
            self._enter(term)
        elif self.leader not in (None, source):
            self._notes.append(f"two leaders in term {term}: {self.leader} and {source}")
            return False
        self.leader, self.heard = source, self._now
        return True

    def _answer_vote(self, source: NodeId, request: VoteRequest) -> None:
        """Vote, or say why not; the rules are those of ``candidate.on_vote_request``."""
        reason = self._early_refusal(request)
        if reason is None and isinstance(request, Vote) and request.term > self.term:
            self._enter(request.term)
        if reason is None:
            reason = self._refusal(source, request)
        if isinstance(request, PreVote):
            self._send.append((source, PreVoteReply(self.term, request.term, reason)))
            return
        if reason is None:
            self.kept = replace(self.kept, hard_state=HardState(self.term, source))
        self._send.append((source, VoteReply(self.term, request.term, reason)))

    def _early_refusal(self, request: VoteRequest) -> VoteRefusal | None:
        if request.term < self.term:
            return VoteRefusal.OLD_TERM
        is_asked_by_leader = isinstance(request, Vote) and request.transfer
        hears = self.leader is not None and self._now - self.heard < self._timing.election_min
        return VoteRefusal.HEARS_LEADER if hears and not is_asked_by_leader else None

    def _refusal(self, source: NodeId, request: VoteRequest) -> VoteRefusal | None:
        if request.term == self.term:
            vote = self.kept.hard_state.vote
            if vote not in (None, source) or self.leader not in (None, source):
                return VoteRefusal.VOTED
        if (request.last.term, request.last.index) < (self.last.term, self.last.index):
            return VoteRefusal.LOG_BEHIND
        return None

    def _enter(self, term: Term) -> None:
        # An answer that is owed to the leader of a term that is over would say nothing.
        self._owes = False
        self._round = 0
        self.leader = None
        self.kept = replace(self.kept, hard_state=HardState(term, None))

    def _reply(self, *, accepted: bool, known: int = NO_INDEX) -> AppendReply:
        return AppendReply(
            term=self.term,
            round=self._round,
            accepted=accepted,
            verified=Index(known),
            held=Index(known),
            tail=None,
            fit=False,
        )
