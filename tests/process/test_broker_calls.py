"""Topics, groups and the life of the broker process, on the stores of real Java brokers."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ledgermq.formats.config_json import decode_document
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Grant, PublishedRole, Role
from ledgermq.ipc.doorbell import Inbox
from ledgermq.ipc.orders import TopicsChanged, TopicsLoaded, encode, parse
from ledgermq.model.config.settings import (
    TopicsSection,
)
from ledgermq.wire.pull_frame import PullStatus
from tests.process.broker_node import (
    BrokerNode,
    NodeMaker,
    broker_nodes,
    root_of,
    units_of,
)
from tests.suite.patience import PATIENCE_S


@pytest.fixture
def node(golden_copy: Callable[[str], Path]) -> Iterator[NodeMaker]:
    with broker_nodes(golden_copy) as make:
        yield make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("acl_remove", {"user": "somebody"}),
        ("archive_commit", {"archive": "a", "position": 10**9}),
        ("archive_remove", {"archive": "a"}),
        ("quota_remove", {"owner": "topic:t"}),
        ("route", {"topic": "fresh", "create": True}),
        ("topic_for_send", {"topic": "fresh", "template": "no-template", "queues": 1}),
    ],
)
def test_a_change_is_refused_for_good_only_by_who_knows_the_log(
    node: NodeMaker, verb: str, arguments: dict[str, Any]
) -> None:
    """A node that does not lead, as each one that starts, may lack what was acknowledged."""
    one = node("gd0", topics=TopicsSection(auto_create_topic_enable=False))

    refusal = one.client().call(verb, **arguments)

    assert (refusal.status, refusal.retriable) == ("SERVICE_NOT_AVAILABLE", True)


@pytest.mark.slow
def test_what_does_not_exist_or_may_not_be_read_is_refused_by_name(node: NodeMaker) -> None:
    one = node("gd0", start=False)
    path = one.config / "topics.json"
    document = decode_document(path.read_bytes())
    topics: Any = document["topicConfigTable"]
    topics["tx"]["perm"] = 2
    path.write_text(json.dumps(document))
    one.start()
    client = one.client()

    def refused(topic: str, queue_id: int = 0) -> str:
        client.send_pull(topic, queue_id)
        return client.refusal().status

    assert refused("no-such-topic") == "TOPIC_NOT_EXIST"
    assert refused("plain0", 4) == "TOPIC_NOT_EXIST"
    assert refused("../../etc") == "MESSAGE_ILLEGAL"
    assert refused("tx") == "NO_PERMISSION"


@pytest.mark.slow
def test_queues_of_a_topic_that_the_table_has_lost_are_read(node: NodeMaker) -> None:
    one = node("gd0", start=False)
    for name in ("topics.json", "topics.json.bak"):
        (one.config / name).unlink()
    one.start()
    client = one.client()

    route = client.call("route", topic="plain0", create=False)
    answer = client.pull("plain0", 3, 0)
    listed = {topic["topic"]: topic for topic in client.call("topics")["topics"]}

    # Nobody has said yet who leads.
    assert route.pop("as_of")["role"] == "follower"
    assert route.pop("message_type") == "UNSPECIFIED"
    assert route == {"topic": "plain0", "read_queues": 4, "write_queues": 0, "perm": 4}
    assert answer.status is PullStatus.FOUND
    assert listed["plain0"]["messages"] == sum(
        len(units_of(root_of(one), "plain0", queue_id)) for queue_id in range(4)
    )
    assert listed["SCHEDULE_TOPIC_XXXX"]["system"] is True
    assert listed["plain0"]["system"] is False


@pytest.mark.slow
def test_a_stop_answers_holds_and_ends_with_zero(node: NodeMaker) -> None:
    one = node("gd0")
    client = one.client()
    client.send_pull("BenchmarkTest", 0, 0, hold_ms=60_000)
    one.wait(lambda: one.count(BrokerCounter.HELD) == 1)
    status = one.signal(signal.SIGTERM)
    answer = client.pulled()

    assert status == 0
    assert answer.status is PullStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.slow
def test_groups_are_told_with_their_lag(node: NodeMaker) -> None:
    client = node("gd0").client()
    offsets = client.call("group_offset", group="golden-group", topic="plain0")
    groups = client.call("groups")["groups"]
    lag = {(one["group"], one["topic"]): one["lag"] for one in groups}

    assert offsets.pop("as_of")["role"] == "follower"
    assert offsets == {"offsets": {"0": 25, "1": 25, "2": 25, "3": 25}}
    assert lag["golden-group", "plain0"] == 0


@pytest.mark.slow
def test_only_a_leader_changes_anything(node: NodeMaker) -> None:
    client = node("gd0").client()
    created = client.call("topic_create", topic="fresh", queues=3)
    committed = client.call("group_commit", group="g", topic="plain0", offsets={"0": 4})
    known = client.call("route", topic="plain0", create=True)

    assert (created.status, created.retriable) == ("SERVICE_NOT_AVAILABLE", True)
    assert "does not lead" in created.reason
    assert committed.number == created.number
    assert known["write_queues"] == 4


@pytest.mark.slow
def test_without_a_writer_nothing_is_changed_for_now(node: NodeMaker) -> None:
    one = node("gd0", start=False)
    begin = one.page.read_committed().term
    one.page.publish_grant(Grant(begin, True, PublishedRole.LEADER))
    one.start()
    client = one.client()
    one.wait(lambda: client.hello().role == "leader")
    refusal = client.call("topic_create", topic="fresh", queues=3)

    assert (refusal.status, refusal.retriable) == ("SERVICE_NOT_AVAILABLE", True)
    assert "nothing was changed" in refusal.reason


@pytest.mark.slow
def test_topics_are_made_as_the_settings_say(node: NodeMaker) -> None:
    one = node("gd0", start=False, topics=TopicsSection(auto_create_topic_enable=False))
    one.page.publish_grant(Grant(one.page.read_committed().term, True, PublishedRole.LEADER))
    one.start()
    client = one.client()
    one.wait(lambda: client.hello().role == "leader")
    before = (one.config / "topics.json").read_bytes()

    unknown = client.call("route", topic="fresh", create=True)
    none = client.call("topic_create", topic="fresh", queues=0)

    assert unknown.status == "TOPIC_NOT_EXIST"
    assert "topics.auto_create_topic_enable" in unknown.reason
    assert none.status == "PROTOCOL_ERROR"
    assert (one.config / "topics.json").read_bytes() == before


@pytest.mark.slow
def test_a_client_is_told_the_writers_endpoint_of_its_own_kind(node: NodeMaker) -> None:
    port = free_port()
    one = node("gd0", consume=f"tcp://127.0.0.1:{port}", produce="tcp://*:7711")
    local = one.client()
    remote = one.client(endpoint=f"tcp://127.0.0.1:{port}")
    assert local.welcome is not None
    assert remote.welcome is not None

    assert local.welcome.produce == f"ipc://{one.runtime}/produce"
    assert remote.welcome.produce == "tcp://*:7711"
    assert (local.welcome.entry_header_size, local.welcome.store_host_size) == (48, 8)
    assert local.welcome.generation == 1
    assert remote.pull("plain0", 0, 0, messages=1).status is PullStatus.FOUND
    assert (one.runtime / "consume").stat().st_mode & 0o777 == 0o660


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def next_order(writer: Inbox) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if writer.socket.poll(100):
            for message in writer.drain([writer.socket]):
                return parse(message)
    raise TimeoutError("no order came")


def answer_orders(node: BrokerNode, writer: Inbox) -> None:
    """Be the writer until the broker is content with what it has told at its start."""
    order = next_order(writer)
    assert isinstance(order, TopicsChanged)
    assert node.bell is not None
    loaded = encode(TopicsLoaded(order.version, order.term, order.writer_start))
    node.wait(lambda: node.bell is not None and node.bell.send(loaded))
    # Repeated until answered: silence for three times as long as that says it was.
    node.wait(lambda: not writer.socket.poll(300) or not writer.drain([writer.socket]))


@pytest.mark.slow
def test_an_idle_broker_sleeps(node: NodeMaker) -> None:
    one = node("gd0")
    writer = Inbox(one.context, one.runtime, Role.WRITER)
    client = one.client()
    client.pull("plain0", 0, 0)
    answer_orders(one, writer)
    assert one.child is not None
    process = psutil.Process(one.child.pid)

    def is_asleep() -> bool:
        """Whether it slept in the last second: on a busy machine its start may take as long."""
        before, begin = process.num_ctx_switches().voluntary, time.monotonic()
        one.wait(lambda: time.monotonic() - begin > 1.0)
        woken = process.num_ctx_switches().voluntary - before
        # A loop that polls, be it each ten milliseconds, is woken a hundred times in each second.
        return woken <= 20 * (time.monotonic() - begin)

    one.wait(is_asleep)
    writer.close()
