"""Spans of a client's operations, by OpenTelemetry's conventions for messaging.

The trace context of a message is two properties of it, as W3C names them: ``traceparent`` and
``tracestate``. They are written also for a trace that is not sampled, so that who reads the message
decides alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

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

    def start_send(self, attributes: Attributes, created: Iterable[Span] = ()) -> Span:
        """A send that begins.

        Args:
            created: spans of its messages, where they have their own; theirs is the context that
                messages carry then, and the send only links them.
        """
        links = [Link(span.get_span_context()) for span in created][:LINKS_MAX]
        kind = SpanKind.CLIENT if links else SpanKind.PRODUCER
        return self._tracer.start_span(
            _name(attributes), kind=kind, attributes=attributes, links=links
        )

    def create(self, attributes: Attributes) -> Span:
        """A message of a batch that was made; the span has ended, its context is the message's."""
        span = self._tracer.start_span(
            _name(attributes), kind=SpanKind.PRODUCER, attributes=attributes
        )
        span.end()
        return span

    def receive(
        self, attributes: Attributes, messages: Iterable[Mapping[str, str]], since_ns: int
    ) -> None:
        """A batch that was received, and waited for since a time; linked with its messages.

        Args:
            messages: properties of each.
        """
        span = self._tracer.start_span(
            _name(attributes), kind=SpanKind.CLIENT, attributes=attributes,
            links=list(_links(messages)), start_time=since_ns,
        )  # fmt: skip
        span.end()

    def process(
        self, attributes: Attributes, properties: Mapping[str, str]
    ) -> AbstractContextManager[Span]:
        """The work on a message, as the current span; an error that leaves it is noted.

        It goes on with the trace of the message, unless the application is in one of its own: then
        it is linked with that.
        """
        created = context_of(properties)
        links = list(_links([properties]))
        is_in_a_trace = get_current_span().get_span_context().is_valid
        return self._processing(attributes, None if is_in_a_trace else created, links)

    @contextmanager
    def settle(
        self, attributes: Attributes, messages: Iterable[Mapping[str, str]]
    ) -> Iterator[None]:
        """What tells the broker how messages ended; not the current span."""
        span = self._tracer.start_span(
            _name(attributes), kind=SpanKind.CLIENT, attributes=attributes,
            links=list(_links(messages)),
        )  # fmt: skip
        try:
            yield
        except BaseException as error:
            fail(span, error)
            raise
        finally:
            span.end()

    @contextmanager
    def _processing(
        self, attributes: Attributes, parent: Context | None, links: list[Link]
    ) -> Iterator[Span]:
        span = self._tracer.start_span(
            _name(attributes), context=parent, kind=SpanKind.CONSUMER, attributes=attributes,
            links=links,
        )  # fmt: skip
        # It fails below, with the error's type as the conventions have it.
        with use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield span
            except Exception as error:
                fail(span, error)
                raise


def fail(span: Span, error: BaseException) -> None:
    """Note that what ``span`` is about has failed."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def with_context(
    properties: Mapping[str, str] | None, span: Span, *, beside: str = ""
) -> Mapping[str, str]:
    """``properties`` with the context of ``span``; with their own, where they have one.

    Without any, where it might not fit: no message is refused for its context.

    Args:
        beside: what the message has among its properties beside these, its tag and its keys.
    """
    carrier = dict(properties or {})
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


def _name(attributes: Attributes) -> str:
    operation = attributes["messaging.operation.name"]
    topic = attributes.get("messaging.destination.name")
    return str(operation) if topic is None else f"{operation} {topic}"
