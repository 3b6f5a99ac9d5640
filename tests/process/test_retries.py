"""Messages that are given back come again, die, and are replayed: of real nodes, whoever dies."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin, Consumer, DeadLetters, Producer, ReceivedMessage, SendResult
from ledgermq.client.aio import AsyncConsumer, AsyncDeadLetters
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.retries import DEAD, GivenBack
from ledgermq.model.errors import (
    ConfigError,
    GroupUnknownError,
    MessageIllegalError,
    ProtocolError,
    TopicUnknownError,
)
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

OPTIONS = ConsumerOptions(hold_ms=500, timeout_s=PATIENCE_S)
SOON = 1
"""Delay level of one second."""


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


@pytest.fixture
def broker(address: str) -> Iterator[Broker]:
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as made:
        yield made


def send(address: str, *bodies: bytes) -> list[SendResult]:
    with Producer(address) as one:
        return list(one.send_batch("orders", list(bodies), queue_id=1).result())


def consumer_of(address: str | list[str], group: str = "g", **how: Any) -> Consumer:
    return Consumer(address, topic="orders", group=group, options=OPTIONS, **how)


def read(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """So many messages, at least; fails when they do not come."""
    messages: list[ReceivedMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        messages += consumer.poll(1.0)
    return messages


def give_back(broker: Broker, sent: SendResult, **arguments: object) -> dict[str, object]:
    asked = {"group": "g", "position": sent.physical_offset, "delay_level": 5, **arguments}
    return broker.call("send_back", **asked)


def counts(broker: Broker, *topics: str) -> list[int]:
    held = {row.topic: row.messages for row in broker.topics()}
    return [held.get(topic, 0) for topic in topics]


def kill_all(address: str, *messages: ReceivedMessage) -> list[GivenBack]:
    with consumer_of(address) as consumer:
        return consumer.retry_later(*messages, delay_level=DEAD)


def test_what_is_given_back_comes_again_under_its_topic(address: str) -> None:
    (sent,) = send(address, b"one")
    with consumer_of(address) as consumer:
        (first,) = read(consumer, 1)
        (told,) = consumer.retry_later(first, delay_level=SOON)
        consumer.commit(first)
        batch = consumer.poll(PATIENCE_S)
        (again,) = batch
        consumer.commit()
    with consumer_of(address) as later:
        nothing = later.poll(0.2)

    assert told == GivenBack("%RETRY%g", SOON, 1, is_repeated=False)
    assert (batch.topic, again.stored_topic, again.topic) == ("%RETRY%g", "%RETRY%g", "orders")
    assert (bytes(again.body), again.reconsume_times) == (b"one", 1)
    assert again.unique_id == sent.unique_id
    assert again.properties["ORIGIN_MESSAGE_ID"] == sent.offset_message_id
    assert len(nothing) == 0


def test_an_awaited_consumer_gives_back_and_gets_again(address: str) -> None:
    send(address, b"one", b"two")

    async def steps() -> tuple[list[GivenBack], Counter[tuple[bytes, int]]]:
        came: Counter[tuple[bytes, int]] = Counter()
        told: list[GivenBack] = []
        async with AsyncConsumer(address, topic="orders", group="g", options=OPTIONS) as consumer:
            async for message in consumer:
                came[bytes(message.body), message.reconsume_times] += 1
                if message.reconsume_times == 0:
                    told += await consumer.retry_later(message, delay_level=SOON)
                await consumer.commit(message)
                if came.total() == 4:
                    return told, came
        raise AssertionError("closed")

    told, came = asyncio.run(asyncio.wait_for(steps(), PATIENCE_S))

    assert [one.topic for one in told] == ["%RETRY%g"] * 2
    assert came == {(b"one", 0): 1, (b"two", 0): 1, (b"one", 1): 1, (b"two", 1): 1}


def test_what_is_not_there_is_refused_and_nothing_is_stored(broker: Broker, address: str) -> None:
    one, two = send(address, b"one", b"two")
    for wrong in ({"position": one.physical_offset + 1}, {"position": two.physical_offset + 10**6}):
        with pytest.raises(MessageIllegalError, match="no message begins there"):
            give_back(broker, one, **wrong)
    with pytest.raises(MessageIllegalError, match="another message"):
        give_back(broker, one, topic="orders", queue=1, offset=one.queue_offset + 1)
    with pytest.raises(MessageIllegalError, match="not allowed"):
        give_back(broker, one, group="no name")
    with pytest.raises(ProtocolError, match="out of range"):
        give_back(broker, one, delay_level=-2)

    assert counts(broker, "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "%DLQ%g") == [0, 0, 0]


def test_who_asks_again_with_the_same_token_stores_nothing_more(
    broker: Broker, address: str
) -> None:
    (sent,) = send(address, b"one")
    answers = [give_back(broker, sent, token="a", delay_level=DEAD) for _ in range(3)]
    other = give_back(broker, sent, token="b", delay_level=DEAD)

    assert [one["repeated"] for one in (*answers, other)] == [False, True, True, False]
    assert {one["topic"] for one in answers} == {"%DLQ%g"}
    assert counts(broker, "%DLQ%g") == [2]


def test_hundreds_are_given_back_in_one_go(broker: Broker, address: str) -> None:
    send(address, *[b"%d" % number for number in range(400)])
    with consumer_of(address) as consumer:
        messages = read(consumer, 400)
        told = consumer.retry_later(*messages, delay_level=9)
        consumer.commit()

    assert {(one.topic, one.delay_level) for one in told} == {("%RETRY%g", 9)}
    assert counts(broker, "SCHEDULE_TOPIC_XXXX") == [400]


def test_a_dead_letter_is_replayed_once_unless_it_is_wanted_again(address: str) -> None:
    sent = send(address, b"one", b"two", b"three")
    with consumer_of(address) as consumer, DeadLetters(address, group="g") as letters:
        told = consumer.retry_later(*read(consumer, 3), delay_level=DEAD)
        consumer.commit()
        before = letters.read(0)
        first = letters.replay([0, 2])
        second = letters.replay([0, 1, 2, 7])
        third = letters.replay([2], again=True)
        (queue,) = letters.queues()
        replayed = read(consumer, 4)

    assert all(one.is_dead for one in told)
    assert {letter.first_topic for letter in before} == {"orders"}
    assert [letter.is_replayed for letter in before] == [False] * 3
    assert (first.replayed, first.already, first.missing) == ([0, 2], [], [])
    assert (second.replayed, second.already, second.missing) == ([1], [0, 2], [7])
    assert third.replayed == [2]
    assert (queue.replayed, queue.replayed_count) == (((0, 3),), 3)
    bodies = {letter.message.queue_offset: bytes(letter.message.body) for letter in before}
    assert [bytes(one.body) for one in replayed] == [bodies[at] for at in (0, 2, 1, 2)]
    assert {one.reconsume_times for one in replayed} == {0}
    assert {one.unique_id for one in replayed} == {one.unique_id for one in sent}


def test_replayed_to_their_origin_all_groups_get_them(address: str) -> None:
    send(address, b"one")
    with consumer_of(address) as consumer:
        consumer.retry_later(*read(consumer, 1), delay_level=DEAD)

    async def replay() -> list[int]:
        async with AsyncDeadLetters(address, group="g") as letters:
            assert len(await letters.queues()) == 1
            (letter,) = await letters.read(0)
            done = await letters.replay([letter.message.queue_offset], origin=True)
            return done.replayed

    assert asyncio.run(replay()) == [0]
    with consumer_of(address, "other") as other:
        came = read(other, 2)

    assert [bytes(one.body) for one in came] == [b"one", b"one"]
    assert [one.stored_topic for one in came] == ["orders", "orders"]
    assert sum("REPLAYED_FROM" in one.properties for one in came) == 1


def test_the_command_shows_and_replays_dead_letters(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        status = main(["dlq", *words, "--address", address])
        told = capsys.readouterr()
        return status, told.out, told.err

    none = run("list")
    send(address, b"one", b"two")
    with consumer_of(address) as consumer:
        consumer.retry_later(*read(consumer, 2), delay_level=DEAD)
    groups = json.loads(run("list", "--json")[1])["groups"]
    table = run("list", "g")[1].splitlines()
    shown = run("show", "g", "1")
    missing = run("show", "g", "5")
    first = run("replay", "g", "--offset", "1")
    second = run("replay", "g", "--offset", "1")
    rest = json.loads(run("replay", "g", "--all", "--json")[1])
    listed = json.loads(run("list", "g", "--json")[1])["messages"]

    assert none[1] == "no group has dead letters\n"
    assert groups == [{"group": "g", "queues": [{"queue": 0, "min": 0, "max": 2, "replayed": 0}]}]
    assert table[0].split() == ["offset", "stored", "topic", "tries", "replayed", "id", "body"]
    assert [line.split()[2:5] for line in table[1:]] == [["orders", "1", "no"]] * 2
    assert shown[0] == 0 and shown[1].endswith("not replayed\n")
    assert missing[0] == 1 and "dlq list g" in missing[2]
    assert first == (0, "1 replayed to group g\n", "")
    assert second[0] == 1 and "offset 1 was replayed before; --again" in second[2]
    assert (rest["replayed"], rest["already"]) == ([0], [])
    assert [row["replayed"] for row in listed] == [True, True]


def test_replays_that_cannot_be_made_say_why(address: str) -> None:
    with Admin(address) as admin, DeadLetters(address, group="g") as letters:
        for ask in (letters.queues, lambda: letters.read(0), lambda: letters.replay([0])):
            with pytest.raises(GroupUnknownError):
                ask()
        admin.create_group("g")
        nothing = letters.queues()
        with pytest.raises(TopicUnknownError, match="no dead letters"):
            letters.replay([0])
        assert letters.read(0) == []
        with pytest.raises(ConfigError, match="no offsets"):
            letters.replay([])
        with pytest.raises(ConfigError, match="has no group"):
            Consumer(address, topic="orders", retries=True)

    assert nothing == []


def led(group: Group) -> Member:
    """The member that leads, once one does."""

    def leader() -> Member | None:
        return next((one for one in group.up() if one.leads), None)

    found: Member = wait_until(leader, "a leader", PATIENCE_S)
    return found


@pytest.mark.long
def test_the_whole_circle_survives_its_leaders(make_node: Callable[[], Node]) -> None:
    """Sent, failed three times, dead, replayed, consumed; a leader dies after each stage."""
    group = make_group(make_node, ack="majority-fsync")
    led(group)
    with producer(*group.members, timeout_s=PATIENCE_S) as one:
        sent = one.send_batch(TOPIC, [b"%d" % number for number in range(6)], queue_id=2).result()
    ids = {result.unique_id for result in sent}

    def lose_the_leader() -> None:
        leader = led(group)
        leader.kill()
        led(group)
        leader.start()
        wait_until(lambda: "READY=1" in leader.node.listen(), "the start", PATIENCE_S)

    came: Counter[tuple[str, int]] = Counter()
    dead: set[str] = set()
    with Consumer(group.addresses, topic=TOPIC, group="g", options=OPTIONS) as consumer:
        deadline = time.monotonic() + 2 * PATIENCE_S
        has_died = False
        while dead != ids:
            assert time.monotonic() < deadline, (came, dead)
            batch = consumer.poll(1.0)
            if not len(batch):
                continue
            for message in batch:
                came[message.unique_id, message.reconsume_times] += 1
            told = consumer.retry_later(*batch, delay_level=SOON, times_max=2)
            dead |= {m.unique_id for m, one in zip(batch, told, strict=True) if one.is_dead}
            consumer.commit(batch)
            if not has_died:
                has_died = True
                lose_the_leader()
    with DeadLetters(group.addresses, group="g", timeout_s=PATIENCE_S) as letters:
        found = letters.read(0)
        lose_the_leader()
        offsets = [letter.message.queue_offset for letter in found]
        letters.replay(offsets)
        lose_the_leader()
        second = letters.replay(offsets)
    with Consumer(group.addresses, topic=TOPIC, group="g", options=OPTIONS) as consumer:
        replayed = read(consumer, len(found))
        consumer.commit()
        nothing = consumer.poll(0.5)

    assert came.keys() == {(unique_id, tries) for unique_id in ids for tries in range(3)}
    assert {letter.message.unique_id for letter in found} == ids
    assert {letter.message.reconsume_times for letter in found} == {3}
    assert (second.replayed, second.already) == ([], offsets)
    assert sorted(one.unique_id for one in replayed) == sorted(
        letter.message.unique_id for letter in found
    )
    assert len(nothing) == 0


def test_members_of_a_group_share_what_it_gave_back(address: str) -> None:
    bodies = [b"%d" % number for number in range(8)]
    send(address, *bodies)
    came: Counter[tuple[bytes, int]] = Counter()
    with GroupConsumer(address, group="g", options=OPTIONS) as consumer:
        consumer.subscribe("orders")
        deadline = time.monotonic() + PATIENCE_S
        while came.total() < 16:
            assert time.monotonic() < deadline, came
            batch = consumer.poll(1.0)
            for message in batch:
                came[bytes(message.body), message.reconsume_times] += 1
            if len(batch) and batch.topic == "orders":
                consumer.retry_later(*batch, delay_level=SOON)
            consumer.commit()
        topics = {queue.topic for queue in consumer.assignment}

    assert came == {(body, tries): 1 for body in bodies for tries in (0, 1)}
    assert topics == {"orders", "%RETRY%g"}
