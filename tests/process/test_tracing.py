"""Spans and trace records of the native clients, at a real node."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags, Tracer
from tests.process.client_node import own_topic, start_client_node
from tests.process.conftest import SOURCES, Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC, make_group
from tests.suite.patience import PATIENCE_S

from ledgermq.client import (
    Consumer,
    Decision,
    GroupConsumer,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    Queries,
    ReceivedMessage,
    Requester,
    TraceTopic,
    Tracing,
    TransactionalProducer,
)
from ledgermq.client.aio import (
    AsyncConsumer,
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncTransactionalProducer,
)
from ledgermq.client.tracing.spans import LINKS_MAX
from ledgermq.formats.records.trace_record import (
    TracedDelivery,
    TracedEnd,
    TracedKind,
    TracedProcessing,
    TracedSend,
    TraceRecord,
    decode_traces,
)
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.model.limits import PROPERTIES_SIZE_MAX
from ledgermq.model.names.system_topics import TRACE_TOPIC

pytestmark = pytest.mark.slow

MESSAGING = "messaging."


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """One for all tests."""
    with nodes_made() as make:
        made = make()
        start_client_node(made)
        yield made


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    return own_topic(node, request)


@pytest.fixture
def address(node: Node) -> str:
    return f"ipc://{node.runtime}"


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


def test_the_trace_topic_has_the_whole_life_of_a_message(address: str, topic: str) -> None:
    with TraceTopic(address) as traces:
        tracing = Tracing(spans=False, topic=traces)
        with Producer(address, name="shop", tracing=tracing) as producer:
            sent = producer.send(topic, b"tea", tag="t", keys=["k1", "k2"]).result()
        with GroupConsumer(address, group="billing-life", tracing=tracing) as consumer:
            consumer.subscribe(topic)
            (message,) = first_messages(consumer, 1)
            with consumer.processing(message):
                consumer.retry_later(message, delay_level=1)
            (again,) = first_messages(consumer, 1)
            with consumer.processing(again):
                pass
    records = records_of(address, sent.unique_id, 5)
    (send,) = [one for one in records if isinstance(one, TracedSend)]
    delivered = [one for one in records if isinstance(one, TracedDelivery)]
    processed = [one for one in records if isinstance(one, TracedProcessing)]

    assert (traces.written, traces.dropped) == (5, 0)
    assert send[1:10] == (
        "shop", topic, sent.unique_id, "t", "k1 k2", send.store_host, 3, send.cost,
        TracedKind.NORMAL,
    )[:9]  # fmt: skip
    assert (send.offset_id, send.is_success) == (sent.offset_message_id, True)
    assert [one.retries for one in delivered] == [0, 1]
    assert [one.is_success for one in processed] == [False, True]
    assert [one.request_id for one in delivered] == [one.request_id for one in processed]
    assert {one.group for one in (*delivered, *processed)} == {"billing-life"}
    assert send.time <= delivered[0].time <= processed[0].time


def test_a_transaction_leaves_its_half_message_and_its_end(
    address: str, topic: str, recorder: Recorder
) -> None:
    with TraceTopic(address) as traces:
        tracing = Tracing(recorder.tracer, topic=traces)
        with (
            TransactionalProducer(address, group="payers", tracing=tracing) as producer,
            producer.transaction() as transaction,
        ):
            stored = transaction.send(topic, b"x").result()
        with Consumer(address, topic=topic, group="g", tracing=tracing) as consumer:
            (message,) = first_messages(consumer, 1)
    records = records_of(address, stored.unique_id, 2)
    (send,) = [one for one in records if isinstance(one, TracedSend)]
    (end,) = [one for one in records if isinstance(one, TracedEnd)]

    assert (send.kind, send.group, send.topic) == (TracedKind.HALF, "payers", topic)
    assert (end.topic, end.state, end.transaction_id) == (topic, "COMMIT_MESSAGE", transaction.id)
    assert message.unique_id == stored.unique_id
    assert linked(recorder.one(f"poll {topic}")) == [span_id(recorder.one(f"send {topic}"))]


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


def test_the_clients_of_asyncio_are_traced_alike(
    address: str, topic: str, recorder: Recorder
) -> None:
    async def run(tracing: Tracing) -> str:
        async with AsyncProducer(address, tracing=tracing) as producer:
            sent = await producer.send(topic, b"x", keys=["k"])
            await producer.send_batch(topic, [b"y", b"z"])
        group = AsyncTransactionalProducer(address, group="payers", tracing=tracing)
        async with group as transactional:
            await transactional.send(topic, b"t", _committed)
        member = AsyncGroupConsumer(address, group="async-life", tracing=tracing)
        member.subscribe(topic)
        seen = 0
        async with member as consumer:
            while seen < 4:
                for message in await consumer.poll(1.0):
                    with consumer.processing(message):
                        await asyncio.sleep(0)
                    seen += 1
            await consumer.commit()
        return sent.unique_id

    with TraceTopic(address) as traces:
        unique_id = asyncio.run(run(Tracing(recorder.tracer, topic=traces)))
    kinds = {type(one) for one in records_of(address, unique_id, 3)}

    assert kinds == {TracedSend, TracedDelivery, TracedProcessing}
    assert len(recorder.named(f"send {topic}")) == 3
    assert len(recorder.named(f"process {topic}")) == 4
    assert {trace_of(span) for span in recorder.named(f"process {topic}")} == {
        trace_of(span) for span in recorder.named(f"send {topic}")
    }
    assert recorder.named("commit")
    assert (traces.written, traces.dropped) == (3 + 1 + 1 + 8, 0)


async def _committed(_: str) -> Decision:
    return Decision.COMMIT


@pytest.mark.parametrize("name", [TRACE_TOPIC, "traces-of-orders"])
def test_a_consumer_of_the_trace_topic_leaves_no_traces_of_it(
    address: str, topic: str, name: str
) -> None:
    with TraceTopic(address, topic=name) as traces:
        tracing = Tracing(spans=False, topic=traces)
        with Producer(address, tracing=tracing) as producer:
            producer.send(topic, b"x").result()
        traces.flush(PATIENCE_S)
        with Consumer(address, topic=name, group="viewers", tracing=tracing) as consumer:
            for message in first_messages(consumer, 1):
                with consumer.processing(message):
                    pass
        traces.flush(PATIENCE_S)

        assert traces.written == 1


def test_nothing_to_trace_is_refused() -> None:
    with pytest.raises(ConfigError, match="traces nothing"):
        Tracing(spans=False)


def test_who_has_no_opentelemetry_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ledgermq.client.tracing.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with pytest.raises(ConfigError, match=r"ledgermq\[otel\]"):
        Tracing()


def test_records_without_room_or_a_node_are_dropped_and_counted_and_no_send_waits(
    make_node: Callable[[], Node], caplog: pytest.LogCaptureFixture
) -> None:
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    elsewhere = make_node()
    with TraceTopic(f"ipc://{elsewhere.runtime}", records_max=4) as traces:
        tracing = Tracing(spans=False, topic=traces)
        begin = time.monotonic()
        with Producer(address, tracing=tracing) as producer:
            for _ in range(10):
                producer.send("orders", b"x").result(PATIENCE_S)
        took = time.monotonic() - begin
        # Those that had room wait for a node that never comes.
        with caplog.at_level(logging.WARNING):
            wait_until(lambda: traces.dropped == 10, "the last record", timeout_s=PATIENCE_S)
        begin = time.monotonic()
        traces.put("late\x02", ["k"])
        traces.close(0.1)

        assert time.monotonic() - begin < PATIENCE_S
        assert took < PATIENCE_S
    assert traces.written == 0
    assert "traces dropped" in caplog.text


def test_each_record_is_written_or_counted_while_the_leader_is_killed(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    sent: list[str] = []
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with TraceTopic(group.addresses) as traces:
        tracing = Tracing(spans=False, topic=traces)
        with Producer(group.addresses, options=options, tracing=tracing) as producer:
            for number in range(40):
                if number == 20:
                    wait_until(lambda: traces.written == 20, "the records before")
                    leader.kill()
                sent.append(producer.send(TOPIC, b"x").result(PATIENCE_S).unique_id)
        wait_until(lambda: traces.written + traces.dropped == 40, "the records after")
        # Whatever was dropped meanwhile: the new leader gets the next ones.
        wait_until(lambda: _is_written(traces), "a record at the new leader")
    with Queries(group.addresses) as queries:
        found = {
            record.id
            for queue_id in range(queries.read_queues(TRACE_TOPIC))
            for message in queries.browse(TRACE_TOPIC, queue_id, 0, messages_max=256)
            for record in decode_traces(message.body)
        }

    assert set(sent[:20]) <= found <= set(sent)
    assert len(found) >= traces.written - 1


def _is_written(traces: TraceTopic) -> bool:
    before = traces.written
    traces.put("Recall\x01\x02", [])
    traces.flush(PATIENCE_S)
    return traces.written > before


def test_a_key_that_cannot_be_one_costs_no_record(address: str, topic: str) -> None:
    with TraceTopic(address) as traces:
        traces.put("Recall\x01\x02", [topic, "with space", "", "a\x01b"])
        traces.put("x" * 20_000, [topic])
        traces.flush(PATIENCE_S)
        with Queries(address) as queries:
            wait_until(lambda: queries.by_key(TRACE_TOPIC, topic).messages, "the record")
            (message,) = queries.by_key(TRACE_TOPIC, topic).messages

    assert message.keys == (topic,)
    assert (traces.written, traces.dropped) == (1, 1)


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
