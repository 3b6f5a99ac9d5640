"""Records of native clients in the trace topic of a real node: all of them, or counted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import pytest

from ledgermq.client import (
    Consumer,
    Decision,
    GroupConsumer,
    Producer,
    ProducerOptions,
    Queries,
    TraceTopic,
    Tracing,
    TransactionalProducer,
)
from ledgermq.client.aio import (
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncTransactionalProducer,
)
from ledgermq.formats.records.trace_record import (
    TracedDelivery,
    TracedEnd,
    TracedKind,
    TracedProcessing,
    TracedSend,
)
from ledgermq.model.names.system_topics import TRACE_TOPIC
from tests.plain_codecs import decode_traces
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group
from tests.process.traced_clients import (
    Recorder,
    first_messages,
    linked,
    recorder,
    records_of,
    span_id,
    trace_of,
)
from tests.suite.patience import PATIENCE_S

__all__ = ["recorder"]

pytestmark = pytest.mark.slow

NODE = {}
"""One node for all tests, with the settings of the kit."""


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


@pytest.mark.long
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
