"""``ClusterProducer`` with two groups of one real node each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.process.client_node import SERVE
from tests.process.conftest import Node, wait_until
from tests.process.test_cluster_groups import ClusterNode
from tests.suite.patience import PATIENCE_S

from ledgermq.client import ClusterProducer, Consumer, SendResult
from ledgermq.client.broker_connection import connect_broker

pytestmark = pytest.mark.slow

TOPIC, QUEUES = "orders", 4


@pytest.fixture
def cluster(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> tuple[ClusterNode, ClusterNode]:
    """A home and another group that knows of it; both have the topic."""
    home = ClusterNode(make_node(), "orders-a", capsys)
    other = ClusterNode(make_node(), "orders-b", capsys)
    home.begin(tmp_path / "root.json")
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    wait_until(lambda: len(other.tell("list")["groups"]) == 2, "the home's rows")
    for group in (home, other):
        with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
            broker.create_topic(TOPIC, QUEUES)
    return home, other


def count(group: ClusterNode) -> int:
    """How many messages of the topic a group has."""
    with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
        return sum(broker.queue(TOPIC, number).end for number in range(QUEUES))


def bodies(group: ClusterNode) -> dict[bytes, list[int]]:
    """All messages of the topic in a group: the queues in which each body is."""
    found: dict[bytes, list[int]] = {}
    with Consumer(group.address, topic=TOPIC, start="first") as consumer:
        ends = consumer.ends()
        while any(consumer.offsets()[queue] < end for queue, end in ends.items()):
            for message in consumer.poll(PATIENCE_S):
                found.setdefault(bytes(message.body), []).append(message.queue_id)
    return found


def test_messages_go_to_both_groups_while_one_is_killed_and_each_is_there_once(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    home, other = cluster
    sent: list[tuple[bytes, SendResult]] = []

    def send(producer: ClusterProducer) -> None:
        body = b"%d" % len(sent)
        sent.append((body, producer.send(TOPIC, body).result(PATIENCE_S)))

    def home_takes(producer: ClusterProducer) -> bool:
        before = count(home)
        send(producer)
        return count(home) > before

    with ClusterProducer(other.address) as producer:
        wait_until(lambda: home_takes(producer), "the other group to be found")
        for _ in range(50):
            send(producer)
        assert count(home) and count(other)
        home.node.end()
        watched = {one.name: one for one in producer._watch.groups()}
        wait_until(lambda: not watched["orders-a"].answers, "the dead group to be noticed")
        for _ in range(200):
            send(producer)
        home.node.forget_told()
        home.node.launch([*SERVE, str(home.node.config)])
        home.node.wait_ready()
        wait_until(lambda: home_takes(producer), "the group to be used again")

    places = [bodies(group) for group in (home, other)]
    for body, result in sent:
        assert [place[body] for place in places if body in place] == [[result.queue_id]]
    assert sum(map(len, places)) == len(sent)


def test_a_key_has_one_queue_whichever_group_the_client_was_sent_to(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    keys = [b"key-%d" % number for number in range(40)]
    for group in cluster:
        with ClusterProducer(group.address) as producer:
            for key in keys:
                producer.send(TOPIC, key, queue_key=key.decode())
            producer.flush(PATIENCE_S)

    places = [bodies(group) for group in cluster]
    for key in keys:
        queues = [place[key] for place in places if key in place]
        assert len(queues) == 1 and len(queues[0]) == 2 and len(set(queues[0])) == 1, key
    assert all(places)
