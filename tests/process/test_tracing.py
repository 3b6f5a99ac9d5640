"""Spans of the native clients, at a real node."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags

from ledgermq.client import (
    Consumer,
    OutgoingMessage,
    Producer,
    Requester,
    Tracing,
)
from ledgermq.client.aio import (
    AsyncConsumer,
    AsyncProducer,
)
from ledgermq.client.tracing.spans import LINKS_MAX
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.model.limits import PROPERTIES_SIZE_MAX
from tests.process.conftest import SOURCES, wait_until
from tests.process.traced_clients import (
    Recorder,
    first_messages,
    linked,
    recorder,
    said,
    span_id,
    trace_of,
)
from tests.suite.patience import PATIENCE_S

__all__ = ["recorder"]

pytestmark = pytest.mark.slow

NODE = {}
"""One node for all tests, with the settings of the kit."""


def test_one_trace_goes_from_the_send_to_the_work_on_the_message(
    address: str, topic: str, recorder: Recorder
) -> None:
    tracing = Tracing(recorder.tracer)
    with Producer(address, name="shop", tracing=tracing) as producer:
        result = producer.send(topic, b"tea", tag="t").result()
    with Consumer(address, topic=topic, group="billing", name="b1", tracing=tracing) as consumer:
        (message,) = first_messages(consumer, 1)
        with consumer.processing(message), recorder.tracer.start_as_current_span("inner"):
            pass
        consumer.commit(message)
    send, receive = recorder.one(f"send {topic}"), recorder.one(f"poll {topic}")
    process, commit = recorder.one(f"process {topic}"), recorder.one(f"commit {topic}")
    inner = recorder.one("inner")
    of_message = {
        "system": "ledgermq",
        "destination.name": topic,
        "destination.partition.id": str(result.queue_id),
    }
    of_consumer = {"consumer.group.name": "billing", "client.id": "b1"}

    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (receive.kind, commit.kind) == (SpanKind.CLIENT, SpanKind.CLIENT)
    assert trace_of(send) == trace_of(process) == trace_of(inner)
    assert process.parent is not None and process.parent.span_id == span_id(send)
    assert inner.parent is not None and inner.parent.span_id == span_id(process)
    assert linked(receive) == linked(process) == [span_id(send)]
    assert said(send) == of_message | {
        "operation.name": "send",
        "operation.type": "send",
        "client.id": "shop",
        "message.body.size": 3,
        "message.id": result.unique_id,
        "ledgermq.message.offset": result.queue_offset,
    }
    assert said(receive) == of_message | of_consumer | {
        "operation.name": "poll",
        "operation.type": "receive",
        "batch.message_count": 1,
    }
    assert said(process) == of_message | of_consumer | {
        "operation.name": "process",
        "operation.type": "process",
        "message.id": result.unique_id,
        "message.body.size": 3,
        "ledgermq.message.offset": result.queue_offset,
    }
    assert said(commit) == of_consumer | {
        "system": "ledgermq",
        "operation.name": "commit",
        "operation.type": "settle",
        "destination.name": topic,
    }
    assert send.end_time is not None and receive.start_time is not None
    (stored,) = send.events
    assert (stored.name, stored.timestamp) == ("stored", result.store_timestamp * 1_000_000)


def test_within_a_trace_of_the_application_the_work_is_part_of_that_and_linked(
    address: str, topic: str, recorder: Recorder
) -> None:
    tracing = Tracing(recorder.tracer)
    start = recorder.tracer.start_as_current_span
    with Producer(address, tracing=tracing) as producer, start("order") as order:
        producer.send(topic, b"tea").result()
    with Consumer(address, topic=topic, group="billing", tracing=tracing) as consumer:
        (message,) = first_messages(consumer, 1)
        with start("night run") as run, consumer.processing(message):
            pass
    send, process = recorder.one(f"send {topic}"), recorder.one(f"process {topic}")

    assert trace_of(send) == order.get_span_context().trace_id
    assert trace_of(process) == run.get_span_context().trace_id != trace_of(send)
    assert linked(process) == [span_id(send)]


def test_messages_of_a_batch_are_created_each_and_bare_bodies_share_the_send(
    address: str, topic: str, recorder: Recorder
) -> None:
    tracing = Tracing(recorder.tracer)
    whole = [OutgoingMessage(b"a", properties={"k": "v"}), OutgoingMessage(b"bc")]
    with Producer(address, tracing=tracing) as producer:
        producer.send_batch(topic, whole, queue_id=0).result()
        bare = producer.send_batch(topic, [b"x", b"y", b"z"], queue_id=0, tag="bare").result()
    with Consumer(address, topic=topic, group="g", tracing=tracing) as consumer:
        messages = first_messages(consumer, 5)
    wait_until(lambda: len(recorder.named(f"send {topic}")) == 2, "both sends")
    created = recorder.named(f"create {topic}")
    first, second = recorder.named(f"send {topic}")
    carried = [message.properties["traceparent"].split("-")[2] for message in messages]
    received = {one for span in recorder.named(f"poll {topic}") for one in linked(span)}

    assert [span.kind for span in created] == [SpanKind.PRODUCER, SpanKind.PRODUCER]
    assert [said(span)["message.body.size"] for span in created] == [1, 2]
    assert (first.kind, linked(first)) == (SpanKind.CLIENT, [span_id(one) for one in created])
    assert (second.kind, said(second)["batch.message_count"]) == (SpanKind.PRODUCER, 3)
    assert [int(one, 16) for one in carried] == [
        *linked(first), *[span_id(second)] * len(bare)
    ]  # fmt: skip
    assert messages[0].properties["k"] == "v"
    assert received == {*linked(first), span_id(second)}


def test_what_is_refused_and_what_fails_in_work_ends_its_span_with_the_error(
    address: str, topic: str, recorder: Recorder
) -> None:
    tracing = Tracing(recorder.tracer)
    with Producer(address, tracing=tracing) as producer:
        with pytest.raises(MessageIllegalError):
            producer.send(topic, b"x", keys=["with space"])
        producer.send(topic, b"x", tag="ok").result()
    with Consumer(address, topic=topic, group="g", tracing=tracing) as consumer:
        (message,) = first_messages(consumer, 1)
        with pytest.raises(LookupError), consumer.processing(message):
            raise LookupError("no such order")
    process = recorder.one(f"process {topic}")
    wait_until(lambda: len(recorder.named(f"send {topic}")) == 2, "both sends")
    refused, _ = recorder.named(f"send {topic}")

    assert refused.status.status_code is process.status.status_code is StatusCode.ERROR
    assert (refused.attributes or {})["error.type"] == "MessageIllegalError"
    assert (process.attributes or {})["error.type"] == "LookupError"


def test_a_trace_that_is_not_sampled_is_carried_and_not_recorded(address: str, topic: str) -> None:
    provider, exporter = TracerProvider(sampler=ALWAYS_OFF), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider.get_tracer("test"))
    with Producer(address, tracing=tracing) as producer:
        producer.send(topic, b"x").result()
    with Consumer(address, topic=topic, group="g", tracing=tracing) as consumer:
        (message,) = first_messages(consumer, 1)
        with consumer.processing(message):
            pass

    *_, flags = message.properties["traceparent"].split("-")
    assert int(flags, 16) & TraceFlags.SAMPLED == 0
    assert exporter.get_finished_spans() == ()


def test_a_context_that_the_application_gives_is_kept(
    address: str, topic: str, recorder: Recorder
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Producer(address, tracing=Tracing(recorder.tracer)) as producer:
        producer.send(topic, b"x", properties={"traceparent": own, "tracestate": "a=b"}).result()
    with Consumer(address, topic=topic, group="g") as consumer:
        (message,) = first_messages(consumer, 1)

    assert message.properties["traceparent"] == own
    assert message.properties["tracestate"] == "a=b"


def test_no_message_is_refused_for_its_context(
    address: str, topic: str, recorder: Recorder
) -> None:
    full = {"k": "v" * (PROPERTIES_SIZE_MAX - 200)}
    with Producer(address, tracing=Tracing(recorder.tracer)) as producer:
        producer.send(topic, b"x", properties=full, queue_id=0).result()
        whole = [OutgoingMessage(b"y", keys=["k" * (PROPERTIES_SIZE_MAX - 200)])]
        producer.send_batch(topic, whole, queue_id=0).result()
    with Consumer(address, topic=topic, group="g") as consumer:
        messages = first_messages(consumer, 2)

    assert ["traceparent" in message.properties for message in messages] == [False, False]


def test_a_span_links_no_more_than_its_bound(address: str, topic: str, recorder: Recorder) -> None:
    tracing = Tracing(recorder.tracer)
    whole = [OutgoingMessage(b"%d" % number) for number in range(LINKS_MAX + 50)]
    with Producer(address, tracing=tracing) as producer:
        producer.send_batch(topic, whole, queue_id=0).result()
    with Consumer(address, topic=topic, group="g", tracing=tracing) as consumer:
        first_messages(consumer, len(whole))
    created = [span_id(span) for span in recorder.named(f"create {topic}")]
    polls = recorder.named(f"poll {topic}")
    counts = [said(span)["batch.message_count"] for span in polls]

    assert len(created) == len(whole)
    assert linked(recorder.one(f"send {topic}")) == created[:LINKS_MAX]
    assert linked(polls[0]) == created[: min(counts[0], LINKS_MAX)]
    assert sum(counts) == len(whole)


@pytest.mark.parametrize("parent", ["", "00-0-0-01", "x" * 4_000, "00-" + "0" * 32 + "-1-01"])
def test_a_context_that_is_none_is_no_context(
    address: str, topic: str, recorder: Recorder, parent: str
) -> None:
    properties = {"traceparent": parent or "-", "tracestate": "=,=" * 200}
    with Producer(address) as producer:
        producer.send(topic, b"x", properties=properties).result()
    with Consumer(
        address, topic=topic, group=f"g{len(parent)}", tracing=Tracing(recorder.tracer)
    ) as consumer:
        message = first_messages(consumer, 1)[-1]
        with consumer.processing(message):
            pass

    process = recorder.one(f"process {topic}")
    assert (process.parent, list(process.links)) == (None, [])


def test_a_message_that_is_given_back_comes_again_in_the_same_trace(
    address: str, topic: str, recorder: Recorder
) -> None:
    tracing = Tracing(recorder.tracer)
    with Producer(address, tracing=tracing) as producer:
        producer.send(topic, b"x").result()
    with Consumer(address, topic=topic, group="again", tracing=tracing) as consumer:
        (message,) = first_messages(consumer, 1)
        with consumer.processing(message):
            consumer.retry_later(message, delay_level=1)
        (again,) = first_messages(consumer, 1)
        with consumer.processing(again):
            pass
    send, retry = recorder.one(f"send {topic}"), recorder.one(f"retry_later {topic}")
    processed = recorder.named(f"process {topic}")

    assert again.reconsume_times == 1
    assert [trace_of(span) for span in processed] == [trace_of(send)] * 2
    assert (said(retry)["operation.type"], linked(retry)) == ("settle", [span_id(send)])


def test_a_requests_and_its_replys_spans_are_one_conversation(
    address: str, topic: str, recorder: Recorder
) -> None:
    tracing = Tracing(recorder.tracer)

    async def answer() -> None:
        async with (
            AsyncProducer(address, tracing=tracing) as producer,
            AsyncConsumer(address, topic=topic, group="g", tracing=tracing) as consumer,
        ):
            async for message in consumer:
                with consumer.processing(message):
                    await producer.reply(message, b"3")
                return

    async def ask() -> None:
        with Requester(address, tracing=tracing) as requester:
            asking = asyncio.to_thread(requester.request, topic, b"tea", timeout=PATIENCE_S)
            await asyncio.gather(asking, answer())

    asyncio.run(ask())
    request, process = recorder.one(f"send {topic}"), recorder.one(f"process {topic}")
    (reply,) = [
        span
        for span in recorder.exporter.get_finished_spans()
        if span.parent is not None and span.parent.span_id == span_id(process)
    ]

    assert trace_of(request) == trace_of(process) == trace_of(reply)
    assert said(request)["message.conversation_id"] == said(reply)["message.conversation_id"]


def test_nothing_to_trace_is_refused() -> None:
    with pytest.raises(ConfigError, match="traces nothing"):
        Tracing(spans=False)


def test_who_has_no_opentelemetry_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ledgermq.client.tracing.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with pytest.raises(ConfigError, match=r"ledgermq\[otel\]"):
        Tracing()


def test_a_client_without_tracing_calls_and_imports_nothing_of_it(address: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNTRACED, address, topic],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "[] []\n", "")


UNTRACED = """
import sys, threading
from ledgermq.client import Consumer, Producer

called = []
def note(frame, event, argument):
    if event == "call" and "client/trac" in frame.f_code.co_filename:
        called.append(frame.f_code.co_name)

address, topic = sys.argv[1:]
threading.setprofile(note)
sys.setprofile(note)
with Producer(address) as producer:
    for _ in range(3):
        producer.send(topic, b"x").result()
    producer.send(topic, b"x", tag="t").result()
    producer.send_batch(topic, [b"x", b"y"]).result()
with Consumer(address, topic=topic) as consumer:
    seen = 0
    while seen < 6:
        seen += len(consumer.poll(1.0))
sys.setprofile(None)
print(called, [name for name in sys.modules if name.startswith("opentelemetry")])
"""
