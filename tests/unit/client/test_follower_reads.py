"""Consumers that read old messages from the follower that the leader suggests: none is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ledgermq.client import Consumer, Producer
from ledgermq.client.aio import AsyncConsumer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import ConfigError
from ledgermq.wire.header import VERSION
from ledgermq.wire.pull_frame import Pull
from ledgermq.wire.session import FOLLOWER, LEADER, Standing
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Log, Peer

COUNT = 2_000
FROM_LEADER = 40
"""So many come from the leader before it waits for the others' sessions to stand."""

FOLLOWERS = ConsumerOptions(read_from="followers", messages_max=4, prefetch=1)


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """The leader n0 and the followers n1 and n2, with all messages in queue 0."""
    with ExitStack() as stack:
        log = Log()
        made = []
        for number in range(3):
            standing = Standing(FOLLOWER if number else LEADER, 1, "n0")
            peer = Peer(node=f"n{number}", log=log, standing=standing, version=VERSION)
            stack.callback(peer.close)
            made.append(peer)
        with Producer(made[0].address) as producer:
            producer.send_batch("T", numbers(COUNT), queue_id=0).result()

        def wait_for_others(pull: Pull) -> None:
            if pull.queue_offset >= FROM_LEADER:
                assert all(peer.greeted.wait(PATIENCE_S) for peer in made[1:])

        made[0].before_pull = wait_for_others
        yield made


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def addresses(peers: list[Peer]) -> list[str]:
    return [peer.address for peer in peers]


def read_all(peers: list[Peer], options: ConsumerOptions) -> tuple[list[bytes], int]:
    """All bodies in the order in which they came, and how often the consumer was set elsewhere."""
    bodies: list[bytes] = []
    with Consumer(addresses(peers), topic="T", start="first", options=options) as consumer:
        while len(bodies) < COUNT:
            batch = consumer.poll(20.0)
            assert len(batch)
            bodies += [bytes(message.body) for message in batch]
        return bodies, len(consumer.resets)


def test_the_suggested_follower_is_read(peers: list[Peer]) -> None:
    leader, _, follower = peers
    leader.suggested = follower.suggested = "n2"

    bodies, resets = read_all(peers, FOLLOWERS)

    assert (bodies, resets) == (numbers(COUNT), 0)
    assert len(follower.pulls) >= COUNT // 8
    # A follower is not asked to wait.
    assert {pull.hold_ms for pull in follower.pulls} == {0}
    assert {pull.version for pull in [*leader.pulls, *follower.pulls]} == {VERSION}
    assert peers[1].pulls == []


def test_who_does_not_ask_for_it_reads_the_leader(peers: list[Peer]) -> None:
    peers[0].suggested = "n1"

    bodies, _ = read_all(peers, ConsumerOptions(messages_max=4))

    assert bodies == numbers(COUNT)
    assert peers[1].pulls == peers[2].pulls == []


def test_asyncio_reads_the_suggested_follower_too(peers: list[Peer]) -> None:
    leader, follower, _ = peers
    leader.suggested = follower.suggested = "n1"

    async def read() -> list[bytes]:
        bodies: list[bytes] = []
        async with AsyncConsumer(
            addresses(peers), topic="T", start="first", options=FOLLOWERS
        ) as consumer:
            while len(bodies) < COUNT:
                bodies += [bytes(message.body) for message in await consumer.poll(20.0)]
        return bodies

    assert asyncio.run(read()) == numbers(COUNT)
    assert len(follower.pulls) >= COUNT // 8


def test_a_follower_that_is_behind_sends_nobody_back(peers: list[Peer]) -> None:
    leader, follower, _ = peers
    behind = Log()
    behind.queues["T", 0] = leader.log.queues["T", 0][:10]
    for queue in range(1, 4):
        behind.queues["T", queue] = []
    follower.do(lambda: setattr(follower, "log", behind))
    leader.suggested = follower.suggested = "n1"

    bodies, resets = read_all(peers, FOLLOWERS)

    assert (bodies, resets) == (numbers(COUNT), 0)
    assert len(follower.pulls) > 3


def test_a_follower_that_ends_or_is_unknown_costs_no_message(peers: list[Peer]) -> None:
    leader, follower, _ = peers
    leader.suggested = follower.suggested = "n1"
    bodies: list[bytes] = []
    pulls_before_restart = 0
    with Consumer(addresses(peers), topic="T", start="first", options=FOLLOWERS) as consumer:
        while len(bodies) < COUNT:
            bodies += [bytes(message.body) for message in consumer.poll(20.0)]
            # Whenever the connection to the follower is there: on a busy machine it takes a while.
            if not pulls_before_restart and follower.pulls:
                pulls_before_restart = len(follower.pulls)
                follower.restart()
            elif pulls_before_restart and len(follower.pulls) > pulls_before_restart:
                leader.suggested = follower.suggested = "n7"

    assert bodies == numbers(COUNT)
    assert leader.suggested == "n7"


def test_another_kind_of_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="read_from"):
        ConsumerOptions(read_from="anybody")  # type: ignore[arg-type]
