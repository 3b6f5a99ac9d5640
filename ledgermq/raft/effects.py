"""Effects of a step: all that the process around the core has to do, in order, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, HardState, Message


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Entries ``first`` to ``last`` of those beside the append go to the writer."""

    first: Index
    last: Index


@dataclass(frozen=True, slots=True)
class ReplicateTo:
    """Read entries from ``next`` on, at most to ``until``, and hand this to ``core.replicated``."""

    peer: NodeId
    term: Term
    previous: EntryId
    next: Index
    until: Index


@dataclass(frozen=True, slots=True)
class ShipFiles:
    """``peer`` needs entries that this log has no more; repeated until it has them."""

    peer: NodeId
    last: EntryId


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """Reader ``read`` must see everything up to ``index``; None: nobody knows, ask again."""

    read: int
    index: Index | None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Who leads in ``term`` as far as this node knows."""

    leader: NodeId | None
    term: Term


@dataclass(frozen=True, slots=True)
class Effects:
    """Work for the process around the core, in the order in which it must happen.

    1. ``persist`` and make it durable;
    2. ``revoke`` the writer's term, to be answered with ``writer_revoked``;
    3. ``truncate`` the log behind that entry, to be answered with ``log_truncated``;
    4. ``grant`` the writer a term, to be answered with ``writer_granted``;
    5. ``propose`` an empty entry of the granted term, ``propose_membership`` an entry with that;
    6. ``append``: entries beside the message that was received last go to the writer;
    7. ``send`` messages;
    8. ``replicate``, before any other event comes in;
    9. ``ship_files``;
    10. publish ``commit``;
    11. answer ``reads``;
    12. publish ``leader``;
    13. log ``notes``: decisions in words.
    """

    persist: HardState | None = None
    revoke: bool = False
    truncate: EntryId | None = None
    grant: Term | None = None
    propose: Term | None = None
    propose_membership: Membership | None = None
    append: AppendEntries | None = None
    send: tuple[tuple[NodeId, Message], ...] = ()
    replicate: tuple[ReplicateTo, ...] = ()
    ship_files: tuple[ShipFiles, ...] = ()
    commit: Index | None = None
    reads: tuple[ReadAnswer, ...] = ()
    leader: LeaderChange | None = None
    notes: tuple[str, ...] = ()


NO_EFFECTS = Effects()
"""Nothing has to be done."""


@dataclass(slots=True)
class Outbox:
    """Effects while they are being put together."""

    persist: HardState | None = None
    revoke: bool = False
    truncate: EntryId | None = None
    grant: Term | None = None
    propose: Term | None = None
    propose_membership: Membership | None = None
    append: AppendEntries | None = None
    send: list[tuple[NodeId, Message]] = field(default_factory=list)
    replicate: list[ReplicateTo] = field(default_factory=list)
    ship_files: list[ShipFiles] = field(default_factory=list)
    commit: Index | None = None
    reads: list[ReadAnswer] = field(default_factory=list)
    leader: LeaderChange | None = None
    notes: list[str] = field(default_factory=list)

    def is_empty(self) -> bool:
        """Whether nothing has to be done."""
        return (
            self.commit is None
            and self.append is None
            and not (self.send or self.replicate or self.reads or self.notes or self.ship_files)
            and self.leader is None
            and self.persist is None
            and self.grant is None
            and self.truncate is None
            and self.propose is None
            and self.propose_membership is None
            and not self.revoke
        )

    def close(self) -> Effects:
        """The effects, not to be changed any more."""
        return Effects(
            persist=self.persist,
            revoke=self.revoke,
            truncate=self.truncate,
            grant=self.grant,
            propose=self.propose,
            propose_membership=self.propose_membership,
            append=self.append,
            send=tuple(self.send),
            replicate=tuple(self.replicate),
            ship_files=tuple(self.ship_files),
            commit=self.commit,
            reads=tuple(self.reads),
            leader=self.leader,
            notes=tuple(self.notes),
        )
