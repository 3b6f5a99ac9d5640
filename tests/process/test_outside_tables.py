"""Stores whose tables come from outside: what is acknowledged on them stays, whoever dies when.

RocketMQ's files of topics, groups and offsets, or an operator's, say nothing of the log. Each node
here is killed, all processes at once, right after what it has answered.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Consumer, DeadLetters, Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.retries import DEAD
from ledgermq.formats.config_json import APPLIED_KEY, decode_document, encode_document
from ledgermq.model.errors import LedgerError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.rules.state.state_commands import STATE_QUEUE_ID
from ledgermq.rules.state.state_tables import FILES, OWN_FILES
from ledgermq.store.store_view import StoreView
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group, producer, wait_heard
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

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
    node.serve()


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
    node.serve()
    return node, topic


@pytest.mark.long(but=1)
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
    node.serve()
    with DeadLetters(address, group="g", timeout_s=PATIENCE_S) as letters:
        again = letters.replay([0, 1])

    assert (again.replayed, again.already) == ([], [0, 1])


def test_a_group_that_dies_at_once_has_what_it_answered(make_node: Callable[[], Node]) -> None:
    """All three have tables from outside; each is killed within a second of the first answers."""
    group = make_group(make_node, ack="majority-fsync")
    with producer(*group.members, timeout_s=PATIENCE_S) as one:
        one.send_batch(TOPIC, [b"a", b"b", b"c"], queue_id=1).result()
    with Consumer(group.addresses, topic=TOPIC, group="g", options=OPTIONS) as consumer:
        came: list[Any] = []
        while len(came) < 3:
            came += list(consumer.poll(1.0))
        consumer.retry_later(*came, delay_level=DEAD)
        consumer.commit()
    with DeadLetters(group.addresses, group="g", timeout_s=PATIENCE_S) as letters:
        first = letters.replay([0, 1, 2])
    for member in group.members:
        member.node.signal(signal.SIGKILL)
    for member in group.members:
        member.node.wait_end()
    for member in group.members:
        member.start()
    wait_heard(group.members)
    with connect_broker(group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
        offsets = broker.group_offset("g", TOPIC)
    with DeadLetters(group.addresses, group="g", timeout_s=PATIENCE_S) as letters:
        second = letters.replay([0, 1, 2])

    assert offsets == {0: 0, 1: 3, 2: 0, 3: 0}
    assert sorted(first.replayed) == [0, 1, 2]
    assert (second.replayed, sorted(second.already)) == ([], [0, 1, 2])


def test_a_member_that_starts_late_has_what_was_answered_before(
    make_node: Callable[[], Node],
) -> None:
    """Files from outside, and a log that has commands when its broker begins; then it leads."""
    group = make_group(make_node, ack="majority-fsync")
    leader = group.leader()
    late = group.others(leader)[0]
    late.kill()
    own, config = late.node.root / "ledgermq", late.node.root / "config"
    shutil.rmtree(config)
    for file in OWN_FILES:
        (own / file).unlink(missing_ok=True)
    config.mkdir()
    (config / "topics.json").write_text(topics_document(TOPIC))
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {}}))
    with producer(*group.up(), timeout_s=PATIENCE_S) as one:
        one.send_batch(TOPIC, [b"x"] * 9, queue_id=1).result()
    addresses = [one.address for one in group.up()]
    with connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker:
        broker.group_commit("g", TOPIC, {1: 7})
        broker.create_topic("made", 3)
    late.start()
    late.node.wait_ready()
    group.wait_equal()
    handed_over = group.leader().command("raft", "transfer", late.name, "--timeout", "60")
    wait_until(lambda: late.leads, "the late member to lead")
    with connect_broker(late.address, name="test", timeout_s=PATIENCE_S) as broker:
        offsets = broker.group_offset("g", TOPIC)
        made = broker.route("made", create=False).write_queues

    assert handed_over.returncode == 0, handed_over.stderr
    assert offsets == {1: 7}
    assert made == 3


@pytest.mark.parametrize("log", ["dledger", "commitlog"])
@pytest.mark.parametrize("has_queues", [True, False], ids=["with queues", "queues lost"])
def test_what_rocketmq_wrote_since_is_newer_than_our_older_commands(
    make_node: Callable[[], Node], log: str, has_queues: bool
) -> None:
    """And older than those that come then."""
    node = make_node()
    start_client_node(node, log=log)
    address = f"ipc://{node.runtime}"
    with Producer(address) as one:
        one.send_batch("orders", [b"x"] * 9, queue_id=0).result()
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        broker.group_commit("g", "orders", {0: 7})
        broker.create_topic("kept", 2)
    assert node.stop() == 0
    theirs = json.dumps({"offsetTable": {"orders@g": {"0": 3}}})
    (node.root / "config" / "consumerOffset.json").write_text(theirs)
    if not has_queues:
        shutil.rmtree(node.root / "consumequeue")
    node.serve()
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        before = broker.group_offset("g", "orders")
        kept = broker.route("kept", create=False).write_queues
        broker.group_commit("g", "orders", {0: 4})
        restart_killed(node)
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        after = broker.group_offset("g", "orders")

    assert (before, kept, after) == ({0: 3}, 2, {0: 4})


@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_after_an_end_in_order_the_files_have_every_command(
    make_node: Callable[[], Node], log: str
) -> None:
    """RocketMQ begins with them, and knows nothing of the log behind."""
    node = make_node()
    start_client_node(node, log=log)
    address = f"ipc://{node.runtime}"
    begun = threading.Event()

    def commit() -> None:
        with connect_broker(address, name="test", timeout_s=1.0) as broker:
            for offset in range(10_000):
                try:
                    broker.group_commit("g", "orders", {0: offset})
                except LedgerError:
                    return
                begun.set()

    with Producer(address) as one:
        for _ in range(20):
            one.send_batch("orders", [b"x"] * 500, queue_id=0).result()
    committer = threading.Thread(target=commit)
    committer.start()
    begun.wait(PATIENCE_S)
    status = node.stop()
    committer.join()
    view = StoreView(node.root)
    try:
        ends = [
            queued.message.queue_offset + 1
            for queued in view.messages(SYSTEM_TOPIC, STATE_QUEUE_ID)
        ]
    finally:
        view.close()
    places = {document(node, file)[APPLIED_KEY] for file in FILES}

    assert status == 0
    assert places == {max(ends)}
