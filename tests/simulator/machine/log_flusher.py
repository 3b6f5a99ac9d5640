"""Simulated flusher: a sync begins, takes its time, and is over.

What it makes durable, and what it says of that, is the writer's own ``FlushRule``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.store.log.log_writer import LogEnd, LogWriter
from ledgermq.writer.log.flusher import FlushPlan, FlushRule, MakeFlusher, RungBell
from tests.simulator.machine.disk import Disk
from tests.simulator.machine.events import Events, NodeClock
from tests.simulator.machine.process import Process

FASTEST_NS = 100_000


class SimFlusher:
    """The ``writer.log.flusher.LogFlusher`` of one life of a writer.

    What a sync makes durable is what was written when it began; a power failure before its end
    leaves any part of that.
    """

    def __init__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], RungBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
        *,
        maker: FlusherMaker,
        process: Process,
    ) -> None:
        self._log = log
        self._bell = make_bell()
        self._plan = plan
        self._write_checkpoint = write_checkpoint
        self._maker = maker
        self._process = process
        self._rule = FlushRule(page, plan, log.end, maker.clock.monotonic_ns())
        self._is_syncing = False
        self._planned_at = -1
        self._number = 0
        self._go_on()

    def wake(self, end: LogEnd) -> None:
        if self._rule.grow(end):
            self._go_on()

    def truncate(self, cut: Callable[[], LogEnd]) -> None:
        """Cut the log, once a sync that runs has ended."""
        if self._is_syncing:
            self._end(self._number)
        self._rule.cut(cut(), self._maker.clock.monotonic_ns())
        self._go_on()

    def stop(self) -> None:
        if self._is_syncing:
            self._end(self._number)
        if self._rule.begin_sync():
            self._log.sync()
            self._rule.end_sync(self._maker.clock.monotonic_ns())
        self._write_checkpoint(self._rule.done)

    @property
    def is_about_to_go_on(self) -> bool:
        """Whether a sync runs, or is about to begin, and the process is not stopped."""
        now = self._maker.events.now
        is_due = self._is_syncing or 0 <= self._planned_at <= now + FASTEST_NS
        return self._process.alive and is_due and now >= self._process.paused_until

    def go_on_early(self) -> None:
        """A sync ends or begins now, if one is about to."""
        if not self.is_about_to_go_on:
            return
        if self._is_syncing:
            self._end(self._number)
        else:
            self._begin(self._planned_at)

    def _go_on(self) -> None:
        """Plan what is to be done next, as the thread waits for it."""
        events, clock = self._maker.events, self._maker.clock
        wait_ns = self._rule.wait_ns(clock.monotonic_ns())
        if self._is_syncing or wait_ns is None:
            return
        if self._rule.has_unsynced and not self._plan.at_once:
            wait_ns = int(self._plan.interval_s * 1e9)
        at = max(events.now + clock.until(wait_ns), self._process.paused_until)
        if at != self._planned_at:
            self._planned_at = at
            events.after(at - events.now, lambda: self._begin(at))

    def _begin(self, planned: int) -> None:
        if not self._process.alive or planned != self._planned_at:
            return
        self._planned_at = -1
        if self._maker.events.now < self._process.paused_until:
            self._go_on()
            return
        if not self._rule.begin_sync():
            self._checkpoint()
            return
        maker = self._maker
        self._is_syncing = True
        maker.disk.hold_back = True
        self._log.sync()
        maker.disk.hold_back = False
        self._number += 1
        number = self._number
        wait = FASTEST_NS + maker.random.randrange(FASTEST_NS + maker.sync_ns)
        maker.events.after(wait, lambda: self._end(number))

    def _end(self, number: int) -> None:
        if not self._process.alive or not self._is_syncing or number != self._number:
            return
        events = self._maker.events
        if events.now < self._process.paused_until:
            events.after(self._process.paused_until - events.now, lambda: self._end(number))
            return
        self._maker.disk.let_go(durable=True)
        self._is_syncing = False
        self._rule.end_sync(self._maker.clock.monotonic_ns())
        self._bell.ring()
        self._checkpoint()

    def _checkpoint(self) -> None:
        now_ns = self._maker.clock.monotonic_ns()
        end = self._rule.begin_checkpoint(now_ns)
        if end is not None:
            self._write_checkpoint(end)
            self._rule.end_checkpoint(now_ns)
        self._go_on()


class FlusherMaker:
    """What all flushers of a node share.

    Attributes:
        sync_ns: longest time that the disk takes for a sync.
    """

    def __init__(self, events: Events, random: Random, disk: Disk, clock: NodeClock) -> None:
        self.events = events
        self.random = random
        self.disk = disk
        self.clock = clock
        self.sync_ns = 0
        self._made: SimFlusher | None = None

    @property
    def is_about_to_go_on(self) -> bool:
        """Whether the flusher of the writer's present life is."""
        return self._made is not None and self._made.is_about_to_go_on

    def go_on_early(self) -> None:
        """Have the flusher of the writer's present life, if there is one, go on early."""
        if self._made is not None:
            self._made.go_on_early()

    def of(self, process: Process) -> MakeFlusher:
        """What makes the flusher of one life of a writer."""

        def make(*arguments: Any, **named: Any) -> SimFlusher:
            self._made = SimFlusher(*arguments, **named, maker=self, process=process)
            return self._made

        return make
