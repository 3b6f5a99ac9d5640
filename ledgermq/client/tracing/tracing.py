"""``Tracing``: what clients of an application tell of the way of their messages, and where."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ledgermq.client.core.read_traces import Reader
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.message_options import BatchOptions, HalfOptions, MessageOptions
from ledgermq.client.sending.outgoing import (
    Body,
    OutgoingMessage,
    check_bodies,
    checked_bodies,
)
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.formats.records.trace_record import (
    STATE_COMMIT,
    STATE_ROLLBACK,
    ProcessedCode,
    TracedDelivery,
    TracedEnd,
    TracedKind,
    TracedProcessing,
    TracedSend,
)
from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.names.transactions import Decision

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from ledgermq.client.tracing.spans import SendSpan, Spans

_DELAYS = ("delay_level", "delay", "deliver_at")

Result_co = TypeVar("Result_co", covariant=True)
Messages = Sequence[Body] | Sequence[OutgoingMessage]
Told = tuple[str, str, int]
"""Tag, keys and size of a body, of one message."""


class TraceSink(Protocol):
    """Where records go, and are dropped if there is no room.

    Attributes:
        topic: the topic that they are written to: who reads it leaves no records of that.
    """

    topic: str

    def put(self, record: str, keys: Sequence[str]) -> None:
        """Take a record of the messages that have ``keys``; at once, and without an error."""
        ...


class KnownOutcome(Protocol[Result_co]):
    """A future that is done, of either kind."""

    def result(self) -> Result_co:
        """What it comes to."""
        ...

    def exception(self) -> BaseException | None:
        """Why it comes to nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Sending:
    """What is sent, and by whom.

    Attributes:
        client: name of the producer, or its group.
    """

    topic: str
    client: str
    kind: TracedKind = TracedKind.NORMAL


class SendCourse:
    """One send under way. It ends once, by ``done`` or by ``failed``."""

    def __init__(
        self, sending: Sending, told: Sequence[Told], span: SendSpan | None, sink: TraceSink | None
    ) -> None:
        """A send that begins now.

        Args:
            told: of each message, in their order.
        """
        self._sending = sending
        self._told = told
        self._span = span
        self._sink = sink
        self._time = _now_ms()
        self._begin = time.monotonic()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """The part of the send that may be refused at once."""
        try:
            yield
        except BaseException as error:
            self.failed(error)
            raise

    def callback(
        self, then: Callable[[SendFuture[SendResult]], object] | None
    ) -> Callable[[SendFuture[SendResult]], object]:
        """The callback of the message's future; ``then`` is the application's, and comes last."""

        def settle(future: SendFuture[SendResult]) -> None:
            try:
                self.settle(future, future.unique_id)
            finally:
                if then is not None:
                    then(future)

        return settle

    def batch_callback(
        self, then: Callable[[SendFuture[BatchResult]], object] | None
    ) -> Callable[[SendFuture[BatchResult]], object]:
        """The same of a batch."""

        def settle(future: SendFuture[BatchResult]) -> None:
            try:
                self.settle_batch(future)
            finally:
                if then is not None:
                    then(future)

        return settle

    def settle(self, future: KnownOutcome[SendResult], unique_id: str = "") -> None:
        """The outcome of a message is known, or nobody wants to know it any more."""
        error = _error_of(future)
        if error is None:
            self.done([future.result()])
        else:
            self.failed(error, unique_id)

    def settle_batch(self, future: KnownOutcome[BatchResult]) -> None:
        """The same of a batch."""
        error = _error_of(future)
        if error is None:
            self.done(future.result())
        else:
            self.failed(error)

    def done(self, results: Sequence[SendResult]) -> None:
        """The messages are stored."""
        sink = self._sink
        if self._span is not None:
            self._span.stored(results, self._sending.topic)
        if sink is not None:
            cost = self._cost() // len(results)
            for told, result in zip(self._told, results, strict=True):
                self._record(sink, told, cost, result.unique_id, result)

    def failed(self, error: BaseException, unique_id: str = "") -> None:
        """They are not, or nobody knows."""
        if self._span is not None:
            self._span.failed(error)
        if self._sink is not None and unique_id:
            self._record(self._sink, self._told[0], self._cost(), unique_id)

    def _record(
        self, sink: TraceSink, told: Told, cost: int, id_: str, result: SendResult | None = None
    ) -> None:
        """Note one message; without a result it is not stored, or nobody knows."""
        tag, keys, size = told
        sending = self._sending
        offset_id = "" if result is None else result.offset_message_id
        record = TracedSend(
            self._time, sending.client, sending.topic, id_, tag, keys, _store_host_of(offset_id),
            size, cost, sending.kind, offset_id, result is not None,
        )  # fmt: skip
        sink.put(record.encode(), (id_, *keys.split()))

    def _cost(self) -> int:
        return round((time.monotonic() - self._begin) * 1_000)


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
        check_bodies((type(body),))
        span = None
        if self._spans is not None:
            span, options["properties"] = self._spans.start_send(
                topic, options, client, message__body__size=len(body)
            )
        kind = TracedKind.HALF if is_half else _kind(options)
        told = _told_of(options.get("tag"), options.get("keys", ()), len(body))
        return SendCourse(Sending(topic, client, kind), [told], span, self._sink)

    def send_batch(
        self, topic: str, messages: Messages, options: BatchOptions, *, client: str
    ) -> tuple[Messages, SendCourse]:
        """A batch that is about to be sent, with the trace context in it.

        Messages that have properties of their own have a span of their own, too, and carry its
        context; bare bodies carry that of the send.
        """
        checked_bodies(messages)
        told = _told_of_all(messages, options.get("tag"), options.get("keys", ()))
        course_of = Sending(topic, client, _kind(options))
        if self._spans is None:
            return messages, SendCourse(course_of, told, None, self._sink)
        whole = [one for one in messages if isinstance(one, OutgoingMessage)]
        if len(whole) != len(messages) or not whole:
            span, options["properties"] = self._spans.start_send(
                topic, options, client, batch__message_count=len(messages)
            )
            return messages, SendCourse(course_of, told, span, self._sink)
        messages, created = self._spans.create(topic, whole, client)
        span, _ = self._spans.start_send(
            topic, options, client, created, batch__message_count=len(messages)
        )
        return messages, SendCourse(course_of, told, span, self._sink)

    def received(self, batch: MessageBatch, reader: Reader, since_ns: int) -> None:
        """``batch``, which was waited for since a time (epoch ns), is given now."""
        if not len(batch):
            return
        if self._spans is not None:
            self._spans.receive(batch, reader, since_ns)
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
            with nullcontext() if self._spans is None else self._spans.process(message, reader):
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
        spans = self._spans
        with nullcontext() if spans is None else spans.settle(name, topic, reader, messages):
            yield
        for one in messages:
            work = _work.get()
            if work is not None and _is_same(work.message, one):
                work.is_given_back = True
            else:
                self._note_processed(one, reader, ProcessedCode.FAILED, 0)

    def ended(
        self,
        group: str,
        transaction: str,
        decision: Decision,
        stored: Sequence[SendResult],
        topics: Sequence[str],
    ) -> None:
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
                now, group, topic, one.unique_id, "", "", _store_host_of(one.offset_message_id),
                TracedKind.COMMITTED, transaction, state, is_from_check=False,
            )  # fmt: skip
            self._sink.put(record.encode(), (one.unique_id,))

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


def _id_and_keys(message: ReceivedMessage) -> tuple[str, str]:
    return message.unique_id or message.offset_message_id, " ".join(message.keys)


def _is_same(one: ReceivedMessage, other: ReceivedMessage) -> bool:
    return one is other or one.physical_offset == other.physical_offset


def _store_host_of(offset_id: str) -> str:
    """Address of the node that stored a message, as its id tells; empty without one."""
    if not offset_id:
        return ""
    try:
        host, port = decode_offset_id(offset_id).store_host
    except LedgerError:
        return ""
    return host_and_port(host, port)


def _told_of(tag: str | None, keys: Sequence[str] | None, size: int) -> Told:
    """What a record says of a message."""
    return tag or "", keys if isinstance(keys, str) else " ".join(keys or ()), size


def _told_of_all(messages: Messages, tag: str | None, keys: Sequence[str]) -> list[Told]:
    """The same of each message of a batch; bare bodies share tag and keys."""
    return [
        _told_of(one.tag, one.keys, len(one.body))
        if isinstance(one, OutgoingMessage)
        else _told_of(tag, keys, len(one))
        for one in messages
    ]


def _error_of(future: KnownOutcome[object]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:
        # That of asyncio, of which the caller has let go, raises it.
        return error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
