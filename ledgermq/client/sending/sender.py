"""Sender: choice of the queue, encoding and room in frames, for both kinds of producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard, cast

from ledgermq.client.core.questions import write_queues
from ledgermq.client.core.requests import Steps
from ledgermq.client.core.results import BatchResult, FrameResult, SendResult
from ledgermq.client.sending.delivery import (
    AT_ONCE,
    Delivery,
    Waiting,
    delayed,
    level_of,
    waiting_place,
)
from ledgermq.client.sending.frames import (
    BatchCallback,
    OneCallback,
    WholeFrame,
    batch_frame,
    batch_of,
    lone_frame,
)
from ledgermq.client.sending.message_options import QueueChoice
from ledgermq.client.sending.outgoing import (
    Body,
    OutgoingMessage,
    check_unique_id,
    properties_bytes,
    topic_bytes,
)
from ledgermq.client.sending.record_encoder import (
    EncodedRecords,
    Form,
    LoneForms,
    LoneRecord,
    RecordEncoder,
    Target,
    record_tail,
    unique_id,
)
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_future import Waiter as Waker
from ledgermq.client.sending.send_pipeline import SendPipeline
from ledgermq.formats.kernels.kernel import Exchange
from ledgermq.formats.records.delayed_message import RealQueue
from ledgermq.formats.records.host_address import Host
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.formats.records.properties import DELAY
from ledgermq.model.errors import MessageIllegalError, NotLeaderError, TimedOutError
from ledgermq.model.limits import ENTRY_SIZE_MAX
from ledgermq.wire.send_frame import SendRun, Sent, SentSpan

ROUTE_AGE_S_MAX = 30.0
"""Queues that are added to a topic are used after so long."""

ROUTE_REFRESH_S_MAX = 1.0
"""A known topic's queues are asked for again this long, then the old number is good."""

NO_PROPERTIES = properties_bytes(None, (), None)

LONE_QUEUES_MAX = 4_096
"""Queues of which it is kept what their lone frames have in common."""

RECORD_AROUND = 512
"""Estimate, for the window, of what a record has beside its body."""


@dataclass(slots=True)
class RouteTable:
    """How many queues topics have, and until when they need not be asked for.

    Attributes:
        known: both, by topic.
    """

    known: dict[str, tuple[int, float]] = field(default_factory=dict)

    def fresh(self, topic: str, now: float) -> int | None:
        """Number of queues, if it need not be asked for."""
        known = self.known.get(topic)
        if known is None or now > known[1]:
            return None
        return known[0]

    def know(self, topic: str, queues: int) -> None:
        """It was told elsewhere just now."""
        self.known[topic] = (queues, time.monotonic() + ROUTE_AGE_S_MAX)

    def wait_s(self, topic: str) -> float | None:
        """For how long to wait for ``look_up``; ``None``: as for any other question."""
        return ROUTE_REFRESH_S_MAX if topic in self.known else None

    def look_up(self, topic: str) -> Steps[int]:
        """Number of queues, asked unless it was told meanwhile.

        Raises:
            LedgerError: it was never told, and is not now.
        """
        queues = self.fresh(topic, time.monotonic())
        if queues is None:
            try:
                queues = yield from write_queues(topic)
            except (TimedOutError, NotLeaderError):
                if topic not in self.known:
                    raise
                # The broker is away: messages can be stored all the same.
                queues = self.known[topic][0]
            self.know(topic, queues)
        return queues


class Sender:
    """Puts messages into a pipeline; one caller at a time.

    Attributes:
        ids, turns, lone, lone_form: for ``kernel.Exchange``: unique ids, the latest queue of each
            topic, and what lone frames of a queue have in common, of one form.
    """

    def __init__(self, pipeline: SendPipeline, waiting: Waker, *, born_host: Host) -> None:
        self._pipeline = pipeline
        self._waiting = waiting
        self._born_host = born_host
        self.ids = UniqueIdMaker(born_host[0])
        self._encoder: RecordEncoder | None = None
        self.turns: dict[bytes, int] = {}
        self.lone: dict[tuple[bytes, int], LoneForms] = {}
        self.lone_form: Form | None = None

    def has_room(self, size: int) -> bool:
        """Whether messages of ``size`` bytes can be put now."""
        pipeline = self._pipeline
        return pipeline.form is not None and (
            not pipeline.unanswered_bytes or pipeline.has_room(size)
        )

    def put_one(
        self,
        choice: QueueChoice,
        message: OutgoingMessage,
        *,
        queues: int,
        now: float,
        callback: OneCallback | None,
    ) -> SendFuture[SendResult]:
        """Put one message into the open frame.

        Args:
            queues: so many has the topic.

        Raises:
            LedgerError: the message cannot be stored; nothing was put.
        """
        pipeline = self._pipeline
        encoder = self._encoder_now()
        if message.unique_id is not None:
            check_unique_id(message.unique_id)
        chosen = None
        if choice.queue_id is not None or choice.key is not None or choice.priority is not None:
            chosen = choice.among(queues)
        topic = choice.topic
        # Most have neither, and are not asked: this is the way of each single message.
        if (choice.delivery is not AT_ONCE or message.properties) and _may_wait(choice, message):
            if chosen is None:
                chosen = self._next_queue(choice.topic, queues)
            waiting = self._waiting_place(choice, chosen, message)
            message = delayed(message, waiting)
            if waiting is not None:
                topic, chosen = waiting.topic, waiting.queue_id
        properties = NO_PROPERTIES
        if message.tag is not None or message.keys or message.properties:
            properties = properties_bytes(message.tag, message.keys, message.properties)
        if not (pipeline.unanswered_bytes or pipeline.options.linger_ms):
            # Nothing is under way that others could join it behind: it goes by itself, at once.
            if chosen is None:
                chosen = self._next_queue(choice.topic, queues)
            record = _one_record(encoder, topic, chosen, message, properties)
            run = SendRun(1, chosen, topic)
            frame, future = lone_frame(encoder.form, run, record, self._waiting, callback)
            pipeline.put(frame, now)
            return future
        estimate = len(message.body) + RECORD_AROUND + len(properties)
        frame_queues = pipeline.frame_queues(encoder.form, estimate)
        is_any_queue = chosen is None
        if chosen is None:
            chosen = frame_queues.get(topic)
        if chosen is None:
            chosen = self._next_queue(choice.topic, queues)
        if type(message.body) is not bytes:
            # The application may change its buffer before the frame is closed.
            message = replace(message, body=bytes(message.body))
        return pipeline.add(
            encoder.form,
            topic,
            chosen,
            _one_record(encoder, topic, chosen, message, properties),
            is_any_queue=is_any_queue,
            now=now,
            waiting=self._waiting,
            callback=callback,
        )

    def exchange(self, routes: RouteTable, driver: object = None) -> Exchange:
        """The short way of messages that have a tag and keys at most; it waits for all from now on.

        Args:
            driver: of the pipeline: a ``SendDriver``; None where there is a loop.
        """
        above = self._pipeline.options.compress_above
        made = Exchange(
            self._pipeline,
            self,
            driver,
            known_routes=routes.known,
            topic_bytes=topic_bytes,
            body_end=ENTRY_SIZE_MAX if above is None else above,
            makers=(SendFuture, WholeFrame, Sent, SentSpan, FrameResult),
            make_batch=_drawn_batch,
            make_tail=record_tail,
        )
        if driver is not None:
            self._waiting = made
        return made

    def prepare_lone(self, queue: tuple[bytes, int], form: Form) -> None:
        """Know what lone frames of a queue have in common; the exchange sends the next one."""
        if len(self.lone) >= LONE_QUEUES_MAX or self.lone_form != form:
            self.lone.clear()
        self.lone_form = form
        prefix = self.ids.reserve(1)[0]
        self.lone[queue] = self._encoder_now().lone_forms(*queue, NO_PROPERTIES, prefix)

    def put_batch(
        self,
        choice: QueueChoice,
        messages: Sequence[Body] | Sequence[OutgoingMessage],
        shared: OutgoingMessage,
        *,
        queues: int,
        now: float,
        callback: BatchCallback | None,
    ) -> SendFuture[BatchResult]:
        """Put messages of one queue as a frame of their own.

        Args:
            shared: tag, keys, properties and flag of the messages that are bare bodies.
            queues: so many has the topic.

        Raises:
            LedgerError: a message cannot be stored, or they do not fit into one frame; nothing was
                put.
        """
        pipeline = self._pipeline
        welcome = pipeline.link.last_welcome
        assert welcome is not None
        if not 0 < len(messages) <= welcome.frame_records_max:
            raise MessageIllegalError(
                "batch has too many messages" if len(messages) else "batch has no message",
                messages=len(messages),
                limit=welcome.frame_records_max,
            )
        chosen = choice.among(queues)
        if chosen is None:
            chosen = self._next_queue(choice.topic, queues)
        topic = choice.topic
        if _may_wait(choice, shared) or _have_levels(messages):
            waiting = self._waiting_place(choice, chosen, shared)
            level = choice.delivery.level or level_of(shared.properties)
            messages = _all_delayed(messages, waiting, level)
            shared = delayed(shared, waiting)
            if waiting is not None:
                topic, chosen = waiting.topic, waiting.queue_id
        target = Target(topic, chosen, shared.flag)
        encoder = self._encoder_now()
        records = _encode(encoder, target, messages, shared)
        if records.size > welcome.frame_size_max:
            raise MessageIllegalError(
                "batch is too large for one frame: send it in parts",
                size=records.size,
                limit=welcome.frame_size_max,
            )
        run = SendRun(len(messages), chosen, topic)
        frame, future = batch_frame(encoder.form, run, records, self._waiting, callback)
        pipeline.put(frame, now)
        return future

    def _waiting_place(
        self, choice: QueueChoice, queue_id: int, message: OutgoingMessage
    ) -> Waiting | None:
        welcome = self._pipeline.link.last_welcome
        assert welcome is not None
        delivery = choice.delivery
        if delivery == AT_ONCE:
            delivery = Delivery(level_of(message.properties))
        real = RealQueue(choice.topic.decode(), queue_id)
        return waiting_place(delivery, real, welcome.delay_levels)

    def _next_queue(self, topic: bytes, queues: int) -> int:
        turn = self.turns.get(topic, -1) + 1
        self.turns[topic] = turn
        return turn % queues

    def _encoder_now(self) -> RecordEncoder:
        form = self._pipeline.form
        assert form is not None
        if self._encoder is None or self._encoder.form != form:
            self._encoder = RecordEncoder(form, born_host=self._born_host, ids=self.ids)
        return self._encoder


def _drawn_batch(records: int, prefix: str, first: int) -> Callable[[FrameResult], BatchResult]:
    """What makes the result of a batch whose unique ids were drawn in a row."""
    return batch_of(records, lambda number: unique_id(prefix, first + number))


def _one_record(
    encoder: RecordEncoder,
    topic: bytes,
    queue_id: int,
    message: OutgoingMessage,
    properties: bytes,
) -> LoneRecord:
    if message.unique_id is None:
        return encoder.encode_one(topic, queue_id, message, properties)
    target = Target(topic, queue_id, message.flag, message.sys_flag)
    records = encoder.encode_messages(target, (message,))
    return records.parts, records.size, message.unique_id


def _may_wait(choice: QueueChoice, message: OutgoingMessage) -> bool:
    """Whether it has to be looked at when a message is delivered."""
    return choice.delivery is not AT_ONCE or (
        message.properties is not None and DELAY in message.properties
    )


def _have_levels(messages: Sequence[Body] | Sequence[OutgoingMessage]) -> bool:
    return _are_whole(messages) and any(
        one.properties is not None and DELAY in one.properties for one in messages
    )


def _all_delayed(
    messages: Sequence[Body] | Sequence[OutgoingMessage],
    waiting: Waiting | None,
    level: int,
) -> Sequence[Body] | Sequence[OutgoingMessage]:
    """Messages of a batch wait together, or not at all."""
    if not _are_whole(messages):
        return messages
    for number, message in enumerate(messages):
        if level_of(message.properties) not in (0, level):
            raise MessageIllegalError(
                "message of a batch has another delay level than the batch",
                record=number,
                delay_level=level_of(message.properties),
            )
    return [delayed(message, waiting) for message in messages]


def batch_size(messages: Sequence[Body] | Sequence[OutgoingMessage]) -> int:
    """Bytes that a batch takes of the window, nearly.

    Raises:
        MessageIllegalError: some are bare bodies and others are not.
    """
    environment = RECORD_AROUND * len(messages)
    if _are_whole(messages):
        return sum(len(one.body) for one in messages) + environment
    return sum(map(len, cast("Sequence[Body]", messages))) + environment


def _encode(
    encoder: RecordEncoder,
    target: Target,
    messages: Sequence[Body] | Sequence[OutgoingMessage],
    shared: OutgoingMessage,
) -> EncodedRecords:
    if _are_whole(messages):
        return encoder.encode_messages(target, messages)
    properties = properties_bytes(shared.tag, shared.keys, shared.properties)
    return encoder.encode_bodies(target, cast("Sequence[Body]", messages), properties)


def _are_whole(
    messages: Sequence[Body] | Sequence[OutgoingMessage],
) -> TypeGuard[Sequence[OutgoingMessage]]:
    """Whether they have tags, keys and so on of their own; costs next to nothing a message."""
    kinds = {issubclass(kind, OutgoingMessage) for kind in set(map(type, messages))}
    if len(kinds) > 1:
        raise MessageIllegalError(
            "batch mixes bare bodies and OutgoingMessages",
            messages=len(messages),
            outgoing_messages=sum(isinstance(one, OutgoingMessage) for one in messages),
        )
    return True in kinds
