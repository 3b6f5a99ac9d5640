"""Calls about dead letters: lists and replays.

A replay is a move of dead letters (``moves.py``), so that each becomes one message, whatever dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.deliveries.moves import Buffer, Moves
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.broker.verb_arguments import answered
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    NotLeaderError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, dead_letter_topic, retry_topic
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.messages.retries import check_writable, first_topic, replay
from ledgermq.rules.tables.groups import check_group_name
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved, Replayed
from ledgermq.verbs.dead_letters import ReplayDeadLetters, ShowDeadLetters


class DeadLetterCalls(Service):
    """Owned by the broker process.

    Invariant: at most one replay of a queue is under way.
    """

    name = "dead letters"
    can_rest = True

    def __init__(
        self,
        known: KnownTopics,
        log: StateLog,
        moves: Moves,
        settings: Settings,
        *,
        mailbox: Mailbox,
        counts: Counts,
    ) -> None:
        self._store = known.store
        self._tables = known.tables
        self._topics = RetryTopics(known, settings.topics)
        self._log = log
        self._counts = counts
        self._moves = moves
        self._address = settings.node.broker_ip, settings.node.listen_port
        self._registered: set[str] = set()
        self._replaying: set[QueueName] = set()
        self._mailbox = mailbox
        self.verbs: Verbs = (
            answered(ShowDeadLetters, self._dead_letters),
            answered(ReplayDeadLetters, self._replay),
        )

    def turn(self, now_ms: int) -> None:
        """Know all queues whose replay was cut, so that it is finished."""
        del now_ms
        for queue, _ in self._tables.state.open_moves():
            if queue.topic.startswith(DEAD_LETTER_PREFIX):
                self._register(queue.topic)

    def _dead_letters(self, _call: Call, asked: ShowDeadLetters) -> Result:
        self._log.check_newest()
        group = asked.group
        check_group_name(group)
        self._tables.check_group(group)
        name = dead_letter_topic(group)
        topic = self._tables.topics.get(name)
        queues = []
        for queue_id in range(topic.read_queues if topic is not None else 0):
            queue = QueueName(name, queue_id)
            bounds = self._store.bounds(queue)
            marks = Replayed.read(self._moves.source(queue).marks)
            queues.append(
                {
                    "queue": queue_id,
                    "min": bounds.first,
                    "max": bounds.end,
                    "replayed": [list(pair) for pair in marks.ranges if pair[1] > bounds.first],
                }
            )
        return {"topic": name, "queues": queues}

    def _replay(self, call: Call, asked: ReplayDeadLetters) -> Result | None:
        wanted = _Replay(self, call.caller, asked)
        queue = wanted.queue
        if not self._log.leads:
            raise NotLeaderError("node does not lead now: nothing was replayed")
        self._tables.check_group(wanted.group)
        if self._topics.get(queue.topic) is None:
            raise TopicUnknownError("group has no dead letters", group=wanted.group)
        is_open = self._moves.source(queue).open_at is not None
        if queue in self._replaying or is_open or not self._log.is_certain:
            raise BusyError("another replay of these dead letters is under way", topic=queue.topic)
        self._register(queue.topic)
        target = retry_topic(wanted.group)
        self._replaying.add(queue)
        if wanted.is_origin or self._tables.topics.get(target) is not None:
            self._begin_replay(wanted, call.now_ms)
            return None

        try:
            self._log.submit(
                StateRequest(
                    call.caller,
                    lambda: self._topics.lacking(wanted.group, target),
                    frozenset({f"group {wanted.group}", f"topic {target}"}),
                    lambda: self._begin_replay(wanted, call.now_ms),
                    refused=wanted.refuse,
                ),
                call.now_ms,
            )
        except LedgerError:
            self._replaying.discard(queue)
            raise
        return None

    def _begin_replay(self, wanted: _Replay, now_ms: int) -> None:
        self._moves.request(
            wanted.queue, wanted.plan, done=wanted.answer, refused=wanted.refuse, now_ms=now_ms
        )

    def end_replay(self, wanted: _Replay, outcome: Result | LedgerError) -> None:
        """Answer a replay; the next one of its queue may begin."""
        self._replaying.discard(wanted.queue)
        self._mailbox.append(Reply(wanted.caller, outcome))

    def note_replayed(self, count: int) -> None:
        """Count messages that were stored once more."""
        self._counts[BrokerCounter.DEAD_LETTERS_REPLAYED] += count

    def _register(self, topic: str) -> None:
        if topic in self._registered:
            return
        self._registered.add(topic)

        def build(queue: QueueName, _offset: int, record: memoryview) -> Sequence[bytes]:
            marks = Replayed.read(self._moves.source(queue).marks)
            return [self.replayed(decode_message(record), is_origin=marks.is_origin)]

        self._moves.register(topic, build)

    def made_of(
        self, queue: QueueName, offset: int, dead: Message, *, is_origin: bool
    ) -> Sequence[Buffer]:
        """The record that a dead letter becomes; none where nothing can be made of it."""
        return self._moves.made(
            queue,
            offset,
            memoryview(b""),
            lambda _queue, _offset, _record: [self.replayed(dead, is_origin=is_origin)],
        )

    def replayed(self, dead: Message, *, is_origin: bool) -> bytes:
        """The record that a dead letter becomes."""
        group = dead.topic.removeprefix(DEAD_LETTER_PREFIX)
        target = first_topic(dead) if is_origin else retry_topic(group)
        known = self._tables.topics.get(target)
        made = replay(dead, target, queues=known.write_queues if known else 1)
        return encode_message(replace(made, store_host=self._address))

    def check_target(self, dead: Message, *, is_origin: bool) -> None:
        """Refuse a replay to a topic that takes no messages."""
        group = dead.topic.removeprefix(DEAD_LETTER_PREFIX)
        target = first_topic(dead) if is_origin else retry_topic(group)
        topic = self._tables.topics.get(target)
        if topic is None:
            raise TopicUnknownError(
                "topic that the dead letter was sent to does not exist any more: create it, or "
                "replay to the group",
                topic=target,
                offset=dead.queue_offset,
            )
        check_writable(topic)

    def bounds_of(self, queue: QueueName) -> tuple[int, int]:
        """The offsets that a queue holds."""
        first, end, _ = self._store.bounds(queue)
        return first, end

    def marks_of(self, queue: QueueName) -> Replayed:
        """Which dead letters of a queue were replayed."""
        return Replayed.read(self._moves.source(queue).marks)

    def read(self, queue: QueueName, offsets: Sequence[int]) -> list[tuple[int, Message]]:
        """The dead letters at these offsets, those that are there."""
        found: list[tuple[int, Message]] = []
        for offset, record in self._moves.read(queue, offsets):
            whole = memoryview(bytes(record))
            place = f"{queue.topic}/{queue.queue_id}/{offset}"
            dead = self._moves.poison.guarded(place, partial(decode_message, whole), None)
            if dead is not None:
                found.append((offset, dead))
        return found


class _Replay:
    """Dead letters of one queue that are replayed, from the call to its answer."""

    def __init__(self, calls: DeadLetterCalls, caller: Caller, asked: ReplayDeadLetters) -> None:
        check_group_name(asked.group)
        if not 0 < len(asked.offsets) <= GROUP_RECORDS_MAX:
            raise ProtocolError(
                "argument of a wrong length",
                argument="offsets",
                count=len(asked.offsets),
                limit=GROUP_RECORDS_MAX,
            )
        self._calls = calls
        self.caller = caller
        self.group = asked.group
        self.queue = QueueName(dead_letter_topic(asked.group), asked.queue_id)
        self.is_origin = asked.origin
        self._again = asked.again
        self._token = asked.token
        self._offsets = sorted(set(asked.offsets))
        self._replayed: list[int] = []
        self._already: list[int] = []
        self._missing: list[int] = []
        self._left: list[int] = []
        self._stored = 0

    def plan(self) -> tuple[Moved, Sequence[Buffer]] | None:
        """The move of those that are there, were not replayed, and are not too many at once."""
        calls = self._calls
        marks = calls.marks_of(self.queue)
        first, end = calls.bounds_of(self.queue)
        self._replayed, self._already, self._left = [], [], []
        self._stored = 0
        self._missing = [offset for offset in self._offsets if not first <= offset < end]
        there = [offset for offset in self._offsets if first <= offset < end]
        if marks.token == self._token:
            # Asked again, because the answer was lost.
            self._replayed = [offset for offset in there if marks.has(offset)]
            self._left = [offset for offset in there if not marks.has(offset)]
            return None
        if not self._again:
            self._already = [offset for offset in there if marks.has(offset)]
            there = [offset for offset in there if not marks.has(offset)]
        records: list[Buffer] = []
        size = 0
        found = calls.read(self.queue, there)
        self._missing += sorted(set(there) - {offset for offset, _ in found})
        for offset, dead in found:
            if records and size + dead.size > GROUP_SIZE_MAX // 2:
                self._left.append(offset)
                continue
            calls.check_target(dead, is_origin=self.is_origin)
            made = calls.made_of(self.queue, offset, dead, is_origin=self.is_origin)
            if not made:
                self._missing.append(offset)
                continue
            records += made
            size += len(records[-1])
            self._replayed.append(offset)
        self._stored = len(records)
        if not records:
            return None
        noted = marks.with_offsets(self._replayed, first=first)
        noted = noted._replace(token=self._token, is_origin=self.is_origin)
        moved = Moved(self.queue, tuple(self._replayed), len(records), 0, noted.to_marks())
        return moved, records

    def answer(self) -> None:
        """All of it is in the log."""
        self._calls.note_replayed(self._stored)
        self._calls.end_replay(
            self,
            {
                "replayed": self._replayed,
                "already": self._already,
                "missing": self._missing,
                "left": self._left,
            },
        )

    def refuse(self, error: LedgerError) -> None:
        """It is not, or nobody knows: who asks again with the same token is told."""
        self._calls.end_replay(self, error)
