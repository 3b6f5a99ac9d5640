"""Pop service: what RocketMQ 5's POP has in flight comes again, from the group's retry topic.

Nobody here consumes by POP. So who leads first on a directory of RocketMQ 5 reads POP's marks
(``formats/pop_marks``), and moves what was handed out and not acknowledged into ``%RETRY%GROUP``,
by way of the timers' queue: each message once, when others would have got it. What waits in POP's
own retry topics goes there at once. RocketMQ's offsets are set behind all of it, so that it does
not hand out the same when it gets the store back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ledgermq.broker.deliveries.moves import Buffer, Moves
from ledgermq.broker.deliveries.timer_service import QUEUE as TIMERS
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Service
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.formats.pop_marks import REVIVE_GROUP, Checkpoint, Key, PopMarks, retried_topic
from ledgermq.formats.records.delayed_message import RealQueue, timer_properties
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    encode_properties,
)
from ledgermq.formats.timer_wheel import (
    REVIVE_PREFIX,
    WHEEL_QUEUE,
    WHEEL_TOPIC,
    TimerCheck,
    wheel_due_ms,
)
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.group_topics import RETRY_PREFIX, retry_topic
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.rules.messages.retries import offset_id_of
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved
from ledgermq.rules.tables.table_changes import Change, OffsetsSet
from ledgermq.store.wheel_files import WheelFiles

logger = logging.getLogger(__name__)

UNITS_PER_TURN = 512
LOOKED_BACK = 4_096
"""Marks before the last one that is done with, by which those are known that the wheel's checkpoint
does not say to be delivered yet: it is a second old where RocketMQ was killed.
"""

Lacking = Callable[[str, str], Sequence[Change]]
"""What the tables lack of a group and one of its topics."""

_REVIVED = "pop"
"""Mark of a queue of checkpoints: those below this queue offset are done with."""


class _Source(NamedTuple):
    """A queue, and what of it is to be moved: queue offsets, and where it ended."""

    queue: QueueName
    offsets: list[int]
    end: int
    group: str = ""


class PopService(Service):
    """Owned by the broker process.

    Attributes:
        is_done: nothing of POP is left that is not ours; also where the operator leaves it behind.
    """

    name = "pop"
    can_rest = True

    def __init__(
        self,
        known: KnownTopics,
        moves: Moves,
        log: StateLog,
        settings: Settings,
        lacking: Lacking,
    ) -> None:
        """Nothing is read yet."""
        self._known = known
        self._store = known.store
        self._tables = known.tables
        self._moves = moves
        self._log = log
        self._check = WheelFiles(settings.store.path_root_dir).check()
        self._lacking = lacking
        self._registered: set[str] = set()
        self._reading: Iterator[None] | None = None
        self._marks: PopMarks | None = None
        self._sources: list[_Source] = []
        self._is_asked = False
        self._retry_ms = 0
        self.is_done = StrangeUse.POP in settings.store.leave_behind or self._check is None

    def begin_again(self) -> None:
        """Read the marks anew."""
        self._reading = self._marks = None
        self._is_asked = False

    def next_deadline_ms(self) -> int | None:
        if self.is_done or self._is_asked or not self._log.is_settled:
            return None
        return self._retry_ms

    def turn(self, now_ms: int) -> None:
        """Read on, or ask for the next move."""
        if self.is_done or not self._store.is_ready:
            return
        if not self._registered:
            self._register()
        if not self._log.leads:
            self.begin_again()
        if not self._log.is_settled or self._is_asked or now_ms < self._retry_ms:
            return
        self._retry_ms = now_ms
        if self._reading is None:
            self._reading = self._read()
        if next(self._reading, self) is not self:
            return
        if self._sources:
            self._ask(self._sources[0], now_ms)
        else:
            self.is_done = True

    def revived(self, queue: QueueName, offset: int, record: memoryview) -> Sequence[Buffer]:
        """What becomes of a checkpoint: the messages of it that nobody has acknowledged."""
        if self._marks is None:
            # A move that was cut is finished before anything is read here.
            for _ in self._read():
                pass
        assert self._marks is not None
        found = PopMarks().take(bytes(decode_message(record).body))
        return [] if found is None else list(self._again(found, self._marks.open_offsets(found)))

    def _register(self) -> None:
        self._registered.add(WHEEL_TOPIC)
        names = [name for name in self._store.topics() if name.startswith(REVIVE_PREFIX)]
        for name in names:
            self._registered.add(name)
            self._moves.register(name, self.revived)
        for queue, group in self._retry_queues() if names else ():
            if queue.topic not in self._registered:
                self._registered.add(queue.topic)
                first = retried_topic(queue.topic, group) or ""

                def build(
                    _queue: QueueName,
                    _offset: int,
                    record: memoryview,
                    group: str = group,
                    first: str = first,
                ) -> Sequence[Buffer]:
                    message = decode_message(record)
                    name = retry_topic(group)
                    return [encode_message(_sent_to(message, RealQueue(name, 0), first))]

                self._moves.register(queue.topic, build)

    def _retry_queues(self) -> list[tuple[QueueName, str]]:
        """POP's own retry queues that were ever consumed, each with its group."""
        return [
            (QueueName(owner.topic, queue_id), owner.group)
            for owner, offsets in self._tables.offsets
            if retried_topic(owner.topic, owner.group) is not None
            and self._tables.groups.get(owner.topic.removeprefix(RETRY_PREFIX)) is None
            for queue_id in offsets
        ]

    def _read(self) -> Iterator[None]:
        """Read all marks that count, some at a time; then ``_sources`` says what is to be moved."""
        marks, sources = PopMarks(), []
        seen: set[Key] = set()
        for name in sorted(self._registered - {WHEEL_TOPIC}):
            if not name.startswith(REVIVE_PREFIX):
                continue
            for queue_id in self._store.queue_ids(name):
                queue = QueueName(name, queue_id)
                done = self._tables.offsets.offset(REVIVE_GROUP, name, queue_id)
                begin = 0 if done is None else done + 1
                every: dict[int, Checkpoint] = {}
                yield from self._read_queue(queue, begin - LOOKED_BACK, marks, every)
                seen.update(one.key for one in every.values())
                sources.append((queue, {at: one for at, one in every.items() if at >= begin}))
        if len(self._registered) > 1 and self._check is not None:
            begin, every = self._moves.source(WHEEL_QUEUE).next_offset, {}
            yield from self._read_queue(WHEEL_QUEUE, begin, marks, every, check=self._check)
            sources.append(
                (WHEEL_QUEUE, {at: one for at, one in every.items() if one.key not in seen})
            )
        self._marks = marks
        self._sources = [
            _Source(
                queue,
                [at for at, one in found.items() if self._is_open(one, marks)],
                self._store.bounds(queue).end,
            )
            for queue, found in sources
            if not self._is_moved(queue)
        ]
        if len(self._registered) > 1:
            self._sources += self._unread_retries()

    def _read_queue(
        self,
        queue: QueueName,
        begin: int,
        marks: PopMarks,
        found: dict[int, Checkpoint],
        *,
        check: TimerCheck | None = None,
    ) -> Iterator[None]:
        """Take the marks of a queue; of the wheel's only those that it has not delivered."""
        bounds = self._store.bounds(queue)
        at = max(begin, bounds.first)
        while at < bounds.end:
            offsets = range(at, min(at + UNITS_PER_TURN, bounds.end))
            for offset, record in self._moves.read(queue, offsets):
                message = decode_message(record, check_crc=False)
                if check is not None and not _waits(message, offset, check):
                    continue
                checkpoint = marks.take(bytes(message.body))
                if checkpoint is not None:
                    found[offset] = checkpoint
            at = offsets.stop
            yield

    def _is_open(self, checkpoint: Checkpoint, marks: PopMarks) -> bool:
        """Whether a message of it comes again: of no topic and no group that is gone, as there."""
        return (
            self._tables.groups.get(checkpoint.group) is not None
            and self._tables.topics.get(checkpoint.first_topic) is not None
            and any(True for _ in self._again(checkpoint, marks.open_offsets(checkpoint)))
        )

    def _is_moved(self, queue: QueueName) -> bool:
        source, end = self._moves.source(queue), self._store.bounds(queue).end
        return (
            max(source.next_offset, queue == WHEEL_QUEUE and source.marks.get(_REVIVED, 0)) >= end
        )

    def _unread_retries(self) -> Iterator[_Source]:
        for queue, group in self._retry_queues():
            bounds = self._store.bounds(queue)
            consumed = self._tables.offsets.offset(group, queue.topic, queue.queue_id) or 0
            first = max(consumed, bounds.first, self._moves.source(queue).next_offset)
            if first < bounds.end:
                yield _Source(queue, list(range(first, bounds.end)), bounds.end, group)

    def _again(self, checkpoint: Checkpoint, offsets: Sequence[int]) -> Iterator[bytes]:
        """Timers that become retries when others would have got the messages."""
        queue = QueueName(checkpoint.topic, checkpoint.queue_id)
        bounds = self._store.bounds(queue)
        real = RealQueue(retry_topic(checkpoint.group), 0)
        there = [offset for offset in offsets if bounds.first <= offset < bounds.end]
        for _, record in self._moves.read(queue, there):
            message = decode_message(record)
            tried = replace(message, reconsume_times=message.reconsume_times + 1)
            retried = _sent_to(tried, real, checkpoint.first_topic)
            waits = timer_properties(checkpoint.revive_ms, real)
            properties = encode_properties(waits | retried.parsed_properties())
            yield encode_message(replace(retried, topic=TIMERS.topic, properties=properties))

    def _ask(self, source: _Source, now_ms: int) -> None:
        ended: list[bool] = []

        def plan() -> tuple[Moved, Sequence[Buffer]]:
            ended.clear()
            moved, records, is_last = self._plan(source)
            ended.append(is_last)
            return moved, records

        def also() -> Sequence[Change]:
            changes: list[Change] = []
            for group in sorted(self._groups_of(source)):
                name = retry_topic(group)
                if self._tables.topics.get(name) is None:
                    changes += self._lacking(group, name)
            if ended[0] and source.queue != WHEEL_QUEUE:
                queue, group, end = source.queue, source.group, source.end
                # Of the marks it is the offset of the last one that is done with.
                at = end if group else end - 1
                changes.append(OffsetsSet(group or REVIVE_GROUP, queue.topic, {queue.queue_id: at}))
            return changes

        def done() -> None:
            self._is_asked = False
            if ended and ended[0]:
                self._sources.remove(source)
                logger.info(
                    "POP's messages in flight come again: topic=%s queue=%d",
                    source.queue.topic,
                    source.queue.queue_id,
                )

        def refused(error: LedgerError) -> None:
            self._is_asked = False
            self._retry_ms = now_ms + RETRY_MS
            logger.warning("POP's messages in flight do not come again yet: %s", error)

        self._is_asked = True
        self._moves.request(
            source.queue, plan, done=done, refused=refused, now_ms=now_ms, also=also
        )

    def _plan(self, source: _Source) -> tuple[Moved, Sequence[Buffer], bool]:
        """The next group, and whether it was the last: that has no records of checkpoints, whose
        marks are read anew where a crash has cut it.
        """
        known = self._moves.source(source.queue)
        begin = max(known.marks.get(_REVIVED, 0), known.next_offset)
        records: list[Buffer] = []
        offsets: list[int] = []
        for offset in source.offsets:
            if offset < begin:
                continue
            made = self._moves.build(source.queue, [offset])
            size = sum(map(len, records)) + sum(map(len, made))
            if offsets and (size > GROUP_SIZE_MAX or len(records) + len(made) > GROUP_RECORDS_MAX):
                break
            offsets.append(offset)
            records += made
        is_all = not offsets or offsets[-1] == source.offsets[-1]
        next_offset = source.end if is_all else offsets[-1] + 1
        if source.group:
            return self._moved(source, offsets, records, next_offset, {}), records, is_all
        marks = {**known.marks, _REVIVED: next_offset}
        if source.queue == WHEEL_QUEUE:
            return self._moved(source, offsets, records, known.next_offset, marks), records, is_all
        if offsets:
            return self._moved(source, offsets, records, known.next_offset, marks), records, False
        return self._moved(source, [], [], source.end, {}), [], True

    def _moved(
        self,
        source: _Source,
        offsets: Sequence[int],
        records: Sequence[Buffer],
        next_offset: int,
        marks: dict[str, int],
    ) -> Moved:
        return Moved(source.queue, tuple(offsets), len(records), next_offset, marks)

    def _groups_of(self, source: _Source) -> set[str]:
        if source.group:
            return {source.group}
        found: set[str] = set()
        for _, record in self._moves.read(source.queue, source.offsets):
            checkpoint = PopMarks().take(bytes(decode_message(record).body))
            if checkpoint is not None:
                found.add(checkpoint.group)
        return found


def _waits(message: Message, offset: int, check: TimerCheck) -> bool:
    properties = message.parsed_properties()
    due_ms = wheel_due_ms(properties)
    is_delivered = (
        due_ms is not None and due_ms < check.delivered_before and offset < check.enqueued
    )
    return not is_delivered and properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX)


def _sent_to(message: Message, real: RealQueue, first_topic: str) -> Message:
    """A message for a group's retry topic, as one that was given back there."""
    properties = message.parsed_properties()
    for name in (DELAY, REAL_TOPIC, REAL_QUEUE_ID):
        properties.pop(name, None)
    properties.setdefault(RETRY_TOPIC, first_topic)
    properties.setdefault(ORIGIN_MESSAGE_ID, offset_id_of(message))
    return replace(
        message,
        topic=real.topic,
        queue_id=real.queue_id,
        properties=encode_properties(properties),
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
        prepared_transaction_offset=0,
    )
