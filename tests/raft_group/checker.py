"""What must hold in every run, looked at after every step that could break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgermq.model.ids import NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import RaftRole
from ledgermq.raft.quorum import has_majority
from tests.raft_group.disk import Entry, SimDisk


class BrokenPromiseError(AssertionError):
    """A promise of the group was broken."""


def require(condition: bool, promise: str, *values: object) -> None:
    if not condition:
        raise BrokenPromiseError(f"{promise}: {', '.join(map(str, values))}")


class Checker:
    """Knows everything that any node ever stamped, committed or acknowledged.

    Attributes:
        told: gives the memberships that nodes go by now.
        counted: called with each entry that a node is the first to call committed.
    """

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.stamped: dict[tuple[int, int], tuple[Entry, int]] = {}
        self.committed: list[tuple[Entry, int]] = []
        self.acknowledged: dict[int, Entry] = {}
        self.commits: dict[str, int] = {}
        self.told: Callable[[], list[Membership]] = list
        self.counted: Callable[[Any, int, Entry], None] = lambda node, index, entry: None

    def stored(self, disk: SimDisk, index: int) -> None:
        """Log matching (section 5.3): one term and index is one entry, and one before it."""
        entry = disk.entry(index)
        before = disk.before if index == disk.first else disk.entry(index - 1)
        known = self.stamped.setdefault((index, entry.term), (entry, before.term))
        require(known == (entry, before.term), "logs match", index, known, entry, before.term)

    def looked(self, node: Any) -> None:
        """After each event of ``node``."""
        core, disk = node.core, node.disk
        if core.role is RaftRole.LEADER:
            self._leads(node)
        commit = core.commit
        seen = self.commits.get(node.name, -1)
        require(commit >= seen, "commit never goes back", node.name, seen, commit)
        if commit == seen:
            return
        require(commit <= disk.last.index, "commit is within the log", node.name, commit, disk.last)
        if node.fsync:
            require(commit <= disk.durable, "what is committed is durable", node.name, commit)
        for index in range(max(seen + 1, disk.first), commit + 1):
            if index == len(self.committed):
                self.counted(node, index, disk.entry(index))
            self._committed(index, disk.entry(index), core.term)
        self.commits[node.name] = commit

    def learnt(self, name: str, index: int, entry: Entry, holders: set[str]) -> None:
        """A witness without bodies knows of ``entry`` now, and ``holders`` have it."""
        if index < len(self.committed):
            known = self.committed[index][0]
            require(known == entry, "a witness knows of what is committed", name, index, entry)
            return
        require(
            any(has_majority(one.voters, frozenset(map(NodeId, holders))) for one in self.told()),
            "a witness is told of what a majority holds", name, index, entry, sorted(holders),
        )  # fmt: skip

    def answered(self, index: int, entry: Entry) -> None:
        """A client was told that its entry is stored."""
        require(index < len(self.committed), "acknowledged is committed", index)
        require(self.committed[index][0] == entry, "acknowledged entries survive", index, entry)
        self.acknowledged[index] = entry

    def truncated(self, node: Any, after: int) -> None:
        require(after >= self.commits.get(node.name, -1), "committed is not cut", node.name, after)

    def restarted(self, node: Any) -> None:
        """What a node knows to be committed after a start may be less than before."""
        self.commits[node.name] = node.disk.commit

    def _leads(self, node: Any) -> None:
        term = node.core.term
        known = self.leaders.setdefault(term, node.name)
        require(known == node.name, "one leader a term", term, known, node.name)
        require(not node.outdated, "an outdated member does not lead", term, node.name)
        if node.completeness_checked == term:
            return
        node.completeness_checked = term
        # Leader completeness (section 5.4.3). Entries that are still on their way to the writer
        # are the leader's too, so this looks at the terms that the core knows.
        log = node.core._state.log
        for index in range(int(log.first), len(self.committed)):
            entry, committed_in = self.committed[index]
            has = committed_in >= term or log.term_of(index) == entry.term
            require(has, "leaders have all that is committed", node.name, index, entry)

    def _committed(self, index: int, entry: Entry, term: int) -> None:
        if index < len(self.committed):
            known = self.committed[index][0]
            require(known == entry, "committed entries never change", index, known, entry)
        else:
            require(index == len(self.committed), "commits have no gap", index)
            self.committed.append((entry, term))
