"""Producers and consumers in asyncio against a peer: results, windows, lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.client.peer import Peer

from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.client.send_pipeline import ProducerOptions
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    MessageIllegalError,
    OutcomeUnknownError,
    TopicUnknownError,
)

PATIENCE_S = 10.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main(), PATIENCE_S)

    asyncio.run(bounded())


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_messages_sent_by_one_task_are_received_in_order(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncProducer(peer.address) as producer:
            submitted = [await producer.submit("T", body, queue_id=0) for body in numbers(50)]
            results = await asyncio.gather(*submitted)
            batch = await producer.send_batch("T", [b"50", b"51"], queue_id=0)
        async with AsyncConsumer(peer.address, topic="T", group="g") as consumer:
            found: list[bytes] = []
            async for message in consumer:
                found.append(bytes(message.body))
                if len(found) == 52:
                    break
            await consumer.commit()
            committed = await consumer.committed()

        assert [result.queue_offset for result in results] == list(range(50))
        assert [result.queue_offset for result in batch] == [50, 51]
        assert found == numbers(52)
        assert committed[0] == 52

    run(main)


def test_many_tasks_share_frames(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncProducer(peer.address) as producer:
            await producer.send("T", b"begin")
            results = await asyncio.gather(
                *(producer.send("T", body, queue_id=1) for body in numbers(200))
            )

        assert sorted(result.queue_offset for result in results) == list(range(200))
        assert len(peer.seen) < 50

    run(main)


def test_a_message_that_comes_later_wakes_the_task_that_polls(peer: Peer) -> None:
    async def main() -> None:
        async with (
            AsyncProducer(peer.address) as producer,
            AsyncConsumer(peer.address, topic="T") as consumer,
        ):
            assert len(await consumer.poll(0.01)) == 0
            polling = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0)
            await producer.send("T", b"late", queue_id=2)
            batch = await polling

            assert [bytes(message.body) for message in batch] == [b"late"]
            consumer.seek(2, 0)
            assert bytes((await consumer.poll(PATIENCE_S))[0].body) == b"late"
            assert bytes((await consumer.pull(2, 0))[0].body) == b"late"

    run(main)


def test_after_a_lost_connection_all_unanswered_go_again_in_order(peer: Peer) -> None:
    async def main() -> None:
        async with (
            AsyncProducer(peer.address) as producer,
            AsyncConsumer(peer.address, topic="T", queues=[0]) as consumer,
        ):
            await producer.send("T", b"begin", queue_id=0)
            peer.silent = True
            submitted = [
                await producer.submit_batch("T", [body], queue_id=0) for body in numbers(5)
            ]
            while len(peer.seen) < 6:
                await asyncio.sleep(0.001)
            peer.silent = False
            await asyncio.to_thread(peer.restart)
            results = await asyncio.gather(*submitted)
            found: list[bytes] = []
            while len(found) < 6:
                found += [bytes(message.body) for message in await consumer.poll()]

            assert [result[0].queue_offset for result in results] == [1, 2, 3, 4, 5]
            assert found == [b"begin", *numbers(5)]

    run(main)


@pytest.mark.slow
def test_a_task_waits_for_room_and_is_refused_in_time(peer: Peer) -> None:
    async def main() -> None:
        options = ProducerOptions(window_bytes=10_000, timeout_s=0.2)
        async with AsyncProducer(peer.address, options=options) as producer:
            for body in numbers(50):
                await producer.submit("T", body.ljust(1_000))
            await producer.flush()
            peer.silent = True
            lost = [await producer.submit("T", b"x" * 4_000) for _ in range(2)]
            with pytest.raises((BusyError, OutcomeUnknownError)):
                await producer.send("T", b"x" * 4_000)
            outcomes = await asyncio.gather(*lost, return_exceptions=True)

            assert all(isinstance(outcome, OutcomeUnknownError) for outcome in outcomes)

    run(main)


def test_what_cannot_be_sent_or_read_is_refused(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncProducer(peer.address) as producer:
            with pytest.raises(MessageIllegalError):
                await producer.send("T", b"x" * 4_194_305)
            with pytest.raises(TopicUnknownError):
                await producer.send("forbidden", b"x")
        with pytest.raises(ConfigError, match="not open"):
            await producer.send("T", b"x")
        with pytest.raises(TopicUnknownError):
            async with AsyncConsumer(peer.address, topic="other"):
                pass
        with pytest.raises(ConfigError, match="not open"):
            AsyncConsumer(peer.address, topic="T").offsets()

    run(main)
