"""Simulated flusher: a sync begins, takes its time, and is over."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.process.environment import OrderBell
from ledgermq.sim.clock import NodeClock
from ledgermq.sim.disk import Disk
from ledgermq.sim.events import Events
from ledgermq.sim.process import Process
from ledgermq.store.log_writer import LogEnd, LogWriter
from ledgermq.writing.flusher import FlushPlan

FASTEST_NS = 100_000


class SimFlusher:
    """The ``writing.flusher.LogFlusher`` of one life of a writer.

    What a sync makes durable is what was written when it began; a power failure before its end
    leaves any part of that.
    """

    def __init__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], OrderBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
        *,
        maker: FlusherMaker,
        process: Process,
    ) -> None:
        self._log = log
        self._page = page
        self._bell = make_bell()
        self._plan = plan
        self._write_checkpoint = write_checkpoint
        self._maker = maker
        self._process = process
        self._wanted = self._done = log.end
        self._syncing: LogEnd | None = None
        self._number = 0
        self._planned = False
        self._checkpointed: LogEnd | None = None
        self._checkpoint_due = 0
        self._publish(log.end)

    def wake(self, end: LogEnd) -> None:
        """See ``LogFlusher``."""
        self._wanted = end
        self._plan_sync()

    def truncate(self, cut: Callable[[], LogEnd]) -> None:
        """See ``LogFlusher``: a sync that runs is waited for."""
        if self._syncing is not None:
            self._end(self._number)
        end = cut()
        self._wanted = end
        if self._done.position > end.position or self._done.index_ > end.index_:
            self._done = end
            self._publish(end)
        self._checkpointed = None

    def stop(self) -> None:
        """See ``LogFlusher``."""
        if self._syncing is not None:
            self._end(self._number)
        self._log.sync()
        self._done = self._wanted
        self._publish(self._done)
        self._write_checkpoint(self._done)

    def _plan_sync(self) -> None:
        if self._planned or self._syncing is not None or self._wanted == self._done:
            return
        self._planned = True
        wait = 0 if self._plan.at_once else int(self._plan.interval_s * 1e9)
        self._maker.events.after(wait, self._begin)

    def _begin(self) -> None:
        self._planned = False
        if not self._process.alive or self._syncing is not None or self._wanted == self._done:
            return
        maker = self._maker
        self._syncing = self._wanted
        maker.disk.hold_back = True
        self._log.sync()
        maker.disk.hold_back = False
        self._number += 1
        number = self._number
        wait = FASTEST_NS + maker.random.randrange(FASTEST_NS + maker.sync_ns)
        maker.events.after(wait, lambda: self._end(number))

    def _end(self, number: int) -> None:
        if not self._process.alive or self._syncing is None or number != self._number:
            return
        events = self._maker.events
        if events.now < self._process.paused_until:
            events.after(self._process.paused_until - events.now, lambda: self._end(number))
            return
        self._maker.disk.let_go(durable=True)
        self._done, self._syncing = self._syncing, None
        self._publish(self._done)
        self._bell.ring()
        if self._done != self._checkpointed and events.now >= self._checkpoint_due:
            self._write_checkpoint(self._done)
            self._checkpointed = self._done
            self._checkpoint_due = events.now + int(self._plan.checkpoint_interval_s * 1e9)
        self._plan_sync()

    def _publish(self, end: LogEnd) -> None:
        cursor = LogCursor(end.position, end.index_, end.term)
        self._page.publish_durable(cursor, self._maker.clock.monotonic_ns())


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

    def of(self, process: Process) -> MakeSimFlusher:
        """The ``writing.flusher.MakeFlusher`` of one life of a writer."""
        return MakeSimFlusher(self, process)


class MakeSimFlusher:
    """Makes the flusher of ``process``."""

    def __init__(self, maker: FlusherMaker, process: Process) -> None:
        self._maker = maker
        self._process = process

    def __call__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], OrderBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
    ) -> SimFlusher:
        """See ``MakeFlusher``."""
        return SimFlusher(
            log,
            page,
            make_bell,
            plan,
            write_checkpoint,
            maker=self._maker,
            process=self._process,
        )
