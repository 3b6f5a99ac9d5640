"""Membership codec: the group's members as an entry of the log, and as a file of the store.

The log is the truth. The file ``ROOT/ledgermq/members`` says where in the log it stands, so that
nobody has to look for it: it is written before an entry with a membership goes to the writer, and
read against the log after a start. Text: a line of JSON, and the CRC-32 of that line in
hexadecimal (``store/files/checked_document.py``).

    {"entries": [{"index": 12, "term": 3, "roster": ROSTER}, …],
     "proposed": null | {"term": 3, "after": 40, "size": 312, "roster": ROSTER}}

    ROSTER: {"voters": {"n0": "10.0.0.1:40911", …}, "learners": {…}, "witnesses": ["n2"],
             "bodiless": ["n2"]}

``bodiless`` is there only where there is one: those of the witnesses that hold no bodies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ledgermq.model.config.settings import ClusterState, Settings
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.model.features import LEVEL_MAX
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.store.files.checked_document import checked, read_document, write_document
from ledgermq.store.files.small_file import replace_file

CUT_MAX = 16
"""Entries that were cut and are remembered: each is a change that was never committed."""

MEMBERS_MAX = 64

MIRROR_SOURCE = NodeId("source")
"""Who leads a mirror: whichever member of its source is asked. No member's id looks so."""

_NODE = re.compile(r"[a-zA-Z][0-9]{1,8}")
_ADDRESS = re.compile(r"[^\s@]{1,255}:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Roster:
    """Who belongs to the group, and where each member listens, as ``10.0.0.1:40911``."""

    membership: Membership
    addresses: Mapping[NodeId, str]

    def encode(self) -> bytes:
        """JSON, the same bytes for equal rosters."""
        return json.dumps(self._document(), sort_keys=True).encode()

    @classmethod
    def decode(cls, content: bytes) -> Roster:
        """The roster in ``content``.

        Raises:
            ProtocolError: it is none.
        """
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("membership is no JSON", reason=str(error)) from error
        return cls.of(document)

    @classmethod
    def of(cls, document: object) -> Roster:
        """The roster in a JSON document.

        Raises:
            ProtocolError: it is none.
        """
        if not isinstance(document, dict):
            raise ProtocolError("membership is no JSON object", found=type(document).__name__)
        voters = _addresses(document, "voters")
        learners = _addresses(document, "learners")
        witnesses = document.get("witnesses")
        if not isinstance(witnesses, list) or not all(one in voters for one in witnesses):
            raise ProtocolError("witnesses of a membership are no voters", witnesses=witnesses)
        bodiless = document.get("bodiless", [])
        if not isinstance(bodiless, list) or not all(one in witnesses for one in bodiless):
            raise ProtocolError("members without bodies are no witnesses", bodiless=bodiless)
        if len(voters) + len(learners) > MEMBERS_MAX:
            raise ProtocolError(
                "membership has too many members", limit=MEMBERS_MAX, voters=len(voters)
            )
        if voters.keys() & learners.keys() or not voters.keys() - set(witnesses):
            raise ProtocolError(
                "membership without a voter that can lead, or with a voter that learns",
                voters=sorted(voters),
                learners=sorted(learners),
            )
        membership = Membership(
            frozenset(voters), frozenset(learners), frozenset(witnesses), frozenset(bodiless)
        )
        return cls(membership, {**voters, **learners})

    def _document(self) -> dict[str, object]:
        membership = self.membership
        document: dict[str, object] = {
            "voters": {node: self.addresses[node] for node in membership.voters},
            "learners": {node: self.addresses[node] for node in membership.learners},
            "witnesses": sorted(membership.witnesses),
        }
        if membership.bodiless:
            document["bodiless"] = sorted(membership.bodiless)
        return document


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """An entry of the log that says who belongs to the group from there on."""

    index: Index
    term: Term
    roster: Roster


class Proposal(NamedTuple):
    """A roster that was given to the writer; its entry is behind ``after``, of ``size`` bytes."""

    term: Term
    after: Index
    size: int
    roster: Roster


class RosterFile:
    """Owned by the raft process. Invariant: what it says is on disk.

    Attributes:
        entries: in the order of the log; behind the end of the log there may be some that the log
            never got, until ``keep_those_of``.
        proposed: the change whose place in the log is not known yet.
        cut: the last ones that the log had, and was cut before. A power failure that comes before
            the cut is durable brings them back, with the members that they say.
    """

    def __init__(self, path: Path) -> None:
        """Read the file at ``path``, if it is there.

        Raises:
            CorruptLogError: the file is not whole.
            StorageError: the operating system refused.
        """
        self.entries: tuple[RosterEntry, ...] = ()
        self.proposed: Proposal | None = None
        self.cut: tuple[RosterEntry, ...] = ()
        self._path = path
        try:
            document = read_document(path)
            if document is not None:
                self._take(document)
        except (CorruptLogError, ValueError, KeyError, TypeError, ProtocolError) as error:
            raise CorruptLogError(
                "list of members is not whole: take that of another member that has the same log",
                file=str(path),
                reason=str(error),
            ) from error

    def keep_those_of(self, log: EntryTerms, has: Callable[[RosterEntry], bool]) -> None:
        """Forget the entries that ``log`` does not have, and know again of those that it has.

        Args:
            has: whether what stands in the log at the place of one that was cut says the same.

        Raises:
            StorageError: that could not be made durable.
        """
        kept = [
            entry
            for entry in self.entries
            if entry.index < log.first or log.term_of(entry.index) == entry.term
        ]
        known = {entry.index for entry in kept}
        kept += [
            entry
            for entry in self.cut
            if entry.index >= log.first
            and entry.index not in known
            and log.term_of(entry.index) == entry.term
            and has(entry)
        ]
        kept.sort(key=lambda entry: entry.index)
        if tuple(kept) != self.entries:
            self._keep(kept, self.proposed)

    def put(self, entry: RosterEntry) -> None:
        """Remember ``entry``, durably, in the place of all at its index or behind it.

        Raises:
            StorageError: that could not be made durable.
        """
        self._keep([*(known for known in self.entries if known.index < entry.index), entry], None)

    def cut_behind(self, last: Index) -> None:
        """The log ends with ``last`` now.

        Raises:
            StorageError: that could not be made durable.
        """
        self._keep([entry for entry in self.entries if entry.index <= last], self.proposed)

    def propose(self, proposal: Proposal | None) -> None:
        """Remember, durably, what the writer is given next; None: it was not taken.

        Raises:
            StorageError: that could not be made durable.
        """
        if proposal != self.proposed:
            self._keep(self.entries, proposal)

    def content(self) -> bytes:
        """The file's content for another member with the same log; nothing is proposed there."""
        return _encode(self.entries, None, ())

    def _keep(self, entries: Sequence[RosterEntry], proposed: Proposal | None) -> None:
        """Remember these; what is not among them any more was cut."""
        known = {(one.index, one.term) for one in entries}
        before = {(one.index, one.term): one for one in (*self.cut, *self.entries)}
        cut = tuple(one for place, one in before.items() if place not in known)[-CUT_MAX:]
        replace_file(self._path, _encode(entries, proposed, cut))
        self.entries, self.proposed, self.cut = tuple(entries), proposed, cut

    def _take(self, document: dict[str, Any]) -> None:
        self.entries = _decoded(document["entries"])
        self.cut = _decoded(document.get("cut", []))
        found = document["proposed"]
        self.proposed = found and Proposal(
            Term(int(found["term"])),
            Index(int(found["after"])),
            int(found["size"]),
            Roster.of(found["roster"]),
        )


def _decoded(rows: list[dict[str, Any]]) -> tuple[RosterEntry, ...]:
    return tuple(
        RosterEntry(Index(int(row["index"])), Term(int(row["term"])), Roster.of(row["roster"]))
        for row in rows
    )


def _documents(entries: Sequence[RosterEntry]) -> list[dict[str, Any]]:
    return [
        {"index": entry.index, "term": entry.term, "roster": json.loads(entry.roster.encode())}
        for entry in entries
    ]


def _encode(
    entries: Sequence[RosterEntry], proposed: Proposal | None, cut: Sequence[RosterEntry]
) -> bytes:
    document = {
        "entries": _documents(entries),
        "proposed": proposed
        and {
            "term": proposed.term,
            "after": proposed.after,
            "size": proposed.size,
            "roster": json.loads(proposed.roster.encode()),
        },
    }
    if cut:
        document["cut"] = _documents(cut)
    # With spaces, as it always was: members compare these files byte by byte.
    return checked(json.dumps(document, sort_keys=True).encode())


class ToldGroup(NamedTuple):
    """What a witness without bodies is told of its group, for it sees no entry that says so.

    Attributes:
        level: the feature level that is in force, as the leader knows it.
        addresses: where each member listens, as ``10.0.0.1:40911``.
    """

    level: int
    addresses: Mapping[NodeId, str]


def encode_group(group: ToldGroup) -> bytes:
    """JSON, the same bytes for the same group."""
    return json.dumps(_group_document(group), sort_keys=True).encode()


def decode_group(content: bytes) -> ToldGroup:
    """What ``encode_group`` was given.

    Raises:
        ProtocolError: it has no members, too many, or what is no address or no level.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("what is told of the group is no JSON", reason=str(error)) from error
    if not isinstance(found, dict):
        raise ProtocolError("what is told of the group is no object")
    return _group_of(found)


def read_group(path: Path) -> ToldGroup | None:
    """What a witness without bodies was told last and kept at ``path``; None: nothing.

    Raises:
        CorruptLogError: the file is damaged.
        StorageError: the operating system refused.
    """
    document = read_document(path)
    try:
        return None if document is None else _group_of(document)
    except ProtocolError as error:
        raise CorruptLogError(error.message, file=str(path), **error.details) from error


def keep_group(path: Path, group: ToldGroup) -> None:
    """Have ``read_group`` give it; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(path, _group_document(group))


def _group_document(group: ToldGroup) -> dict[str, object]:
    return {"level": group.level, "members": dict(group.addresses)}


def _group_of(found: Mapping[str, object]) -> ToldGroup:
    level = found.get("level")
    if type(level) is not int or not 0 <= level <= LEVEL_MAX:
        raise ProtocolError("no feature level of a group", level=level, limit=LEVEL_MAX)
    addresses = _addresses(found, "members")
    if not 0 < len(addresses) <= MEMBERS_MAX:
        raise ProtocolError("no members, or too many", members=len(addresses), limit=MEMBERS_MAX)
    return ToldGroup(level, addresses)


def _addresses(document: Mapping[str, object], kind: str) -> dict[NodeId, str]:
    found = document.get(kind)
    if not isinstance(found, dict):
        raise ProtocolError(f"membership without {kind}", found=type(found).__name__)
    for node, address in found.items():
        if not is_node_id(node) or not isinstance(address, str):
            raise ProtocolError("not the id of a member and its address", node=node)
        check_address(node, address)
    return {NodeId(node): address for node, address in found.items()}


def is_node_id(name: str) -> bool:
    """Whether ``name`` can be a member's: one letter and a number."""
    return _NODE.fullmatch(name) is not None


def check_address(node: str, address: str) -> None:
    """Refuse what is no address of a member.

    Raises:
        ProtocolError: it has not the form ``HOST:PORT``.
    """
    port = address.rpartition(":")[2]
    if not _ADDRESS.fullmatch(address) or not 0 < int(port) < 65_536:
        raise ProtocolError(
            "not the address of a member: HOST:PORT, as 10.0.0.4:40911", node=node, address=address
        )


def roster_of(settings: Settings) -> Roster:
    """The members by ``node.peers``; a node that joins a group is none of its voters yet.

    A mirror learns from its source, and its members are none of the group's.
    """
    own = NodeId(settings.node.self_id)
    if settings.mirror.sources:
        membership = Membership(frozenset({MIRROR_SOURCE}), frozenset({own}))
        return Roster(membership, {MIRROR_SOURCE: "", own: ""})
    addresses = dict(_split(peer) for peer in settings.node.peers) or {own: ""}
    joins = settings.node.initial_cluster_state is ClusterState.EXISTING
    return Roster(Membership(frozenset(addresses) - ({own} if joins else set())), addresses)


def _split(peer: str) -> tuple[NodeId, str]:
    node, _, address = peer.partition("-")
    return NodeId(node), address
