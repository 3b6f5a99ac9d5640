"""Spans of a client's operations, by OpenTelemetry's conventions for messaging.

The trace context of a message is two properties of it, as W3C names them: ``traceparent`` and
``tracestate``. They are written also for a trace that is not sampled, so that who reads the message
decides alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    get_tracer,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ledgermq import __version__
from ledgermq.client.core.read_traces import Reader
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.message_options import BatchOptions, HalfOptions
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.request_reply import CORRELATION_ID
from ledgermq.model.limits import PROPERTIES_SIZE_MAX

SYSTEM = "ledgermq"
LINKS_MAX = 128
"""Most links of a span, as OpenTelemetry's SDK has it; the other messages are counted only."""

TRACE_PARENT = "traceparent"

CONTEXT_ROOM = 2_048
"""Bytes that are free for a context, and for what a message has of its own: its id, its delay. W3C
has 512 for the state, beside 55 for the parent.
"""

Value = str | int
Attributes = dict[str, Value]

_W3C = TraceContextTextMapPropagator()


class Operation(NamedTuple):
    """What a span is about.

    Attributes:
        name: ours, as the client's method is called.
        kind: the convention's: ``create``, ``send``, ``receive``, ``process``, ``settle``; empty
            for what it has none for.
    """

    name: str
    kind: str

    def attributes(self, topic: str, **more: Value | None) -> Attributes:
        """What all spans say, and ``more``, whose names are the convention's behind ``messaging.``;
        two underscores stand for a dot, and what is ``None`` or empty is left out.
        """
        values: dict[str, Value | None] = {
            "system": SYSTEM,
            "operation.name": self.name,
            "operation.type": self.kind,
            "destination.name": topic,
        }
        values |= {name.replace("__", "."): value for name, value in more.items()}
        return {
            f"messaging.{name}": value for name, value in values.items() if value not in (None, "")
        }


CREATE = Operation("create", "create")
SEND = Operation("send", "send")
RECEIVE = Operation("poll", "receive")
PROCESS = Operation("process", "process")


class Spans:
    """Makes spans, and writes and reads the context of messages."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        """Spans of ``tracer``; of the application's provider when left out."""
        self._tracer = tracer or get_tracer("ledgermq.client", __version__)

    def start_send(
        self,
        topic: str,
        options: BatchOptions | HalfOptions,
        client: str,
        created: Sequence[Span] = (),
        **more: int,
    ) -> tuple[SendSpan, Mapping[str, str]]:
        """A send that begins, and the properties that carry its context.

        Args:
            created: spans of its messages, where they have their own; theirs is the context that
                messages carry then, and the send only links them.
        """
        properties = options.get("properties")
        conversation = _conversation_of(properties)
        attributes = SEND.attributes(
            topic, client__id=client, message__conversation_id=conversation, **more
        )
        links = [Link(span.get_span_context()) for span in created][:LINKS_MAX]
        span = self._begun(attributes, SpanKind.CLIENT if links else SpanKind.PRODUCER, links)
        carried = _with_context(properties, span, options.get("tag"), options.get("keys", ()))
        return SendSpan(span), carried

    def create(
        self, topic: str, messages: Sequence[OutgoingMessage], client: str
    ) -> tuple[list[OutgoingMessage], list[Span]]:
        """Messages of a batch that were made, with the context of a span each, which has ended."""
        made, spans = [], []
        for one in messages:
            attributes = CREATE.attributes(
                topic, client__id=client, message__body__size=len(one.body)
            )
            span = self._begun(attributes, SpanKind.PRODUCER)
            span.end()
            carried = _with_context(one.properties, span, one.tag, one.keys)
            made.append(replace(one, properties=carried))
            spans.append(span)
        return made, spans

    def receive(self, batch: MessageBatch, reader: Reader, since_ns: int) -> None:
        """A batch that was received, and waited for since a time; linked with its messages."""
        attributes = RECEIVE.attributes(
            batch[0].topic,
            batch__message_count=len(batch),
            destination__partition__id=str(batch.queue_id),
            **_of(reader),
        )
        links = _links(one.properties for one in batch)
        self._begun(attributes, SpanKind.CLIENT, links, start_time=since_ns).end()

    @contextmanager
    def process(self, message: ReceivedMessage, reader: Reader) -> Iterator[None]:
        """The work on a message, as the current span; an error that leaves it is noted.

        It goes on with the trace of the message, unless the application is in one of its own: then
        it is linked with that.
        """
        properties = message.properties
        attributes = PROCESS.attributes(
            message.topic,
            message__id=message.unique_id,
            message__body__size=len(message.stored_body),
            destination__partition__id=str(message.queue_id),
            ledgermq__message__offset=message.queue_offset,
            message__conversation_id=_conversation_of(properties),
            **_of(reader),
        )
        is_in_a_trace = get_current_span().get_span_context().is_valid
        parent = None if is_in_a_trace else context_of(properties)
        span = self._begun(attributes, SpanKind.CONSUMER, _links([properties]), context=parent)
        # It fails below, with the error's type as the conventions have it.
        with use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except Exception as error:
                _fail(span, error)
                raise

    @contextmanager
    def settle(
        self, name: str, topic: str, reader: Reader, messages: Sequence[ReceivedMessage]
    ) -> Iterator[None]:
        """What tells the broker how messages ended; not the current span."""
        count = len(messages) if len(messages) > 1 else None
        operation = Operation(name, "settle")
        attributes = operation.attributes(topic, batch__message_count=count, **_of(reader))
        links = _links(one.properties for one in messages)
        span = self._begun(attributes, SpanKind.CLIENT, links)
        try:
            yield
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            span.end()

    def _begun(
        self, attributes: Attributes, kind: SpanKind, links: Iterable[Link] = (), **more: Any
    ) -> Span:
        return self._tracer.start_span(
            _name(attributes), kind=kind, attributes=attributes, links=list(links), **more
        )


class SendSpan:
    """The span of a send under way."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def stored(self, results: Sequence[SendResult], topic: str) -> None:
        """The messages, sent to ``topic``, are stored."""
        span = self._span
        if span.is_recording():
            first = results[0]
            # Where it waits is no place of the topic that it was sent to.
            if first.topic == topic:
                span.set_attribute("messaging.destination.partition.id", str(first.queue_id))
            if len(results) == 1:
                span.set_attribute("messaging.message.id", first.unique_id)
                span.set_attribute("messaging.ledgermq.message.offset", first.queue_offset)
            ack = {"messaging.ledgermq.ack": first.ack.value}
            span.add_event("stored", ack, first.store_timestamp * 1_000_000)
        span.end()

    def failed(self, error: BaseException) -> None:
        """They are not, or nobody knows."""
        _fail(self._span, error)
        self._span.end()


def _fail(span: Span, error: BaseException) -> None:
    """Note that what ``span`` is about has failed."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _with_context(
    properties: Mapping[str, str] | None, span: Span, tag: str | None, keys: Sequence[str] | None
) -> Mapping[str, str]:
    """``properties`` with the context of ``span``; with their own, where they have one.

    Without any, where it might not fit: no message is refused for its context.

    Args:
        tag, keys: what the message has among its properties beside these.
    """
    carrier = dict(properties or {})
    beside = " ".join((tag or "", *(keys or ())))
    taken = len(beside.encode(errors="replace")) + sum(
        len(f"{name} {value} ".encode(errors="replace")) for name, value in carrier.items()
    )
    if TRACE_PARENT not in carrier and taken <= PROPERTIES_SIZE_MAX - CONTEXT_ROOM:
        _W3C.inject(carrier, set_span_in_context(span))
    return carrier


def context_of(properties: Mapping[str, str]) -> Context | None:
    """The trace context that a message carries, if it does."""
    if TRACE_PARENT not in properties:
        return None
    context = _W3C.extract(properties)
    return context if get_current_span(context).get_span_context().is_valid else None


def _links(messages: Iterable[Mapping[str, str]]) -> Iterator[Link]:
    """A link for each context, of which messages of one batch may have one in common."""
    seen: set[str] = set()
    for properties in messages:
        parent = properties.get(TRACE_PARENT)
        if parent is None or parent in seen:
            continue
        seen.add(parent)
        context = context_of(properties)
        if context is not None:
            yield Link(get_current_span(context).get_span_context())
        if len(seen) == LINKS_MAX:
            return


def _conversation_of(properties: Mapping[str, str] | None) -> str | None:
    """What a request and its reply have in common."""
    return (properties or {}).get(CORRELATION_ID)


def _of(reader: Reader) -> dict[str, str]:
    return {"consumer__group__name": reader.group, "client__id": reader.client}


def _name(attributes: Attributes) -> str:
    operation = attributes["messaging.operation.name"]
    topic = attributes.get("messaging.destination.name")
    return str(operation) if topic is None else f"{operation} {topic}"
