"""Wheel service: what waits in RocketMQ 5's timer wheel becomes timers of ours, by moves.

Who leads first on a directory of RocketMQ 5 reads the wheel's queue (``formats/timer_wheel``) from
where it was moved, and moves what waits into the timers' queue: each message once, whatever dies
meanwhile. What the wheel has delivered is told by its checkpoint, and, since that is written each
second only, by a look for the message in its topic. Each node then sets the wheel aside, so that
RocketMQ, given the directory back, does not deliver the same from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from ledgermq.broker.deliveries.delay_service import RECORD_GROWTH_MAX
from ledgermq.broker.deliveries.moves import Buffer, Moves
from ledgermq.broker.deliveries.pop_service import PopService
from ledgermq.broker.deliveries.timer_service import QUEUE as TIMERS
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Service
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.formats.records.delayed_message import timer_of_wheel
from ledgermq.formats.records.message import decode_message, properties_in
from ledgermq.formats.records.properties import REAL_TOPIC, decode_properties
from ledgermq.formats.timer_wheel import (
    REVIVE_PREFIX,
    TIMER_DELIVERED,
    TIMER_OUT,
    WHEEL_QUEUE,
    WHEEL_TOPIC,
    TimerCheck,
    WheelMessage,
    WheelQueue,
)
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.messages.timer_index import NEVER, Watermark
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved
from ledgermq.rules.tables.table_changes import Change
from ledgermq.store.wheel_files import WheelFiles

logger = logging.getLogger(__name__)

UNITS_PER_TURN = 1_024
LOOKS_PER_TURN = 32
"""Others get their turn while a long queue is read, and while its topics are looked at."""

_JAVA = "java"
_LEFT = "left"
"""Marks of the queue: up to when RocketMQ had delivered when its wheel was taken over, and whether
it was left to it (``store.leave_behind``) instead.
"""

Find = Callable[[str, str], Iterable[memoryview]]
"""The records of a topic that have a key or a unique id."""


class _Look:
    """One reading of the queue: up to ``end``, by what ``check`` says of it."""

    def __init__(self, check: TimerCheck, begin: int, end: int) -> None:
        self.check = check
        self.begin = begin
        self.end = end
        self.next = begin
        self.queue = WheelQueue(check)
        self.rows: list[tuple[int, WheelMessage]] | None = None
        self.looked = 0
        self.delivered: set[int] = set()


class WheelService(Service):
    """Owned by the broker process."""

    name = "wheel"
    can_rest = True

    def __init__(
        self,
        store: ReadableStore,
        moves: Moves,
        log: StateLog,
        clock: Clock,
        *,
        settings: Settings,
        find: Find,
        pop: PopService,
    ) -> None:
        """Nothing is read yet; ``pop`` goes first."""
        self._pop = pop
        self._store = store
        self._moves = moves
        self._log = log
        self._clock = clock
        self._find = find
        self._files = WheelFiles(settings.store.path_root_dir)
        self._handed = self._files.handed()
        self._look: _Look | None = None
        self._is_asked = False
        self._is_left = StrangeUse.TIMERS in settings.store.leave_behind
        self._has_wheel = self._files.check() is not None
        self._is_done = False
        self._retry_ms = 0
        moves.register(WHEEL_TOPIC, self._made)

    @property
    def holds_timers(self) -> bool:
        """Whether RocketMQ may have delivered timers of ours, and it is not known yet which."""
        return self._handed is not None and not self._is_done

    def begin_again(self) -> None:
        """Read the queue anew: what is known of it may be wrong."""
        self._look = None
        self._is_asked = False

    def next_deadline_ms(self) -> int | None:
        if self._is_done or self._is_asked or not (self._log.is_settled and self._pop.is_done):
            return None
        return self._retry_ms

    def turn(self, now_ms: int) -> None:
        """Read on, or ask for the next move; whoever follows sees what the leader has done."""
        if self._is_done:
            return
        if not self._log.is_settled:
            if not self._log.leads:
                self.begin_again()
                self._follow()
            return
        if self._is_asked or now_ms < self._retry_ms or not self._pop.is_done:
            return
        self._retry_ms = now_ms
        look = self._look
        if look is None:
            self._begin()
        elif look.rows is None:
            self._read(look)
        elif look.looked < len(look.rows):
            self._look_for_delivered(look, look.rows)
        else:
            self._ask(look, now_ms)

    def oldest_position(self) -> int | None:
        """Where the first message lies that is not taken over; None: all are."""
        if self._is_done or not self._has_wheel:
            return None
        bounds = self._store.bounds(WHEEL_QUEUE)
        at = max(self._moves.source(WHEEL_QUEUE).next_offset, bounds.first)
        if at >= bounds.end:
            return None
        units = self._store.units(WHEEL_QUEUE, at, 1)
        return 0 if units is None or not len(units) else int(units["position"][0])

    def _made(self, queue: QueueName, offset: int, record: memoryview) -> Sequence[Buffer]:
        topic = decode_properties(properties_in(record)).get(REAL_TOPIC, "")
        if topic.startswith(REVIVE_PREFIX):
            return self._pop.revived(queue, offset, record)
        return timer_of_wheel(record)

    def _begin(self) -> None:
        check = self._files.check()
        source = self._moves.source(WHEEL_QUEUE)
        bounds = self._store.bounds(WHEEL_QUEUE)
        if check is None:
            if source.next_offset < bounds.end:
                logger.error(
                    "timers of RocketMQ's wheel stay where they are: config/timercheck, which says"
                    " what was delivered, is not there: count=%d",
                    bounds.end - source.next_offset,
                )
            self._is_done = True
            return
        has_gone_on = check.delivered_before > source.marks.get(_JAVA, -1)
        was_left = bool(source.marks.get(_LEFT))
        begin = bounds.first if was_left else max(source.next_offset, bounds.first)
        handed = self._handed
        has_delivered = handed is not None and check.delivered_before > handed.before_ms
        if (was_left and not has_gone_on) or (
            begin >= bounds.end and not (has_gone_on and has_delivered)
        ):
            self._end()
            return
        self._look = _Look(check, begin, bounds.end)
        if self._is_left:
            self._look.rows = []

    def _read(self, look: _Look) -> None:
        count = min(UNITS_PER_TURN, look.end - look.next)
        units = self._store.units(WHEEL_QUEUE, look.next, count) if count > 0 else None
        if units is None or not len(units):
            look.rows = sorted(
                (offset, one) for offset, one in look.queue.waiting.items() if not one.of_pop
            )
            return
        sizes = units["size"].astype("i8")
        parts = self._store.records(units["position"].astype("i8"), sizes)
        if parts is None:
            look.next += 1
            return
        payload = memoryview(parts.payload)
        for start, size in zip(parts.starts.tolist(), parts.sizes.tolist(), strict=True):
            properties = properties_in(payload[start : start + size])
            look.queue.take(decode_properties(properties), look.next, size)
            look.next += 1

    def _look_for_delivered(self, look: _Look, rows: list[tuple[int, WheelMessage]]) -> None:
        """Find those that are due, and stand in their topic: the checkpoint was written before."""
        at_ms = epoch_ms(self._clock)
        looks = 0
        while look.looked < len(rows) and looks < LOOKS_PER_TURN:
            offset, message = rows[look.looked]
            look.looked += 1
            if message.name and message.due_ms <= at_ms:
                looks += 1
                if self._is_delivered(offset, message):
                    look.delivered.add(offset)

    def _is_delivered(self, offset: int, message: WheelMessage) -> bool:
        for _, record in self._moves.read(WHEEL_QUEUE, (offset,)):
            topic = decode_properties(properties_in(record)).get(REAL_TOPIC, "")
            return any(
                found.get(TIMER_OUT) == str(message.due_ms) and TIMER_DELIVERED in found
                for found in self._with_id(topic, message.name)
            )
        return False

    def _with_id(self, topic: str, name: str) -> Iterator[dict[str, str]]:
        try:
            records = self._find(topic, name)
        except ConfigError:
            # No index is kept: then it is as RocketMQ does it, which goes by its checkpoint alone.
            return
        for record in records:
            message = decode_message(record)
            if message.unique_id == name:
                yield message.parsed_properties()

    def _ask(self, look: _Look, now_ms: int) -> None:
        def done() -> None:
            self._is_asked = False
            if self._moves.source(WHEEL_QUEUE).next_offset >= look.end:
                self._look = None
                self._end()

        def refused(error: LedgerError) -> None:
            self._is_asked = False
            self._retry_ms = now_ms + RETRY_MS
            logger.warning("timers of the wheel are not taken over yet: %s", error)

        self._is_asked = True
        self._moves.request(
            WHEEL_QUEUE,
            lambda: self._plan(look),
            done=done,
            refused=refused,
            now_ms=now_ms,
            also=lambda: self._delivered_of_ours(look),
        )

    def _plan(self, look: _Look) -> tuple[Moved, Sequence[Buffer]]:
        """The next group of those that wait, in the order of their queue."""
        source = self._moves.source(WHEEL_QUEUE)
        done = look.begin if source.marks.get(_LEFT) else source.next_offset
        offsets: list[int] = []
        size, end = 0, look.end
        for offset, message in look.rows or ():
            if offset < done or offset in look.delivered:
                continue
            size += message.size + RECORD_GROWTH_MAX
            if offsets and (size > GROUP_SIZE_MAX or len(offsets) == GROUP_RECORDS_MAX):
                end = offset
                break
            offsets.append(offset)
        records = self._moves.build(WHEEL_QUEUE, offsets)
        logger.info("timers of RocketMQ's wheel taken over: count=%d next=%d", len(records), end)
        marks = {**source.marks, _JAVA: look.check.delivered_before, _LEFT: int(self._is_left)}
        return Moved(WHEEL_QUEUE, tuple(offsets), len(records), end, marks), records

    def _delivered_of_ours(self, look: _Look) -> Sequence[Change]:
        """What RocketMQ has delivered of timers of ours that it was handed.

        Those in its wheel were due up to a time, and stood below an offset.
        """
        handed = self._handed
        source = self._moves.source(TIMERS)
        if handed is None or source.open_at is not None:
            return ()
        before = min(look.check.delivered_before, handed.until_ms)
        watermark = Watermark.of(source.marks)
        if before <= handed.before_ms or before <= watermark.due_ms:
            return ()
        marks = Watermark(before - 1, int(NEVER), max(handed.end, watermark.end)).to_marks()
        return [Moved(TIMERS, (), 0, source.next_offset, marks)]

    def _follow(self) -> None:
        """Set the wheel aside here once the leader has taken it over."""
        source = self._moves.source(WHEEL_QUEUE)
        handed = self._handed
        taken = source.marks.get(_JAVA, -1) > (-1 if handed is None else handed.before_ms)
        if (
            taken
            and self._store.is_ready
            and source.next_offset >= self._store.bounds(WHEEL_QUEUE).end
        ):
            self._end()

    def _end(self) -> None:
        """Nothing is left in the wheel that is not ours."""
        end = self._store.bounds(WHEEL_QUEUE).end
        is_left = self._moves.source(WHEEL_QUEUE).marks.get(_LEFT)
        if not is_left and (end or self._handed is not None):
            self._files.set_aside(end)
        self._is_done = True
