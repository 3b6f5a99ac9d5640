"""Node state that all roles share, and the step-down to follower.

Invariants:

* ``commit`` never goes back; ``commit ≤ held ≤ log.last.index`` but for entries that this node has
  not reported after a start;
* the writer has a grant of no term but the one that this node leads in, and entries of another
  leader are taken only while it has none and no cut is under way;
* while ``lost`` is set, the log lacks entries that this node once had durable: it votes as if it
  had them, and does not campaign (docs/decisions/0010);
* an ``outdated`` node is a follower, and has no grant but one that is being revoked
  (docs/decisions/0060).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.effects import LeaderChange, Outbox, ReadAnswer
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership, MembershipHistory
from ledgermq.raft.messages import (
    EntryId,
    HardState,
    Message,
    RaftRole,
    ReadReply,
    TermRun,
    VoteRefusal,
)
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.timing import ELECTION_DOUBLINGS_MAX, LAST_WAITS, FlowLimits, Timing

_WORD_MASK = (1 << 64) - 1


class Chance:
    """A sequence of numbers that its seed alone determines; ``word`` is where it is."""

    def __init__(self, seed: int) -> None:
        self.word = seed & _WORD_MASK

    def bits(self) -> int:
        """The next 64 bits."""
        self.word = (self.word + 0x9E3779B97F4A7C15) & _WORD_MASK
        mixed = self.word
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD_MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD_MASK
        return mixed ^ (mixed >> 31)

    def between(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both possible."""
        assert low <= high, (low, high)
        return low + self.bits() % (high - low + 1)


class WriterState(StrEnum):
    """What the writer may do with the log, as far as its answers tell."""

    UNREAD = "has not read the log yet"
    IDLE = "takes entries of a leader"
    GRANTING = "is being given the term"
    GRANTED = "stamps entries"
    REVOKING = "is giving the term back"
    TRUNCATING = "is cutting the log"


@dataclass(slots=True)
class Poll:
    """An election: who was asked for which term, and what they said."""

    asked: Term
    pre: bool
    agreed: set[NodeId]
    refused: dict[NodeId, VoteRefusal] = field(default_factory=dict)


@dataclass(slots=True)
class Following:
    """What a follower knows of the leader of this term, and of its log.

    Attributes:
        round: the leader's last round of heartbeats.
        round_began: tick at which that was heard of first.
    """

    verified: Index = NO_INDEX
    leader_commit: Index = NO_INDEX
    round: int = 0
    round_began: int = 0
    acknowledged: Index = NO_INDEX


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of the core."""

    timing: Timing
    flow: FlowLimits
    preferred: tuple[NodeId, ...]
    entries_have_terms: bool


class NodeState:
    """Term, vote, role, log terms and commit index of one node.

    Attributes:
        term: the current one, as ``hard_state`` has it.
        gone_since: what ``heard`` was when the connection to the leader ended; the leader counts as
            gone while nothing was heard of it since.
        waits_until: when it would have campaigned had the connection not ended.
    """

    def __init__(
        self,
        node: NodeId,
        membership: Membership,
        hard_state: HardState,
        *,
        commit: Index,
        policy: Policy,
        seed: int,
        now: int,
    ) -> None:
        self.node = node
        self.history = MembershipHistory(membership)
        self.hard_state = hard_state
        self.term = hard_state.term
        self.commit = commit
        self.policy = policy
        self.chance = Chance(seed)
        self.now = now
        self.log = EntryTerms()
        self.held = NO_INDEX
        self.lost: EntryId | None = None
        self.role = RaftRole.FOLLOWER
        self.leader: NodeId | None = None
        self.terms_without_leader = 0
        self.waits_without_leader = 0
        self.heard = now - policy.timing.election_max
        self.gone_since: int | None = None
        self.waits_until = now
        self.following = Following()
        self.poll: Poll | None = None
        self.last_poll: Poll | None = None
        self.leadership: Leadership | None = None
        self.writer = WriterState.UNREAD
        self.granted_term: Term | None = None
        self.sick = False
        self.full = False
        self.outdated = False
        self.forwarded_reads: dict[int, int] = {}
        self.out = Outbox()
        self.published = LeaderChange(None, Term(-1))
        self.election_deadline = now
        self.arm_election()

    @property
    def membership(self) -> Membership:
        """The one in force."""
        return self.history.current

    @property
    def last_held_ever(self) -> EntryId:
        """The last entry that this node has told others it holds: what candidates must have."""
        last = self.log.last
        if self.lost is None or (last.term, last.index) >= (self.lost.term, self.lost.index):
            return last
        return self.lost

    def regain(self) -> None:
        """Forget what was lost once the log holds as much again.

        After the cut entries come from leaders alone. One of a later term has all that was
        committed before; the one of the same term has what this node had from it.
        """
        if self.lost is None:
            return
        last = self.log.entry(Index(min(self.held, self.log.last.index)))
        if (last.term, last.index) >= (self.lost.term, self.lost.index):
            self.note(f"holds again what its log had lost, up to {self.lost}: now {last}")
            self.lost = None

    def send(self, target: NodeId, message: Message) -> None:
        """Send it with the effects of this event."""
        assert target != self.node, message
        self.out.send.append((target, message))

    def note(self, text: str) -> None:
        """Tell the operator of a decision."""
        self.out.notes.append(text)

    def arm_election(self) -> None:
        """Wait anew before campaigning (Raft paper, section 5.2: randomised timeouts).

        Twice as long behind each term that has passed without a leader, up to a bound: an election
        takes as long as the disks need to keep term and votes, and whoever campaigns again before
        that takes the next term from those who are about to be elected, for ever.
        """
        timing = self.policy.timing
        wait = self.chance.between(timing.election_min, timing.election_max)
        # The term under way has not failed yet.
        failed = max(0, self.terms_without_leader - 1)
        self.election_deadline = self.now + (wait << min(failed, ELECTION_DOUBLINGS_MAX))

    @property
    def is_leader_gone(self) -> bool:
        """Whether the connection to the leader has ended, and nothing was heard of it since."""
        return self.leader is not None and self.gone_since == self.heard

    @property
    def hears_leader(self) -> bool:
        """Whether a leader was heard of so lately that nobody else may be elected."""
        if self.leader is None:
            return False
        timing = self.policy.timing
        if self.is_leader_gone:
            return self.now - self.following.round_began < timing.lease_honoured
        return self.now - self.heard < timing.election_min

    def know_leader(self, leader: NodeId) -> None:
        """``leader`` leads in this term."""
        self.leader = leader
        self.terms_without_leader = self.waits_without_leader = 0

    def persist(self, hard_state: HardState) -> None:
        """Change term and vote; durable before anything else of this event leaves."""
        assert hard_state.term >= self.term, (hard_state, self.hard_state)
        if hard_state.term > self.term:
            self.terms_without_leader += 1
        self.hard_state = hard_state
        self.term = hard_state.term
        self.out.persist = hard_state

    def follow(self, term: Term, leader: NodeId | None) -> None:
        """Become a follower in ``term``, of ``leader`` when it is known."""
        if term > self.term:
            self.persist(HardState(term, None))
        self._stop_leading()
        self._fail_forwarded_reads()
        self.role = RaftRole.FOLLOWER
        self.leader = None
        if leader is not None:
            self.know_leader(leader)
        self.poll = None
        # What was verified is verified against the last leader's log; the next one may lack it.
        self.following = Following()
        self.gone_since = None
        self.arm_election()

    def barriers(self) -> list[str]:
        """Why this node may not campaign; empty when it may.

        A sick disk and being a witness are reasons until others have had their time: a slow leader
        is more than none, and what a witness alone has others get from a witness that leads.
        """
        found = []
        if not self.history.is_needed(self.node, self.commit):
            found.append("this node is no voter")
        leaves_it = self.waits_without_leader <= LAST_WAITS
        if self.node in self.membership.bodiless:
            found.append("this node is a witness without bodies, and never leads")
        elif self.node in self.membership.witnesses and leaves_it:
            found.append("this node is a witness, and leaves it to others as long as one can lead")
        others = len(self.membership.electable) > 1
        if self.sick and others and leaves_it:
            found.append("its disk is sick")
        if self.outdated:
            found.append("its log needs a newer version than it runs")
        if self.lost is not None:
            found.append(f"its log lost entries to damage, and has not all up to {self.lost} again")
        if self.writer is not WriterState.IDLE:
            found.append(f"its writer {self.writer.value}")
        return found

    def log_recovered(self, last: EntryId, log: EntryTerms | None) -> bool:
        """The writer holds no grant and says where the log ends; whether entries were lost.

        Entries behind what was known are of the term that the writer had been granted.

        Raises:
            CorruptLogError: the log ends below what was committed.
        """
        unread = self.writer is WriterState.UNREAD
        known = self.log.last
        lost = not unread and last.index < known.index
        uncut = self.writer is WriterState.TRUNCATING and last.index > known.index
        if log is not None:
            assert log.last == last, (log.last, last)
            self.log = log
        elif unread or not self.policy.entries_have_terms:
            self.log = EntryTerms(last)
        elif lost:
            if self.log.term_of(last.index) != last.term:
                raise CorruptLogError("log ends with another entry", last=last, known=known)
            self.log.truncate(last.index)
        elif last.index > known.index and not uncut:
            assert last.term == self.granted_term, (last, self.granted_term)
            self.log.append([TermRun(last.term, last.index - known.index)])
        self.history.roll_back(last.index)
        if self.policy.entries_have_terms and last.index < self.commit:
            raise CorruptLogError("log ends below the commit index", last=last, commit=self.commit)
        self.held = min(self.held, last.index)
        following = self.following
        following.verified = min(following.verified, last.index)
        following.acknowledged = min(following.acknowledged, last.index)
        self.writer = WriterState.IDLE
        if uncut and log is None:
            # The writer died before it had cut the log.
            self.writer = WriterState.TRUNCATING
            self.out.truncate = known
        return lost

    def set_commit(self, index: Index) -> None:
        """Everything up to ``index`` is committed."""
        assert self.commit < index <= self.log.last_index, (self.commit, index, self.log.last)
        self.commit = index
        self.out.commit = index

    def answer_read(self, reader: NodeId, read: int, index: Index | None) -> None:
        """Tell ``reader``, which may be this node."""
        if reader == self.node:
            self.out.reads.append(ReadAnswer(read, index))
        else:
            self.send(reader, ReadReply(self.term, read, index))

    def _stop_leading(self) -> None:
        if self.leadership is None:
            return
        for read in self.leadership.reads.take_all():
            self.answer_read(read.reader, read.read, None)
        self.leadership = None
        if self.writer in (WriterState.GRANTING, WriterState.GRANTED):
            self.writer = WriterState.REVOKING
            self.out.revoke = True
            # This event may have granted the term itself. A grant is carried out behind the
            # revocation: left here, the writer would stamp in a term in which we do not lead any
            # more.
            self.out.grant = None
            self.out.propose = None

    def _fail_forwarded_reads(self) -> None:
        self.out.reads.extend(ReadAnswer(read, None) for read in self.forwarded_reads)
        self.forwarded_reads.clear()
