"""Membership of the group, and its changes: one server at a time (thesis, section 4.1)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from ledgermq.model.ids import NO_INDEX, Index, NodeId
from ledgermq.raft.quorum import majority


@dataclass(frozen=True, slots=True)
class Membership:
    """Members of a group.

    Attributes:
        voters: their votes and their copies count.
        learners: are sent everything and count for nothing.
        witnesses: voters that lead only while nobody else can, and hand over as soon as one can
            (docs/decisions/0059). They are sent everything, too, but for:
        bodiless: witnesses that hold no entries, and know of the last one alone that they were told
            (docs/decisions/0085). They never lead.
    """

    voters: frozenset[NodeId]
    learners: frozenset[NodeId] = field(default=frozenset())
    witnesses: frozenset[NodeId] = field(default=frozenset())
    bodiless: frozenset[NodeId] = field(default=frozenset())

    def __post_init__(self) -> None:
        assert self.bodiless <= self.witnesses <= self.voters, self
        assert not self.voters & self.learners, self

    @property
    def members(self) -> frozenset[NodeId]:
        """Voters and learners."""
        return self.voters | self.learners

    def describe(self) -> str:
        """The members in order, in words for people, and what those are that are no voters."""
        kinds = dict.fromkeys(self.learners, " (learner)")
        kinds |= dict.fromkeys(self.witnesses, " (witness)")
        kinds |= dict.fromkeys(self.bodiless, " (witness without bodies)")
        return ", ".join(f"{node}{kinds.get(node, '')}" for node in sorted(self.members))

    @property
    def electable(self) -> frozenset[NodeId]:
        """Those who may lead."""
        return self.voters - self.witnesses

    @property
    def full(self) -> frozenset[NodeId]:
        """Voters that hold what entries say."""
        return self.voters - self.bodiless


def change_problem(old: Membership, new: Membership) -> str | None:
    """Why ``new`` must not follow ``old``; None when it may.

    With one voter more or less, each majority of the one has a member in common with each of the
    other. A voter begins as a learner, or it would count before it has anything; but for one that
    never has anything.
    """
    if not new.electable:
        return "no voter would be left that can lead"
    if new.bodiless and len(new.full) < majority(len(new.voters)):
        # Those but one, with one witness, have to be a majority, too (docs/decisions/0085).
        return "fewer than a majority of the voters would hold bodies: add one that does first"
    changed = (old.voters ^ new.voters) | (old.learners ^ new.learners)
    changed |= (old.witnesses ^ new.witnesses) | (old.bodiless ^ new.bodiless)
    if len(changed) != 1:
        return f"one member changes at a time, not {len(changed)}"
    return _problem_of(next(iter(changed)), old, new)


def _problem_of(member: NodeId, old: Membership, new: Membership) -> str | None:
    """Why ``member`` may not become what it is in ``new``."""
    becomes_bodiless = member in new.bodiless
    if becomes_bodiless and member not in old.members:
        return None
    if member in new.voters - old.voters and member not in old.learners:
        return f"{member} must be a learner first"
    stays_voter = member in old.voters & new.voters
    if stays_voter or becomes_bodiless or member in old.bodiless & new.members:
        return f"{member} must leave before it becomes another kind of voter"
    return None


class MembershipHistory:
    """The memberships whose entries may still be truncated, and the one before them.

    Of older ones the indices alone are kept: whoever is sent them must be told that they are there.

    Attributes:
        current: the one in force: the last one in the log, committed or not.
        index: that of its entry; -1 for the one that the group began with.
        entry_indexes: those of all membership entries that the log has, the oldest first.
    """

    def __init__(self, first: Membership) -> None:
        self._known: list[tuple[Index, Membership]] = [(NO_INDEX, first)]
        self.entry_indexes: list[Index] = []
        self.index, self.current = self._known[-1]

    def is_needed(self, node: NodeId, commit: Index) -> bool:
        """Whether ``node`` votes, or did so until a change that is not committed yet.

        It may be the only one that has what the change stands behind (thesis, section 4.2.2).
        """
        if node in self.current.voters:
            return True
        return self.index > commit and len(self._known) > 1 and node in self._known[-2][1].voters

    def put(self, index: Index, membership: Membership, *, commit: Index) -> None:
        """``membership`` is in force from its entry ``index`` on."""
        if index == self.index and membership == self.current:
            return
        assert index > self.index, (index, self.index)
        self._known.append((index, membership))
        self.entry_indexes.append(index)
        while len(self._known) > 1 and self._known[1][0] <= commit:
            del self._known[0]
        self.index, self.current = self._known[-1]

    def indexes(self, first: Index, last: Index) -> tuple[Index, ...]:
        """Indices of the membership entries from ``first`` to ``last``, committed ones too."""
        if not self.entry_indexes or self.entry_indexes[-1] < first:
            return ()
        begin, end = bisect_left(self.entry_indexes, first), bisect_right(self.entry_indexes, last)
        return tuple(self.entry_indexes[begin:end])

    def roll_back(self, after: Index) -> bool:
        """The log was truncated after ``after``; whether another membership is in force now."""
        count = len(self._known)
        while len(self._known) > 1 and self._known[-1][0] > after:
            self._known.pop()
        while self.entry_indexes and self.entry_indexes[-1] > after:
            self.entry_indexes.pop()
        self.index, self.current = self._known[-1]
        return len(self._known) < count
