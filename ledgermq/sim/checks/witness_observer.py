"""Observer of a witness without bodies: what it has made durable, against what others hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ledgermq.model.ids import NodeId
from ledgermq.raft.quorum import has_majority
from ledgermq.sim.checks.checker import Checker, NodeEntry, require
from ledgermq.sim.checks.observer import Observer
from ledgermq.sim.witness_node import WitnessNode


class WitnessObserver:
    """What is known of a witness (docs/decisions/0085)."""

    def __init__(
        self, node: WitnessNode, checker: Checker, find: Callable[[], Iterable[Observer]]
    ) -> None:
        """``find`` gives the observers of the nodes that hold bodies."""
        self.node = node
        self._checker = checker
        self._find = find

    @property
    def name(self) -> NodeId:
        """That of its node."""
        return self.node.name

    def look(self, node: WitnessNode) -> None:
        """Look, after a turn and at a start, that what was durable is there, and what is new is
        committed.
        """
        before, now = node.kept, node.present
        told, known = now.hard_state, before.hard_state
        require(told.term >= known.term, "terms never go back", self.name, known, told)
        if told.term == known.term:
            require(known.vote in (None, told.vote), "votes never change", self.name, known, told)
        require(
            (now.last.term, now.last.index) >= (before.last.term, before.last.index),
            "a witness forgets nothing",
            self.name,
            before,
            now,
        )
        node.kept = now
        if now.last != before.last:
            self._look_at_last()

    def holds(self, entry: NodeEntry) -> bool:
        """Whether it votes for nobody who lacks ``entry``."""
        last = self.node.kept.last
        return (entry.term, entry.number) <= (last.term, last.index)

    def _look_at_last(self) -> None:
        """It is held by so many others that with the witness they are a majority: committed."""
        last, checker = self.node.kept.last, self._checker
        entry = checker.stamped(int(last.term), int(last.index))
        require(entry is not None, "a witness knows of what there is", self.name, last)
        assert entry is not None
        if entry.number < len(checker.committed):
            known = checker.committed[entry.number].entry
            require(known == entry, "a witness knows of what is committed", self.name, last, known)
            return
        observers = list(self._find())
        holders = {one.name for one in observers if one.holds(entry)} | {self.name}
        groups = [voters for one in observers for voters in one.voters(entry.number)]
        require(
            any(has_majority(voters, holders) for voters in groups),
            "a witness is told of what a majority holds",
            self.name,
            last,
            sorted(holders),
        )
