"""Delivery of RocketMQ's delay levels, each level in its order.

The unit of such a message has its time of delivery where others have the hash of their tag. What is
due goes to its real topic by moves (``moves``), up to a group at a time, so that each is there
once. Java looks at each level ten times a second; here the next message that is due is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ledgermq.broker.deliveries.moves import Buffer, Moves
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Service
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.formats.arrays import Units
from ledgermq.formats.records.delayed_message import delivered
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import LedgerError
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved

logger = logging.getLogger(__name__)

LOOK_MS = 100
"""A level where nothing waits is looked at so long after something was stored anywhere."""

RECORD_GROWTH_MAX = 48 + 127
"""Bytes that a record may have more than its unit says: the entry's header, a longer topic."""


@dataclass(slots=True)
class _Level:
    """One level; ``due_ms`` is when its next message is due, epoch; None: none waits."""

    queue: QueueName
    delay_ms: int
    due_ms: int | None = None
    look_ms: int | None = 0
    is_asked: bool = False


class DelayService(Service):
    """Owned by the broker process; does nothing while the node does not lead."""

    name = "delays"
    can_rest = True

    def __init__(
        self,
        store: ReadableStore,
        moves: Moves,
        log: StateLog,
        clock: Clock,
        message_delay_level: str,
    ) -> None:
        self._store = store
        self._moves = moves
        self._log = log
        self._clock = clock
        self._now_ms = 0
        moves.register(DELAY_TOPIC, lambda _queue, _offset, record: delivered(record))
        self._levels = [
            _Level(QueueName(DELAY_TOPIC, level), delay)
            for level, delay in enumerate(delay_levels_ms(message_delay_level)[1:])
        ]

    def begin_again(self) -> None:
        """Look at all levels anew."""
        for level in self._levels:
            level.due_ms, level.look_ms, level.is_asked = None, self._now_ms, False

    def notice_growth(self, now_ms: int) -> None:
        """Something was stored: levels where nothing waits are to be looked at."""
        for level in self._levels:
            if level.due_ms is None and level.look_ms is None:
                level.look_ms = now_ms + LOOK_MS

    def next_deadline_ms(self) -> int | None:
        if not self._log.is_settled:
            return None
        at_ms = epoch_ms(self._clock)
        deadlines = [
            self._now_ms + max(0, level.due_ms - at_ms)
            for level in self._levels
            if level.due_ms is not None and level.look_ms is None and not level.is_asked
        ]
        deadlines += [level.look_ms for level in self._levels if level.look_ms is not None]
        return min(deadlines, default=None)

    def turn(self, now_ms: int) -> None:
        """Ask for moves of what is due."""
        self._now_ms = now_ms
        if not self._log.leads:
            for level in self._levels:
                level.look_ms = now_ms
            return
        if not self._log.is_settled:
            return
        at_ms = epoch_ms(self._clock)
        for level in self._levels:
            if level.is_asked:
                continue
            if level.look_ms is not None and now_ms >= level.look_ms:
                level.look_ms = None
                self._look(level)
            if level.due_ms is not None and level.due_ms <= at_ms and level.look_ms is None:
                self._ask(level, now_ms)

    def oldest_position(self) -> int | None:
        """Where the oldest message that waits lies in the log; None when none waits."""
        positions: list[int] = []
        for level in self._levels:
            units = self._units(level, 1)
            if units is not None and len(units):
                positions.append(int(units["position"][0]))
        return min(positions, default=None)

    @property
    def waiting(self) -> int:
        """Messages that wait on all levels.

        Raises:
            NotLeaderError: the node is starting.
            CorruptLogError: a queue is not what it should be.
        """
        return sum(
            bounds.end - self._next_offset(level, bounds)
            for level in self._levels
            for bounds in (self._store.bounds(level.queue),)
        )

    def _look(self, level: _Level) -> None:
        units = self._units(level, 1)
        if units is None or len(units) == 0:
            level.due_ms = None
        else:
            level.due_ms = int(_due_times(units, level.delay_ms, epoch_ms(self._clock))[0])

    def _units(self, level: _Level, count: int) -> Units | None:
        bounds = self._store.bounds(level.queue)
        first = self._next_offset(level, bounds)
        if first >= bounds.end:
            return None
        return self._store.units(level.queue, first, min(count, bounds.end - first))

    def _next_offset(self, level: _Level, bounds: ReadableRange) -> int:
        # As Java corrects it: what is gone is gone. Beyond the end it is on a node alone that does
        # not lead; who begins to lead has put it right (``PositionCheck``).
        wanted = self._moves.source(level.queue).next_offset
        return min(max(wanted, bounds.first), bounds.end)

    def _ask(self, level: _Level, now_ms: int) -> None:
        def plan() -> tuple[Moved, Sequence[Buffer]] | None:
            return self._plan(level)

        def done() -> None:
            level.is_asked = False
            level.look_ms = self._now_ms

        def refused(error: LedgerError) -> None:
            level.is_asked = False
            level.look_ms = self._now_ms + RETRY_MS
            logger.warning("delayed messages not delivered yet: %s", error)

        level.is_asked = True
        self._moves.request(level.queue, plan, done=done, refused=refused, now_ms=now_ms)

    def _plan(self, level: _Level) -> tuple[Moved, Sequence[Buffer]] | None:
        units = self._units(level, GROUP_RECORDS_MAX)
        if units is None:
            return None
        at_ms = epoch_ms(self._clock)
        is_due = _due_times(units, level.delay_ms, at_ms) <= at_ms
        fits = np.cumsum(units["size"].astype("i8") + RECORD_GROWTH_MAX) <= GROUP_SIZE_MAX
        fits[0] = True
        takes = is_due & fits
        count = len(units) if takes.all() else int(takes.argmin())
        if count == 0:
            return None
        first = self._next_offset(level, self._store.bounds(level.queue))
        offsets = tuple(range(first, first + count))
        records = self._moves.build(level.queue, offsets)
        return Moved(level.queue, offsets, len(records), first + count, {}), records


def _due_times(units: Units, delay_ms: int, at_ms: int) -> np.ndarray[tuple[int], np.dtype]:
    """When messages are due; one that would wait longer than its level is due now, as in Java."""
    times = units["tags"].astype("i8")
    return np.where(times > at_ms + delay_ms, at_ms, times)
