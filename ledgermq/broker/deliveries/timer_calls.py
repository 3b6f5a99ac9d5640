"""Calls about pending timers: lists and cancellations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.deliveries.timer_records import cancel_record
from ledgermq.broker.deliveries.timer_service import QUEUE, TimerService
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.verb_arguments import answered
from ledgermq.formats.records.delayed_message import DELIVER_AT, real_queue
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.rights import Right
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.tables.table_changes import Change
from ledgermq.verbs.waiting import CancelTimer, ListTimers

TOUCHES = frozenset({f"move {QUEUE.topic}/{QUEUE.queue_id}"})
"""What a move of the queue changes, too: what is being delivered is not taken back meanwhile."""

Find = Callable[[str, str], Iterable[memoryview]]
"""The records of a topic that have a key or a unique id."""


class TimerCalls:
    """``timers`` is answered by any node, ``timer_cancel`` by the one that leads."""

    def __init__(
        self,
        timers: TimerService,
        log: StateLog,
        find: Find,
        settings: Settings,
        *,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self._timers = timers
        self._log = log
        self._clock = clock
        self._counts = counts
        self._find = find
        self._address = (settings.node.broker_ip, settings.node.listen_port)
        self.verbs: Verbs = (
            answered(ListTimers, self._list),
            answered(CancelTimer, self._cancel),
        )

    def _list(self, call: Call, asked: ListTimers) -> Result:
        self._timers.follow()
        self._timers.forget_delivered()
        first = self._timers.index.due(2**62 - 1, asked.count)
        rows: dict[int, Result] = {}
        for number, record in self._timers.read(first):
            message = decode_message(record)
            real = real_queue(message.properties)
            rows[number] = {
                "id": message.unique_id,
                "due": int(first.due[number]),
                "topic": "" if real is None else real.topic,
                "queue": -1 if real is None else real.queue_id,
                "offset": int(first.offset[number]),
                "size": len(message.body),
                "stored": message.store_timestamp,
            }
        timers = [
            rows[number]
            for number in sorted(rows)
            if call.may(str(rows[number]["topic"]), Right.PUB | Right.SUB)
        ]
        return {"waiting": self._timers.index.count, "timers": timers}

    def _cancel(self, call: Call, asked: CancelTimer) -> None:
        identity = asked.unique_id

        def look() -> Sequence[Change]:
            self._timers.follow()
            if self._waiting_offsets(identity):
                return ()
            # It may be acknowledged, and on its way to the queues: what comes behind a command that
            # changes nothing is.
            return [self._timers.nothing_moved()]

        def take_back() -> None:
            self._take_back(call, identity)

        self._log.submit(StateRequest(call.caller, look, TOUCHES, take_back), call.now_ms)

    def _take_back(self, call: Call, identity: str) -> None:
        found: list[int] = []

        def plan() -> Sequence[Change]:
            self._timers.follow()
            waiting = self._waiting_offsets(identity)
            # An id is its sender's choice: another user's timer of the same one keeps nobody from
            # taking back his own.
            found[:] = [at for at, topic in waiting.items() if call.may(topic, Right.PUB)]
            for topic in () if found else waiting.values():
                call.check_topic(topic, Right.PUB)
            if not found:
                raise MessageIllegalError(
                    "no timer of that id waits: it was delivered or cancelled, or never was",
                    id=identity,
                )
            return ()

        def records() -> Sequence[bytes]:
            hole, now_ms = bytes(self._log.hole), epoch_ms(self._clock)
            return [hole + cancel_record(offset, self._address, now_ms=now_ms) for offset in found]

        def answer() -> Result:
            self._counts[BrokerCounter.TIMERS_CANCELLED] += len(found)
            self._timers.follow()
            return {"cancelled": len(found)}

        self._log.submit(StateRequest(call.caller, plan, TOUCHES, answer, records), call.now_ms)

    def _waiting_offsets(self, identity: str) -> dict[int, str]:
        """Where timers of that id wait, and the topics where they belong."""
        self._timers.forget_delivered()
        offsets: dict[int, str] = {}
        for record in self._find(QUEUE.topic, identity):
            message = decode_message(record)
            is_timer = message.unique_id == identity and DELIVER_AT in message.parsed_properties()
            if is_timer and self._timers.index.holds(message.queue_offset):
                real = real_queue(message.properties)
                offsets[message.queue_offset] = QUEUE.topic if real is None else real.topic
        return offsets
