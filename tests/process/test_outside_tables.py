"""Stores whose tables come from outside: what is acknowledged on them stays, whoever dies when.

RocketMQ's files of topics, groups and offsets, or an operator's, say nothing of the log. Each node
here is killed, all processes at once, right after what it has answered.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.process.client_node import SERVE, start_client_node
from tests.process.conftest import Node

from ledgermq.broker.broker_state import APPLIED_KEY, FILES, OWN_FILES
from ledgermq.client import Consumer, DeadLetters, Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.pull_pipeline import ConsumerOptions
from ledgermq.client.retries import DEAD
from ledgermq.formats.config_json import decode_document, encode_document

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
OPTIONS = ConsumerOptions(hold_ms=500, timeout_s=PATIENCE_S)

STORES = {
    "gs1": ("commitlog", "plain0"),
    "gs1.live": ("commitlog", "plain0"),
    "gd0": ("dledger", "plain0"),
    "document": ("dledger", "orders"),
}


def restart_killed(node: Node) -> None:
    """Kill all processes of a node at once, and start it again."""
    for pid in node.pids().values():
        os.kill(pid, signal.SIGKILL)
    node.wait_end()
    node.forget_told()
    node.launch([*SERVE, str(node.config)])
    node.wait_ready()


def document(node: Node, file: str) -> dict[str, object]:
    folder = "ledgermq" if file in OWN_FILES else "config"
    return decode_document((node.root / folder / file).read_bytes())


@pytest.fixture(params=list(STORES))
def store(
    request: pytest.FixtureRequest,
    make_node: Callable[[], Node],
    golden_copy: Callable[[str], Path],
) -> tuple[Node, str]:
    """A node that serves a store from outside, and a topic of it."""
    node = make_node()
    log, topic = STORES[request.param]
    if request.param == "document":
        start_client_node(node)
        return node, topic
    node.root = golden_copy(request.param)
    node.configure(
        node={"self_id": "n0"},
        store={
            "path_root_dir": str(node.root),
            "log": log,
            "max_hash_slot_num": 500,
            "max_index_num": 400,
        },
    )
    node.launch([*SERVE, str(node.config)])
    node.wait_ready()
    return node, topic


def test_what_was_answered_on_a_store_from_outside_is_there_after_a_kill(
    store: tuple[Node, str],
) -> None:
    node, topic = store
    address = f"ipc://{node.runtime}"
    with Producer(address) as one:
        for queue_id in range(2):
            one.send_batch(topic, [b"x"] * 9, queue_id=queue_id).result()
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        broker.group_commit("g", topic, {0: 7})
        broker.group_commit("h", topic, {1: 5})
        broker.create_topic("made", 3)
        restart_killed(node)
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        # The first call after READY.
        found: list[Any] = [broker.group_offset("g", topic), broker.group_offset("h", topic)]
        made = broker.route("made", create=False).write_queues
        broker.group_commit("g", topic, {0: 8})
        restart_killed(node)
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        again = broker.group_offset("g", topic)
    node.stop()

    assert found == [{0: 7}, {1: 5}]
    assert made == 3
    assert again == {0: 8}


def test_dead_letters_are_replayed_once_over_a_kill(store: tuple[Node, str]) -> None:
    node, topic = store
    address = f"ipc://{node.runtime}"
    with Consumer(address, topic=topic, group="mine", options=OPTIONS) as consumer:
        with Producer(address) as one:
            one.send_batch(topic, [b"a", b"b", b"c"], queue_id=1).result()
        came: list[Any] = []
        while not {b"a", b"b", b"c"} <= {bytes(one.body) for one in came}:
            came += list(consumer.poll(1.0))
        dead = [one for one in came if bytes(one.body) in (b"a", b"b", b"c")]
        consumer.retry_later(*dead, delay_level=DEAD)
    with DeadLetters(address, group="mine", timeout_s=PATIENCE_S) as letters:
        offsets = [letter.message.queue_offset for letter in letters.read(0)]
        first = letters.replay(offsets)
        restart_killed(node)
    with DeadLetters(address, group="mine", timeout_s=PATIENCE_S) as letters:
        second = letters.replay(offsets)

    assert sorted(first.replayed) == [0, 1, 2]
    assert (second.replayed, sorted(second.already)) == ([], [0, 1, 2])


def test_every_file_says_its_place_before_the_node_is_ready(store: tuple[Node, str]) -> None:
    node, _ = store
    places = {
        file: document(node, file).get(APPLIED_KEY)
        for file in FILES
        if (node.root / ("ledgermq" if file in OWN_FILES else "config") / file).exists()
    }

    assert None not in places.values()
    assert places["topics.json"] is not None


def test_files_of_an_older_version_that_say_nothing_heal(make_node: Callable[[], Node]) -> None:
    """It wrote -1 into tables of moves, offsets of delays and sinks, and was killed soon."""
    node = make_node()
    start_client_node(node)
    address = f"ipc://{node.runtime}"
    with Producer(address) as one:
        one.send_batch("orders", [b"a", b"b"], queue_id=1).result()
    with Consumer(address, topic="orders", group="g", options=OPTIONS) as consumer:
        came: list[Any] = []
        while len(came) < 2:
            came += list(consumer.poll(1.0))
        consumer.retry_later(*came, delay_level=DEAD)
    with DeadLetters(address, group="g", timeout_s=PATIENCE_S) as letters:
        letters.replay([0, 1])
    assert node.stop() == 0
    empty: dict[str, dict[str, object]] = {"moves.json": {"moves": {}}, "sinks.json": {"sinks": {}}}
    for file, content in empty.items():
        path = node.root / "ledgermq" / file
        path.write_bytes(encode_document({**content, APPLIED_KEY: -1}))
    node.forget_told()
    node.launch([*SERVE, str(node.config)])
    node.wait_ready()
    with DeadLetters(address, group="g", timeout_s=PATIENCE_S) as letters:
        again = letters.replay([0, 1])

    assert (again.replayed, again.already) == ([], [0, 1])
