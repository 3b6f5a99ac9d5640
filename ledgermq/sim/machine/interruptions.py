"""Interruptions of raft's turns: writer and flusher go on where raft looks at what they share.

On a real node they run beside the raft process, and between any two of its looks at the cursor page
or at a bell. Here every such look is a *point*: whatever the two are about to do may be done there,
with a probability that the seed decides on. Where it is not zero, raft may also turn for no reason
while they have something to do, for here it has fewer reasons than under a real load. So an order
of looks that is wrong is found.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar, cast

from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.sim.machine.log_flusher import FlusherMaker
from ledgermq.sim.machine.process import Process

AGAIN = 0.8
"""How probable one more turn of raft is while the others are about to do something."""

HELD_NS = 200_000
"""Longest that the writer waits for the processor then, at least: several turns of raft."""

STEPS_MAX = 4
"""A sync that begins behind a turn of the writer is over with the second step."""

Made = TypeVar("Made")


class Interruptions:
    """Those of one node.

    Attributes:
        chance: how probable one is at each point where writer or flusher are about to do something.
        is_under_way: a turn of raft is not over, and the writer's is within it: neither of the two
            may be killed now.
    """

    def __init__(
        self, random: Random, flushers: FlusherMaker, find_writer: Callable[[], Process | None]
    ) -> None:
        self.chance = 0.0
        self.is_under_way = False
        self._random = random
        self._flushers = flushers
        self._find_writer = find_writer

    def point(self) -> None:
        """Raft is about to look at something."""
        if self.is_under_way or not self._comes(self.chance):
            return
        writer = self._find_writer()
        assert writer is not None
        self.is_under_way = True
        try:
            for _ in range(self._random.randint(1, STEPS_MAX)):
                writer.turn_early()
                self._flushers.go_on_early()
        finally:
            self.is_under_way = False

    def wants_turn(self) -> bool:
        """Whether raft, whose turn is over, is to turn once more."""
        return self._comes(AGAIN)

    def _comes(self, probability: float) -> bool:
        """Whether something of this ``probability`` happens now, before what the others do next."""
        if not self.chance:
            return False
        writer = self._find_writer()
        if writer is None or not (writer.is_about_to_turn or self._flushers.is_about_to_go_on):
            return False
        return self._random.random() < probability


class InterruptedPage(CursorPage):
    """The page as a raft process maps it: each look at it is a point.

    Attributes:
        point: called before each look.
    """

    point: Callable[[], None] = staticmethod(lambda: None)

    def is_asleep(self, role: Role) -> bool:
        self.point()
        return super().is_asleep(role)

    def cursor_cells(self) -> tuple[memoryview, ...]:
        """The page's cells; what is read of them by their number is a look, too."""
        cells = [_Cell(self, cell) for cell in super().cursor_cells()]
        return cast("tuple[memoryview, ...]", tuple(cells))

    def read_written(self) -> LogCursor:
        """End of what the writer has put in the log; each look may be interrupted before."""
        self.point()
        return super().read_written()

    def read_committed(self) -> LogCursor:
        """End of what is committed; each look may be interrupted before."""
        self.point()
        return super().read_committed()

    def _snapshot(self, slot: int, count: int) -> list[int]:
        self.point()
        return super()._snapshot(slot, count)

    def _known(self, slot: int, count: int, make: Callable[[list[int]], Made]) -> Made:
        self.point()
        return super()._known(slot, count, make)


class _Cell:
    """One cell of the page."""

    def __init__(self, page: InterruptedPage, cell: memoryview) -> None:
        self._page = page
        self._cell = cell

    def __getitem__(self, number: int) -> int:
        self._page.point()
        value: int = self._cell[number]
        return value
