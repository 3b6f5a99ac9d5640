"""``AsyncProducer`` and ``AsyncConsumer`` against the real node."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest

from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import (
    BusyError,
    ClosedError,
    ConfigError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
    TopicUnknownError,
)
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NODE = {}
"""One node for all tests, with the settings of the kit."""


def run(steps: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, not for ever."""
    asyncio.run(asyncio.wait_for(steps, PATIENCE_S))


async def read(consumer: AsyncConsumer, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        messages += await consumer.poll(1.0)
    return messages


def test_what_many_tasks_send_is_received_once_in_order(node: Node, topic: str) -> None:
    async def steps() -> None:
        async def work(queue: int) -> list[int]:
            return [
                (await producer.send(topic, b"%d" % row, queue_id=queue)).queue_offset
                for row in range(100)
            ]

        async with (
            AsyncProducer(node.address) as producer,
            AsyncConsumer(node.address, topic=topic, start="first") as consumer,
        ):
            reading = asyncio.create_task(read(consumer, 400))
            offsets = await asyncio.gather(*(work(queue) for queue in range(4)))
            messages = await reading
        by_queue: dict[int, list[bytes]] = defaultdict(list)
        for message in messages:
            by_queue[message.queue_id].append(bytes(message.body))

        assert offsets == [list(range(100))] * 4
        assert by_queue == {queue: [b"%d" % row for row in range(100)] for queue in range(4)}

    run(steps())


def test_batches_are_told_message_by_message_and_iterated(node: Node, topic: str) -> None:
    async def steps() -> None:
        batch = [OutgoingMessage(b"%d" % row, tag="AB"[row % 2]) for row in range(10)]
        async with AsyncProducer(node.address) as producer:
            futures = [await producer.submit_batch(topic, batch, queue_id=1) for _ in range(20)]
            await producer.flush(PATIENCE_S)
            results = [result for future in futures for result in future.result()]
        given = []
        async with AsyncConsumer(
            node.address, topic=topic, group=f"{topic}_g", tag="B"
        ) as consumer:
            async for message in consumer:
                given.append(message)
                if len(given) == 100:
                    break
            await consumer.commit()
            committed = await consumer.committed()

        assert [result.queue_offset for result in results] == list(range(200))
        assert [message.unique_id for message in given] == [r.unique_id for r in results[1::2]]
        assert committed[1] == 200

    run(steps())


@pytest.mark.parametrize("victim", ["writer", "raft", "broker"])
def test_a_death_under_way_loses_and_repeats_nothing(own_node: Node, victim: str) -> None:
    async def steps() -> None:
        options = ConsumerOptions(messages_max=50, hold_ms=500)
        results = []
        async with (
            AsyncProducer(
                own_node.address, options=ProducerOptions(timeout_s=PATIENCE_S)
            ) as producer,
            AsyncConsumer(own_node.address, topic="orders", options=options) as consumer,
        ):
            reading = asyncio.create_task(read(consumer, 600))
            for deaths in range(1, 4):
                futures = [
                    await producer.submit_batch("orders", [b"x"] * 5, queue_id=number % 4)
                    for number in range(40)
                ]
                os.kill(own_node.pid(victim), signal.SIGKILL)
                for future in futures:
                    results += await future
                await asyncio.to_thread(
                    wait_until,
                    lambda count=deaths: own_node.child(victim)["restarts"] == count,
                    "restart",
                )
            messages = await reading
            after = await consumer.poll(0.1)
        places = {(message.queue_id, message.queue_offset) for message in messages}

        assert sorted(places) == [(queue, offset) for queue in range(4) for offset in range(150)]
        assert {(result.queue_id, result.queue_offset) for result in results} == places
        assert len(messages) == 600
        assert len(after) == 0

    run(steps())


def test_a_full_window_and_a_stopped_writer_end_in_time(own_node: Node) -> None:
    async def steps() -> None:
        options = ProducerOptions(compress_above=None, window_bytes=10_000, timeout_s=0.5)
        async with AsyncProducer(own_node.address, options=options) as producer:
            await producer.send("orders", b"first")
            os.kill(own_node.pid("writer"), signal.SIGSTOP)
            stuck = await producer.submit("orders", bytes(9_000))
            second = asyncio.create_task(producer.send("orders", bytes(9_000)))
            with pytest.raises(OutcomeUnknownError):
                await stuck
            with pytest.raises((BusyError, NotLeaderError, OutcomeUnknownError)):
                await second
            os.kill(own_node.pid("writer"), signal.SIGCONT)
            after = await producer.send("orders", b"after")

        assert after.topic == "orders"

    run(steps())


def test_a_loop_goes_on_while_a_message_and_a_poll_wait(node: Node, topic: str) -> None:
    async def steps() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        counting = asyncio.create_task(count())
        async with AsyncConsumer(node.address, topic=topic) as consumer:
            batch = await consumer.poll(0.5)
        counting.cancel()

        assert len(batch) == 0
        assert turns > 10

    run(steps())


def test_what_cannot_be_done_says_why(node: Node, topic: str) -> None:
    async def steps() -> None:
        async with AsyncProducer(node.address) as producer:
            with pytest.raises(MessageIllegalError):
                await producer.send(topic, bytes(4 * 1024 * 1024 + 1))
            with pytest.raises(TopicUnknownError):
                await producer.send(topic, b"x", queue_id=4)
        with pytest.raises(ConfigError):
            await producer.send(topic, b"x")
        with pytest.raises(TopicUnknownError):
            async with AsyncConsumer(node.address, topic="nowhere"):
                pass
        nowhere = AsyncProducer("ipc:///tmp/no-such-node", options=ProducerOptions(timeout_s=0.3))
        async with nowhere as lonely:
            with pytest.raises(NotLeaderError):
                await lonely.send(topic, b"x")

    run(steps())


def test_a_message_that_waits_can_be_taken_back(node: Node, topic: str) -> None:
    async def steps() -> None:
        async with AsyncProducer(node.address) as producer:
            waits = await producer.send(topic, b"never", delay=3_600_000)
            await producer.cancel(waits.unique_id)
            with pytest.raises(MessageIllegalError, match="no timer of that id waits"):
                await producer.cancel(waits.unique_id)
        with pytest.raises(ClosedError, match="is closed"):
            await producer.cancel(waits.unique_id)

    run(steps())
