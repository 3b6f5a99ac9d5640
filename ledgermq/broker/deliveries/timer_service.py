"""Timer service: delivery of messages at the time that each has of its own.

Every node's broker reads the timers' queue as it grows (``rules/messages/timer_index.py`` says
what of it waits), so that who begins to lead has nothing to read. Only the leader's moves what is
due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ledgermq.broker.deliveries.delay_service import RECORD_GROWTH_MAX
from ledgermq.broker.deliveries.moves import Buffer, Moves
from ledgermq.broker.deliveries.timer_records import parse_timers
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Service
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.formats.records.delayed_message import delivered
from ledgermq.model.errors import BusyError, CorruptLogError, LedgerError, NotLeaderError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.model.limits import TIMER_TOPIC
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.messages.timer_index import TimerIndex, Timers, Watermark
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved

logger = logging.getLogger(__name__)

QUEUE = QueueName(TIMER_TOPIC, 0)
UNITS_PER_READ = 4_096
READS_PER_TURN = 8
"""Others get their turn while a long queue is read."""

FOLLOW_MS = 10
"""The queue is looked at so long after something was stored anywhere: once for many."""

AWAKE_MS = 10_000
"""The leader's broker hears each bell of the dispatcher so long after a timer was stored."""

AGAIN_PAUSE_MS = 20
"""Pause between groups of old timers that are stored once more: others append, too."""

WAITING_SHARE_DIVISOR = 2
"""The log is kept where more than a half of it still waits: storing that again frees too little."""

PLANS_PER_SCAN = 32
"""How often the oldest timer that waits is looked for among all."""


Plan = Callable[[], tuple[Moved, Sequence[Buffer]] | None]


class TimerService(Service):
    """Owned by the broker process.

    Invariant: what is in the index stands below ``_next`` in the queue; all that waits there is.
    """

    name = "timers"
    can_rest = True

    def __init__(
        self,
        store: ReadableStore,
        moves: Moves,
        log: StateLog,
        clock: Clock,
        *,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nothing is read yet; while ``is_held`` nothing is delivered."""
        self._is_held = is_held
        self._store = store
        self._moves = moves
        self._log = log
        self._clock = clock
        self.index = TimerIndex()
        self._next = -1
        self._begin = 0
        self._now_ms = 0
        self._follow_ms: int | None = 0
        self._retry_ms = 0
        self._grown_ms: int | None = None
        self._is_asked = False
        self._is_held_up = False
        self._plans = 0
        self._low = 0
        self._way_before: int | None = None
        self._way_ms = 0
        self._way_told = 0
        moves.register(TIMER_TOPIC, _delivered)

    def begin_again(self) -> None:
        """Read the queue anew: what is known of it may be wrong."""
        self._next = -1
        self._is_asked = False
        self._way_before = None
        self._follow_ms = self._now_ms

    def notice_growth(self, now_ms: int) -> None:
        """Something was stored: perhaps timers."""
        if self._follow_ms is None:
            self._follow_ms = now_ms + FOLLOW_MS

    @property
    def awaits(self) -> bool:
        """Whether what is stored next may be due at once."""
        grown_ms = self._grown_ms
        return self._log.leads and grown_ms is not None and self._now_ms - grown_ms < AWAKE_MS

    def next_deadline_ms(self) -> int | None:
        deadlines = [] if self._follow_ms is None else [self._follow_ms]
        due_ms = self.index.next_due_ms
        if due_ms is not None and self._log.is_settled and not self._is_asked:
            wait_ms = max(0, due_ms - epoch_ms(self._clock))
            deadlines.append(max(self._now_ms + wait_ms, self._retry_ms))
        if self._way_before is not None and self._log.is_settled and not self._is_asked:
            deadlines.append(max(self._way_ms, self._retry_ms))
        return min(deadlines, default=None)

    def turn(self, now_ms: int) -> None:
        """Read what is new, and ask for moves of what is due."""
        self._now_ms = now_ms
        if self._follow_ms is not None and now_ms >= self._follow_ms:
            self._follow_ms = None
            self._follow_some()
            self.forget_delivered()
        if not self._log.leads:
            self._way_before = None
        due_ms = self.index.next_due_ms
        is_due = due_ms is not None and due_ms <= epoch_ms(self._clock)
        if not self._log.is_settled or self._is_asked or now_ms < self._retry_ms:
            return
        if self._is_held():
            self._retry_ms = now_ms + FOLLOW_MS
            return
        if is_due:
            self._ask(self._plan, now_ms)
        elif self._way_before is not None and now_ms >= self._way_ms:
            self._way_ms = now_ms + AGAIN_PAUSE_MS
            self._go_on_making_way(self._way_before, now_ms)

    def make_way(self, before: Position) -> None:
        """The log before a position is to go: have what waits there stored again at its end.

        Only where that is less than a half of what goes: else the log would grow by it.
        """
        if not self._log.leads or self._way_before is not None:
            return
        try:
            self.follow()
        except LedgerError as error:
            logger.warning("old timers stay where they are: %s", error)
            return
        self.forget_delivered()
        timers = self.index.before(before)
        if not timers:
            return
        waiting = int(timers.size.sum(dtype=np.int64)) + len(timers.size) * self._log.hole
        freed = before - self._store.log.first_position
        if waiting * WAITING_SHARE_DIVISOR > freed:
            if self._way_told != before:
                logger.warning(
                    "log is kept for messages that wait: before=%d timers=%d bytes=%d of=%d",
                    before,
                    len(timers.due),
                    waiting,
                    freed,
                )
            self._way_told = before
            return
        logger.info(
            "old timers are stored again, so that the log before can go: before=%d timers=%d",
            before,
            len(timers.due),
        )
        self._way_before = before

    def follow(self) -> None:
        """Read all of the queue that is dispatched.

        Raises:
            NotLeaderError: the node is starting.
            CorruptLogError: a place of it is damaged, and what stands behind is not known.
        """
        while self._follow_chunk():
            pass

    def forget_delivered(self) -> None:
        """Have the index know what the commands that are applied have moved."""
        self.index.forget_delivered(self._watermark())
        begin = self._moves.source(QUEUE).next_offset
        if begin != self._begin:
            self._begin = begin
            self.index.forget_below(begin)

    def nothing_moved(self) -> Moved:
        """A command that leaves everything as it is."""
        source = self._moves.source(QUEUE)
        if source.open_at is not None:
            raise BusyError("a move of timers was cut, and is finished first")
        return Moved(QUEUE, (), 0, source.next_offset, source.marks)

    def read(self, timers: Timers) -> Iterator[tuple[int, memoryview]]:
        """The records of timers, each with its number among them, in the order of the log.

        One whose file was deleted is left out.

        Raises:
            DamagedLogError: one is not what was written.
        """
        order = np.argsort(timers.position)
        at = 0
        while at < len(order):
            rows = order[at:]
            parts = self._store.records(timers.position[rows], timers.size[rows].astype(np.int64))
            if parts is None:
                at += 1
                continue
            payload = memoryview(parts.payload)
            for start, size in zip(parts.starts.tolist(), parts.sizes.tolist(), strict=True):
                yield int(order[at]), payload[start : start + size]
                at += 1

    def oldest_position(self) -> int | None:
        """Where the oldest timer that waits lies in the log, or what is known to be before it; None
        when none waits.
        """
        bounds = self._store.bounds(QUEUE)
        if bounds.end - max(self._next, 0) <= UNITS_PER_READ:
            try:
                self.follow()
                self.forget_delivered()
                return self.index.lowest_position()
            except CorruptLogError as error:
                logger.warning("timers not counted: %s", error)
        first = min(max(self._moves.source(QUEUE).next_offset, bounds.first), bounds.end)
        if first == bounds.end:
            return None
        units = self._store.units(QUEUE, first, 1)
        return 0 if units is None or len(units) == 0 else int(units["position"][0])

    def _watermark(self) -> Watermark:
        return Watermark.of(self._moves.source(QUEUE).marks)

    def _follow_some(self) -> None:
        try:
            for _ in range(READS_PER_TURN):
                if not self._follow_chunk():
                    self._is_held_up = False
                    return
            self._follow_ms = self._now_ms
        except NotLeaderError:
            # Nobody knows yet what is dispatched.
            self._follow_ms = self._now_ms + RETRY_MS
        except CorruptLogError as error:
            if not self._is_held_up:
                logger.error("timers are held up: %s", error, extra={"event": Event.TIMERS_HELD_UP})
            self._is_held_up = True
            self._follow_ms = self._now_ms + RETRY_MS

    def _follow_chunk(self) -> bool:
        """Read some of what is new; false when there is nothing more."""
        bounds = self._store.bounds(QUEUE)
        if self._next < 0 or bounds.end < self._next:
            # Begun, or the queue is another one than it was.
            self.index = TimerIndex()
            self._next = self._begin = self._moves.source(QUEUE).next_offset
        self._next = min(max(self._next, bounds.first), bounds.end)
        if self._next == bounds.end:
            return False
        count = min(UNITS_PER_READ, bounds.end - self._next)
        units = self._store.units(QUEUE, self._next, count)
        if units is None or len(units) == 0:
            return False
        positions, sizes = units["position"].astype("i8"), units["size"].astype("i8")
        parts = self._store.records(positions, sizes)
        if parts is None:
            return False
        found = parse_timers(parts)
        count = len(parts.starts)
        offsets = np.arange(self._next, self._next + count, dtype=np.int64)
        for offset in offsets[~found.is_whole].tolist():
            logger.error("message in the timers' queue is none: at=%d", offset)
        # This node's tables may be ahead of what it has read of the queue.
        is_before = offsets < self._begin
        rows = np.flatnonzero(found.is_whole & found.is_timer & ~is_before)
        sizes_here = sizes[:count].astype(np.int32)
        columns = Timers(found.number, offsets, positions[:count], sizes_here)
        self.index.add(columns.take(rows))
        for offset in found.number[found.is_whole & ~found.is_timer].tolist():
            self.index.cancel(offset)
        self._next += count
        self._grown_ms = self._now_ms
        return True

    def _go_on_making_way(self, before: int, now_ms: int) -> None:
        lowest = self.index.lowest_position()
        if not self._log.leads or lowest is None or lowest >= before:
            self._way_before = None
            # Nothing keeps it now but what the tables need, and a new snapshot ends that.
            self._log.want_snapshot(Position(before))
            return
        self._ask(self._plan_again, now_ms)

    def _plan_again(self) -> tuple[Moved, Sequence[Buffer]] | None:
        """The oldest that wait, to be stored once more as they are."""
        self.follow()
        self.forget_delivered()
        source = self._moves.source(QUEUE)
        timers = self.index.before(self._way_before or 0)
        if not timers:
            return None
        chosen = _group_of(timers)
        offsets = tuple(chosen.offset.tolist())
        records = self._moves.build(QUEUE, offsets, again=True)
        moved = Moved(QUEUE, offsets, len(records), offsets[-1] + 1, source.marks, again=True)
        return moved, records

    def _ask(self, plan: Plan, now_ms: int) -> None:
        def done() -> None:
            self._is_asked = False
            self.forget_delivered()

        def refused(error: LedgerError) -> None:
            self._is_asked = False
            self._retry_ms = self._now_ms + RETRY_MS
            logger.warning("timers not delivered yet: %s", error)

        self._is_asked = True
        self._moves.request(QUEUE, plan, done=done, refused=refused, now_ms=now_ms)

    def _plan(self) -> tuple[Moved, Sequence[Buffer]] | None:
        """The next group: what came late first, or what is due; see ``TimerIndex``."""
        self.follow()
        watermark = self._watermark()
        self.forget_delivered()
        timers = self.index.late(watermark)
        if timers:
            chosen = _group_of(timers)
            whole = len(chosen.due) == len(timers.due)
            end = self._next if whole else int(chosen.offset[-1]) + 1
            after = watermark._replace(end=max(end, watermark.end))
        else:
            chosen = _group_of(self.index.due(epoch_ms(self._clock), GROUP_RECORDS_MAX))
            if not chosen:
                return None
            after = Watermark(int(chosen.due[-1]), int(chosen.offset[-1]), self._next)
        records: list[Sequence[Buffer]] = [() for _ in chosen.due]
        for number, record in self.read(chosen):
            offset = int(chosen.offset[number])
            records[number] = self._moves.made(QUEUE, offset, record, _delivered)
        flat = [record for made in records for record in made]
        offsets = tuple(chosen.offset.tolist())
        return Moved(QUEUE, offsets, len(flat), self._lowest(), after.to_marks()), flat

    def _lowest(self) -> int:
        """Nothing waits below it; not looked for each time."""
        if self._plans % PLANS_PER_SCAN == 0:
            lowest = self.index.lowest_offset()
            self._low = self._next if lowest is None else lowest
        self._plans += 1
        return max(self._low, self._moves.source(QUEUE).next_offset)


def _delivered(_queue: QueueName, _offset: int, record: memoryview) -> Sequence[Buffer]:
    return delivered(record)


def _group_of(timers: Timers) -> Timers:
    """The first ones that make one group."""
    sizes = np.cumsum(timers.size.astype(np.int64) + RECORD_GROWTH_MAX)
    count = int(np.searchsorted(sizes, GROUP_SIZE_MAX, "right"))
    return timers.take(slice(min(max(count, 1), GROUP_RECORDS_MAX)))
