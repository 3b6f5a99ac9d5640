"""A topic over two groups, one of which is killed while a ``Producer`` sends to both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions, SendResult
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.clusters.topic_groups import TopicGroups
from ledgermq.client.sending.send_future import SendFuture
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.process.test_cluster_groups import ClusterNode, as_json, run
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC, QUEUES = "sales", 4
HOME, OTHER = "orders-a", "orders-b"
KEYS = [f"key-{number}" for number in range(16)]
OPTIONS = ProducerOptions(timeout_s=PATIENCE_S)


class Load:
    """Messages of a number each, every other one with a key."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.plain: dict[bytes, SendFuture[SendResult]] = {}
        self.keyed: dict[str, dict[bytes, SendFuture[SendResult]]] = {key: {} for key in KEYS}
        self._count = 0

    def send(self, count: int) -> None:
        """So many without a key, and as many of each key."""
        for _ in range(count):
            body = self._body()
            self.plain[body] = self._producer.send(TOPIC, body)
            for key, sent in self.keyed.items():
                body = self._body()
                sent[body] = self._producer.send(TOPIC, body, queue_key=key)

    def _body(self) -> bytes:
        self._count += 1
        return b"%d" % self._count

    def check(self, addresses: dict[str, str]) -> None:
        """Nothing that was acknowledged is lost, and each key's messages are in their order.

        A queue shows what is dispatched, a while after it is acknowledged.

        Args:
            addresses: of the groups by their names.
        """
        sent_in_all = set(self.plain).union(*self.keyed.values())
        stored: dict[str, list[list[bytes]]] = {}

        def has_all() -> bool:
            stored.update({name: bodies(address) for name, address in addresses.items()})
            found = {body for queues in stored.values() for queue in queues for body in queue}
            return sent_in_all <= found

        wait_until(has_all, "all that was acknowledged in the queues")
        whole = TopicGroups(dict.fromkeys(sorted(stored), QUEUES), ())
        for key, sent in self.keyed.items():
            place = whole.queue_of(key)
            found = [body for body in stored[place.group][place.queue_id] if body in sent]
            assert found == [*sent], key


def make_over(address: str, others: str) -> None:
    """Have the topic over both groups, and wait until they have it."""
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        ClusterAdmin(broker).set_topic(TOPIC, [], queues=QUEUES, fails_over=True)
    for one in (address, others):
        with connect_broker(one, name="test", timeout_s=PATIENCE_S) as broker:
            wait_until(lambda: any(row.topic == TOPIC for row in broker.topics()), "the topic")


def bodies(address: str) -> list[list[bytes]]:
    """All messages of the topic in a group, by queue, in their order."""
    found: list[list[bytes]] = [[] for _ in range(QUEUES)]
    with Consumer(address, topic=TOPIC, start="first", one_group=True) as consumer:
        ends = consumer.ends()
        while any(consumer.offsets()[queue] < end for queue, end in ends.items()):
            for message in consumer.poll(PATIENCE_S):
                found[message.queue_id].append(bytes(message.body))
    return found


def outcomes(futures: Sequence[SendFuture[SendResult]]) -> None:
    for future in futures:
        future.result(PATIENCE_S)


def test_what_a_killed_group_has_not_answered_is_stored_by_the_other_one(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home, other = (
        ClusterNode(make_node(), name, capsys, listen={"produce": f"tcp://127.0.0.1:{free_port()}"})
        for name in (HOME, OTHER)
    )
    home.begin(tmp_path / "root.json")
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    wait_until(lambda: len(other.tell("list")["groups"]) == 2, "the home's rows")
    make_over(f"ipc://{home.node.runtime}", f"ipc://{other.node.runtime}")
    whole = TopicGroups({HOME: QUEUES, OTHER: QUEUES}, ())
    lives = [key for key in KEYS if whole.queue_of(key).group == OTHER]
    with Producer(other.address, options=OPTIONS, fail_over_s=2.0) as producer:
        load = Load(producer)
        load.send(10)
        producer.flush(PATIENCE_S)
        killer = threading.Thread(target=home.node.end)
        killer.start()
        while killer.is_alive():
            load.send(5)
        killer.join()
        load.send(20)
        # The home is dead: all of this is in the other group, whatever had gone to the home.
        outcomes([*load.plain.values()])
        for key in lives:
            outcomes([*load.keyed[key].values()])
        assert not all(sent.done() for key in KEYS for sent in load.keyed[key].values())
        with Producer(other.address, options=OPTIONS) as begins:
            outcomes([begins.send(TOPIC, b"0", queue_key=key) for key in lives])
        home.node.serve()
        for sent in load.keyed.values():
            outcomes([*sent.values()])

    load.check({HOME: home.address, OTHER: other.address})


@pytest.mark.long
def test_leaders_that_are_killed_under_load_lose_nothing_and_keep_the_order_of_keys(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sockets: dict[str, str] = {}

    def prepare(member: Member) -> None:
        sockets[member.name] = f"tcp://127.0.0.1:{free_port()}"
        text = member.node.config.read_text()
        text = text.replace(
            "[listen]\n",
            f'[listen]\nconsume = "{sockets[member.name]}"\n'
            f'produce = "tcp://127.0.0.1:{free_port()}"\n',
        )
        member.node.config.write_text(text.replace("[node]\n", f'[node]\nbroker_name = "{HOME}"\n'))

    home = make_group(make_node, ack="majority-fsync", prepare=prepare)
    produce = f"tcp://127.0.0.1:{free_port()}"
    other = ClusterNode(make_node(), OTHER, capsys, listen={"produce": produce})
    home.leader()
    for member in home.members:
        member.node.wait_ready()
    address, nodes = ",".join(home.addresses), ",".join(sockets.values())
    words = ("init", "sales", "--root-key", str(tmp_path / "root.json"), "--nodes", nodes)
    as_json(run(capsys, address, *words, "--json"))
    other.tell("join", "--home", address, "--nodes", other.address)
    wait_until(lambda: len(other.tell("list")["groups"]) == 2, "the home's rows")
    make_over(address, other.address)
    with Producer(other.address, options=OPTIONS) as producer:
        load = Load(producer)
        load.send(10)
        producer.flush(PATIENCE_S)
        for _ in range(3):
            kill_a_leader(home, load)
            producer.flush(PATIENCE_S)

    load.check({HOME: nodes, OTHER: other.address})
    home.stop()


def kill_a_leader(home: Group, load: Load) -> None:
    """Kill the leader while messages are sent, have another one, and start the dead one again."""
    leader = home.leader()
    killer = threading.Thread(target=leader.kill)
    killer.start()
    while killer.is_alive():
        load.send(2)
    killer.join()
    home.leader(besides=leader)
    load.send(5)
    leader.start()
    leader.node.wait_ready()
