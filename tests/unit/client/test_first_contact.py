"""Clients learn with their first question whether there is one group of nodes, or a cluster."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

from ledgermq.client import (
    Consumer,
    GroupConsumer,
    Producer,
    ProducerOptions,
    Requester,
    TopicQueue,
    TransactionalProducer,
)
from ledgermq.client.aio import (
    AsyncConsumer,
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncRequester,
    AsyncTransactionalProducer,
)
from ledgermq.client.closing import verbs_of
from ledgermq.client.core.known_groups import KnownGroups, NamedGroup
from ledgermq.client.first_contact import by_group, nodes_of, several_groups
from ledgermq.client.groups.allocation import ClusterQueue
from ledgermq.model.errors import ClosedError, ConfigError, NotLeaderError
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import DEAD, MakeCluster, make_known
from tests.unit.client.peer import Peer
from tests.unit.client.test_producer import wait_until

ORDINARY = [
    *(Producer, Consumer, GroupConsumer, Requester, TransactionalProducer),
    *(AsyncProducer, AsyncConsumer, AsyncGroupConsumer, AsyncRequester),
    AsyncTransactionalProducer,
]


@pytest.mark.parametrize("ordinary", ORDINARY)
def test_a_verb_takes_the_same_in_one_group_and_in_a_cluster(ordinary: type[Any]) -> None:
    of_all = resolve_name(ordinary.IN_CLUSTER)
    verbs = (verbs_of(ordinary) & verbs_of(of_all)) - ordinary.ASKS_NOBODY

    assert verbs
    for verb in verbs:
        one, every = getattr(ordinary, verb), getattr(of_all, verb)
        told, taken = named(one), named(every)
        # What is taken by no name is handed on to a client of one group, which takes it by its own.
        hands_on = inspect.Parameter.VAR_KEYWORD in {
            each.kind for each in inspect.signature(every).parameters.values()
        }
        assert taken == [each for each in told if each in taken], verb
        assert hands_on or taken == told, verb
        assert inspect.iscoroutinefunction(one) == inspect.iscoroutinefunction(every), verb


def named(verb: Callable[..., object]) -> list[inspect.Parameter]:
    """What a method takes by a name of its own, or by its place."""
    _, *taken = inspect.signature(verb).parameters.values()
    return [each for each in taken if each.kind is not inspect.Parameter.VAR_KEYWORD]


def test_with_one_group_nothing_stands_between_a_call_and_the_class(peer: Peer) -> None:
    with Producer(peer.address) as producer, Consumer(peer.address, topic="T") as consumer:
        producer.send("T", b"x").result(PATIENCE_S)
        consumer.poll(0)

        assert not verbs_of(Producer) & vars(producer).keys()
        assert not verbs_of(Consumer) & vars(consumer).keys()
        assert producer.groups() == consumer.groups() == ["b"]
        assert producer.of("b") is producer
        with pytest.raises(ConfigError, match="no such group"):
            producer.send("T", b"x", group="elsewhere")


def test_nor_where_calls_are_awaited(peer: Peer) -> None:
    async def send() -> None:
        producer = AsyncProducer(peer.address)
        for _ in range(2):
            async with producer:
                await producer.send("T", b"x")
                assert not verbs_of(AsyncProducer) & vars(producer).keys()
                assert producer.groups() == ["b"]
                with pytest.raises(ConfigError, match="no such group"):
                    await producer.send("T", b"x", group="elsewhere")

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))

    assert peer.stored() == [b"x", b"x"]


def test_a_task_that_gives_up_waiting_leaves_the_question_to_the_others(
    make_cluster: MakeCluster,
) -> None:
    peers = make_cluster("ab")

    async def send() -> None:
        async with AsyncProducer(peers["a"].address) as producer:
            first = asyncio.create_task(producer.send("T", b"never"))
            second = asyncio.create_task(producer.send("T", b"x"))
            await asyncio.sleep(0)
            first.cancel()
            await second
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))

    assert peers["a"].stored() + peers["b"].stored() == [b"x"]


def test_a_node_from_before_there_were_clusters_is_of_one_group(peer: Peer) -> None:
    peer.unknown_verbs = ("cluster_groups",)
    with Producer(peer.address) as producer:
        producer.send("T", b"x").result(PATIENCE_S)

        assert producer.contact() is None
    assert peer.stored() == [b"x"]


def test_who_finds_nobody_asks_again_with_the_next_call(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    options = ProducerOptions(timeout_s=0.2)
    peers["a"].stop_listening()
    with Producer(peers["a"].address, options=options, awaits_node=False) as producer:
        began = time.monotonic()
        with pytest.raises(NotLeaderError, match="no node answers"):
            producer.send("T", b"x")
        assert time.monotonic() - began < PATIENCE_S / 4
        peers["a"].restart()

        def is_sent() -> bool:
            try:
                producer.send("T", b"x").result(PATIENCE_S)
            except NotLeaderError:
                return False
            return True

        wait_until(is_sent)
        wait_until(lambda: producer.groups() == ["a", "b"])


def test_a_member_gives_nothing_while_nobody_answers() -> None:
    async def awaited() -> None:
        consumer = AsyncGroupConsumer(DEAD, group="g")
        consumer.subscribe("T")
        async with consumer:
            assert not len(await consumer.poll(0.05))

    with GroupConsumer(DEAD, group="g") as consumer:
        consumer.subscribe("T")
        assert not len(consumer.poll(0.05))
        assert consumer.assignment == frozenset()
    asyncio.run(asyncio.wait_for(awaited(), PATIENCE_S))


def test_a_cluster_may_be_used_as_one_group(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with Producer(peers["b"].address, one_group=True) as producer:
        for _ in range(50):
            producer.send("T", b"x")
        producer.flush(PATIENCE_S)

    assert not peers["a"].seen
    assert len(peers["b"].stored()) == 50


def test_a_group_that_comes_is_used_by_a_producer_of_a_cluster_of_one(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.LOOK_S", 0.05)
    peers = make_cluster("ab")
    make_known({"a": peers["a"]})
    with Producer(peers["a"].address) as producer:
        producer.send("T", b"x").result(PATIENCE_S)
        assert producer.groups() == ["a"]
        make_known(peers, number=2)

        def both_have_some() -> bool:
            producer.send("T", b"x").result(PATIENCE_S)
            return all(peer.seen for peer in peers.values())

        wait_until(both_have_some)


def test_threads_that_begin_together_ask_once_and_all_send(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with Producer(peers["a"].address) as producer:
        threads = [
            threading.Thread(target=lambda: producer.send("T", b"x").result(PATIENCE_S))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(peers["a"].stored() + peers["b"].stored()) == 8
    with pytest.raises(ClosedError, match="Producer"):
        producer.send("T", b"x")


def test_a_client_that_is_closed_before_it_was_used_asks_nobody(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    for client in (
        Producer(peers["a"].address),
        Consumer(peers["a"].address, topic="T"),
        Requester(peers["a"].address),
        TransactionalProducer(peers["a"].address, group="g"),
    ):
        client.close()
        with pytest.raises(ClosedError):
            client.groups()


def test_addresses_are_those_of_one_group_or_of_several() -> None:
    one, two, three = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1", "tcp://10.0.1.1:1"
    rows = (NamedGroup("a", (one, two)), NamedGroup("b", (three,)))
    told = KnownGroups("a", "c", 1, rows)

    assert several_groups(f"{one},{two}") is several_groups([one, two]) is None
    assert several_groups([f"{one},{two}", three]) == [f"{one},{two}", three]
    assert several_groups([f"{one},", f"{three},"]) == [one, three]
    assert nodes_of([f"{one},{two}", three]) == [one, two, three]
    assert by_group([one, three, two], told) == [f"{one},{two}", three]
    assert by_group(f"{one},{two}", told) == [f"{one},{two}"]
    assert by_group([one, "ipc:///run"], told) == [one, "ipc:///run"]


def test_a_queue_of_a_cluster_is_a_queue_with_its_group() -> None:
    queue = ClusterQueue("a", "T", 1)
    topic, queue_id = queue

    assert (topic, queue_id, queue.group, TopicQueue("T", 1).group) == ("T", 1, "a", "")
    assert queue.in_group == TopicQueue("T", 1)
    assert queue != queue.in_group
    assert len({queue, ClusterQueue("a", "T", 1), ClusterQueue("b", "T", 1), queue.in_group}) == 3
