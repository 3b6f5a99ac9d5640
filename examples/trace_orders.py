"""Trace orders: one trace from the shop's send to the billing, and records for RocketMQ's tools.

python examples/trace_orders.py ipc:///run/ledgermq

It needs ``pip install ledgermq[otel] opentelemetry-sdk``. An application sends its spans to a
collector (``BatchSpanProcessor(OTLPSpanExporter())``); this one prints them.
"""

from __future__ import annotations

import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from ledgermq.client import GroupConsumer, Producer, TraceTopic, Tracing

TOPIC = "orders"
GROUP = "billing"


def line(span: ReadableSpan) -> str:
    """A span as this program shows it."""
    attributes = span.attributes or {}
    kind = attributes.get("messaging.operation.type", "application")
    parent = "" if span.parent is None else " as part of what sent it"
    return f"{span.name}: {kind}{parent}\n"


def main(address: str) -> None:
    """Send an order, and bill it."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    trace.set_tracer_provider(provider)
    with TraceTopic(address) as topic:
        tracing = Tracing(topic=topic)
        with Producer(address, name="shop", tracing=tracing) as producer:
            producer.send(TOPIC, b"3 books", keys=["order-1"]).result()
            producer.flush()
        with GroupConsumer(address, group=GROUP, tracing=tracing) as consumer:
            consumer.subscribe(TOPIC)
            for message in consumer:
                with consumer.processing(message):
                    print(f"billed: {message.text()}", flush=True)
                break
            consumer.commit()
    provider.shutdown()
    print(f"records: {topic.written} written, {topic.dropped} dropped")


if __name__ == "__main__":
    main(*sys.argv[1:])
