"""Filters against the real node: SQL over properties, from both clients and the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator

import pytest

from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.model.errors import FilterIllegalError
from ledgermq.model.message_filter import MessageFilter
from tests.process.conftest import Node, wait_until
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MESSAGES = 200

NODE = {}
"""One node for all tests, with the settings of the kit."""


@pytest.fixture
def producer(node: Node) -> Iterator[Producer]:
    with Producer(f"ipc://{node.runtime}") as made:
        yield made


def order(number: int) -> OutgoingMessage:
    properties = {"price": str(number), "region": "eu" if number % 2 else "us"}
    return OutgoingMessage(b"%d" % number, tag=f"t{number % 3}", properties=properties)


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(bytes(message.body)) for message in messages]


def test_a_consumer_gets_what_its_expression_wants_and_comes_to_the_end(
    node: Node, topic: str, producer: Producer
) -> None:
    producer.send_batch(topic, list(map(order, range(MESSAGES))), queue_id=0).result(PATIENCE_S)
    wanted = MessageFilter.by_sql("price BETWEEN 50 AND 60 AND region = 'eu' OR TAGS IN ('none')")
    messages: list[ReceivedMessage] = []
    with Consumer(
        node.address, topic=topic, group=f"{topic}_g", queues=[0], start="first", filter=wanted
    ) as consumer:

        def is_through() -> bool:
            messages.extend(consumer.poll(0.2))
            return consumer.offsets()[0] == MESSAGES

        wait_until(is_through, "the queue's end", PATIENCE_S)
        consumer.commit()
        committed = consumer.committed()

    assert numbers(messages) == [51, 53, 55, 57, 59]
    assert committed == {0: MESSAGES}


def test_a_held_pull_is_woken_by_a_message_that_is_wanted(
    node: Node, topic: str, producer: Producer
) -> None:
    found: list[ReceivedMessage] = []
    wanted = MessageFilter.by_sql("price = 7")

    def read() -> None:
        with Consumer(
            node.address, topic=topic, queues=[0], start="first", filter=wanted
        ) as consumer:
            wait_until(lambda: bool(found.extend(consumer.poll(1.0)) or found), "it", PATIENCE_S)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(10):
        producer.send_batch(topic, [order(number)], queue_id=0).result(PATIENCE_S)
    reader.join(PATIENCE_S)

    assert not reader.is_alive()
    assert numbers(found) == [7]


def test_an_expression_that_is_none_is_told_to_the_consumer(
    node: Node, topic: str, producer: Producer
) -> None:
    producer.send(topic, b"x", queue_id=0).result(PATIENCE_S)
    with (
        Consumer(
            node.address, topic=topic, start="first", filter=MessageFilter.by_sql("price >> 5")
        ) as consumer,
        pytest.raises(FilterIllegalError, match=r"position=7, token='>'"),
    ):
        consumer.poll(PATIENCE_S)


def test_an_async_consumer_filters_too(node: Node, topic: str, producer: Producer) -> None:
    producer.send_batch(topic, list(map(order, range(20))), queue_id=0).result(PATIENCE_S)

    async def read() -> list[ReceivedMessage]:
        wanted = MessageFilter.by_sql("price < 3")
        messages: list[ReceivedMessage] = []
        async with AsyncConsumer(
            node.address, topic=topic, queues=[0], start="first", filter=wanted
        ) as consumer:
            while len(messages) < 3:
                messages += await consumer.poll(PATIENCE_S)
        return messages

    assert numbers(asyncio.run(asyncio.wait_for(read(), PATIENCE_S))) == [0, 1, 2]


def receive(node: Node, topic: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("receive", topic, *arguments, "--address", node.address)


def test_the_command_line_filters_and_names_what_is_wrong(
    node: Node, topic: str, producer: Producer
) -> None:
    producer.send_batch(topic, list(map(order, range(12))), queue_id=0).result(PATIENCE_S)
    by_sql = receive(node, topic, "--sql", "price > 9", "--json")
    by_tags = receive(node, topic, "--filter", "t0 || t9")
    wrong = receive(node, topic, "--sql", "price > ")

    assert by_sql.returncode == 0, by_sql.stderr
    assert [json.loads(line)["properties"]["price"] for line in by_sql.stdout.splitlines()] == [
        "10",
        "11",
    ]
    assert by_tags.stdout.split() == ["0", "3", "6", "9"]
    assert wrong.returncode != 0
    assert "position=8" in wrong.stderr
