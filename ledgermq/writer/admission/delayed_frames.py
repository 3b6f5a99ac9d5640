"""Admission of delayed messages in a frame: each names a queue that its producer may write to.

A client encodes a message as it stands on disk, so one that is delayed comes with the topic where
it waits. It is looked at here before it is stored, message by message; messages that are not
delayed cost one pass of a kernel over their properties.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.formats.kernels.kernel import first_delayed
from ledgermq.formats.records.delayed_message import delay_level, has_delay, real_queue, timer_ms
from ledgermq.formats.records.message import properties_in
from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.limits import DELAY_TOPIC, DELIVERY_AHEAD_MS_MAX, TIMER_TOPIC
from ledgermq.wire.send_frame import SendRun

WAITING_TOPICS = frozenset({DELAY_TOPIC.encode(), TIMER_TOPIC.encode()})

CheckQueue = Callable[[bytes, int], object | None]
"""Raises when a queue may not be written to; tells when it takes only messages of a kind."""

CLOCK_SLACK_MS = 60_000
"""A client's clock may be ahead of ours by so much when it asks for the farthest time."""


class DelayRules:
    """Checks runs of frames whose records are whole."""

    def __init__(
        self, check_queue: CheckQueue, *, levels: int, header_size: int, record_max: int
    ) -> None:
        self._check_queue = check_queue
        self._levels = levels
        self._header_size = header_size
        self._record_max = record_max

    def check_place(self, run: SendRun) -> None:
        """Whether messages may wait in the run's queue, which is of ``WAITING_TOPICS``.

        Raises:
            TopicUnknownError: there is no such queue.
        """
        queues = self._levels if run.topic == DELAY_TOPIC.encode() else 1
        if not 0 <= run.queue_id < queues:
            raise TopicUnknownError(
                "topic has no such queue",
                topic=run.topic.decode(),
                queue=run.queue_id,
                queues=queues,
                setting="store.message_delay_level",
            )

    def check_run(
        self, run: SendRun, payload: memoryview, sizes: memoryview, *, first: int, now_ms: int
    ) -> None:
        """Refuse a run with a message that would not be delivered when and where it says.

        Args:
            payload: begins with the run's records.
            first: number of the first one in ``sizes``.
            now_ms: epoch.

        Raises:
            LedgerError: why; ``record`` is the message's number.
        """
        if run.topic not in WAITING_TOPICS:
            self._check_undelayed(run, payload, sizes, first)
            return
        at = 0
        for number in range(first, first + run.records):
            record = payload[at + self._header_size : at + sizes[number]]
            at += sizes[number]
            try:
                self._check_record(run, record, now_ms)
            except LedgerError as error:
                error.details["record"] = number
                raise

    def _check_undelayed(
        self, run: SendRun, payload: memoryview, sizes: memoryview, first: int
    ) -> None:
        at, number, end = 0, first, first + run.records
        while True:
            found = first_delayed(payload, at, sizes, number, end - number, self._header_size)
            if found < 0:
                return
            at += sum(sizes[number:found])
            record = payload[at + self._header_size : at + sizes[found]]
            # RocketMQ stores a level of 0 or below at once, as it came.
            if has_delay(properties_in(record)):
                raise MessageIllegalError(
                    "message with a delay level has to be sent to where it waits",
                    record=found,
                    topic=run.topic.decode(),
                    expected=DELAY_TOPIC,
                )
            at += sizes[found]
            number = found + 1

    def _check_record(self, run: SendRun, record: memoryview, now_ms: int) -> None:
        properties = properties_in(record)
        real = real_queue(properties)
        if real is None:
            raise MessageIllegalError("delayed message does not say where it belongs")
        topic = real.topic.encode()
        if self._check_queue(topic, real.queue_id) is not None:
            raise NoPermissionError("topic takes no delayed messages", topic=real.topic)
        size = self._header_size + len(record) + len(topic) - len(run.topic)
        if size > self._record_max:
            raise MessageIllegalError(
                "message is too large for where it belongs", size=size, limit=self._record_max
            )
        if run.topic == DELAY_TOPIC.encode():
            level = delay_level(properties)
            if level != run.queue_id + 1:
                raise MessageIllegalError(
                    "delay level is not that of the queue", delay_level=level, queue=run.queue_id
                )
            return
        due_ms = timer_ms(properties)
        if due_ms is None:
            raise MessageIllegalError("timer does not say first when it is due")
        if due_ms > now_ms + DELIVERY_AHEAD_MS_MAX + CLOCK_SLACK_MS:
            raise MessageIllegalError(
                "delivery is too far ahead", ahead_ms=due_ms - now_ms, limit=DELIVERY_AHEAD_MS_MAX
            )
