"""A witness without bodies: the real core, and a disk that keeps one state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgermq.model.ids import NodeId
from ledgermq.raft.messages import Message
from ledgermq.raft.roles.witness import KEEPS_NOTHING, WitnessCore, WitnessState
from ledgermq.raft.timing import Timing
from tests.raft_group.checker import Checker
from tests.raft_group.disk import Entry


class SimWitness:
    """``carry`` and ``trace`` as those of ``SimNode``.

    Attributes:
        kept: what its disk has durably.
        waiting: messages of the turn that is under way.
        learnt: called with each entry that it durably knows of.
    """

    carry: Callable[[NodeId, NodeId, Message, list[Entry]], None]
    trace: Callable[[str], None]

    def __init__(self, name: str, checker: Checker) -> None:
        self.name = NodeId(name)
        self.checker = checker
        self.core: WitnessCore | None = None
        self.kept: WitnessState = KEEPS_NOTHING
        self.timing = Timing()
        self.at_crash_point = False
        self.learnt: Callable[[WitnessState], None] = lambda kept: None
        self.waiting: list[tuple[NodeId, Message]] = []
        self.is_turning = False

    def start(self, now: int) -> None:
        self.core = WitnessCore(self.name, self.kept, timing=self.timing, now=now)

    def crash(self) -> None:
        self.core = None
        self.waiting.clear()
        self.is_turning = False

    def turn(self, now: int) -> None:
        """All that waits, and one sync for it."""
        core = self.core
        assert core is not None
        self.is_turning = False
        waiting, self.waiting = self.waiting, []
        for source, message in waiting:
            core.receive(now, source, message)
        effects = core.close_turn()
        if effects is None:
            return
        if effects.persist is not None:
            self.kept = effects.persist
            self.at_crash_point = True
            self.learnt(self.kept)
        for target, sent in effects.send:
            self.carry(self.name, target, sent, [])
        for note in effects.notes:
            self.trace(f"{self.name} {note}")

    def knows(self, index: int, entry: Any) -> bool:
        """Whether it votes for nobody who lacks ``entry``."""
        last = self.kept.last
        return (entry.term, index) <= (last.term, last.index)
