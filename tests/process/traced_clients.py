"""What tests of traced clients have in common: recorded spans, and records of the trace topic."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from ledgermq.client import (
    Consumer,
    GroupConsumer,
    Queries,
    ReceivedMessage,
)
from ledgermq.formats.records.trace_record import TraceRecord
from ledgermq.model.names.system_topics import TRACE_TOPIC
from tests.plain_codecs import decode_traces
from tests.process.conftest import wait_until
from tests.suite.patience import PATIENCE_S

MESSAGING = "messaging."


class Recorder(NamedTuple):
    """A tracer, and the spans that have ended."""

    tracer: Tracer
    exporter: InMemorySpanExporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The span of that name, which may end a moment later."""
        wait_until(lambda: self.named(name), name)
        (span,) = self.named(name)
        return span


@pytest.fixture
def recorder() -> Recorder:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Recorder(provider.get_tracer("test"), exporter)


def said(span: ReadableSpan) -> dict[str, Any]:
    """What it says by the conventions, without their common beginning."""
    attributes = span.attributes or {}
    return {
        name.removeprefix(MESSAGING): value
        for name, value in attributes.items()
        if name.startswith(MESSAGING)
    }


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def first_messages(consumer: Consumer | GroupConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until, found
        found += consumer.poll(1.0)
    return found


def records_of(address: str, unique_id: str, count: int) -> list[TraceRecord]:
    """The records about a message, once there are so many."""
    with Queries(address) as queries:

        def found() -> list[TraceRecord]:
            messages = queries.by_key(TRACE_TOPIC, unique_id).messages
            records = [one for message in messages for one in decode_traces(message.body)]
            return [one for one in records if one.id == unique_id]

        wait_until(lambda: len(found()) >= count, f"{count} records of {unique_id}")
        return found()
