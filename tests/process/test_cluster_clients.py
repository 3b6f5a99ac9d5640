"""``Producer`` and ``Consumer`` in a cluster of two groups of one real node each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import (
    Consumer,
    Producer,
    ProducerOptions,
    SendResult,
)
from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.ipc.cursor_page import CursorPage
from tests.process.conftest import Node, wait_until
from tests.process.node_start import run_python
from tests.process.test_cluster_groups import ClusterNode
from tests.process.two_groups import Pair, joined_pair
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPIC, QUEUES = "orders", 4


@pytest.fixture
def cluster(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Pair:
    """A home and another group that knows of it; both have the topic."""
    home, other = joined_pair(make_node, capsys, tmp_path)
    for group in (home, other):
        address = f"ipc://{group.node.runtime}"
        with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
            broker.create_topic(TOPIC, QUEUES)
    return home, other


def start(group: ClusterNode) -> None:
    """Start a group whose processes were all killed."""
    group.node.serve()


def count(group: ClusterNode) -> int:
    """How many messages of the topic a group has."""
    with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
        return sum(broker.queue(TOPIC, number).end for number in range(QUEUES))


def bodies(group: ClusterNode) -> dict[int, list[bytes]]:
    """All messages of the topic in a group, by queue, in their order."""
    # What is acknowledged is in the queues a while later.
    with CursorPage.attach(group.node.runtime / "cursors") as page:
        end = page.read_committed().position
        wait_until(lambda: page.read_dispatched().position >= end, "the dispatcher")
    found: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
    with Consumer(group.address, topic=TOPIC, start="first", one_group=True) as consumer:
        ends = consumer.ends()
        while any(consumer.offsets()[queue] < end for queue, end in ends.items()):
            for message in consumer.poll(PATIENCE_S):
                found[message.queue_id].append(bytes(message.body))
    return found


def test_a_group_that_is_killed_while_messages_are_sent_loses_none_and_holds_none_up(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    home, other = cluster
    sent: list[SendFuture[SendResult]] = []

    def send(producer: Producer, count: int = 1) -> None:
        for _ in range(count):
            sent.append(producer.send(TOPIC, b"%d" % len(sent)))

    def home_takes(producer: Producer) -> bool:
        before = count(home)
        send(producer)
        sent[-1].result(PATIENCE_S)
        return count(home) > before

    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer(other.address, options=options) as producer:
        wait_until(lambda: home_takes(producer), "the other group to be found")
        killer = threading.Thread(target=home.node.end)
        killer.start()
        while killer.is_alive() and len(sent) < 20_000:
            send(producer, 20)
        killer.join()
        watched = {one.name: one for one in producer.of_all._watch.groups()}
        wait_until(lambda: not watched["orders-a"].answers, "the dead group to be noticed")
        before = len(sent)
        send(producer, 200)
        for future in sent[before:]:
            future.result(PATIENCE_S)
        start(home)
        wait_until(lambda: home_takes(producer), "the group to be used again")
        results = [future.result(PATIENCE_S) for future in sent]

    stored: dict[bytes, list[int]] = {}
    for group in (home, other):
        for queue, found in bodies(group).items():
            assert found == sorted(found, key=int), (group.name, queue)
            for body in found:
                stored.setdefault(body, []).append(queue)
    assert stored == {b"%d" % one: [result.queue_id] for one, result in enumerate(results)}


def test_a_key_has_one_queue_whichever_group_the_client_was_sent_to(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    keys = [b"key-%d" % number for number in range(40)]
    for group in cluster:
        with Producer(group.address) as producer:
            for key in keys:
                producer.send(TOPIC, key, queue_key=key.decode())
            producer.flush(PATIENCE_S)

    queues = [found for group in cluster for found in bodies(group).values()]
    assert all(any(bodies(group).values()) for group in cluster)
    for key in keys:
        assert [found.count(key) for found in queues if key in found] == [2], key


def test_a_consumer_reads_all_groups_while_one_is_killed_and_goes_on_where_it_has_noted(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    home, other = cluster
    read: list[tuple[str, int, bytes]] = []

    def fill(group: ClusterNode, *numbers: int) -> None:
        with Producer(group.address, one_group=True) as producer:
            for number in numbers:
                producer.send(TOPIC, b"%s %d" % (group.name.encode(), number), queue_id=number % 2)
            producer.flush(PATIENCE_S)

    def have_come(consumer: Consumer, count: int) -> bool:
        batch = consumer.poll(1.0)
        read.extend(
            (message.broker_group, message.queue_id, bytes(message.body)) for message in batch
        )
        return len(read) >= count

    def consumer() -> Consumer:
        return Consumer(other.address, topic=TOPIC, group="billing")

    fill(home, *range(20))
    fill(other, *range(20))
    with consumer() as first:
        wait_until(lambda: have_come(first, 40), "all messages of both groups")
        first.commit()
        home.node.end()
        fill(other, *range(20, 40))
        wait_until(lambda: have_come(first, 60), "those of the group that lives")
        first.commit()
    with consumer() as second:
        fill(other, 40)
        wait_until(lambda: have_come(second, 61), "what the dead group does not hold up")
        start(home)
        fill(home, *range(20, 30))
        wait_until(lambda: have_come(second, 71), "the group that is back")
        second.commit()

    for group, count in ((home, 30), (other, 41)):
        for queue in range(2):
            wanted = [b"%s %d" % (group.name.encode(), one) for one in range(queue, count, 2)]
            assert [body for name, at, body in read if (name, at) == (group.name, queue)] == wanted
    assert len(read) == 71


def test_the_awaitable_forms_send_read_give_back_and_note_in_both_groups(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    home, other = cluster
    sent = [b"%d" % number for number in range(20)]

    async def send_and_read() -> list[tuple[str, bytes, int]]:
        found: list[tuple[str, bytes, int]] = []
        async with (
            AsyncProducer(other.address) as producer,
            AsyncConsumer(home.address, topic=TOPIC, group="billing", start="first") as consumer,
        ):
            for body in sent:
                await producer.send(TOPIC, body, queue_key=body.decode())
            while len(found) < len(sent) + 2:
                batch = await consumer.poll(PATIENCE_S)
                group = batch.broker_group
                for message in batch:
                    again = message.reconsume_times
                    found.append((group, bytes(message.body), again))
                    if not again and [one[0] for one in found].count(group) == 1:
                        (back,) = await consumer.retry_later(message, delay_level=1)
                        assert back.reconsume_times == 1
            await consumer.commit()
        return found

    found = asyncio.run(asyncio.wait_for(send_and_read(), PATIENCE_S))

    assert sorted(body for _, body, again in found if not again) == sorted(sent)
    assert {group for group, _, again in found if again} == {home.name, other.name}
    for group in cluster:
        with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
            noted = broker.group_offset("billing", TOPIC)
            assert all(noted[queue] == broker.queue(TOPIC, queue).end for queue in range(QUEUES))


def test_the_example_sends_to_both_groups_and_bills_what_it_has_sent(
    cluster: tuple[ClusterNode, ClusterNode],
) -> None:
    done = run_python(EXAMPLES / "several_groups.py", cluster[0].address)

    assert (done.returncode, done.stdout) == (0, "billed: 39 in 2 groups\n"), done.stderr
