"""Where clients begin that are given a time: at the first message stored then or later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ledgermq.client import (
    Admin,
    Consumer,
    GroupConsumer,
    GroupOptions,
    Producer,
)
from tests.process.client_node import own_topic
from tests.process.conftest import Node, wait_until
from tests.process.node_start import run_command
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

GAP_MS = 300
DAY_MS = 86_400_000


class Stored(NamedTuple):
    """A topic with two messages in a queue, and a time between them that is nearer to the first."""

    address: str
    topic: str
    old_ms: int
    between_ms: int


NODE = {}
"""One node for all tests, with the settings of the kit."""


@pytest.fixture
def stored(node: Node, request: pytest.FixtureRequest) -> Stored:
    topic, address = own_topic(node, request), f"ipc://{node.runtime}"
    with Producer(address) as producer, Admin(address) as admin:

        def store(body: bytes, count: int) -> int:
            producer.send(topic, body, queue_id=0).result()
            wait_until(lambda: admin.topic(topic).messages == count, "a message")
            return admin.topic(topic).queues[0].last_stored or 0

        old = store(b"old", 1)
        wait_until(lambda: time.time() * 1_000 > old + GAP_MS, "the clock")
        store(b"new", 2)
    return Stored(address, topic, old, old + 1)


def begun_at(stored: Stored, start: int) -> list[bytes]:
    """What a consumer gets that begins at a time, up to the last message that there is."""
    with Consumer(stored.address, topic=stored.topic, queues=[0], start=start) as consumer:
        found: list[bytes] = []
        while consumer.offsets()[0] < 2:
            found += [bytes(one.body) for one in consumer.poll(PATIENCE_S)]
        return found


def first_of_group(stored: Stored, start: int) -> bytes:
    options = GroupOptions(start=start)
    with GroupConsumer(stored.address, group=stored.topic, group_options=options) as member:
        member.subscribe(stored.topic)
        batch = wait_until(lambda: member.poll(1.0), "a message", PATIENCE_S)
        return bytes(batch[0].body)


def first_of_cluster(stored: Stored, start: int) -> bytes:
    with Consumer(stored.address, topic=stored.topic, start=start) as consumer:
        batch = wait_until(lambda: consumer.poll(1.0), "a message", PATIENCE_S)
        return bytes(batch[0].body)


def test_a_consumer_gets_what_was_stored_at_its_time_or_later(stored: Stored) -> None:
    assert begun_at(stored, 0) == [b"old", b"new"]
    assert begun_at(stored, stored.old_ms) == [b"old", b"new"]
    assert begun_at(stored, stored.between_ms) == [b"new"]
    assert begun_at(stored, int(time.time() * 1_000) + DAY_MS) == []


@pytest.mark.parametrize("first", [first_of_group, first_of_cluster])
def test_so_does_a_new_group_and_a_reader_of_a_cluster(
    first: Callable[[Stored, int], bytes], stored: Stored
) -> None:
    assert first(stored, stored.between_ms) == b"new"


def test_a_group_is_reset_to_the_same_message(stored: Stored) -> None:
    with Admin(stored.address) as admin:
        for start, offset in ((stored.old_ms, 0), (stored.between_ms, 1), (2**62, 2)):
            moves = admin.reset_offsets(
                stored.topic, stored.topic, "time", start, create=True, dry_run=True
            )
            assert moves[0].new == offset


def test_commands_begin_there_too(stored: Stored) -> None:
    at = f"{stored.between_ms}"
    received = run(stored, "receive", stored.topic, "--from", at)
    browsed = json.loads(run(stored, "message", "browse", stored.topic, "--time", at, "--json"))
    found = json.loads(
        run(stored, "message", "find", stored.topic, "--from", at, "--to", f"{2**62}", "--json")
    )

    assert received == "new\n"
    assert [one["queueOffset"] for one in browsed["messages"]] == [1]
    assert [one["queueOffset"] for one in found["messages"]] == [1]


def run(stored: Stored, *words: str) -> str:
    done = run_command(*words, "--address", stored.address)
    assert done.returncode == 0, done.stderr
    return done.stdout
