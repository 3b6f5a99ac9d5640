"""Messages between members as values, and the ids of entries.

Every message has a term. ``term`` is the sender's current one, but for ``PreVote``: there it is the
one that the sender would campaign in. Who hears of a higher term follows in it (but again for
``PreVote``); what is of a lower one is answered with ours, or counts for nothing.

Messages may be lost, repeated and reordered, and nobody waits for an answer: what got none is said
again by the next heartbeat or election.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term


class RaftRole(StrEnum):
    """Role of a node in its group (Raft paper, section 5.1; pre-vote: thesis, section 9.6)."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class EntryId:
    """Names one entry: a leader never issues two entries with the same pair."""

    term: Term
    index: Index

    def __str__(self) -> str:
        return f"{self.term}/{self.index}"


NO_ENTRY = EntryId(Term(0), NO_INDEX)
"""What comes before the first entry of a log that was never shortened."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What must be on disk before anything that depends on it leaves the node."""

    term: Term
    vote: NodeId | None


@dataclass(frozen=True, slots=True)
class TermRun:
    """``count`` entries in a row, all of ``term``."""

    term: Term
    count: int


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: ``runs`` follow the entry ``before`` with no gap."""

    before: EntryId
    runs: tuple[TermRun, ...]


@dataclass(frozen=True, slots=True)
class PreVote:
    """Would you vote for me in ``term``? Changes nothing at the one who is asked.

    Sent to all voters by a node that has heard of no leader for an election timeout, and persisted
    nowhere. Only a majority of agreeing ``PreVoteReply`` lets it raise its term and campaign: so a
    node that was cut off and comes back, or cannot win, unseats nobody (thesis, section 9.6).

    Attributes:
        term: the one that it would campaign in, one above all that it knows.
        last: last entry of its log.
    """

    term: Term
    last: EntryId


@dataclass(frozen=True, slots=True)
class Vote:
    """Vote for me in ``term``.

    Sent to all voters by a candidate, whose own vote is durable by then. It gets theirs when they
    have given none in this term, hear from no leader, and have no longer log (Raft paper, section
    5.4.1); they make it durable before they answer. An answer that is lost is asked for again in
    the next term.

    Attributes:
        last: last entry of the candidate's log.
        transfer: the leader has asked for this election, so it is no reason to refuse.
    """

    term: Term
    last: EntryId
    transfer: bool


class VoteRefusal(StrEnum):
    """Why a vote was not given."""

    OLD_TERM = "its term is over"
    HEARS_LEADER = "hears from a leader"
    LOG_UNREAD = "has not read its log yet"
    VOTED = "has voted for another one"
    LOG_BEHIND = "has a longer log"


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """Answer to the ``PreVote`` of term ``asked``; granted without a ``reason``.

    Who grants it promises nothing, and may grant it to several. A refusal says why, for the
    operator who asks why there is no leader; its ``term`` may be higher, and ends the attempt.
    """

    term: Term
    asked: Term
    reason: VoteRefusal | None


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Answer to the ``Vote`` of term ``asked``; granted without a ``reason``.

    A vote that was granted is durable, and the only one of that term. The candidate that has a
    majority of them leads, says so by its first heartbeat, and has its writer granted the term.
    """

    term: Term
    asked: Term
    reason: VoteRefusal | None


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's entries; their bytes travel beside the message. Without runs: a heartbeat.

    The terms of the entries are in the message, so that the core can tell without the bytes which
    of them a follower has, and from where on its log is another one's: that part it has cut, and is
    sent the rest afterwards. Several are under way to a follower at once (``FlowLimits``). A
    heartbeat goes to each member in rounds: it keeps followers from campaigning, tells them the
    commit index, asks those behind where their log ends, and confirms, when a majority has answered
    its round, that the leader leads still. A leader that hears of no majority for long steps down.

    Attributes:
        previous: entry before the first of ``runs``.
        commit: the leader's commit index.
        round: number of the leader's last heartbeat round, which the reply repeats.
        memberships: indices of the entries among them that say who belongs to the group.
    """

    term: Term
    previous: EntryId
    runs: tuple[TermRun, ...]
    commit: Index
    round: int
    memberships: tuple[Index, ...] = ()


@dataclass(frozen=True, slots=True)
class Attest:
    """Know of my log up to ``last``: what a witness without bodies gets in the place of ``Append``.

    A heartbeat like that one. The witness answers with an ``AppendReply`` once it durably knows of
    the entry ``last`` of this ``term``: from then on it votes for nobody who lacks that entry. It
    is only told of what enough others hold (docs/decisions/0085), and asked for nothing else.

    Attributes:
        last: index of an entry of this term; -1: it may not be told of any yet.
        round: number of the leader's last heartbeat round, which the reply repeats.
    """

    term: Term
    last: Index
    round: int


@dataclass(frozen=True, slots=True)
class AppendReply:
    """A follower's position in the log of the leader of ``term``.

    Sent for each heartbeat, when more of the leader's entries is held (written or durable, as the
    group acknowledges), and after a cut. The leader commits what a majority holds. Where the
    follower did not accept, it says how its log ends, all terms of it: one reply is enough for the
    leader to find the last entry that both have, and go on behind it. If the leader's log does not
    reach so far back any more, it ships files.

    Attributes:
        round: largest round that it has seen in this term.
        accepted: the entry before the append was the leader's too.
        verified: last index that is known to be the leader's.
        held: last index of those that counts for an acknowledgement.
        tail: end of its log when it did not accept; None: not now, ask again.
        fit: it could lead.
    """

    term: Term
    round: int
    accepted: bool
    verified: Index
    held: Index
    tail: LogTail | None
    fit: bool


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Leader to its successor: campaign at once (thesis, section 3.10).

    Sent when the leader's writer has stopped (a sick disk is not waited for) and the successor has
    all of its log, and again with each heartbeat until somebody else leads or the hand-over is
    abandoned. The successor asks for votes with ``transfer``, without a pre-vote; the old leader
    steps down when it hears of the new term.
    """

    term: Term


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Which index must a reader have seen, who asks now? ``read`` names the question.

    Sent by a follower on behalf of a reader who wants all that was acknowledged before. The leader
    notes its commit index, and answers once a round of heartbeats that began afterwards is
    confirmed by a majority: then nobody else led when it looked (thesis, section 6.4).
    """

    term: Term
    read: int


@dataclass(frozen=True, slots=True)
class ReadReply:
    """Answer to ``ReadRequest``; without an index: not the leader any more, ask again.

    The reader may be served from any log that is committed and applied up to the index. A question
    that gets no answer in time counts as one without an index.
    """

    term: Term
    read: int
    index: Index | None


VoteRequest = PreVote | Vote
Message = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | AppendReply
    | Attest
    | TimeoutNow
    | ReadRequest
    | ReadReply
)
