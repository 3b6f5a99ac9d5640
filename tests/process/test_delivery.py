"""Delayed messages of real nodes: each is in its topic's log once, when its time has come."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import pytest

from ledgermq.client import Consumer, Producer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.formats.arrays import UNIT
from ledgermq.formats.config_json import decode_document
from ledgermq.model.errors import MessageIllegalError
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, producer
from tests.process.test_state_log import broker_of
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LEDGERMQ_LEADER_KILLS", "2"))
SEED = int(os.environ.get("LEDGERMQ_KILL_SEED", random.randrange(2**32)))
MS = 1_000_000
DAY_MS = 86_400_000


@pytest.fixture(params=["dledger", "commitlog"])
def node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    made = make_node()
    start_client_node(made, log=request.param, file_size=65_536)
    return made


def received(address: str | Sequence[str], topic: str, wanted: int) -> list[ReceivedMessage]:
    """What a topic has once there are so many messages, and whatever comes with them."""
    found: list[ReceivedMessage] = []
    until = time.monotonic() + PATIENCE_S
    with Consumer(address, topic=topic, start="first") as consumer:
        while len(found) < wanted and time.monotonic() < until:
            found += consumer.poll(1.0)
        # Twins would come right behind the last of them.
        while batch := list(consumer.poll(0.3)):
            found += batch
    return found


def now_ms() -> int:
    return time.time_ns() // MS


def levels_in_file(node: Node) -> dict[str, int]:
    path = node.root / "config" / "delayOffset.json"
    table = decode_document(path.read_bytes())["offsetTable"]
    assert isinstance(table, dict)
    return {str(level): offset for level, offset in table.items()}


@pytest.mark.long(but=1)
def test_messages_of_a_delay_level_come_when_it_is_over(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as one:
        at_once = one.send("orders", b"at once", queue_id=1).result()
        waits = one.send("orders", b"later", queue_id=1, delay_level=1, tag="t").result()
        one.send_batch("orders", [b"b1", b"b2"], queue_id=2, properties={"DELAY": "2"}).result()
    found = {bytes(message.body): message for message in received(address, "orders", 4)}
    wait_until(lambda: levels_in_file(node) == {"1": 1, "2": 2}, "the levels' file")

    assert (at_once.topic, waits.topic, waits.queue_id) == ("orders", "SCHEDULE_TOPIC_XXXX", 0)
    assert sorted(found) == [b"at once", b"b1", b"b2", b"later"]
    later = found[b"later"]
    assert later.store_timestamp - waits.store_timestamp >= 1_000
    assert later.unique_id == waits.unique_id
    assert (later.queue_id, later.tag) == (1, "t")
    # As RocketMQ stores it: the properties are those that it waited with.
    assert later.properties["REAL_TOPIC"] == "orders"
    assert later.properties["DELAY"] == "1"
    assert found[b"b1"].store_timestamp - at_once.store_timestamp >= 5_000
    assert node.stop() == 0


@pytest.mark.long(but=1)
def test_messages_come_at_a_time_of_their_own_and_can_be_taken_back(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with Producer(address) as one, broker_of(address) as broker:
        now = now_ms()
        far = one.send("other", b"far", deliver_at=now + 300 * DAY_MS, keys=["k"]).result()
        wanted = {b"second": now + 3_000, b"first": now + 2_000, b"past": now - 5_000}
        for body, due in wanted.items():
            one.send("other", body, queue_id=3, tag="t", deliver_at=due).result()
        taken_back = one.send("other", b"never", delay=2_500).result()
        one.cancel(taken_back.unique_id)
        with pytest.raises(MessageIllegalError, match="no timer of that id"):
            one.cancel(taken_back.unique_id)
        found = received(address, "other", 3)
        waiting = broker.timers()
        with pytest.raises(MessageIllegalError, match="too far ahead"):
            one.send("other", b"", delay=timedelta(days=400))
        with pytest.raises(MessageIllegalError, match="no timer of that id"):
            one.cancel(found[0].unique_id)
        one.cancel(far.unique_id)
        none_waits = broker.timers()

    assert [bytes(one.body) for one in found] == [b"past", b"first", b"second"]
    for message in found:
        assert message.store_timestamp >= wanted[bytes(message.body)]
        assert (message.queue_id, message.tag) == (3, "t")
    assert (waiting.waiting, none_waits.waiting) == (1, 0)
    (row,) = waiting.timers
    assert (row.unique_id, row.topic, row.due_ms) == (far.unique_id, "other", now + 300 * DAY_MS)
    assert node.stop() == 0


@pytest.mark.long
def test_whatever_dies_a_delayed_message_is_there_once(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, file_size=65_536)
    address = f"ipc://{node.runtime}"
    sent: list[bytes] = []
    found: Counter[bytes] = Counter()
    # In one life, one behind the other: each start of a node costs more than all that is done here.
    for role in ("writer", "dispatcher", "broker", "raft", "node"):
        with Producer(address) as one, Consumer(address, topic="orders", start="last") as consumer:
            consumer.poll(0.0)
            sent += send_delayed(one, f"{role}-", 100)
            assert len(consumer.poll(PATIENCE_S)), role
        if role == "node":
            node.signal(signal.SIGKILL)
            node.wait_end()
            node.serve()
        else:
            os.kill(node.pid(role), signal.SIGKILL)
        found = Counter(bytes(one.body) for one in received(address, "orders", len(sent)))
        assert found == Counter(sent), role
    node.stop()


def send_delayed(one: Producer, prefix: str, count: int) -> list[bytes]:
    """Messages that are due in a second and a bit, half of them by level; their bodies."""
    bodies = [f"{prefix}{number}".encode() for number in range(count)]
    futures = []
    for number, body in enumerate(bodies):
        how: dict[str, int] = {"delay": 1_000 + number} if number % 2 else {"delay_level": 1}
        futures.append(one.send("orders", body, queue_id=number % 4, **how))
    for future in futures:
        future.result()
    return bodies


@pytest.mark.long
def test_delayed_messages_are_there_once_whichever_leader_dies(group: Group) -> None:
    chance = random.Random(SEED)
    print(f"LEDGERMQ_KILL_SEED={SEED}")
    sent: list[bytes] = []
    with producer(*group.members) as one:
        for kill in range(KILLS):
            sent += send_delayed(one, f"{kill}-", 200)
            leader = group.leader()
            # About when they are delivered: a little before, in the midst of it, a little after.
            wait_for_units(leader.node, len(sent) - chance.randrange(0, 200))
            leader.kill()
            group.leader(besides=leader)
            leader.start()
        found = received(group.addresses, TOPIC, len(sent))
    group.wait_equal()
    statuses = group.stop()

    assert Counter(bytes(message.body) for message in found) == Counter(sent)
    assert statuses == [0, 0, 0]


def wait_for_units(node: Node, messages: int) -> None:
    """Until the real topic has so many messages on this node."""
    queues = node.root / "consumequeue" / TOPIC

    def are_there() -> bool:
        contents = (np.fromfile(path, UNIT) for path in queues.glob("*/*"))
        return sum(np.count_nonzero(units["size"]) for units in contents) >= messages

    wait_until(are_there, f"{messages} messages", timeout_s=PATIENCE_S)
