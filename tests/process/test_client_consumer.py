"""``Consumer`` against the real node: order, groups, places to begin, tags, deaths."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.formats.java_hash import java_hash
from ledgermq.model.errors import ConfigError, NotLeaderError, TopicUnknownError
from ledgermq.wire.pull_frame import HOLD_MS_MAX
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


LOGS = ("dledger", "commitlog")


@pytest.fixture(scope="module", params=LOGS)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """One for all tests that leave it as it is."""
    with nodes_made() as make:
        made = make()
        start_client_node(made, log=request.param)
        yield made


@pytest.fixture
def producer(node: Node) -> Iterator[Producer]:
    with Producer(node.address) as made:
        yield made


@pytest.fixture(params=LOGS)
def own_node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    """One whose processes are killed."""
    made = make_node()
    start_client_node(made, log=request.param)
    return made


def read(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """So many messages, at least; fails when the next one does not come.

    Not all of them within some time: where one is sent once the one before is acknowledged, each
    waits for eight threads of five processes to have their turns.
    """
    messages: list[ReceivedMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        batch = consumer.poll(1.0)
        if len(batch):
            messages += batch
            deadline = time.monotonic() + PATIENCE_S
    return messages


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return [bytes(message.body) for message in messages]


def test_every_message_comes_once_in_the_order_of_its_queue(
    node: Node, topic: str, producer: Producer
) -> None:
    for number in range(40):
        rows = [b"%d:%d" % (number % 4, 25 * (number // 4) + row) for row in range(25)]
        producer.send_batch(topic, [row + bytes(900) for row in rows], queue_id=number % 4)
    producer.flush()
    options = ConsumerOptions(messages_max=7, hold_ms=100)
    with Consumer(node.address, topic=topic, start="first", options=options) as consumer:
        messages = read(consumer, 1_000)
        after = consumer.poll(0.05)
    by_queue: dict[int, list[bytes]] = defaultdict(list)
    for message in messages:
        assert message.queue_offset == len(by_queue[message.queue_id])
        by_queue[message.queue_id].append(bytes(message.body).rstrip(b"\0"))

    assert len(after) == 0
    assert by_queue == {q: [b"%d:%d" % (q, row) for row in range(250)] for q in range(4)}


def test_a_message_says_what_the_producer_learned(
    node: Node, topic: str, producer: Producer
) -> None:
    result = producer.send(
        topic, b"body", tag="A", keys=["k1", "k2"], properties={"a": "ö"}, queue_id=3, flag=-7
    ).result(PATIENCE_S)
    with Consumer(node.address, topic=topic, start="first") as consumer:
        (message,) = read(consumer, 1)

    assert (message.topic, message.queue_id, message.flag) == (topic, 3, -7)
    assert message.queue_offset == result.queue_offset
    assert message.physical_offset == result.physical_offset
    assert message.unique_id == result.unique_id
    assert message.offset_message_id == result.offset_message_id
    assert message.store_timestamp == result.store_timestamp
    assert (message.tag, message.keys) == ("A", ("k1", "k2"))
    assert message.properties["a"] == "ö"


def test_a_message_stored_while_the_consumer_waits_comes_at_once(
    node: Node, topic: str, producer: Producer
) -> None:
    options = ConsumerOptions(hold_ms=HOLD_MS_MAX)
    with Consumer(node.address, topic=topic, start="last", options=options) as consumer:
        assert len(consumer.poll(0.1)) == 0
        for number in range(20):
            producer.send(topic, b"%d" % number).result(PATIENCE_S)

            assert bodies(read(consumer, 1)) == [b"%d" % number]


def test_messages_to_all_queues_come_while_a_consumer_follows(
    node: Node, topic: str, producer: Producer
) -> None:
    options = ConsumerOptions(messages_max=2, hold_ms=50)
    with Consumer(node.address, topic=topic, start="last", options=options) as consumer:
        consumer.offsets()
        sender = threading.Thread(target=_send_slowly, args=(producer, topic, 200))
        sender.start()
        messages = read(consumer, 200)
        sender.join()

    assert sorted(int(body) for body in bodies(messages)) == list(range(200))


def _send_slowly(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.send(topic, b"%d" % number, queue_id=number % 4).result(PATIENCE_S)


def test_a_group_goes_on_behind_what_it_committed(
    node: Node, topic: str, producer: Producer
) -> None:
    producer.send_batch(topic, [b"%d" % row for row in range(10)], queue_id=1).result(PATIENCE_S)
    with Consumer(
        node.address, topic=topic, group=f"{topic}_g", options=ConsumerOptions(messages_max=4)
    ) as first:
        given = list(first.poll(PATIENCE_S))
        first.commit()
        first.poll(PATIENCE_S)
    with Consumer(node.address, topic=topic, group=f"{topic}_g") as second:
        committed = second.committed()
        rest = read(second, 6)
    with Consumer(node.address, topic=topic, group=f"{topic}_other") as stranger:
        all_of_them = read(stranger, 10)

    assert bodies(given) == [b"0", b"1", b"2", b"3"]
    assert committed == {0: 0, 1: 4, 2: 0, 3: 0}
    assert bodies(rest) == [b"%d" % row for row in range(4, 10)]
    assert len(all_of_them) == 10


def test_iterating_counts_as_read_what_was_given(
    node: Node, topic: str, producer: Producer
) -> None:
    producer.send_batch(topic, [b"%d" % row for row in range(10)], queue_id=2).result(PATIENCE_S)
    with Consumer(node.address, topic=topic, group=f"{topic}_g") as consumer:
        for message in consumer:
            if message.queue_offset == 6:
                break
        offsets = consumer.offsets()

    assert offsets == {0: 0, 1: 0, 2: 7, 3: 0}


def test_a_place_to_begin_is_first_last_a_time_or_an_offset(
    node: Node, topic: str, producer: Producer
) -> None:
    times = []
    for number in range(3):
        # Times are in milliseconds: two messages of one would be one place.
        wait_until(
            lambda: not times or time.time_ns() // 1_000_000 > times[-1], "the next millisecond"
        )
        times.append(
            producer.send(topic, b"%d" % number, queue_id=0).result(PATIENCE_S).store_timestamp
        )

    def begins(start: object) -> list[bytes]:
        with Consumer(node.address, topic=topic, queues=[0], start=start) as consumer:  # type: ignore[arg-type]
            offset = consumer.offsets()[0]
            return [b"%d" % row for row in range(offset, 3)] and bodies(read(consumer, 3 - offset))

    wait_until(lambda: begins("first") == [b"0", b"1", b"2"], "dispatch")

    assert times[0] < times[1] < times[2]
    assert begins(times[1]) == [b"1", b"2"]
    assert begins({0: 2}) == [b"2"]
    assert begins("last") == []


def test_seek_goes_back_and_forward(node: Node, topic: str, producer: Producer) -> None:
    producer.send_batch(topic, [b"%d" % row for row in range(10)], queue_id=0).result(PATIENCE_S)
    with Consumer(node.address, topic=topic, queues=[0], start="first") as consumer:
        read(consumer, 10)
        consumer.seek(0, 8)
        again = read(consumer, 2)
        consumer.seek(0, 0)
        whole = read(consumer, 10)
        apart = consumer.pull(0, 5, messages_max=2)
        with pytest.raises(TopicUnknownError):
            consumer.seek(1, 0)
        with pytest.raises(ConfigError):
            consumer.seek(0, -1)

    assert bodies(again) == [b"8", b"9"]
    assert bodies(whole) == [b"%d" % row for row in range(10)]
    assert [message.queue_offset for message in apart] == [5, 6]


def test_an_offset_that_the_queue_does_not_hold_is_told_and_left(
    node: Node, topic: str, producer: Producer
) -> None:
    producer.send_batch(topic, [b"a", b"b"], queue_id=0).result(PATIENCE_S)
    with Consumer(node.address, topic=topic, queues=[0], start="first") as consumer:
        read(consumer, 2)
        consumer.seek(0, 1_000)
        assert len(consumer.poll(0.2)) == 0
        resets = consumer.resets
        producer.send(topic, b"c", queue_id=0).result(PATIENCE_S)
        next_one = read(consumer, 1)

    assert [(reset.wanted, reset.end, reset.next_offset) for reset in resets] == [(1_000, 2, 2)]
    assert bodies(next_one) == [b"c"]


def test_tags_are_compared_as_text_where_their_hashes_agree(
    node: Node, topic: str, producer: Producer
) -> None:
    tags = ["Aa", "BB", "C", "D", None]
    batch = [OutgoingMessage(b"%d" % row, tag=tags[row % 5]) for row in range(50)]
    producer.send_batch(topic, batch, queue_id=0).result(PATIENCE_S)
    # At the end of its queue a reader with a filter learns that it is there when its hold is over.
    options = ConsumerOptions(messages_max=3, hold_ms=300)
    with Consumer(
        node.address, topic=topic, start="first", tag="Aa || D", options=options
    ) as consumer:
        messages = read(consumer, 20)
        wait_until(
            lambda: not len(consumer.poll(0.01)) and consumer.offsets()[0] == 50, "the queue's end"
        )

    assert java_hash("Aa") == java_hash("BB")
    assert bodies(messages) == [b"%d" % row for row in range(50) if row % 5 in (0, 3)]


@pytest.mark.long(but=2)
@pytest.mark.parametrize("victim", ["broker", "dispatcher", "writer"])
def test_a_death_under_way_skips_and_repeats_nothing(own_node: Node, victim: str) -> None:
    options = ConsumerOptions(messages_max=50, hold_ms=500)
    messages: list[ReceivedMessage] = []
    with (
        Producer(own_node.address) as producer,
        Consumer(own_node.address, topic="orders", start="first", options=options) as consumer,
    ):
        for deaths in range(1, 4):
            for number in range(40):
                producer.send_batch("orders", [b"x"] * 10, queue_id=number % 4)
            messages += read(consumer, 100)
            os.kill(own_node.pid(victim), signal.SIGKILL)
            producer.flush(PATIENCE_S)
            messages += read(consumer, 400 * deaths - len(messages))
            wait_until(lambda count=deaths: own_node.child(victim)["restarts"] == count, "restart")
        after = consumer.poll(0.1)
        resets = consumer.resets
    by_queue: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        by_queue[message.queue_id].append(message.queue_offset)

    assert by_queue == {queue: list(range(300)) for queue in range(4)}
    assert len(after) == 0
    assert resets == []


def test_a_poll_without_messages_ends_in_time(node: Node, topic: str) -> None:
    # Long before the broker says that there are none, and not before its own time.
    options = ConsumerOptions(hold_ms=HOLD_MS_MAX)
    with Consumer(node.address, topic=topic, start="first", options=options) as consumer:
        begun = time.monotonic()
        batch = consumer.poll(0.3)
        took = time.monotonic() - begun

    assert len(batch) == 0
    assert 0.25 < took < HOLD_MS_MAX / 1_000


def test_a_topic_that_does_not_exist_is_not_made_by_reading_it(node: Node) -> None:
    for _ in range(2):
        with Consumer(node.address, topic="nowhere") as consumer, pytest.raises(TopicUnknownError):
            consumer.poll(0.1)


def test_without_a_node_the_error_names_where_it_was_looked_for() -> None:
    options = ConsumerOptions(timeout_s=0.3)
    with (
        Consumer("ipc:///tmp/no-such-node", topic="orders", options=options) as consumer,
        pytest.raises(NotLeaderError) as nobody,
    ):
        consumer.poll(0.1)

    assert "no-such-node" in str(nobody.value)
