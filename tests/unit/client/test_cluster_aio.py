"""``AsyncProducer``, ``AsyncConsumer`` and ``AsyncAdmin`` in a cluster of peers, a group each."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ledgermq.client.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import ClosedError, ConfigError, NotLeaderError, TopicUnknownError
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import DEAD, MakeCluster, make_known


def test_messages_and_batches_go_to_all_groups_and_a_key_to_one_queue(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    whole = TopicGroups({"a": 4, "b": 4}, ())

    async def send_all() -> None:
        async with AsyncProducer(peers["a"].address) as producer:
            while not all(peer.seen for peer in peers.values()):
                await producer.send("T", b"x")
                assert len(await producer.send_batch("T", [b"1", b"2"])) == 2
            for number in range(20):
                key = f"k{number}"
                found = await producer.send("T", b"key", queue_key=key)
                assert found.queue_id == whole.queue_of(key).queue_id
            before = len(peers["b"].seen)
            await producer.send("T", b"named", group="b", queue_id=3)
            assert [seen.queue_id for seen in peers["b"].seen[before:]] == [3]
            assert producer.groups() == ["a", "b"]
            await producer.flush(PATIENCE_S)

    asyncio.run(send_all())


def test_who_has_to_wait_for_room_lets_the_loop_go_on(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    options = ProducerOptions(timeout_s=60, window_bytes=65_536, compress_above=None)

    async def fill() -> None:
        async with AsyncProducer(peers["a"].address, options=options) as producer:
            await producer.send("T", b"x")
            for peer in peers.values():
                peer.silent = True
            under_way: list[asyncio.Future[Any]] = []
            while True:
                submit = asyncio.create_task(producer.submit("T", bytes(8_192)))
                done, _ = await asyncio.wait([submit], timeout=0.5)
                if not done:
                    break
                under_way.append(submit.result())
            assert 8 <= len(under_way) < 40
            for peer in peers.values():
                peer.silent = False
                peer.restart()
            under_way.append(await submit)
            await asyncio.gather(*under_way)

    asyncio.run(fill())

    assert len(peers["a"].stored() + peers["b"].stored()) >= 10


def test_a_topic_is_made_and_what_nobody_can_have_is_refused(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")

    async def make() -> None:
        async with AsyncProducer(peers["b"].address) as producer:
            await producer.send("new", b"x")
            with pytest.raises(TopicUnknownError):
                await producer.send("forbidden", b"x")
        with pytest.raises(ClosedError, match="is closed"):
            await producer.send("T", b"x")
        late = ProducerOptions(timeout_s=0.05)
        with pytest.raises(NotLeaderError):
            async with AsyncProducer([DEAD, "tcp://127.0.0.1:2"], options=late) as producer:
                await producer.send("T", b"x")

    asyncio.run(make())

    assert peers["b"].stored("new") == [b"x"]


def test_all_groups_are_read_and_who_is_cancelled_misses_nothing(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")
    bodies = [b"%d" % number for number in range(40)]

    async def read_all() -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {"a": [], "b": []}
        async with (
            AsyncConsumer(peers["b"].address, topic="T", group="g") as consumer,
            AsyncProducer(peers["a"].address) as producer,
        ):
            while not consumer.groups():
                assert not len(await consumer.poll(0.01))
            polls = 0
            for body in bodies:
                poll = asyncio.create_task(consumer.poll(None))
                await producer.send("T", body, queue_key=body.decode())
                polls += 1
                if polls % 2:
                    poll.cancel()
                try:
                    batch = await poll
                except asyncio.CancelledError:
                    continue
                found[batch.broker_group] += [bytes(message.body) for message in batch]
            while sum(map(len, found.values())) < len(bodies):
                batch = await consumer.poll(None)
                with consumer.processing(batch[0]):
                    found[batch.broker_group] += [bytes(message.body) for message in batch]
            await consumer.commit()
        return found

    found = asyncio.run(asyncio.wait_for(read_all(), PATIENCE_S))

    assert sorted(found["a"] + found["b"]) == sorted(bodies)
    for name, peer in peers.items():
        assert found[name]
        ends = {str(queue): len(rows) for (_, queue), rows in peer.queues.items() if rows}
        assert ends.items() <= peer.commits["g", "T"].items()
    assert not [one for one in threading.enumerate() if one.name.endswith("-groups")]


def test_each_group_answers_an_order_by_its_name(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    make_known(peers, dead=DEAD)
    peers["b"].topics["only in b"] = 2

    async def order() -> None:
        async with AsyncAdmin(peers["a"].address, timeout_s=PATIENCE_S) as admins:
            assert await admins.broker_groups() == ["a", "b", "dead"]
            assert "only in b" in [row.topic for row in await (await admins.of("b")).topics()]
            with pytest.raises(ConfigError, match="no such group"):
                await admins.of("c")
            found = await admins.each(lambda admin: admin.topics())
            assert "does not answer" in str(found.pop("dead"))
            counts = {name: len(rows) for name, rows in found.items() if isinstance(rows, list)}
            assert counts == {"a": 1, "b": 2}
            assert await admins.of("b") is await admins.of("b")
        with pytest.raises(ClosedError, match="is closed"):
            await admins.broker_groups()

    asyncio.run(order())
