"""Timer index: pending timers by due time, and the watermark of those that are done.

Timers are delivered in the order of their times, so no next offset says what is done. Three
numbers, which each command of a move sets (``Watermark``), do: of the timers below queue offset
``end`` those are delivered that are due by ``due``, and of those due at that very time the ones up
to ``offset``. One that is stored later, and is due before that, stands at or behind ``end``, and is
*late*: late ones are delivered first, in the order of the queue, and only then does ``end`` pass
them. So a node that reads queue and watermark knows what waits, whatever the clocks of the leaders
have said.

Old ones that still wait may be stored once more at the queue's end, so that the log before it can
go: always all that wait below some queue offset, which nothing waits below from then on.

Here are columns of numbers, 33 bytes a timer, in runs that are sorted by time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

RUN_MAX = 131_072
"""Runs are merged up to this size: that takes some milliseconds."""

NEVER = np.int64(2**62)


class Watermark(NamedTuple):
    """What of a queue is delivered; see the module."""

    due_ms: int = -1
    offset: int = -1
    end: int = 0

    @classmethod
    def of(cls, marks: Mapping[str, int]) -> Self:
        """The watermark in the marks of a table of moves."""
        return cls(marks.get("due", -1), marks.get("offset", -1), marks.get("end", 0))

    def to_marks(self) -> dict[str, int]:
        """The watermark's marks, for a command."""
        return {"due": self.due_ms, "offset": self.offset, "end": self.end}


class Timers(NamedTuple):
    """Columns: when they are due (epoch ms), queue offset, and where the record lies."""

    due: Integers
    offset: Integers
    position: Integers
    size: npt.NDArray[np.int32]

    def take(self, rows: npt.NDArray[np.intp] | slice) -> Timers:
        """Some of them."""
        return Timers(self.due[rows], self.offset[rows], self.position[rows], self.size[rows])

    def __bool__(self) -> bool:
        return len(self.due) > 0


def joined(parts: list[Timers]) -> Timers:
    """All timers of some parts, one part behind the other."""
    if not parts:
        empty = np.empty(0, np.int64)
        return Timers(empty, empty, empty, np.empty(0, np.int32))
    return Timers(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(slots=True, eq=False)
class _Run:
    """Sorted by time and offset; ``head`` is the first that waits."""

    timers: Timers
    waits: npt.NDArray[np.bool_]
    head: int = 0

    @property
    def is_empty(self) -> bool:
        return self.head == len(self.waits)

    def settle(self) -> None:
        """Have ``head`` at the first that waits."""
        rest = self.waits[self.head :]
        if len(rest) and not rest[0]:
            first = int(rest.argmax())
            self.head += first if rest[first] else len(rest)

    def end_of(self, due_ms: int, offset: int) -> int:
        """How many are due by a time; of those due at it the ones up to an offset count."""
        due = self.timers.due
        low, high = (int(np.searchsorted(due, due_ms, side)) for side in ("left", "right"))
        return low + int(np.searchsorted(self.timers.offset[low:high], offset, "right"))

    def waiting(self, end: int) -> Timers:
        rows = self.head + np.flatnonzero(self.waits[self.head : end])
        return self.timers.take(rows)


class TimerIndex:
    """Timers of one queue; ``count`` is how many wait."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self.count = 0

    def add(self, timers: Timers) -> None:
        """Timers that were stored, in any order."""
        if not timers:
            return
        self.count += len(timers.due)
        # As many runs as the number has bits: each timer is merged so often at most.
        while (
            self._runs
            and len(self._runs[-1].waits) <= 2 * len(timers.due)
            and len(self._runs[-1].waits) + len(timers.due) <= RUN_MAX
        ):
            last = self._runs.pop()
            timers = joined([last.waiting(len(last.waits)), timers])
        order = np.lexsort((timers.offset, timers.due))
        run = _Run(timers.take(order), np.ones(len(order), np.bool_))
        self._runs.append(run)

    def holds(self, offset: int) -> bool:
        """Whether the timer at a queue offset waits."""
        return any(
            bool(run.waits[rows].any())
            for run in self._runs
            if len(rows := np.flatnonzero(run.timers.offset == offset))
        )

    def cancel(self, offset: int) -> bool:
        """The timer at a queue offset is taken back; false when it does not wait."""
        for run in self._runs:
            rows = np.flatnonzero(run.timers.offset == offset)
            if len(rows) and run.waits[rows[0]]:
                run.waits[rows[0]] = False
                self.count -= 1
                self._tidy(run)
                return True
        return False

    def forget_delivered(self, watermark: Watermark) -> None:
        """Let go of what is delivered."""
        for run in list(self._runs):
            end = run.end_of(watermark.due_ms, watermark.offset)
            if run.head < end:
                stays = run.timers.offset[run.head : end] >= watermark.end
                self._keep(run, slice(run.head, end), stays)
            self._tidy(run)

    def forget_below(self, offset: int) -> None:
        """Let go of what stands below a queue offset: it was delivered, or stored once more."""
        for run in list(self._runs):
            self._keep(run, slice(run.head, None), run.timers.offset[run.head :] >= offset)
            self._tidy(run)

    def before(self, position: int) -> Timers:
        """Those that lie before a position of the log, in queue order."""
        parts: list[Timers] = []
        for run in self._runs:
            is_old = run.waits[run.head :] & (run.timers.position[run.head :] < position)
            if is_old.any():
                parts.append(run.timers.take(run.head + np.flatnonzero(is_old)))
        timers = joined(parts)
        return timers.take(np.argsort(timers.offset))

    def late(self, watermark: Watermark) -> Timers:
        """Those that wait although they were due before what is delivered, in queue order."""
        parts = [run.waiting(run.end_of(watermark.due_ms, watermark.offset)) for run in self._runs]
        timers = joined([part for part in parts if part])
        return timers.take(np.argsort(timers.offset))

    def due(self, until_ms: int, count_max: int) -> Timers:
        """The first that are due by a time, in their order."""
        parts: list[Timers] = []
        for run in self._runs:
            end = min(run.end_of(until_ms, int(NEVER)), len(run.waits))
            part = run.waiting(end)
            if part:
                parts.append(part.take(slice(count_max)))
        timers = joined(parts)
        return timers.take(np.lexsort((timers.offset, timers.due))[:count_max])

    @property
    def next_due_ms(self) -> int | None:
        """When the first is due; None when none waits."""
        return min((int(run.timers.due[run.head]) for run in self._runs), default=None)

    def lowest_offset(self) -> int | None:
        """Queue offset of the oldest one that waits; looks at all of them."""
        return self._lowest("offset")

    def lowest_position(self) -> int | None:
        """Where the oldest one that waits lies in the log; looks at all of them."""
        return self._lowest("position")

    def _lowest(self, column: str) -> int | None:
        found = [
            int(np.min(getattr(run.timers, column)[run.head :], where=waits, initial=NEVER))
            for run in self._runs
            if len(waits := run.waits[run.head :])
        ]
        return min(found, default=None)

    def _keep(self, run: _Run, rows: slice, stays: npt.NDArray[np.bool_]) -> None:
        before = int(np.count_nonzero(run.waits[rows]))
        run.waits[rows] &= stays
        self.count -= before - int(np.count_nonzero(run.waits[rows]))

    def _tidy(self, run: _Run) -> None:
        run.settle()
        if run.is_empty:
            self._runs.remove(run)
