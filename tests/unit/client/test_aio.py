"""Producers and consumers in asyncio against a peer: results, windows, lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.client.loop_watch import is_set_within
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import (
    BusyError,
    ClosedError,
    ConfigError,
    MessageIllegalError,
    OutcomeUnknownError,
    TimedOutError,
    TopicUnknownError,
)
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Peer


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


def test_many_tasks_share_a_frame(peer: Peer) -> None:
    async def main() -> None:
        options = ProducerOptions(linger_ms=60_000)
        async with AsyncProducer(peer.address, options=options) as producer:
            submitted = await asyncio.gather(
                *(producer.submit("T", body, queue_id=1) for body in numbers(200))
            )
            await producer.flush()
            results = [future.result() for future in submitted]

        assert [result.queue_offset for result in results] == list(range(200))
        assert [len(seen.unique_ids) for seen in peer.seen] == [200]

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
            # It may get the room of those whose time is over, or wait until its own is.
            with pytest.raises((BusyError, TimedOutError)):
                await producer.send("T", b"x" * 4_000)
            outcomes = await asyncio.gather(*lost, return_exceptions=True)

            # The second one waits behind the first, and leaves when that is late, or never.
            assert type(outcomes[0]) is TimedOutError
            assert type(outcomes[1]) in (BusyError, TimedOutError)

    run(main)


def test_what_cannot_be_sent_or_read_is_refused(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncProducer(peer.address) as producer:
            with pytest.raises(MessageIllegalError):
                await producer.send("T", b"x" * 4_194_305)
            with pytest.raises(TopicUnknownError):
                await producer.send("forbidden", b"x")
        with pytest.raises(ClosedError, match="is closed"):
            await producer.send("T", b"x")
        with pytest.raises(TopicUnknownError):
            async with AsyncConsumer(peer.address, topic="other"):
                pass
        with pytest.raises(ConfigError, match="not open"):
            AsyncConsumer(peer.address, topic="T").offsets()

    run(main)


def test_an_illegal_message_leaves_no_empty_frame(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncProducer(peer.address) as producer:
            with pytest.raises(MessageIllegalError, match="too large"):
                await producer.send("T", bytes(5 * 1024 * 1024))
            await producer.flush()
            await producer.send("T", b"legal")

    run(main)
    assert peer.stored() == [b"legal"]
    assert peer.refused == []


def test_a_consumer_that_is_closed_ends_the_iteration(peer: Peer) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(peer.address, topic="T")
        found: list[bytes] = []

        async def read() -> None:
            found.extend([bytes(message.body) async for message in consumer])

        async with AsyncProducer(peer.address) as producer, consumer:
            await producer.send("T", b"x", queue_id=3)
            assert (await consumer.ends())[3] == 1
            reading = asyncio.create_task(read())
            while not found and not consumer.offsets()[3]:
                await asyncio.sleep(0.001)
            consumer.close()
            await reading

        assert found == [b"x"]

    run(main)


def test_a_close_that_is_cancelled_leaves_no_future_without_outcome(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncProducer(peer.address) as producer:
            await producer.send("T", b"begin")
            peer.silent = True
            lost = await producer.submit("T", b"x")
            closing = asyncio.create_task(producer.close())
            await asyncio.sleep(0.01)
            closing.cancel()

            with pytest.raises(OutcomeUnknownError):
                await lost

    run(main)


def test_a_cancellation_that_comes_with_what_is_waited_for_is_not_forgotten() -> None:
    async def cancelled_after(steps: int) -> bool:
        event = asyncio.Event()
        waiting = asyncio.create_task(is_set_within(event, PATIENCE_S))
        await asyncio.sleep(0)
        event.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        was_asked = waiting.cancel()
        await asyncio.wait([waiting])
        # What had ended before cannot be cancelled any more.
        assert was_asked == waiting.cancelled()
        return was_asked

    async def main() -> None:
        found = [await cancelled_after(steps) for steps in range(6)]

        assert found[0]
        assert not found[-1]

    run(main)
