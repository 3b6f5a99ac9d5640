"""Requests and replies through a real node, from threads and from tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ledgermq.client.aio.consumer import AsyncConsumer
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.aio.requester import AsyncRequester
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.blocking.requester import Requester
from ledgermq.model.errors import LedgerError, TimedOutError
from tests.process.conftest import Node
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NODE = {}
"""One node for all tests, with the settings of the kit."""


@contextmanager
def server(node: Node, topic: str) -> Iterator[None]:
    """Answers each request of ``topic`` twice, in capitals; the second answer is one too many."""
    stop = threading.Event()

    def serve() -> None:
        with (
            Producer(node.address) as producer,
            Consumer(node.address, topic=topic, start="first") as consumer,
        ):
            while not stop.is_set():
                for message in consumer.poll(0.1):
                    for _ in range(2):
                        producer.reply(message, bytes(message.body).upper(), properties={"a": "b"})

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)


def test_each_of_many_threads_gets_its_own_reply(node: Node, topic: str) -> None:
    with (
        server(node, topic),
        Requester(node.address) as one,
        Requester(node.address) as other,
        ThreadPoolExecutor(8) as threads,
    ):

        def ask(number: int) -> bytes:
            requester = one if number % 2 else other
            reply = requester.request(topic, b"number %d" % number, timeout=PATIENCE_S)
            assert reply.properties["a"] == "b"
            assert reply.properties["MSG_TYPE"] == "reply"
            return bytes(reply.body)

        replies = list(threads.map(ask, range(40)))

    assert replies == [b"NUMBER %d" % number for number in range(40)]


def test_a_request_that_nobody_answers_ends_in_time_and_the_next_one_is_answered(
    node: Node, topic: str
) -> None:
    with Requester(node.address) as requester:
        with pytest.raises(TimedOutError):
            requester.request(topic, b"early", timeout=0.5)
        with server(node, topic):
            # The reply to the early one comes now, and is nobody's.
            reply = requester.request(topic, b"late", timeout=PATIENCE_S)

    assert bytes(reply.body) == b"LATE"
    with pytest.raises(LedgerError, match="closed"):
        requester.request(topic, b"x")


def test_tasks_ask_and_reply(node: Node, topic: str) -> None:
    async def serve() -> None:
        async with (
            AsyncProducer(node.address) as producer,
            AsyncConsumer(node.address, topic=topic, start="first") as consumer,
        ):
            async for message in consumer:
                await producer.reply(message, bytes(message.body).upper())

    async def ask() -> list[bytes]:
        async with AsyncRequester(node.address) as requester:
            with pytest.raises(TimedOutError):
                await requester.request(f"{topic}_other", b"nobody", timeout=0.3)
            serving = asyncio.create_task(serve())
            replies = await asyncio.gather(
                *(
                    requester.request(topic, b"number %d" % number, timeout=PATIENCE_S)
                    for number in range(20)
                )
            )
            serving.cancel()
            return [bytes(reply.body) for reply in replies]

    replies = asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))

    assert replies == [b"NUMBER %d" % number for number in range(20)]
