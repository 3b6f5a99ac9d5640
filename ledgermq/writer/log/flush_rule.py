"""Flusher's rule: what a sync makes durable, and what may be said of it; no thread, no clock.

The writer's second thread (``flusher.Flusher``) and the simulator's events go through these steps:

    begin_sync        the log as it is published now is what this sync is for
    …                 all that was written is synced; the log grows meanwhile
    end_sync          that end is durable, and not what was published since
    begin_checkpoint  that end, if a checkpoint is due
    …                 the checkpoints are written
    end_checkpoint

Between a begin and its end nothing is cut: a sync would say of entries that they are durable which
are gone, and a checkpoint behind the log's end would pass for damage.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.store.log.log_writer import LogEnd


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """When to sync and when to write the checkpoints; times in seconds."""

    at_once: bool
    interval_s: float
    checkpoint_interval_s: float


class FlushRule:
    """Owned by the writer's flusher, which calls it from one thread at a time.

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
