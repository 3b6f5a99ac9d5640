"""Compressed bodies through a real node: both clients, all kinds, and broken ones on the way."""

from __future__ import annotations

import asyncio
import json

import pytest

from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import BodyUnreadableError
from tests.process.conftest import Node
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LARGE = b"the same words, again and again; " * 1_000

NODE = {}
"""One node for all tests, with the settings of the kit."""


def read(node: Node, topic: str, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    with Consumer(node.address, topic=topic, queues=[0], start="first") as consumer:
        while len(messages) < count:
            batch = consumer.poll(PATIENCE_S)
            assert len(batch), f"{len(messages)} of {count} messages came"
            messages += batch
    return messages


def test_bodies_come_as_they_were_sent_however_they_are_compressed(node: Node, topic: str) -> None:
    for kind in ("zlib", "lz4", "zstd"):
        options = ProducerOptions(compression=kind)
        with Producer(node.address, options=options) as producer:
            producer.send(topic, LARGE, queue_id=0, tag=kind, flag=3).result(PATIENCE_S)
            producer.send_batch(topic, [b"small", LARGE], queue_id=0).result(PATIENCE_S)

    async def send() -> None:
        async with AsyncProducer(node.address) as producer:
            await producer.send(topic, LARGE, queue_id=0)
            await producer.send_batch(topic, [LARGE, b"small"], queue_id=0)

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))
    messages = read(node, topic, 12)

    assert [bytes(one.body) for one in messages] == [
        *[LARGE, b"small", LARGE] * 3,
        *[LARGE, LARGE, b"small"],
    ]
    assert [one.is_compressed for one in messages] == [len(one.body) > 5 for one in messages]
    assert all(len(one.stored_body) < 1_000 for one in messages)
    assert [(one.tag, one.flag, one.sys_flag & 0x701) for one in messages[:9:3]] == [
        ("zlib", 3, 0x1),
        ("lz4", 3, 0x101),
        ("zstd", 3, 0x201),
    ]


@pytest.mark.parametrize("wait", [{"delay_level": 1}, {"delay": 200}], ids=["level", "timer"])
def test_batches_that_wait_come_as_they_were_sent_compressed_too(
    node: Node, topic: str, wait: dict[str, int]
) -> None:
    sent = []
    for kind in ("zlib", "lz4", "zstd"):
        with Producer(node.address, options=ProducerOptions(compression=kind)) as producer:
            bodies = [LARGE + kind.encode(), b"small"]
            sent += bodies
            stored = producer.send_batch(topic, bodies, queue_id=0, tag=kind, **wait)
            assert len(stored.result(PATIENCE_S)) == len(bodies)
    messages = read(node, topic, len(sent))

    # Timers that are due in one millisecond or another, and levels, keep the order of sending.
    assert [bytes(one.body) for one in messages] == sent
    assert [one.is_compressed for one in messages] == [len(one.body) > 5 for one in messages]
    assert all(len(one.stored_body) < 1_000 for one in messages)
    assert [one.sys_flag & 0x701 for one in messages[::2]] == [0x1, 0x101, 0x201]
    assert [one.tag for one in messages[::2]] == ["zlib", "lz4", "zstd"]
    assert {one.queue_id for one in messages} == {0}


def test_a_broken_body_is_told_and_stops_nobody(node: Node, topic: str) -> None:
    broken = OutgoingMessage(b"no stream of zlib", sys_flag=1)
    with Producer(node.address) as producer:
        batch = [OutgoingMessage(b"before"), broken, OutgoingMessage(b"after")]
        producer.send_batch(topic, batch, queue_id=0).result(PATIENCE_S)
    messages = read(node, topic, 3)
    words = ["receive", topic, "--queue", "0", "--address", node.address, "--json"]
    printed = run_command(*words)
    assert printed.returncode == 0, printed.stderr
    rows = [json.loads(line) for line in printed.stdout.splitlines()]

    assert [one.body_fault is None for one in messages] == [True, False, True]
    assert isinstance(messages[1].body_fault, BodyUnreadableError)
    assert bytes(messages[1].stored_body) == b"no stream of zlib"
    assert [row["body"] for row in rows] == ["before", "no stream of zlib", "after"]
    assert ["bodyFault" in row for row in rows] == [False, True, False]
