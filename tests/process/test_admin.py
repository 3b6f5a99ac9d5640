"""Topics, groups and offsets, ordered by an operator, of real nodes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.client.aio import AsyncAdmin
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import ask
from ledgermq.model.errors import (
    GroupActiveError,
    GroupUnknownError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Node:
    made = make_node()
    start_client_node(made)
    return made


def admin_of(node: Node) -> Admin:
    return Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S)


def read_all(node: Node, topic: str, *, group: str | None = None) -> list[bytes]:
    with Consumer(f"ipc://{node.runtime}", topic=topic, group=group, start="first") as consumer:
        ends, found = consumer.ends(), list[bytes]()
        while any(consumer.offsets().get(queue, 0) < end for queue, end in ends.items()):
            found += [message.body for message in consumer.poll(1.0)]
        return found


def test_a_topic_is_made_altered_and_deleted(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        made = admin.create_topic("sales", read_queues=4, write_queues=4, order=True)
        one.send_batch("sales", [b"a", b"b"], queue_id=3).result()
        wait_until(lambda: admin.topic("sales").messages == 2, "dispatch", timeout_s=PATIENCE_S)
        state = admin.topic("sales")
        read_only = admin.alter_topic("sales", perm=4)
        with pytest.raises(NoPermissionError):
            one.send("sales", b"c", queue_id=0).result()
        admin.alter_topic("sales", perm=6)
        one.send("sales", b"c", queue_id=0).result()
        admin.delete_topic("sales")
        names = [row.topic for row in admin.topics()]
        with pytest.raises(TopicUnknownError):
            admin.topic("sales")
        with pytest.raises(TopicUnknownError):
            admin.alter_topic("sales", perm=6)
        admin.delete_topic("sales")

    assert (made.read_queues, made.order, made.order_config) == (4, True, f"{made_by(node)}:4")
    assert [(queue.queue, queue.begin, queue.end) for queue in state.queues] == [(3, 0, 2)]
    assert state.queues[0].last_stored is not None
    assert "producers are refused" in read_only.warnings[0]
    assert "sales" not in names


def made_by(node: Node) -> str:
    with admin_of(node) as admin:
        return next(row.topic for row in admin.topics() if row.perm == 7 and row.read_queues == 1)


def test_a_deleted_topic_that_is_made_again_begins_empty_and_is_numbered_on(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        one.send_batch("sales", [b"old"] * 5, queue_id=1).result()
        wait_until(lambda: admin.topic("sales").messages == 5, "dispatch", timeout_s=PATIENCE_S)
        admin.reset_offsets("billing", "sales", "last", create=True)
        admin.delete_topic("sales")
        node.signal(signal.SIGKILL)
    node.wait_end()
    node.serve()
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        with pytest.raises(TopicUnknownError):
            admin.topic("sales")
        admin.create_topic("sales", queues=2)
        empty = admin.topic("sales")
        sent = one.send("sales", b"new", queue_id=1).result()
        wait_until(lambda: admin.topic("sales").messages == 1, "dispatch", timeout_s=PATIENCE_S)
        lag = admin.lag("billing", "sales")

    assert empty.messages == 0
    assert empty.groups == ()
    assert sent.queue_offset == 5
    assert read_all(node, "sales") == [b"new"]
    assert [(row.queue, row.begin, row.offset, row.lag) for row in lag] == [(1, 5, None, 1)]


def test_queues_are_taken_away_only_when_all_is_consumed(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        admin.create_topic("sales", queues=4)
        for queue_id in range(4):
            one.send_batch("sales", [b"x"] * 3, queue_id=queue_id).result()
        wait_until(lambda: admin.topic("sales").messages == 12, "dispatch", timeout_s=PATIENCE_S)
        with pytest.raises(MessageIllegalError, match="write queues first"):
            admin.alter_topic("sales", queues=2)
        shrunk = admin.alter_topic("sales", write_queues=2)
        with pytest.raises(TopicUnknownError):
            one.send("sales", b"y", queue_id=2).result()
        with pytest.raises(MessageIllegalError, match="not consumed"):
            admin.alter_topic("sales", read_queues=2)
        admin.reset_offsets("billing", "sales", "last", create=True)
        hidden = admin.alter_topic("sales", read_queues=2)
    node.stop()
    node.serve()
    with admin_of(node) as admin:
        still = admin.topic("sales").settings
        admin.alter_topic("sales", queues=4)
        messages = admin.topic("sales").messages

    assert "queues 2 to 3 take no messages" in shrunk.warnings[0]
    assert (hidden.read_queues, still.read_queues) == (2, 2)
    assert messages == 12


def test_a_group_that_is_not_there_is_made_by_a_reset_that_says_so_alone(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        one.send("sales", b"x").result()
        for dry_run in (True, False):
            with pytest.raises(GroupUnknownError, match="biling"):
                admin.reset_offsets("biling", "sales", "first", force=True, dry_run=dry_run)
        with pytest.raises(GroupUnknownError, match="biling"):
            admin.lag("biling", "sales")
        with pytest.raises(GroupUnknownError, match="biling"):
            admin.members("biling")
        groups = [row.group for row in admin.groups()]
        admin.reset_offsets("billing", "sales", "last", create=True)
        later = [row.group for row in admin.groups()]

    assert "biling" not in groups
    assert set(later) - set(groups) == {"billing"}


def test_offsets_are_reset_cloned_and_told(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        admin.create_topic("sales", queues=2)
        one.send_batch("sales", [b"x"] * 10, queue_id=0).result()
        wait_until(lambda: admin.topic("sales").messages == 10, "dispatch", timeout_s=PATIENCE_S)
        first = admin.topic("sales").queues[0].last_stored
        assert first is not None
        wait_until(lambda: time.time() * 1_000 > first + 1, "the clock", timeout_s=PATIENCE_S)
        between = int(time.time() * 1_000)
        one.send_batch("sales", [b"y"] * 5, queue_id=0).result()
        wait_until(lambda: admin.topic("sales").messages == 15, "dispatch", timeout_s=PATIENCE_S)

        planned = admin.reset_offsets(
            "billing", "sales", "time", between, create=True, dry_run=True
        )
        with pytest.raises(GroupUnknownError):
            admin.lag("billing")
        admin.create_group("billing")
        admin.reset_offsets("billing", "sales", "time", between)
        at_time = admin.lag("billing")[0]
        number = admin.reset_offsets("billing", "sales", "number", 3, queues=[0])
        with pytest.raises(MessageIllegalError, match="outside of the queue"):
            admin.reset_offsets("billing", "sales", "number", 16, queues=[0])
        with pytest.raises(TopicUnknownError):
            admin.reset_offsets("billing", "sales", "first", queues=[2])
        cloned = admin.clone_offsets("billing", "audit", create=True)
        with pytest.raises(GroupUnknownError):
            admin.clone_offsets("none", "audit", create=True)
        audit = admin.lag("audit", "sales")[0]
        to_first = admin.reset_offsets("audit", "sales", "first")
        state = admin.group("audit")

    assert [(move.queue, move.old, move.new) for move in planned] == [(0, None, 10), (1, None, 0)]
    assert (at_time.offset, at_time.lag, at_time.last_consumed) == (10, 5, first)
    assert [(move.queue, move.old, move.new) for move in number] == [(0, 10, 3)]
    assert {(move.queue, move.new) for move in cloned} == {(0, 3), (1, 0)}
    assert (audit.offset, audit.lag) == (3, 12)
    assert [move.new for move in to_first] == [0, 0]
    assert state.lag == {"sales": 15}


def test_a_group_that_is_switched_off_gets_nothing_and_is_told_why(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        one.send_batch("sales", [b"x"] * 3, queue_id=0).result()
        admin.create_group("billing", retryMaxTimes=3)
        row = admin.alter_group("billing", consumeEnable=False)
        with pytest.raises(NoPermissionError, match="consumeEnable"):
            read_all(node, "sales", group="billing")
        others = read_all(node, "sales", group="audit")
        admin.alter_group("billing", consumeEnable=True)
        again = read_all(node, "sales", group="billing")
        names = [group.group for group in admin.groups()]
        admin.delete_group("billing")
        with pytest.raises(GroupUnknownError):
            admin.group("billing")

    assert (row.fields["consumeEnable"], row.fields["retryMaxTimes"]) == (False, 3)
    assert others == again == [b"x"] * 3
    assert "billing" in names
    assert "TOOLS_CONSUMER" in names


def test_a_group_is_deleted_with_or_without_what_it_has_consumed(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        one.send_batch("sales", [b"x"] * 3, queue_id=0).result()
        wait_until(lambda: admin.topic("sales").messages == 3, "dispatch", timeout_s=PATIENCE_S)
        admin.reset_offsets("billing", "sales", "last", queues=[0], create=True)
        admin.delete_group("billing")
        kept = admin.lag("billing", "sales")[0].offset
        listed = {row.group: row.exists for row in admin.groups()}
        admin.delete_group("billing", with_offsets=True)
        with pytest.raises(GroupUnknownError):
            admin.lag("billing", "sales")

    assert kept == 3
    assert listed["billing"] is False


def test_offsets_stay_under_members_that_consume_unless_forced(node: Node) -> None:
    with admin_of(node) as admin, Producer(f"ipc://{node.runtime}") as one:
        one.send_batch("sales", [b"x"] * 3, queue_id=0).result()
        wait_until(lambda: admin.topic("sales").messages == 3, "dispatch", timeout_s=PATIENCE_S)
        with connect_broker(f"ipc://{node.runtime}", name="test", timeout_s=PATIENCE_S) as broker:
            broker.run(
                ask(
                    "group_heartbeat",
                    group="billing",
                    client="c1",
                    instance="i1",
                    host="here",
                    model="clustering",
                    start="first",
                    ordered=False,
                    strategy="average",
                    subscription={"sales": "*"},
                )
            )
            members = admin.group("billing").members
            with pytest.raises(GroupActiveError, match="stop its members"):
                admin.reset_offsets("billing", "sales", "last", queues=[0])
            forced = admin.reset_offsets(
                "billing", "sales", "last", queues=[0], force=True, create=True
            )

    assert members == ("c1",)
    assert [move.new for move in forced] == [3]


def test_the_same_from_asyncio(node: Node) -> None:
    async def work() -> tuple[int, list[str], int]:
        async with AsyncAdmin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
            await admin.create_topic("sales", queues=3)
            await admin.alter_topic("sales", queues=5)
            await admin.create_group("billing")
            await admin.reset_offsets("billing", "sales", "first")
            found = await admin.group("billing")
            moves = await admin.clone_offsets(
                "billing", "audit", "sales", create=True, dry_run=True
            )
            queues = (await admin.topic("sales")).settings.write_queues
            await admin.delete_group("billing", with_offsets=True)
            await admin.delete_topic("sales")
            return queues, list(found.lag), len(moves)

    assert asyncio.run(work()) == (5, ["sales"], 5)


def test_status_names_the_stage_of_a_leader_and_its_broker_id(group: Group) -> None:
    """Whoever leads in the end: on a busy machine it may be another one than at first."""

    def told() -> list[tuple[str, str, int]]:
        statuses = [(one.name, one.status()) for one in group.members]
        return sorted(
            (status["raft"]["stage"], name, status["raft"]["broker_id"])
            for name, status in statuses
            if status is not None
        )

    def is_settled() -> bool:
        found = told()
        return len(found) == 3 and found == [
            *(("", name, int(name.removeprefix("n")) + 1) for _, name, _ in found[:2]),
            ("services granted", found[2][1], 0),
        ]

    wait_until(is_settled, "a leader with its services, and two followers", timeout_s=PATIENCE_S)


@pytest.mark.long
def test_what_was_ordered_survives_the_leaders_death(group: Group) -> None:
    """Each act is answered by one leader, which dies, and used under the next one."""
    with producer(*group.members) as one, Admin(group.addresses, timeout_s=PATIENCE_S) as admin:
        one.send_batch(TOPIC, [b"x"] * 50, queue_id=0).result()
        admin.create_topic("kept", queues=6)
        admin.create_topic("gone", queues=2)
        one.send_batch("gone", [b"x"] * 5, queue_id=0).result()
        admin.create_group("billing", retryMaxTimes=2)
        admin.delete_topic("gone")
        admin.reset_offsets("billing", TOPIC, "number", 30, queues=[0])
        admin.create_group("left")
        delete = {"group": "left", "with_offsets": False, "with_topics": False, "token": "t1"}
        with connect_broker(group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
            broker.call("group_delete", **delete)
        leader = group.leader()
        leader.kill()
        names = [row.topic for row in admin.topics()]
        with connect_broker(group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
            # As a client asks that has lost the answer of the dead one.
            repeated = broker.call("group_delete", **delete)
            with pytest.raises(GroupUnknownError):
                broker.call("group_delete", **{**delete, "token": "t2"})
        kept = admin.topic("kept").settings
        known = admin.group("billing")
        offsets = admin.lag("billing", TOPIC)[0].offset
        sent = one.send("kept", b"y", queue_id=5).result()
        leader.start()
        leader.node.wait_ready()
        group.wait_equal()

    assert "gone" not in names
    assert repeated["group"] == "left"
    assert kept.write_queues == 6
    assert known.fields["retryMaxTimes"] == 2
    assert offsets == 30
    assert sent.queue_offset == 0
