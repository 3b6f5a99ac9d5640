"""Courses of traced sends: each from where it begins to its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.request_reply import CORRELATION_ID
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.formats.records.trace_record import TracedKind, TracedSend
from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.errors import LedgerError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

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
        self, sending: Sending, told: Sequence[Told], span: Span | None, sink: TraceSink | None
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
        span, sink = self._span, self._sink
        if span is not None:
            if span.is_recording():
                first = results[0]
                # Where it waits is no place of the topic that it was sent to.
                if first.topic == self._sending.topic:
                    span.set_attribute("messaging.destination.partition.id", str(first.queue_id))
                if len(results) == 1:
                    span.set_attribute("messaging.message.id", first.unique_id)
                    span.set_attribute("messaging.ledgermq.message.offset", first.queue_offset)
                span.add_event("stored", {"messaging.ledgermq.ack": first.ack.value},
                               first.store_timestamp * 1_000_000)  # fmt: skip
            span.end()
        if sink is not None:
            cost = self._cost() // len(results)
            for told, result in zip(self._told, results, strict=True):
                self._record(sink, told, cost, result.unique_id, result)

    def failed(self, error: BaseException, unique_id: str = "") -> None:
        """They are not, or nobody knows."""
        if self._span is not None:
            from ledgermq.client.tracing.spans import fail

            fail(self._span, error)
            self._span.end()
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
            self._time, sending.client, sending.topic, id_, tag, keys, store_host_of(offset_id),
            size, cost, sending.kind, offset_id, result is not None,
        )  # fmt: skip
        sink.put(record.encode(), (id_, *keys.split()))

    def _cost(self) -> int:
        return round((time.monotonic() - self._begin) * 1_000)


def store_host_of(offset_id: str) -> str:
    """Address of the node that stored a message, as its id tells; empty without one."""
    if not offset_id:
        return ""
    try:
        host, port = decode_offset_id(offset_id).store_host
    except LedgerError:
        return ""
    return host_and_port(host, port)


def told_of(tag: str | None, keys: Sequence[str] | None, size: int) -> Told:
    """What a record says of a message."""
    return tag or "", keys if isinstance(keys, str) else " ".join(keys or ()), size


def told_of_all(messages: Messages, tag: str | None, keys: Sequence[str]) -> list[Told]:
    """The same of each message of a batch; bare bodies share tag and keys."""
    return [
        told_of(one.tag, one.keys, len(one.body))
        if isinstance(one, OutgoingMessage)
        else told_of(tag, keys, len(one))
        for one in messages
    ]


def conversation_of(properties: Mapping[str, str] | None) -> str | None:
    """What a request and its reply have in common."""
    return (properties or {}).get(CORRELATION_ID)


def with_properties(
    messages: Sequence[OutgoingMessage], properties: Iterator[Mapping[str, str]]
) -> list[OutgoingMessage]:
    """``messages`` with other properties."""
    return [replace(one, properties=own) for one, own in zip(messages, properties, strict=True)]


def _error_of(future: KnownOutcome[object]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:
        # That of asyncio, of which the caller has let go, raises it.
        return error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
