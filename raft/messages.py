"""Messages between members as values, and the ids of entries.

Every message has a term. ``term`` is the sender's current one, but for ``PreVote``: there it is the
one that the sender would campaign in.
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
    """Would you vote for me in ``term``? Changes nothing at the one who is asked."""

    term: Term
    last: EntryId


@dataclass(frozen=True, slots=True)
class Vote:
    """Vote for me in ``term``.

    Attributes:
        last: last entry of the candidate's log.
        transfer: the leader has asked for this election, so it is no reason to refuse.
    """

    term: Term
    last: EntryId
    transfer: bool


class Refusal(StrEnum):
    """Why a vote was not given."""

    OLD_TERM = "its term is over"
    HEARS_LEADER = "hears from a leader"
    LOG_UNREAD = "has not read its log yet"
    VOTED = "has voted for another one"
    LOG_BEHIND = "has a longer log"


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """Answer to the ``PreVote`` of term ``asked``; granted without a ``reason``."""

    term: Term
    asked: Term
    reason: Refusal | None


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Answer to the ``Vote`` of term ``asked``; granted without a ``reason``."""

    term: Term
    asked: Term
    reason: Refusal | None


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's entries; their bytes travel beside the message. Without runs: a heartbeat.

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
class AppendReply:
    """A follower's position in the log of the leader of ``term``.

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
    """Leader to its successor: campaign at once (thesis, section 3.10)."""

    term: Term


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Which index must a reader have seen, who asks now? ``read`` names the question."""

    term: Term
    read: int


@dataclass(frozen=True, slots=True)
class ReadReply:
    """Answer to ``ReadRequest``; without an index: not the leader any more, ask again."""

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
    | TimeoutNow
    | ReadRequest
    | ReadReply
)
