"""One queue of a share group: which messages are not settled, and when each may be handed out.

No clock here: times are epoch ms that the log says, or the caller.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby, islice, pairwise

from ledgermq.rules.tables.share_changes import WAITS, Run
from ledgermq.verbs.shares import INVISIBLE_MS_MAX

AHEAD_MS_MAX = INVISIBLE_MS_MAX + 3_600_000
"""Whoever keeps a message from others for longer than is allowed, and than clocks differ, had one
that was wrong: it is handed out again at once, as RocketMQ does with delayed messages."""

_SLACK = 64
"""Dead entries that the heap of times may have however few runs there are."""

_SPAN_MAX = 1_024
"""Messages of a span that is made of several runs: who looks for those that are due passes all."""

_Span = tuple[int, int, int]
"""Until when runs are invisible, epoch ms, and the offsets between which they begin."""


class ShareQueue:
    """What is not settled below ``next``, as runs; all else below it is.

    Invariants: runs do not overlap, ascend, and end at or below ``next``; two that touch do not
    stand alike; each run that a time makes visible begins in a span of ``_times`` with that time.
    What is left of a run that was cut is in its span still: so messages that were handed out
    together have one, in whatever order they are settled.

    Attributes:
        next: queue offset of the first message that nobody has looked at.
        unsettled: messages in all runs.
        waiting: those of them that wait for others of their key.
    """

    __slots__ = ("_latest", "_runs", "_times", "next", "unsettled", "waiting")

    def __init__(self, next_offset: int, runs: Iterable[Run] = ()) -> None:
        self.next = next_offset
        self.unsettled = 0
        self.waiting = 0
        self._runs: list[Run] = []
        self._times: list[_Span] = []
        # No run that a time makes visible is invisible for longer.
        self._latest = 0
        told = list(runs)
        is_sound = all(
            one.end <= other.first and not other.follows(one) for one, other in pairwise(told)
        )
        if is_sound:
            self._take(told)
        else:
            for run in told:
                self.put(run)

    def _take(self, runs: list[Run]) -> None:
        """Have these, which are as they should be: those of a table are 100,000 at times."""
        self._runs = runs
        self._take_times()
        self.unsettled = sum(run.length for run in runs)
        self.waiting = sum(run.length for run in runs if run.until == WAITS)
        self.next = max(self.next, runs[-1].end if runs else 0)

    @property
    def low(self) -> int:
        """All below this queue offset is settled, and this is not."""
        return self._runs[0].first if self._runs else self.next

    @property
    def runs(self) -> list[Run]:
        """Those that there are, ascending; not to be changed."""
        return self._runs

    def runs_from(self, offset: int) -> list[Run]:
        """Those that end behind ``offset``."""
        at = bisect_left(self._runs, (offset + 1,))
        is_inside = at > 0 and self._runs[at - 1].end > offset
        return self._runs[at - is_inside :]

    def find(self, offset: int) -> Run | None:
        """The run that has ``offset``; None: it is settled, or was never handed out."""
        at = bisect_left(self._runs, (offset + 1,)) - 1
        if at < 0 or offset >= self._runs[at].end:
            return None
        return self._runs[at]

    def put(self, run: Run) -> None:
        """Have these messages stand so from now on, however they stood."""
        at = self._cut(run.first, run.end)
        self.unsettled += run.length
        self.waiting += run.length if run.until == WAITS else 0
        stop = at
        if stop < len(self._runs) and self._runs[stop].follows(run):
            run = run._replace(length=run.length + self._runs[stop].length)
            stop += 1
        if at > 0 and run.follows(self._runs[at - 1]):
            at -= 1
            before = self._runs[at]
            run = before._replace(length=before.length + run.length)
        self._runs[at:stop] = [run]
        self._note_time(run)
        self.next = max(self.next, run.end)

    def settle(self, first: int, count: int) -> None:
        """Have these messages done with; those above ``next`` are passed over, too."""
        self._cut(first, first + count)
        self.next = max(self.next, first + count)

    def held_until(self, now_ms: int) -> int | None:
        """Up to when a message is with somebody, or is kept back; None: none is."""
        held = (run.until for run in self._runs if now_ms < run.until != WAITS)
        return max(held, default=None)

    def due(self, now_ms: int, count_max: int) -> list[Run]:
        """Runs whose time has come, those that are due longest first, of at most ``count_max``
        runs.
        """
        # By where they begin: what stands again as it stood before is in two spans.
        found: dict[int, Run] = {}
        looked_at: list[_Span] = []
        while self._times and self._times[0][0] <= now_ms and len(found) < count_max:
            span = heapq.heappop(self._times)
            runs = list(islice(self._runs_of(span), count_max))
            if runs:
                looked_at.append(span)
            found.update((run.first, run) for run in runs)
        for span in looked_at:
            heapq.heappush(self._times, span)
        if len(found) < count_max and self._is_beyond(now_ms):
            found.update((run.first, run) for run in self._beyond(now_ms, count_max))
        return list(islice(found.values(), count_max))

    def next_due(self, now_ms: int) -> int | None:
        """When the first run's time comes, or has come; None: there are none, or all wait."""
        if self._is_beyond(now_ms):
            return now_ms
        while self._times:
            if next(self._runs_of(self._times[0]), None) is not None:
                return self._times[0][0]
            heapq.heappop(self._times)
        return None

    def _is_beyond(self, now_ms: int) -> bool:
        """Whether runs are invisible for longer than anybody may have them so."""
        if self._latest <= now_ms + AHEAD_MS_MAX:
            return False
        self._latest = max((run.until for run in self._runs if run.until != WAITS), default=0)
        return self._latest > now_ms + AHEAD_MS_MAX

    def _beyond(self, now_ms: int, count_max: int) -> Iterator[Run]:
        latest = now_ms + AHEAD_MS_MAX
        beyond = (run for run in self._runs if latest < run.until != WAITS)
        return islice(beyond, count_max)

    def _runs_of(self, span: _Span) -> Iterator[Run]:
        """The runs that begin in a span, and become visible when it says."""
        until, first, end = span
        runs = self._runs
        for at in range(bisect_left(runs, (first,)), len(runs)):
            run = runs[at]
            if run.first >= end:
                return
            if run.until == until:
                yield run

    def _cut(self, first: int, end: int) -> int:
        """Have no run between ``first`` and ``end``; where one that is put there stands."""
        runs = self._runs
        start = bisect_left(runs, (first,))
        if start > 0 and runs[start - 1].end > first:
            start -= 1
        stop = start
        kept: list[Run] = []
        while stop < len(runs) and runs[stop].first < end:
            run = runs[stop]
            count = min(run.end, end) - max(run.first, first)
            self.unsettled -= count
            self.waiting -= count if run.until == WAITS else 0
            kept += _rest(run, first, end)
            stop += 1
        if stop > start:
            runs[start:stop] = kept
        return start + sum(run.first < first for run in kept)

    def _note_time(self, run: Run) -> None:
        if run.until == WAITS:
            return
        self._latest = max(self._latest, run.until)
        if len(self._times) > 2 * len(self._runs) + _SLACK:
            self._take_times()
        else:
            heapq.heappush(self._times, (run.until, run.first, run.end))

    def _take_times(self) -> None:
        visible = (run for run in self._runs if run.until != WAITS)
        self._times = []
        for (until, _), alike in groupby(visible, lambda run: (run.until, run.first // _SPAN_MAX)):
            runs = list(alike)
            self._latest = max(self._latest, until)
            self._times.append((until, runs[0].first, runs[-1].end))
        heapq.heapify(self._times)


def _rest(run: Run, first: int, end: int) -> Iterator[Run]:
    """What is left of a run without ``first`` to ``end``."""
    if run.first < first:
        yield run._replace(length=first - run.first)
    if run.end > end:
        yield run._replace(first=end, length=run.end - end)
