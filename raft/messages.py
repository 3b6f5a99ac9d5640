"""Values that go into the core and come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledgermq.model.ids import Index, NodeId, Term


class RaftRole(StrEnum):
    """Role of a node in its group (Raft paper, section 5.1)."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class EntryId:
    """Names one entry: a leader never issues two entries with the same pair."""

    term: Term
    index: Index


@dataclass(frozen=True, slots=True)
class HardState:
    """What must be on disk before anything that depends on it leaves the node."""

    term: Term
    vote: NodeId | None


@dataclass(frozen=True, slots=True)
class Effects:
    """Work for the process around the core, in the order in which it must happen.

    1. ``persist`` and make it durable;
    2. ``revoke`` the writer's term, then ``grant`` the new one;
    3. ``propose`` an empty entry of the granted term;
    4. publish ``commit``.
    """

    persist: HardState | None = None
    revoke: bool = False
    grant: Term | None = None
    propose: Term | None = None
    commit: Index | None = None
