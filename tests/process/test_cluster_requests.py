"""Requests, transactions and orders over two groups of one real node each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import (
    Admin,
    Consumer,
    Decision,
    Producer,
    ProducerOptions,
    Requester,
    TransactionalProducer,
    UndecidedTransaction,
    asks_for_reply,
)
from ledgermq.client.aio import (
    AsyncConsumer,
    AsyncProducer,
    AsyncRequester,
    AsyncTransactionalProducer,
)
from ledgermq.model.errors import ConfigError, LedgerError, TimedOutError
from tests.process.conftest import Node, wait_until
from tests.process.test_transactions import QUICK
from tests.process.two_groups import HOME, OTHER, Pair, joined_pair
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "quotes"
OPTIONS = ProducerOptions(timeout_s=PATIENCE_S)


@pytest.fixture
def pair(make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Pair:
    """A home and another group that knows of it; both have the topic."""
    home, other = joined_pair(make_node, capsys, tmp_path, transactions=QUICK)
    for group in (home, other):
        with Admin(f"ipc://{group.node.runtime}", timeout_s=PATIENCE_S) as admins:
            admins.of(group.name).create_topic(TOPIC, queues=4)
    return home, other


def replies(address: str, until: threading.Event, asked: list[tuple[str, bytes]]) -> None:
    """Reply to each request, in the group that it is in."""
    with (
        Consumer(address, topic=TOPIC, group="quoting", start="first") as consumer,
        Producer(address, options=OPTIONS) as producer,
    ):
        while not until.is_set():
            for message in consumer.poll(0.2):
                if asks_for_reply(message):
                    asked.append((message.broker_group, bytes(message.body)))
                    producer.reply(message, b"for " + bytes(message.body))


@pytest.mark.long
def test_a_reply_comes_from_the_group_that_has_the_request_and_orders_name_their_group(
    pair: Pair,
) -> None:
    home, other = pair
    over, asked = threading.Event(), list[tuple[str, bytes]]()
    reader = threading.Thread(target=replies, args=(home.address, over, asked))
    reader.start()
    try:
        with Requester(other.address, options=OPTIONS) as requester:
            for group in (HOME, OTHER):
                reply = requester.request(TOPIC, b"1", group=group, timeout=PATIENCE_S)
                assert (bytes(reply.body), asked[-1]) == (b"for 1", (group, b"1"))
            for number in range(10):
                key = f"key-{number}"
                reply = requester.request(TOPIC, b"2", queue_key=key, timeout=PATIENCE_S)
                assert bytes(reply.body) == b"for 2"
            reply = requester.request(TOPIC, b"3", timeout=PATIENCE_S)
            assert bytes(reply.body) == b"for 3"
            assert {group for group, body in asked if body == b"2"} == {HOME, OTHER}
            with pytest.raises(ConfigError, match="no such group"):
                requester.request(TOPIC, b"4", group="orders-c")
    finally:
        over.set()
        reader.join()
    with (
        Requester(home.address, options=OPTIONS) as requester,
        pytest.raises(TimedOutError, match="no reply"),
    ):
        requester.request(TOPIC, b"5", group=OTHER, timeout=10 / 3)
    with Admin(other.address, timeout_s=PATIENCE_S) as admins:
        counts = {name: admins.of(name).topic(TOPIC).messages for name in admins.broker_groups()}
        assert counts == admins.each(lambda admin: admin.topic(TOPIC).messages)
        # Requests, and nothing else: replies are in a topic of their own.
        assert sum(counts.values()) == len(asked) + 1 and all(counts.values())
        home.node.end()
        wait_until(lambda: not admins._by_name()._watch.group(HOME).answers, "it to be noticed")  # type: ignore[union-attr]
        found = admins.each(lambda admin: admin.topic(TOPIC).messages)
        assert found[OTHER] == counts[OTHER]
        assert "does not answer" in str(found[HOME])


def test_a_transaction_is_in_one_group_which_asks_what_became_of_it(pair: Pair) -> None:
    home, other = pair
    asked: list[str] = []

    def listener(undecided: UndecidedTransaction) -> Decision:
        asked.append(undecided.id)
        return Decision.COMMIT

    with TransactionalProducer(home.address, group="till", options=OPTIONS) as till:
        for group in (HOME, OTHER):
            with till.transaction(TOPIC, group=group) as both:
                both.send(TOPIC, b"%s 1" % group.encode())
                both.send(TOPIC, b"%s 2" % group.encode())
            with pytest.raises(ZeroDivisionError), till.transaction(TOPIC, group=group) as none:
                none.send(TOPIC, b"never")
                _ = 1 // 0
        for number in range(10):
            body = b"%d" % number
            till.send(TOPIC, body, lambda _: Decision.COMMIT, queue_key=f"key-{number}")
    with TransactionalProducer(home.address, group="left", options=OPTIONS) as left:
        open_ids = []
        for group in (HOME, OTHER):
            transaction = left.transaction(TOPIC, group=group)
            transaction.send(TOPIC, b"%s late" % group.encode())
            transaction.leave_open()
            open_ids.append(transaction.id)
    # Neither has sent anything by this one, and both ask it.
    with TransactionalProducer(other.address, group="left", listener=listener):
        wait_until(lambda: set(open_ids) <= set(asked), "the questions of both groups")

        found: dict[str, set[bytes]] = {HOME: set(), OTHER: set()}

        def are_all_there() -> bool:
            for message in consumer.poll(0.5):
                found[message.broker_group].add(bytes(message.body))
            return sum(map(len, found.values())) == 16

        with Consumer(home.address, topic=TOPIC, start="first") as consumer:
            wait_until(are_all_there, "all that was committed")
    numbers = {b"%d" % number for number in range(10)}
    for group, bodies in found.items():
        name = group.encode()
        assert bodies - numbers == {name + b" 1", name + b" 2", name + b" late"}
        assert bodies & numbers


@pytest.mark.long
def test_requests_and_transactions_are_awaited_in_each_group(pair: Pair) -> None:
    home, other = pair
    asked: list[str] = []

    async def listener(undecided: UndecidedTransaction) -> Decision:
        asked.append(undecided.id)
        return Decision.COMMIT

    async def commits(_id: str) -> Decision:
        return Decision.COMMIT

    async def reply_all() -> None:
        async with (
            AsyncConsumer(home.address, topic=TOPIC, group="g", start="first") as consumer,
            AsyncProducer(home.address, options=OPTIONS) as producer,
        ):
            while True:
                for message in await consumer.poll(PATIENCE_S):
                    if asks_for_reply(message):
                        await producer.reply(message, b"for " + bytes(message.body))

    async def ask_and_commit() -> list[str]:
        replying = asyncio.create_task(reply_all())
        async with AsyncRequester(other.address, options=OPTIONS) as requester:
            requests = [
                requester.request(TOPIC, group.encode(), group=group, timeout=PATIENCE_S)
                for group in (HOME, OTHER)
            ]
            found = [bytes(reply.body) for reply in await asyncio.gather(*requests)]
            assert found == [b"for " + HOME.encode(), b"for " + OTHER.encode()]
            reply = await requester.request(TOPIC, b"any", timeout=PATIENCE_S)
            assert bytes(reply.body) == b"for any"
        replying.cancel()
        await asyncio.wait([replying])
        async with AsyncTransactionalProducer(home.address, group="left", options=OPTIONS) as left:
            for number in range(10):
                key = f"key-{number}"
                await left.send(TOPIC, b"%d" % number, commits, queue_key=key)
            ids = []
            for group in (HOME, OTHER):
                transaction = left.transaction(TOPIC, group=group)
                await transaction.send(TOPIC, b"late")
                await transaction.leave_open()
                ids.append(transaction.id)
        async with AsyncTransactionalProducer(other.address, group="left", listener=listener):
            async with asyncio.timeout(PATIENCE_S):
                while not set(ids) <= set(asked):
                    await asyncio.sleep(0.05)
        return ids

    ids = asyncio.run(ask_and_commit())

    assert set(ids) <= set(asked)
    with Admin(home.address, timeout_s=PATIENCE_S) as admins:
        found = admins.each(lambda admin: admin.topic(TOPIC).messages)
        # Three requests, ten transactions that were committed at once, two that were asked for.
        wait_until(
            lambda: sum(admins.of(name).topic(TOPIC).messages for name in found) == 15,
            "what was committed last",
        )


def test_what_is_asked_of_a_group_that_nobody_knows_is_refused() -> None:
    with (
        Admin("tcp://127.0.0.1:1", timeout_s=0.05) as admins,
        pytest.raises(LedgerError, match="no node"),
    ):
        admins.broker_groups()
    with pytest.raises(ConfigError, match="no address"):
        Admin([])
