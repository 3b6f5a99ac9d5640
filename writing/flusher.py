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
from ledgermq.model.errors import StorageError
from ledgermq.model.events import Event
from ledgermq.model.exit_status import EXIT_BUG, EXIT_STORAGE
from ledgermq.process.environment import OrderBell
from ledgermq.store.log_writer import LogEnd, LogWriter

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """When to sync and when to write the checkpoints; times in seconds."""

    at_once: bool
    interval_s: float
    checkpoint_interval_s: float


class LogFlusher(Protocol):
    """Makes the log durable beside the writer; ``Flusher`` is the real one."""

    def wake(self, end: LogEnd) -> None:
        """The log was published up to ``end``."""
        ...

    def truncate(self, cut: Callable[[], LogEnd]) -> None:
        """Cut the log with ``cut``, which returns its new end, while no sync runs."""
        ...

    def stop(self) -> None:
        """Sync what is left, write the checkpoints, end."""
        ...


class MakeFlusher(Protocol):
    """Begins to make a log durable; the arguments are those of ``Flusher``."""

    def __call__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], OrderBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
    ) -> LogFlusher:
        """The flusher of ``log``."""
        ...


class Flusher:
    """Owned by the writer process; ``wake`` and ``stop`` are called from its main thread."""

    def __init__(
        self,
        log: LogWriter,
        page: CursorPage,
        make_bell: Callable[[], OrderBell],
        plan: FlushPlan,
        write_checkpoint: Callable[[LogEnd], None],
    ) -> None:
        """Start the thread.

        Args:
            make_bell: makes the way to raft; called in the thread, because a socket belongs to one.
            write_checkpoint: called with an end that is durable.
        """
        self._log = log
        self._page = page
        self._make_bell = make_bell
        self._plan = plan
        self._write_checkpoint = write_checkpoint
        self._wanted = log.end
        self._done = log.end
        self._checkpointed: LogEnd | None = None
        self._checkpoint_due = 0.0
        self._condition = threading.Condition()
        self._stopping = False
        self._syncing = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._publish(log.end)
        self._thread.start()

    def wake(self, end: LogEnd) -> None:
        """The log was published up to ``end``; it becomes durable at once or with the interval."""
        with self._condition:
            idle = self._wanted == self._done
            self._wanted = end
            if self._plan.at_once or idle:
                self._condition.notify()

    def truncate(self, cut: Callable[[], LogEnd]) -> None:
        """Cut the log with ``cut``, which returns its new end, while no sync runs.

        What is durable of the log goes back with it.
        """
        with self._condition:
            self._condition.wait_for(lambda: not self._syncing)
            end = cut()
            self._wanted = end
            if self._done.position > end.position or self._done.index_ > end.index_:
                self._done = end
                self._publish(end)
            self._checkpointed = None

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
            self._write_checkpoint(self._done)
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
            while not self._stopping and self._wanted == self._done:
                left = None
                if self._checkpointed != self._done:
                    left = self._checkpoint_due - time.monotonic()
                    if left <= 0:
                        return True
                self._condition.wait(left)
            if not (self._plan.at_once or self._stopping):
                self._condition.wait_for(lambda: self._stopping, self._plan.interval_s)
            return not self._stopping

    def _flush(self, bell: OrderBell) -> None:
        with self._condition:
            wanted = self._wanted
            self._syncing = wanted != self._done
        if self._syncing:
            self._log.sync()
            with self._condition:
                self._syncing = False
                self._publish(wanted)
                self._done = wanted
                self._condition.notify_all()
            bell.ring()
        now = time.monotonic()
        with self._condition:
            done = self._done
            # No cut may come between: a checkpoint behind the log's end would pass for damage.
            self._syncing = done != self._checkpointed and now >= self._checkpoint_due
        if self._syncing:
            self._write_checkpoint(done)
            with self._condition:
                self._syncing = False
                self._checkpointed = done
                self._checkpoint_due = now + self._plan.checkpoint_interval_s
                self._condition.notify_all()

    def _publish(self, end: LogEnd) -> None:
        cursor = LogCursor(end.position, end.index_, end.term)
        self._page.publish_durable(cursor, time.monotonic_ns())
