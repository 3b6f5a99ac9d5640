"""What the broker's services did can be read by an operator, of a real node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Consumer, Decision, Producer, TransactionalProducer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
OPTIONS = ConsumerOptions(hold_ms=200, timeout_s=PATIENCE_S)


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


def wait_for(node: Node, **counted: int) -> None:
    """Until the broker's counters say that; a failure names what they say instead."""

    def said() -> dict[str, int]:
        counters = node.status()["counters"]["broker"]
        return {name: counters[name] for name in counted}

    try:
        wait_until(lambda: said() == counted, "the counts")
    except AssertionError:
        assert said() == counted
        raise


def test_delays_timers_and_cancels_are_counted(node: Node, address: str) -> None:
    with Producer(address) as producer:
        producer.send("orders", b"level", delay_level=1).result()
        producer.send("orders", b"late level", delay_level=18).result()
        producer.send("orders", b"soon", delay=1).result()
        producer.send("orders", b"later", delay=HOUR_MS).result()
        unwanted = producer.send("orders", b"never", delay=HOUR_MS).result()
        wait_for(node, delayed_delivered=1, timers_delivered=1)
        producer.cancel(unwanted.unique_id)

    wait_for(node, delayed_waiting=1, timers_waiting=1, timers_cancelled=1)


def test_ends_of_transactions_are_counted(node: Node, address: str) -> None:
    with TransactionalProducer(address, group="till") as producer:
        producer.send("orders", b"yes", lambda _: Decision.COMMIT)
        producer.send("orders", b"no", lambda _: Decision.ROLLBACK)
        producer.send("orders", b"who knows", lambda _: None)

    wait_for(node, transactions_committed=1, transactions_rolled_back=1, half_messages_waiting=1)


def test_retries_dead_letters_filters_and_commits_are_counted(node: Node, address: str) -> None:
    with Producer(address) as producer:
        for body in (b"one", b"two", b"three"):
            producer.send("orders", body, tag="red", queue_id=0).result()
        producer.send("orders", b"odd", tag="blue", queue_id=0).result()
    with Consumer(
        address, topic="orders", group="g", start="first", tag="red", options=OPTIONS
    ) as consumer:
        messages = list(consumer.poll(60.0))
        while len(messages) < 3:
            messages += consumer.poll(60.0)
        consumer.retry_later(messages[0])
        consumer.retry_later(messages[1], times_max=0)
        consumer.commit()

    wait_for(node, messages_retried=1, messages_dead=1, offset_commits=1)
    assert node.status()["counters"]["broker"]["messages_filtered_out"] >= 1


def test_members_that_differ_show_in_status_and_in_their_group(
    node: Node, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        GroupConsumer(address, group="mixed", name="red") as red,
        GroupConsumer(address, group="mixed", name="blue") as blue,
    ):
        for one in (red, blue):
            one.subscribe("orders", one.name)
            one.poll(0)
        wait_for(node, groups_consuming=1, members=2, groups_differing=1)
        assert main(["status", "--runtime-dir", str(node.runtime)]) == 0
        told = capsys.readouterr().out
        assert "groups      1 consuming with 2 members" in told
        assert "members of 1 want different things" in told
        assert main(["group", "show", "mixed", "--address", address]) == 0
        assert "members differ in expression of topic orders" in capsys.readouterr().out
    wait_for(node, groups_consuming=0, members=0, groups_differing=0)
