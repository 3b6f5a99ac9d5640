"""Positions beyond their queues' ends: what comes after them is delivered, and it is told once.

RocketMQ leaves them behind after a crash, or when a topic was made anew; an operator may write
them, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ledgermq.client import Consumer, GroupConsumer, Producer, TransactionalProducer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.formats.config_json import APPLIED_KEY, decode_document, encode_document
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.rules.messages.transactions import GROUP as TRANSACTIONS
from ledgermq.rules.messages.transactions import HALF_QUEUE, OP_QUEUE
from ledgermq.verbs.waiting import ListTransactions
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group, producer
from tests.process.test_outside_tables import OPTIONS, restart_killed
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

OFFSETS = {
    "orders@g": {"0": 5_000, "1": 700, "2": -1},
    "gone@g": {"0": 9},
    "%RETRY%g@g": {"0": 50},
    f"{HALF_QUEUE.topic}@{TRANSACTIONS}": {"0": 4_000},
    f"{OP_QUEUE.topic}@{TRANSACTIONS}": {"0": 4_000},
}


@pytest.fixture(params=["commitlog", "dledger"])
def node(request: pytest.FixtureRequest, make_node: Callable[[], Node]) -> Node:
    """A stopped node, whose queue 0 of ``orders`` has three messages."""
    made = make_node()
    start_client_node(made, log=request.param)
    with Producer(made.address) as producer:
        producer.send_batch("orders", [b"old"] * 3, queue_id=0).result()
        # To where nobody looks: on a busy machine it is due before the node has stopped.
        producer.send("other", b"later", delay_level=1).result()
    with GroupConsumer(made.address, group="g") as member:
        member.subscribe("orders")
        # Its topic of retries is there now.
        member.poll(0.0)
    assert made.stop() == 0
    return made


def start(node: Node) -> None:
    node.serve()


def written_by_rocketmq(node: Node) -> None:
    """It drops what we say in its files."""
    config = node.root / "config"
    for name, table in (("consumerOffset", OFFSETS), ("delayOffset", {"1": 400})):
        (config / f"{name}.json").write_text(json.dumps({"offsetTable": table}))


def edited_in_place(node: Node) -> None:
    """By an operator who leaves our keys where they are; no writer looks at such a file."""
    config = node.root / "config"
    for name, key, table in (
        ("consumerOffset", "offsetTable", OFFSETS),
        ("delayOffset", "ledgermqMoves", {f"{DELAY_TOPIC}/0": {"next": 400}}),
    ):
        path = config / f"{name}.json"
        document = decode_document(path.read_bytes())
        assert APPLIED_KEY in document
        path.write_bytes(encode_document({**document, key: table}))


def received(node: Node, bodies: set[bytes]) -> list[bytes]:
    """What a member of the group is given until it has ``bodies``; committed."""
    found: list[bytes] = []
    with Consumer(node.address, topic="orders", group="g", options=OPTIONS) as consumer:
        while not bodies <= {*found}:
            batch = consumer.poll(1.0)
            found += [bytes(one.body) for one in batch]
            consumer.commit()
    return found


@pytest.mark.long(but=1)
@pytest.mark.parametrize("spoil", [written_by_rocketmq, edited_in_place])
def test_what_comes_after_a_position_beyond_its_queue_is_delivered(
    node: Node, spoil: Callable[[Node], None]
) -> None:
    spoil(node)
    start(node)
    restart_killed(node)
    with Producer(node.address) as producer:
        # Before anybody of the group has asked for its offsets.
        producer.send_batch("orders", [b"a", b"b"], queue_id=0).result()
        producer.send("orders", b"c", queue_id=1).result()
        producer.send("orders", b"delayed", queue_id=3, delay_level=1).result()
    producer_of_transactions = TransactionalProducer(node.address, group="p")
    producer_of_transactions.transaction().send("orders", b"half").result()
    node.stop()
    start(node)
    first = received(node, {b"a", b"b", b"c", b"delayed"})
    with GroupConsumer(node.address, group="g") as member:
        member.subscribe("orders")
        with Producer(node.address) as producer:
            producer.send("orders", b"again", queue_id=0).result()
        batch = next(found for found in iter(lambda: member.poll(1.0), None) if len(found))
        member.retry_later(*batch, delay_level=1)
        member.commit()
        back = next(found for found in iter(lambda: member.poll(1.0), None) if len(found))
        member.commit()
    with connect_broker(node.address, name="test", timeout_s=PATIENCE_S) as broker:
        half_messages, _ = broker.run(asking(ListTransactions(10)))
        committed = [broker.group_offset("g", topic) for topic in ("orders", "gone")]
    producer_of_transactions.close()

    assert sorted(first) == [b"a", b"b", b"c", b"delayed"]
    assert [bytes(one.body) for one in back] == [b"again"]
    assert half_messages == 1
    assert (committed[0][0], committed[0][1], committed[1]) == (6, 1, {0: 0})
    told = [line.split("put right: ") for line in node.log.read_text().splitlines()]
    # In the first of three lives.
    assert sorted(found[1] for found in told if len(found) == 2) == sorted(
        f"file={file} group={group} topic={topic} queue={queue} was={was} is={now}"
        for file, group, topic, queue, was, now in (
            ("consumerOffset.json", "g", "orders", 0, 5_000, 3),
            ("consumerOffset.json", "g", "orders", 1, 700, 0),
            ("consumerOffset.json", "g", "orders", 2, -1, 0),
            ("consumerOffset.json", "g", "gone", 0, 9, 0),
            ("consumerOffset.json", "g", "%RETRY%g", 0, 50, 0),
            ("consumerOffset.json", TRANSACTIONS, HALF_QUEUE.topic, 0, 4_000, 0),
            ("consumerOffset.json", TRANSACTIONS, OP_QUEUE.topic, 0, 4_000, 0),
            ("delayOffset.json", "-", DELAY_TOPIC, 0, 400, 1),
        )
    )


def test_in_a_group_the_members_agree_on_a_position_that_was_put_right(
    make_node: Callable[[], Node],
) -> None:
    """RocketMQ has left another table with each of them."""
    group = make_group(make_node, ack="majority-fsync")
    with producer(*group.members) as one:
        one.send_batch(TOPIC, [b"old"] * 3, queue_id=0).result()
    group.stop()
    for number, member in enumerate(group.members):
        table = {f"{TOPIC}@g": {"0": 1_000 + number, "1": 5}}
        path = member.node.root / "config" / "consumerOffset.json"
        path.write_text(json.dumps({"offsetTable": table}))
    for member in group.members:
        member.start()
    for member in group.members:
        member.node.wait_ready()
    leader = group.leader()
    with producer(*group.members) as one:
        one.send_batch(TOPIC, [b"a", b"b"], queue_id=0).result()
    follower = group.others(leader)[0]
    leader.kill()
    wait_until(lambda: group.leader(besides=leader).leads, "another leader")
    addresses = [member.address for member in group.up()]
    with connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker:
        committed = broker.group_offset("g", TOPIC)
    with Consumer(addresses, topic=TOPIC, group="g", options=OPTIONS) as consumer:
        found = [bytes(one.body) for one in consumer.poll(PATIENCE_S)]

    assert committed == {0: 3, 1: 0}
    assert found == [b"a", b"b"]
    number = group.members.index(follower)
    assert follower.node.logged(f"was={1_000 + number} is=3")
