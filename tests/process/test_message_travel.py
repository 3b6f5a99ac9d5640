"""Messages on their whole way through a real node: topic, send, commit, dispatch, pull."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from ledgermq.formats.records.message import decode_message
from ledgermq.wire.pull_frame import PullStatus
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import Refusal
from tests.process.conftest import Node, wait_until
from tests.process.raw_consumer import RawConsumer
from tests.process.raw_producer import RawProducer
from tests.process.test_real_node import SMALL_FILES, serve

pytestmark = pytest.mark.slow


@pytest.fixture(params=["dledger", "commitlog"])
def node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    made = make_node()
    made.configure(store={**SMALL_FILES, "log": request.param})
    serve(made)
    return made


@pytest.fixture
def consumer(node: Node) -> Iterator[RawConsumer]:
    client = RawConsumer(node.runtime)
    yield client
    client.close()


@pytest.fixture
def producer(node: Node) -> Iterator[RawProducer]:
    client = RawProducer(node.runtime)
    yield client
    client.close()


def created(consumer: RawConsumer, topic: str) -> dict[str, object]:
    """The route of a new topic; a node that has just started may have to be asked again."""
    route = wait_until(lambda: accepted(consumer, topic), "the topic")
    assert isinstance(route, dict)
    return route


def was_restarted(node: Node, role: str) -> bool:
    return bool(node.child(role)["restarts"] == 1)


def accepted(consumer: RawConsumer, topic: str) -> object:
    answer = consumer.call("route", topic=topic, create=True)
    return None if isinstance(answer, Refusal) and answer.retriable else answer


def bodies(records: list[bytes]) -> list[bytes]:
    return [bytes(decode_message(memoryview(record)).body) for record in records]


def pull_until(consumer: RawConsumer, topic: str, count: int) -> list[bytes]:
    records: list[bytes] = []
    offset = 0
    while len(records) < count:
        answer = consumer.pull(topic, 0, offset, messages=1_000, hold_ms=10_000)
        assert answer.status is PullStatus.FOUND
        records += answer.records
        offset = answer.pulled.next_offset
    return bodies(records)


def test_a_held_pull_gets_what_is_sent_next(consumer: RawConsumer, producer: RawProducer) -> None:
    route = created(consumer, "orders")
    consumer.send_pull("orders", 0, 0, hold_ms=20_000)
    sent = producer.send(b"first")
    answer = consumer.pulled()

    assert (route["write_queues"], route["perm"]) == (8, 6)
    assert isinstance(sent, Sent)
    assert bodies(answer.records) == [b"first"]
    assert (answer.pulled.next_offset, answer.pulled.end) == (1, 1)


def test_messages_over_several_files_arrive_in_order_also_after_deaths(
    node: Node, consumer: RawConsumer, producer: RawProducer
) -> None:
    created(consumer, "orders")
    expected = []
    for frame in range(24):
        parts = [b"%06d" % (frame * 10 + number) * 2_000 for number in range(10)]
        expected += parts
        assert isinstance(producer.send(*parts), Sent)
    first = pull_until(consumer, "orders", len(expected))
    committed = consumer.call("group_commit", group="g", topic="orders", offsets={"0": 200})
    offsets = node.root / "config" / "consumerOffset.json"
    wait_until(lambda: offsets.exists() and b"200" in offsets.read_bytes(), "the offsets' file")
    for role in ("broker", "dispatcher"):
        os.kill(node.pid(role), signal.SIGKILL)
        wait_until(partial(was_restarted, node, role), "restart")
    again = RawConsumer(node.runtime)
    asked = partial(again.call, "group_offset", group="g", topic="orders")
    # It tells of offsets once it has read what was changed before.
    wait_until(lambda: not isinstance(asked(), Refusal), "readiness")
    group = asked()
    second = pull_until(again, "orders", len(expected))
    again.close()

    assert first == expected
    assert second == expected
    assert committed == {}
    assert group == {"offsets": {"0": 200}}
    assert node.stop() == 0
