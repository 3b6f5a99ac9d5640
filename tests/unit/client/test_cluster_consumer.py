"""``Consumer`` in a cluster, against peers, each a group of its own that knows of the others."""

from __future__ import annotations

import time

import pytest

from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import ConfigError, NoPermissionError, NotLeaderError
from ledgermq.wire.pull_frame import Pull
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import DEAD, MakeCluster, make_known
from tests.unit.client.peer import Peer
from tests.unit.client.test_producer import wait_until


def fill(peer: Peer, *bodies: bytes, queue_id: int = 0) -> None:
    """Have a group store messages of the topic."""
    with Producer(peer.address, one_group=True) as producer:
        for body in bodies:
            producer.send("T", body, queue_id=queue_id).result(PATIENCE_S)


def read(consumer: Consumer, count: int) -> list[tuple[str, bytes]]:
    """The next messages, with their groups."""
    found: list[tuple[str, bytes]] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until, found
        batch = consumer.poll(1.0)
        found += [(message.broker_group, bytes(message.body)) for message in batch]
        assert all(message.broker_group == batch.broker_group for message in batch)
    return found


def test_all_groups_are_read_from_one_address_of_any(make_cluster: MakeCluster) -> None:
    peers = make_cluster("abc")
    for name, peer in peers.items():
        fill(peer, *(f"{name}{number}".encode() for number in range(5)))
    for peer in peers.values():
        with Consumer(peer.address, topic="T", start="first") as consumer:
            found = read(consumer, 15)

            assert consumer.groups() == ["a", "b", "c"]
        for name in peers:
            own = [body for group, body in found if group == name]
            assert own == [f"{name}{number}".encode() for number in range(5)]


def test_messages_that_come_later_end_the_wait(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with Consumer(peers["a"].address, topic="T", start="first") as consumer:
        wait_until(lambda: not len(consumer.poll(0.01)) and len(consumer.groups()) == 2)
        fill(peers["b"], b"late")
        began = time.monotonic()

        assert read(consumer, 1) == [("b", b"late")]
        assert time.monotonic() - began < PATIENCE_S


def test_each_group_notes_its_own_offsets(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    fill(peers["a"], b"a0", b"a1")
    fill(peers["b"], b"b0")
    with Consumer(peers["a"].address, topic="T", group="g", retries=False) as consumer:
        read(consumer, 3)
        consumer.commit()
    fill(peers["b"], b"b1")
    with Consumer(peers["b"].address, topic="T", group="g", retries=False) as consumer:
        assert read(consumer, 1) == [("b", b"b1")]

    assert peers["a"].commits["g", "T"]["0"] == 2
    assert peers["b"].commits["g", "T"]["0"] == 1


def test_a_dead_group_keeps_nobody_waiting(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    make_known(peers, dead=DEAD)
    fill(peers["a"], b"a0")
    fill(peers["b"], b"b0")
    with Consumer(peers["a"].address, topic="T", group="g", retries=False) as consumer:
        read(consumer, 2)
        peers["b"].stop_listening()
        wait_until(lambda: not consumer._several._watch.groups()[1].answers)
        fill(peers["a"], *(b"%d" % number for number in range(20)))
        found = read(consumer, 20)
        with pytest.raises(NotLeaderError):
            consumer.commit()
        noted = peers["a"].commits["g", "T"]["0"]
        peers["b"].restart()
        fill(peers["b"], b"b1")

        assert [group for group, _ in found] == ["a"] * 20
        assert noted == 21
        assert read(consumer, 1) == [("b", b"b1")]


def test_what_one_group_refuses_keeps_nobody_from_the_others(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    fill(peers["b"], *(b"%d" % number for number in range(30)))

    def refuse(_pull: Pull) -> None:
        raise NoPermissionError("not yours")

    peers["a"].before_pull = refuse
    found: list[bytes] = []
    refused: list[object] = []

    def have_come() -> bool:
        try:
            found.extend(bytes(message.body) for message in consumer.poll(1.0))
        except NoPermissionError as error:
            refused.append(error.details["broker_group"])
        return len(found) == 30 and bool(refused)

    options = ConsumerOptions(messages_max=1)
    with Consumer(
        peers["b"].address, topic="T", group="g", retries=False, options=options
    ) as consumer:
        wait_until(have_come)
        consumer.commit()

    assert found == [b"%d" % number for number in range(30)]
    assert set(refused) == {"a"}
    assert peers["b"].commits["g", "T"]["0"] == 30


def test_a_commit_without_news_needs_no_group(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    fill(peers["a"], b"a0")
    fill(peers["b"], b"b0")
    with Consumer(peers["a"].address, topic="T", group="g", retries=False) as consumer:
        read(consumer, 2)
        consumer.commit()
        peers["b"].stop_listening()
        wait_until(lambda: not consumer._several._watch.groups()[1].answers)
        fill(peers["a"], b"a1")
        read(consumer, 1)
        consumer.commit()

    assert peers["a"].commits["g", "T"]["0"] == 2


def test_a_group_that_has_moved_is_read_on_where_it_was(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.LOOK_S", 0.05)
    monkeypatch.setattr("ledgermq.client.clusters.group_watch.MOVED_S", 0.05)
    peers, new = make_cluster("ab"), make_cluster("b")["b"]
    fill(peers["b"], b"b0", b"b1")
    fill(new, b"b0", b"b1", b"b2")
    with Consumer(peers["a"].address, topic="T", start="first") as consumer:
        read(consumer, 2)
        make_known({"a": peers["a"], "b": new}, number=2)
        peers["b"].stop_listening()

        assert read(consumer, 1) == [("b", b"b2")]


def test_what_is_of_one_group_is_refused_in_a_cluster(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    with (
        Consumer(peers["a"].address, topic="T", start={0: 1}) as begins,
        pytest.raises(ConfigError, match="one group's"),
    ):
        begins.poll()
    with (
        Consumer(peers["a"].address, topic="T", queues=[0]) as takes,
        pytest.raises(ConfigError, match="of one group"),
    ):
        takes.poll()
    with Consumer(peers["a"].address, topic="T", group="g") as consumer:
        with pytest.raises(ConfigError, match="of one group"):
            consumer.seek(0, 1)
        with pytest.raises(ConfigError, match="one group's"):
            consumer.commit({0: 1})


def test_a_batch_is_noted_in_its_group_and_iteration_gives_all(make_cluster: MakeCluster) -> None:
    peers = make_cluster("ab")
    fill(peers["a"], b"a0", b"a1")
    fill(peers["b"], b"b0")
    with Consumer(peers["a"].address, topic="T", group="g", retries=False) as consumer:
        while not len(batch := consumer.poll(1.0)):
            pass
        consumer.commit(batch)
    noted = {name: peer.commits.get(("g", "T"), {}).get("0") for name, peer in peers.items()}
    assert noted in ({"a": 2, "b": None}, {"a": None, "b": 1})

    with Consumer(peers["b"].address, topic="T", start="first") as consumer:
        found: list[bytes] = []
        for _, message in zip(range(3), consumer, strict=False):
            with consumer.processing(message):
                found.append(bytes(message.body))
    assert sorted(found) == [b"a0", b"a1", b"b0"]
