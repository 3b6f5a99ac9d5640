"""A member's disk: term and vote, and a log that a crash may shorten."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ledgermq.model.ids import NO_INDEX, Index, Term
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import NO_ENTRY, EntryId, HardState, TermRun


class Entry(NamedTuple):
    """An entry with what a client, or the group itself, put into it."""

    term: Term
    payload: str | Membership


@dataclass
class SimDisk:
    """``durable``: index of the last entry that a crash leaves."""

    membership: Membership
    hard_state: HardState = field(default_factory=lambda: HardState(Term(0), None))
    before: EntryId = NO_ENTRY
    entries: list[Entry] = field(default_factory=list)
    durable: int = -1
    commit: int = int(NO_INDEX)

    @property
    def first(self) -> int:
        return self.before.index + 1

    @property
    def last(self) -> EntryId:
        if not self.entries:
            return self.before
        return EntryId(self.entries[-1].term, Index(self.before.index + len(self.entries)))

    def entry(self, index: int) -> Entry:
        return self.entries[index - self.first]

    def truncate(self, after: int) -> None:
        del self.entries[after - self.before.index :]
        self.durable = min(self.durable, after)

    def compact(self, first: int) -> None:
        if first <= self.first:
            return
        dropped = self.entries[: first - self.first]
        for entry in dropped:
            if isinstance(entry.payload, Membership):
                self.membership = entry.payload
        del self.entries[: first - self.first]
        self.before = EntryId(dropped[-1].term, Index(first - 1))

    def terms(self) -> EntryTerms:
        return EntryTerms(self.before, (TermRun(entry.term, 1) for entry in self.entries))

    def replace(self, other: SimDisk, last: int) -> None:
        """Files of ``other`` instead of ours, durable at once."""
        self.before = other.before
        self.membership = other.membership
        self.entries = other.entries[: last - other.before.index]
        self.durable = last

    def memberships(self) -> list[tuple[int, Membership]]:
        return [
            (self.first + at, entry.payload)
            for at, entry in enumerate(self.entries)
            if isinstance(entry.payload, Membership)
        ]
