"""Flusher: the writer's second thread; one sync for all that waits.

It alone publishes the cursor ``durable`` and writes our checkpoint and DLedger's. A sync that fails
ends the process at once: after it the page cache cannot be trusted, and neither can a later sync.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.ipc.time_histogram import TimeHistogram, TimeKind
from ledgermq.model.errors import StorageError
from ledgermq.model.events import Event
from ledgermq.model.exit_status import EXIT_BUG, EXIT_STORAGE
from ledgermq.store.log.log_writer import LogEnd, LogWriter

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """When to sync and when to write the checkpoints; times in seconds."""

    at_once: bool
    interval_s: float
    checkpoint_interval_s: float


class FlushRule:
    """Flusher's rule: what a sync makes durable, and what may be said of it; no thread, no clock.

    The writer's second thread and the simulator's events, one at a time, go through these steps:

        begin_sync        the log as it is published now is what this sync is for
        …                 all that was written is synced; the log grows meanwhile
        end_sync          that end is durable, and not what was published since
        begin_checkpoint  that end, if a checkpoint is due
        …                 the checkpoints are written
        end_checkpoint

    Between a begin and its end nothing is cut: a sync would say of entries that they are durable
    which are gone, and a checkpoint behind the log's end would pass for damage.

    Invariants: ``durable`` in the page is never behind what was synced, nor behind the log's end.

    Attributes:
        is_busy: between a begin and its end.
        done: what is durable.
    """

    def __init__(self, page: CursorPage, plan: FlushPlan, end: LogEnd, now_ns: int) -> None:
        """The log is durable up to ``end``: recovery has synced it."""
        self.is_busy = False
        self.done = end
        self._page = page
        self._plan = plan
        self._wanted = end
        self._target = end
        self._checkpointed: LogEnd | None = None
        self._checkpoint_due_ns = 0
        self._publish(end, now_ns)

    @property
    def has_unsynced(self) -> bool:
        """Whether the log was published behind what is durable."""
        return self._wanted != self.done

    def grow(self, end: LogEnd) -> bool:
        """The log was published up to ``end``; whether somebody who waits has to be told now."""
        is_first = self._wanted == self.done
        self._wanted = end
        return is_first or self._plan.at_once

    def wait_ns(self, now_ns: int) -> int | None:
        """Nanoseconds until something is to be synced or checkpointed; None while that is never."""
        if self._wanted != self.done:
            return 0
        if self._checkpointed == self.done:
            return None
        return max(0, self._checkpoint_due_ns - now_ns)

    def begin_sync(self) -> bool:
        """What is written now is about to be synced; false when there is nothing to sync."""
        self._target = self._wanted
        self.is_busy = self._target != self.done
        return self.is_busy

    def end_sync(self, now_ns: int) -> None:
        """What was written at ``begin_sync`` is durable."""
        self.is_busy = False
        self._publish(self._target, now_ns)
        self.done = self._target

    def begin_checkpoint(self, now_ns: int) -> LogEnd | None:
        """The end for a checkpoint that is due now; None when none is."""
        self.is_busy = self.done != self._checkpointed and now_ns >= self._checkpoint_due_ns
        return self.done if self.is_busy else None

    def end_checkpoint(self, now_ns: int) -> None:
        """The checkpoints are written."""
        self.is_busy = False
        self._checkpointed = self.done
        self._checkpoint_due_ns = now_ns + int(self._plan.checkpoint_interval_s * 1e9)

    def cut(self, end: LogEnd, now_ns: int) -> None:
        """The log was cut, and ends there; what is durable of it goes back with it."""
        assert not self.is_busy
        self._wanted = end
        if self.done.position > end.position or self.done.index_ > end.index_:
            self.done = end
            self._publish(end, now_ns)
        self._checkpointed = None

    def _publish(self, end: LogEnd, now_ns: int) -> None:
        self._page.publish_durable(LogCursor(end.position, end.index_, end.term), now_ns)


class RungBell(Protocol):
    """Wakes who waits for what is durable."""

    def ring(self) -> None:
        """More is durable, as the page says."""

    def close(self) -> None:
        """Disconnect."""


class LogFlusher(Protocol):
    """Makes the log durable beside the writer; ``Flusher`` is the real one."""

    def wake(self, end: LogEnd) -> None:
        """The log was published up to ``end``."""

    def truncate(self, cut: Callable[[], LogEnd]) -> None:
        """Cut the log with ``cut``, which returns its new end, while no sync runs."""

    def stop(self) -> None:
        """Sync what is left, write the checkpoints, end."""


class MakeFlusher(Protocol):
    """Begins to make a log durable; the arguments are those of ``Flusher``."""

    def __call__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], RungBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
    ) -> LogFlusher:
        """The flusher of ``log``."""


class Flusher:
    """Owned by the writer process; ``wake`` and ``stop`` are called from its main thread."""

    def __init__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], RungBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
    ) -> None:
        """Start the thread.

        Args:
            make_bell: makes the way to who commits; called in the thread: a socket belongs to one.
            write_checkpoint: called with an end that is durable.
        """
        self._log = log
        self._make_bell = make_bell
        self._plan = plan
        self._write_checkpoint = write_checkpoint
        self._rule = FlushRule(page, plan, log.end, time.monotonic_ns())
        self._times = TimeHistogram(page, TimeKind.SYNC)
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    def wake(self, end: LogEnd) -> None:
        """The log was published up to ``end``; it becomes durable at once or with the interval."""
        # The condition's own lock: with each message, and three calls less.
        with self._lock:
            if self._rule.grow(end):
                self._condition.notify()

    def truncate(self, cut: Callable[[], LogEnd]) -> None:
        """Cut the log with ``cut``, which returns its new end, while no sync runs.

        What is durable of the log goes back with it.
        """
        with self._condition:
            self._condition.wait_for(lambda: not self._rule.is_busy)
            self._rule.cut(cut(), time.monotonic_ns())

    def stop(self) -> None:
        """Sync what is left, write the checkpoints, end the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        bell = self._make_bell()
        try:
            while self._wait():
                self._flush(bell)
            # No cut comes any more.
            self._flush(bell)
            self._write_checkpoint(self._rule.done)
        except StorageError as error:
            logger.critical(
                "log not durable, the process ends: %s",
                error,
                extra={"event": Event.LOG_NOT_DURABLE},
            )
            os._exit(EXIT_STORAGE)
        except BaseException:  # without this thread nothing would ever be acknowledged again
            logger.critical("flusher failed, the process ends", exc_info=True)
            os._exit(EXIT_BUG)
        finally:
            bell.close()

    def _wait(self) -> bool:
        """Wait until there is something to sync or to checkpoint; false when told to stop."""
        with self._condition:
            while not self._stopping:
                left_ns = self._rule.wait_ns(time.monotonic_ns())
                if left_ns == 0:
                    break
                self._condition.wait(None if left_ns is None else left_ns / 1e9)
            # The interval begins with the first write that waits: one sync takes all that come
            # within it.
            if self._rule.has_unsynced and not (self._plan.at_once or self._stopping):
                self._condition.wait_for(lambda: self._stopping, self._plan.interval_s)
            return not self._stopping

    def _flush(self, bell: RungBell) -> None:
        with self._condition:
            is_needed = self._rule.begin_sync()
        if is_needed:
            began_ns = time.monotonic_ns()
            self._log.sync()
            now_ns = time.monotonic_ns()
            self._times.observe(now_ns - began_ns)
            with self._condition:
                self._rule.end_sync(now_ns)
                self._condition.notify_all()
            bell.ring()
        now_ns = time.monotonic_ns()
        with self._condition:
            end = self._rule.begin_checkpoint(now_ns)
        if end is not None:
            self._write_checkpoint(end)
            with self._condition:
                self._rule.end_checkpoint(now_ns)
                self._condition.notify_all()
