"""Old names of clients of a cluster: each warns, and does what it did for one release more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgermq import client
from ledgermq.client import Producer, aio
from ledgermq.client.old_names import AWAITED, WAITING
from ledgermq.model.errors import ConfigError
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import DEAD, MakeCluster


def old(name: str) -> Any:
    """The class, and a warning of its name."""
    module, names = (aio, AWAITED) if name.startswith("Async") else (client, WAITING)
    with pytest.warns(DeprecationWarning, match=names[name].split(",")[0]):
        return getattr(module, name)


@pytest.mark.parametrize("name", [*WAITING, *AWAITED])
def test_an_old_name_is_there_and_tells_the_new_one(name: str) -> None:
    assert old(name).__name__ == name
    assert name not in (*client.__all__, *aio.__all__)


def test_a_name_that_never_was_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ClusterThing'"):
        _ = client.ClusterThing
    with pytest.raises(AttributeError, match="no attribute 'AsyncThing'"):
        _ = aio.AsyncThing


def fill(address: str, body: bytes) -> None:
    with Producer(address, one_group=True) as producer:
        producer.send("T", body, queue_id=0).result(PATIENCE_S)


def test_those_that_wait_do_what_they_did(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    # Of a list each address is another group's: the first need not be there.
    with old("ClusterProducer")([DEAD, peers["b"].address]) as producer:
        while not all(peer.seen for peer in peers.values()):
            producer.send("T", b"x").result(PATIENCE_S)
        assert producer.of("b").send("T", b"x").result(PATIENCE_S).topic == "T"
    with old("ClusterConsumer")(peers["a"].address, topic="T", start="first") as consumer:
        found = set()
        while found != {"a", "b"}:
            batch = consumer.poll(PATIENCE_S)
            assert batch.messages[0].broker_group == batch.group
            found.add(batch.group)
    with old("ClusterGroupConsumer")(peers["a"].address, group="g") as member:
        member.subscribe("none has it")
        assert member.poll(0.05).group == ""
    with old("ClusterRequester")(peers["a"].address) as requester:
        assert set(requester.groups()) <= {"a", "b"}
    with (
        old("ClusterTransactionalProducer")(peers["a"].address, group="g") as till,
        till.transaction("T", group="b") as transaction,
    ):
        assert transaction.id
    with old("GroupAdmins")(peers["a"].address, timeout_s=PATIENCE_S) as admins:
        assert admins.groups() == ["a", "b"]
    with pytest.raises(ConfigError, match="no address"):
        old("ClusterProducer")([])


def test_those_that_are_awaited_do_what_they_did(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    fill(peers["a"].address, b"in a")
    fill(peers["b"].address, b"in b")
    kinds = {name: old(name) for name in AWAITED}

    async def use() -> None:
        at = peers["a"].address
        async with kinds["AsyncClusterProducer"](at) as producer:
            await producer.send("T", b"x", group="b")
            assert producer.groups() == ["a", "b"]
        async with kinds["AsyncClusterConsumer"](at, topic="T", start="first") as consumer:
            found = set()
            while found != {"a", "b"}:
                group, batch = await consumer.poll(PATIENCE_S)
                assert batch.broker_group == group
                found.add(group)
            await consumer.close()
        member = kinds["AsyncClusterGroupConsumer"](at, group="g")
        member.subscribe("none has it")
        async with member:
            assert (await member.poll(0.05)).group == ""
        async with kinds["AsyncClusterRequester"](at) as requester:
            assert requester.groups() is not None
        async with kinds["AsyncClusterTransactionalProducer"](at, group="g") as till:
            assert (await till.transaction("T", group="b")).id
        async with kinds["AsyncGroupAdmins"](at, timeout_s=PATIENCE_S) as admins:
            assert await admins.groups() == ["a", "b"]

    asyncio.run(asyncio.wait_for(use(), PATIENCE_S))
