"""``Tracing``: what clients of an application tell of the way of their messages, and where."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgermq.client.core.read_traces import Reader
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.message_options import BatchOptions, HalfOptions, MessageOptions
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.tracing.send_course import (
    Messages,
    SendCourse,
    Sending,
    TraceSink,
    conversation_of,
    store_host_of,
    told_of,
    told_of_all,
    with_properties,
)
from ledgermq.formats.records.trace_record import (
    STATE_COMMIT,
    STATE_ROLLBACK,
    ProcessedCode,
    TracedDelivery,
    TracedEnd,
    TracedKind,
    TracedProcessing,
)
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.transactions import Decision

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from ledgermq.client.tracing.spans import Attributes, Operation, Spans

_DELAYS = ("delay_level", "delay", "deliver_at")


@dataclass(slots=True)
class _Work:
    """A message that is worked on, in this thread or task."""

    message: ReceivedMessage
    is_given_back: bool = False


_work: ContextVar[_Work | None] = ContextVar("ledgermq_work", default=None)


class Tracing:
    """Traces of the clients that it is given to, as their argument ``tracing``.

    One for all clients of a process; safe to share among threads and tasks. Whatever becomes of
    its spans and records, no message waits for them, or fails by them.
    """

    def __init__(self, spans: bool | Tracer = True, *, topic: TraceSink | None = None) -> None:
        """Traces as spans, or as records of RocketMQ's trace topic, or both.

        Args:
            spans: of the application's OpenTelemetry provider, or by a tracer of its own.
            topic: a ``TraceTopic``, which the application closes after its clients.

        Raises:
            ConfigError: there is no OpenTelemetry here, or nothing is to be traced.
        """
        if not spans and topic is None:
            raise ConfigError("tracing without spans and without a topic traces nothing")
        self._spans = _spans_of(None if spans is True else spans) if spans else None
        self._sink = topic
        self._nonce = secrets.token_hex(4).upper()

    def send(
        self,
        topic: str,
        body: Body,
        options: MessageOptions | HalfOptions,
        *,
        client: str,
        is_half: bool = False,
    ) -> SendCourse:
        """A message that is about to be sent; ``options`` get its trace context.

        Args:
            client: name of the producer; of a transactional one its group.
        """
        span = None
        if self._spans is not None:
            span, options["properties"] = self._started(
                topic, options, client, message__body__size=len(body)
            )
        kind = TracedKind.HALF if is_half else _kind(options)
        told = told_of(options.get("tag"), options.get("keys", ()), len(body))
        return SendCourse(Sending(topic, client, kind), [told], span, self._sink)

    def send_batch(
        self, topic: str, messages: Messages, options: BatchOptions, *, client: str
    ) -> tuple[Messages, SendCourse]:
        """A batch that is about to be sent, with the trace context in it.

        Messages that have properties of their own have a span of their own, too, and carry its
        context; bare bodies carry that of the send.
        """
        told = told_of_all(messages, options.get("tag"), options.get("keys", ()))
        course_of = Sending(topic, client, _kind(options))
        if self._spans is None:
            return messages, SendCourse(course_of, told, None, self._sink)
        whole = [one for one in messages if isinstance(one, OutgoingMessage)]
        if len(whole) != len(messages) or not whole:
            span, options["properties"] = self._started(
                topic, options, client, batch__message_count=len(messages)
            )
            return messages, SendCourse(course_of, told, span, self._sink)
        messages, created = self._created(topic, whole, client)
        span, _ = self._started(topic, options, client, created, batch__message_count=len(messages))
        return messages, SendCourse(course_of, told, span, self._sink)

    def received(self, batch: MessageBatch, reader: Reader, since_ns: int) -> None:
        """``batch``, which was waited for since a time (epoch ns), is given now."""
        if not len(batch):
            return
        if self._spans is not None:
            from ledgermq.client.tracing.spans import RECEIVE

            attributes = RECEIVE.attributes(
                batch[0].topic, batch__message_count=len(batch),
                destination__partition__id=str(batch.queue_id), **_of(reader),
            )  # fmt: skip
            self._spans.receive(attributes, (one.properties for one in batch), since_ns)
        if self._sink is not None and reader.group and batch.topic != self._sink.topic:
            now = time.time_ns() // 1_000_000
            for one in batch:
                id_, keys = _id_and_keys(one)
                record = TracedDelivery(
                    now, reader.group, self._request_id(one, reader), id_, one.reconsume_times, keys
                )
                self._sink.put(record.encode(), (id_, *one.keys))

    @contextmanager
    def processing(self, message: ReceivedMessage, reader: Reader) -> Iterator[None]:
        """The work on ``message``; an error that leaves it is noted, and goes on."""
        work = _Work(message)
        token = _work.set(work)
        began = time.monotonic()
        code = ProcessedCode.RAISED
        try:
            with self._process_span(message, reader):
                yield
            code = ProcessedCode.FAILED if work.is_given_back else ProcessedCode.SUCCESS
        finally:
            _work.reset(token)
            cost = round((time.monotonic() - began) * 1_000)
            self._note_processed(message, reader, code, cost)

    @contextmanager
    def settling(
        self, name: str, topic: str, reader: Reader, messages: Sequence[ReceivedMessage] = ()
    ) -> Iterator[None]:
        """What tells the broker how messages ended.

        Args:
            name: the client's method.
            messages: those that are given back; a commit names none.
        """
        with self._settle_span(name, topic, reader, messages):
            yield
        for one in messages:
            work = _work.get()
            if work is not None and _is_same(work.message, one):
                work.is_given_back = True
            else:
                self._note_processed(one, reader, ProcessedCode.FAILED, 0)

    def ended(
        self, group: str, transaction: str, decision: Decision,
        stored: Sequence[SendResult], topics: Sequence[str],
    ) -> None:  # fmt: skip
        """A transaction was committed or rolled back.

        Args:
            stored: its messages.
            topics: where they belong.
        """
        if self._sink is None:
            return
        now = time.time_ns() // 1_000_000
        state = STATE_COMMIT if decision is Decision.COMMIT else STATE_ROLLBACK
        for topic, one in zip(topics, stored, strict=False):
            record = TracedEnd(
                now, group, topic, one.unique_id, "", "", store_host_of(one.offset_message_id),
                TracedKind.COMMITTED, transaction, state, is_from_check=False,
            )  # fmt: skip
            self._sink.put(record.encode(), (one.unique_id,))

    def _started(
        self,
        topic: str,
        options: BatchOptions | HalfOptions,
        client: str,
        created: Sequence[Span] = (),
        **more: int,
    ) -> tuple[Span, Mapping[str, str]]:
        from ledgermq.client.tracing.spans import SEND, with_context

        assert self._spans is not None
        properties = options.get("properties")
        attributes = SEND.attributes(
            topic, client__id=client, message__conversation_id=conversation_of(properties), **more
        )
        span = self._spans.start_send(attributes, created)
        beside = _beside(options.get("tag"), options.get("keys", ()))
        return span, with_context(properties, span, beside=beside)

    def _created(
        self, topic: str, messages: Sequence[OutgoingMessage], client: str
    ) -> tuple[list[OutgoingMessage], list[Span]]:
        from ledgermq.client.tracing.spans import CREATE, with_context

        assert self._spans is not None
        created = [
            self._spans.create(
                CREATE.attributes(topic, client__id=client, message__body__size=len(one.body))
            )
            for one in messages
        ]
        pairs = zip(messages, created, strict=True)
        carried = (
            with_context(one.properties, span, beside=_beside(one.tag, one.keys))
            for one, span in pairs
        )
        return with_properties(messages, carried), created

    def _process_span(
        self, message: ReceivedMessage, reader: Reader
    ) -> AbstractContextManager[object]:
        if self._spans is None:
            return nullcontext()
        from ledgermq.client.tracing.spans import PROCESS

        properties = message.properties
        attributes = PROCESS.attributes(
            message.topic, message__id=message.unique_id, message__body__size=_size(message),
            destination__partition__id=str(message.queue_id),
            ledgermq__message__offset=message.queue_offset,
            message__conversation_id=conversation_of(properties), **_of(reader),
        )  # fmt: skip
        return self._spans.process(attributes, properties)

    def _settle_span(
        self, name: str, topic: str, reader: Reader, messages: Sequence[ReceivedMessage]
    ) -> AbstractContextManager[object]:
        if self._spans is None:
            return nullcontext()
        from ledgermq.client.tracing.spans import Operation

        count = len(messages) if len(messages) > 1 else None
        settle: Operation = Operation(name, "settle")
        attributes: Attributes = settle.attributes(topic, batch__message_count=count, **_of(reader))
        return self._spans.settle(attributes, (one.properties for one in messages))

    def _note_processed(
        self, message: ReceivedMessage, reader: Reader, code: ProcessedCode, cost: int
    ) -> None:
        if self._sink is None or not reader.group or message.topic == self._sink.topic:
            return
        id_, keys = _id_and_keys(message)
        record = TracedProcessing(
            self._request_id(message, reader), id_, cost, code is ProcessedCode.SUCCESS, keys,
            code, time.time_ns() // 1_000_000, reader.group,
        )  # fmt: skip
        self._sink.put(record.encode(), (id_, *message.keys))

    def _request_id(self, message: ReceivedMessage, reader: Reader) -> str:
        """Joins the records of one delivery; the position says which it is."""
        return f"{self._nonce}{message.physical_offset:016X}{reader.group}"


def _spans_of(tracer: Tracer | None) -> Spans:
    try:
        from ledgermq.client.tracing.spans import Spans
    except ImportError as error:
        raise ConfigError(
            "spans need OpenTelemetry: pip install ledgermq[otel]", missing=error.name
        ) from error
    return Spans(tracer)


def _kind(options: BatchOptions | HalfOptions) -> TracedKind:
    is_delayed = any(options.get(name) for name in _DELAYS)
    return TracedKind.DELAYED if is_delayed else TracedKind.NORMAL


def _beside(tag: str | None, keys: Sequence[str] | None) -> str:
    return " ".join((tag or "", *(keys or ())))


def _of(reader: Reader) -> dict[str, str]:
    return {"consumer__group__name": reader.group, "client__id": reader.client}


def _id_and_keys(message: ReceivedMessage) -> tuple[str, str]:
    return message.unique_id or message.offset_message_id, " ".join(message.keys)


def _size(message: ReceivedMessage) -> int:
    return len(message.stored_body)


def _is_same(one: ReceivedMessage, other: ReceivedMessage) -> bool:
    return one is other or one.physical_offset == other.physical_offset
