"""Share groups of real nodes where something is wrong: damage, topics that go, no work to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.client.blocking.producer import Producer
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import DamagedLogError, GroupUnknownError, LedgerError, TimedOutError
from ledgermq.verbs.shares import ReceiveShared, SharedMessage
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.test_idle_node import woken_within
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "shared"
DAMAGED = 2


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


@pytest.fixture
def admin(node: Node) -> Iterator[Admin]:
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as asking:
        yield asking


def fill(node: Node, admin: Admin, count: int, *, topic: str = TOPIC, queue: int = 0) -> None:
    admin.create_topic(topic, queues=queue + 1)
    with Producer(f"ipc://{node.runtime}") as producer:
        for number in range(count):
            producer.send(topic, b"body %d of it" % number, queue_id=queue).result()
    wait_until(lambda: admin.topic(topic).messages == count, "all are in their queues")


def damage(node: Node, number: int) -> None:
    """Have one letter of a body be another one, in the log."""
    body = b"body %d of it" % number
    for path in Path(node.root).rglob("0000*"):
        content = path.read_bytes() if path.is_file() else b""
        if (at := content.find(body)) >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"B")
            return
    raise AssertionError("message is in no file")


def offsets(taken: list[SharedMessage]) -> list[int]:
    return [one.offset for one in taken]


def test_a_damaged_message_holds_up_no_other_one(node: Node, admin: Admin) -> None:
    """Nobody is told what is damaged; others are given out once, settled, and put aside."""
    fill(node, admin, 5)
    admin.create_group("g", retryMaxTimes=0)
    damage(node, DAMAGED)
    taken = admin.receive_shared("g", TOPIC, invisible_ms=100)

    assert offsets(taken) == [0, 1, 3, 4]
    assert [one.delivery for one in taken] == [1, 1, 1, 1]
    bodies = [bytes(decode_message(one.record).body) for one in taken]
    assert bodies == [b"body %d of it" % number for number in (0, 1, 3, 4)]
    rows = admin.settle_shared("g", "accept", [one.handle for one in taken[1:]])
    assert {row.outcome for row in rows} == {"done"}
    # Both that are left are due for the last time: one becomes a dead letter, one cannot.
    wait_until(lambda: admin.shared_group("g").queues[0].late == 2, "their time to be over")
    began = time.monotonic()
    assert admin.receive_shared("g", TOPIC, wait_ms=300) == []
    assert time.monotonic() - began < PATIENCE_S / 2
    wait_until(lambda: admin.topic("%DLQ%g").messages == 1, "the dead letter")
    state = admin.shared_group("g")
    assert (state.unsettled, state.queues[0].low) == (1, DAMAGED)
    with Producer(f"ipc://{node.runtime}") as producer:
        producer.send(TOPIC, b"behind it", queue_id=0).result()
    assert offsets(admin.receive_shared("g", TOPIC, wait_ms=10_000)) == [5]


def test_what_is_damaged_since_it_was_handed_out_is_no_dead_letter(
    node: Node, admin: Admin
) -> None:
    fill(node, admin, 4)
    taken = admin.receive_shared("g", TOPIC)
    damage(node, DAMAGED)
    handles = [one.handle for one in taken]
    with (
        Admin(f"ipc://{node.runtime}", timeout_s=2) as hurried,
        pytest.raises((DamagedLogError, TimedOutError), match="damaged"),
    ):
        hurried.settle_shared("g", "reject", handles)

    others = [one for number, one in enumerate(handles) if number != DAMAGED]
    rows = admin.settle_shared("g", "reject", others)
    assert {row.outcome for row in rows} == {"settled"}
    (row,) = admin.settle_shared("g", "accept", [handles[DAMAGED]])
    assert row.outcome == "done"
    wait_until(lambda: admin.topic("%DLQ%g").messages == 3, "the dead letters")


def test_a_filter_passes_over_damage(node: Node, admin: Admin) -> None:
    admin.create_topic(TOPIC, queues=1)
    with Producer(f"ipc://{node.runtime}") as producer:
        for number in range(4):
            body = b"body %d of it" % number
            producer.send(TOPIC, body, tag="a" if number else "b", queue_id=0).result()
    wait_until(lambda: admin.topic(TOPIC).messages == 4, "all are in their queues")
    damage(node, DAMAGED)

    assert offsets(admin.receive_shared("g", TOPIC, filter="a")) == [1, 3]
    state = admin.shared_group("g")
    assert (state.unsettled, state.queues[0].low, state.queues[0].next) == (3, 1, 4)


def test_a_topic_that_is_deleted_while_it_is_handed_out_leaves_nothing(
    node: Node, admin: Admin
) -> None:
    topics = [f"shared{number}" for number in range(6)]
    for topic in topics:
        fill(node, admin, 20, topic=topic)
    for topic in topics:
        ended = threading.Event()

        def give_back(topic: str, ended: threading.Event) -> None:
            with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as asking:
                while not ended.is_set():
                    with suppress(LedgerError):
                        taken = asking.receive_shared("g", topic, 2)
                        asking.settle_shared("g", "release", [one.handle for one in taken] or ["1"])

        threads = [threading.Thread(target=give_back, args=(topic, ended)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda topic=topic: _is_shared(admin, topic), "something to be handed out")
        admin.delete_topic(topic)
        ended.set()
        for thread in threads:
            thread.join(PATIENCE_S)

    with pytest.raises(GroupUnknownError, match="no share group"):
        admin.shared_group("g")


def _is_shared(admin: Admin, topic: str) -> bool:
    try:
        return any(one.topic == topic for one in admin.shared_group("g").queues)
    except GroupUnknownError:
        return False


def test_who_waits_for_one_queue_wakes_nobody_while_another_one_has_late_messages(
    node: Node, admin: Admin
) -> None:
    fill(node, admin, 3, queue=1)
    assert len(admin.receive_shared("g", TOPIC, invisible_ms=100)) == 3
    wait_until(lambda: admin.shared_group("g").queues[-1].late == 3, "their time to be over")
    waiting = threading.Thread(
        target=lambda: admin.receive_shared("g", TOPIC, queue=0, wait_ms=4_000)
    )
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as asking:
        waiting.start()
        wait_until(lambda: asking.shared_group("g").waiting == 1, "the receive")
        woken = woken_within(node, 2.0)
        waiting.join(PATIENCE_S)

    assert woken["broker"] < 20


def test_a_document_of_compressed_messages_is_bounded(node: Node, admin: Admin) -> None:
    """As the HTTP API and the command line tell them: kilobytes in the log, gigabytes of text."""
    admin.create_topic(TOPIC, queues=1)
    with Producer(f"ipc://{node.runtime}") as producer:
        for sent in [producer.send(TOPIC, b"x" * 4_000_000) for _ in range(12)]:
            sent.result()
    wait_until(lambda: admin.topic(TOPIC).messages == 12, "all are in their queues")
    asked = ReceiveShared("g", TOPIC)
    rows = asked.document(admin.receive_shared("g", TOPIC))["messages"]

    assert [len(row.get("body", "")) for row in rows] == [4_000_000] * 8 + [0] * 4
    assert all("too large" in row["bodyFault"] for row in rows[8:])
    assert all(len(row["bodyBase64"]) < 40_000 for row in rows[8:])
