"""Membership entries in the log: where they stand, found when written and again after a start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.properties import decode_properties
from ledgermq.members.roster import Proposal, Roster, RosterEntry, RosterFile, roster_of
from ledgermq.members.system_entries import MEMBERSHIP_TAG, membership_record
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.store.log.following_entries import Verified

SEARCH_STEP = 65_536
"""Index items looked at together in a search."""

Told = list[tuple[Index, Membership]]
"""What the core is to be told, in order."""


class MembershipLog:
    """Owned by the raft process.

    The place of a follower's entry comes with the append; that of a leader's own is known only when
    the writer has stamped it, so what was proposed is remembered, and looked for behind the end
    that the log had then.
    """

    def __init__(self, path: Path, exchange: EntryExchange, settings: Settings) -> None:
        """Nothing is known of the log yet; before its first membership, that of the settings is in
        force.

        Raises:
            CorruptLogError, StorageError: what the store remembers cannot be read.
        """
        self._file = RosterFile(path)
        self._exchange = exchange
        self._settings = settings
        self._base = roster_of(settings)
        self._searched: Index = NO_INDEX
        self._uncertain: Index | None = None
        self._planned: dict[NodeId, str] = {}

    @property
    def current(self) -> Roster:
        """The last one of the log, committed or not."""
        return self._file.entries[-1].roster if self._file.entries else self._base

    @property
    def entries(self) -> tuple[RosterEntry, ...]:
        """All that the log has."""
        return self._file.entries

    def addresses(self, *, commit: Index) -> Mapping[NodeId, str]:
        """Addresses of all that are members, or may be again because the log may still be cut."""
        entries = self._file.entries
        if not entries:
            return self._base.addresses
        is_certain = entries[-1].index <= commit
        before = entries[-2].roster if len(entries) > 1 else self._base
        known = {} if is_certain else dict(before.addresses)
        self._uncertain = None if is_certain else entries[-1].index
        return {**known, **entries[-1].roster.addresses}

    def becomes_certain(self, commit: Index) -> bool:
        """Whether the last change is committed now, and ``addresses`` said that it was not."""
        return self._uncertain is not None and self._uncertain <= commit

    def plan(self, node: NodeId, address: str) -> None:
        """The next membership with ``node`` says that it listens at ``address``."""
        self._planned = {node: address}

    def propose(self, membership: Membership, *, term: Term, after: Index, now_ms: int) -> bytes:
        """The record that the writer is to append; that it may be there is remembered durably.

        Args:
            after: the last entry that the log is known to have.
            now_ms: epoch milliseconds.

        Raises:
            StorageError: that could not be made durable.
        """
        # What was planned may be of an order that was refused, and long ago.
        known = {**self._planned, **self.current.addresses}
        roster = Roster(membership, {node: known[node] for node in membership.members})
        record = membership_record(roster.encode(), self._settings, now_ms=now_ms)
        self._file.propose(Proposal(term, after, len(record), roster))
        self._searched = after
        return record

    def recovered(self, log: EntryTerms) -> Told:
        """The memberships of the log, after a start.

        Raises:
            CorruptLogError, StorageError: log or file cannot be read.
        """
        self._file.keep_those_of(log, lambda one: self._roster_at(one.index) == one.roster)
        if self._file.proposed is not None:
            self._searched = self._file.proposed.after
        self.settled(log.last)
        return [(entry.index, entry.roster.membership) for entry in self._file.entries]

    def settled(self, last: EntryId) -> Told:
        """The writer has ended its term or begun one, and the log ends with ``last``.

        What was proposed before is in the log now, or never will be.

        Raises:
            CorruptLogError, StorageError: log or file cannot be read.
        """
        told = self.written(last.index)
        self.dropped(last.index)
        if self._file.proposed is not None:
            self._file.propose(None)
        return told

    def written(self, last: Index) -> Told:
        """The writer has stamped entries up to ``last``: is what was proposed among them?

        Raises:
            CorruptLogError, StorageError: log or file cannot be read.
        """
        proposal = self._file.proposed
        if proposal is None:
            return []
        for index in self._sized(proposal, Index(last)):
            roster = self._roster_at(index)
            if roster == proposal.roster:
                self._file.put(RosterEntry(index, proposal.term, roster))
                return [(index, roster.membership)]
        self._searched = max(self._searched, last)
        return []

    def received(self, verified: Verified, indices: Sequence[Index]) -> Told:
        """Entries of a leader are about to go to the writer; remembered durably.

        Args:
            indices: of the entries that are memberships, as the leader says.

        Raises:
            ProtocolError: there is none.
            StorageError: what the entries say could not be made durable.
        """
        found = []
        items = np.frombuffer(verified.items, ENTRY_ITEM)
        first, begin = int(items["index"][0]), int(items["position"][0])
        for index in indices:
            if not 0 <= index - first < len(items):
                continue  # this node has it already
            item = items[index - first]
            at = int(item["position"]) - begin
            roster = parse_membership(verified.entries[at : at + int(item["size"])])
            if roster is None:
                raise ProtocolError("no membership where a peer says that one is", index=index)
            found.append(RosterEntry(index, Term(int(item["term"])), roster))
        for entry in found:
            self._file.put(entry)
        return [(entry.index, entry.roster.membership) for entry in found]

    def dropped(self, last: Index) -> None:
        """Entries behind ``last`` are not in the log, or did not go to its writer.

        Raises:
            StorageError: that could not be made durable.
        """
        if self._file.entries and self._file.entries[-1].index > last:
            self._file.cut_behind(last)

    def content(self) -> bytes:
        """What another member with the same log has to remember, as the file has it.

        Also of entries that are not committed: those that its log has not, it forgets at its start.
        """
        return self._file.content()

    def _sized(self, proposal: Proposal, last: Index) -> Iterator[Index]:
        """Entries not searched yet that are as large as the proposal, and of its term."""
        at = Index(self._searched + 1)
        while at <= last:
            until = Index(min(at + SEARCH_STEP - 1, last))
            items = self._exchange.items(at, until)
            matching = (items["size"] == proposal.size) & (items["term"] == proposal.term)
            yield from (Index(int(index)) for index in items["index"][matching])
            at = Index(until + 1)

    def _roster_at(self, index: Index) -> Roster | None:
        span = self._exchange.read(index, index, size_max=1, committed=NO_INDEX)
        return parse_membership(memoryview(span.data))


def parse_membership(entry: memoryview) -> Roster | None:
    """The roster in a whole entry of the log; None when the entry is another message.

    Raises:
        ProtocolError: it says that it has one, and has not.
    """
    try:
        message = decode_message(entry[ENTRY_HEADER_SIZE:])
        tags = decode_properties(message.properties).get("TAGS")
    except LedgerError:
        return None
    if message.topic != SYSTEM_TOPIC or tags != MEMBERSHIP_TAG:
        return None
    return Roster.decode(bytes(message.body))
