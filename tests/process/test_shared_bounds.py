"""What one client of the port takes of what all share is bounded, and others are served."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator

import psutil
import pytest

from ledgermq.client import Admin
from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import MessageIllegalError
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import beat, beat_when_leading, heartbeat_body, pull_fields, send
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MIB = 1 << 20
ANSWERS = 16 * MIB


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Iterator[Node]:
    yield make_node()


def memory(node: Node) -> int:
    return int(psutil.Process(node.pid("broker")).memory_full_info().uss)


def counters(node: Node) -> dict[str, int]:
    found: dict[str, int] = node.status()["counters"]["broker"]
    return found


def test_replies_that_nobody_reads_are_bounded_for_all_together(node: Node) -> None:
    address = start_remoting_node(node, limits={"total_answers_bytes": ANSWERS})
    honest = RemotingClient(address)
    beat_when_leading(honest, "honest", "orders")
    (stored,) = send(honest, "orders", 0, bytes(900_000))
    offset = str(int(stored.fields["msgId"][16:], 16))
    wait_until(
        lambda: honest.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": offset}).code == 0, "the message"
    )
    pid, before = node.pid("broker"), memory(node)
    slow = [RemotingClient(address) for _ in range(10)]
    for client in slow:
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(20):
            client.send(Code.VIEW_MESSAGE_BY_ID, {"offset": offset})
    wait_until(lambda: counters(node)["connections_ended"] > 0, "the largest to be closed")
    grown = memory(node) - before
    viewed = honest.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": offset})
    route = honest.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    for client in (honest, *slow):
        client.close()

    assert len(viewed.body) > 900_000
    assert route.code == ResponseCode.SUCCESS
    # One turn's more, and the views of each that is refused more.
    assert grown < 6 * ANSWERS
    assert node.pid("broker") == pid
    assert node.stop() == 0


def test_one_client_does_not_take_all_long_polls(node: Node) -> None:
    limits = {"held_pulls_max": 200, "held_pulls_per_client": 150}
    address = start_remoting_node(node, limits=limits)
    honest = RemotingClient(address)
    beat_when_leading(honest, "honest", "orders")
    greedy = [RemotingClient(address) for _ in range(3)]
    for client in greedy:
        for _ in range(150):
            client.send(Code.PULL_MESSAGE, long_poll(600_000))
    displaced = wait_until(
        lambda: counters(node)["holds_displaced"] >= 250 and counters(node), "holds to make way"
    )
    waits = honest.send(Code.PULL_MESSAGE, long_poll(600_000))
    (stored,) = send(RemotingClient(address), "orders", 0, b"for all that wait")
    pulled = honest.reply_to(waits)
    for client in (honest, *greedy):
        client.close()

    assert displaced["held"] <= 200
    assert stored.code == ResponseCode.SUCCESS
    assert pulled.code == ResponseCode.SUCCESS
    assert b"for all that wait" in bytes(pulled.body)
    assert node.stop() == 0


def long_poll(suspend_ms: int) -> dict[str, object]:
    return pull_fields("orders", 0, 0, suspend_ms=suspend_ms, subscription="*")


def test_heartbeats_make_only_so_many_groups_and_those_there_are_go_on(node: Node) -> None:
    limits = {"groups_max": 30}
    address = start_remoting_node(node, limits=limits)
    client = RemotingClient(address)
    beat_when_leading(client, "steady", "orders", group="steady")
    replies = []
    for number in range(7):
        body = json.loads(heartbeat_body(f"greedy{number}", "orders", group="made"))
        (consumer,) = body["consumerDataSet"]
        body["consumerDataSet"] = [
            {**consumer, "groupName": f"made-{number}-{one}"} for one in range(5)
        ]
        replies.append(client.ask(Code.HEART_BEAT, body=json.dumps(body).encode()))
    told = [(reply.code, reply.remark or "") for reply in replies]
    listed = client.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    groups = json.loads(bytes(listed.body))["subscriptionGroupTable"]
    steady = beat(client, "steady", "orders", group="steady")
    client.close()

    assert len(groups) == 30
    assert told[0][0] == ResponseCode.SUCCESS
    assert told[-1][0] == ResponseCode.MESSAGE_ILLEGAL
    assert "limit=30" in told[-1][1]
    assert "limits.groups_max" in told[-1][1]
    assert steady.code == ResponseCode.SUCCESS
    assert node.stop() == 0


@pytest.mark.parametrize("limit", ["groups_max", "creations_per_s"])
def test_commits_for_groups_that_find_no_room_take_nobody_elses_with_them(
    node: Node, limit: str
) -> None:
    address = start_remoting_node(node, limits={limit: 15 if limit == "groups_max" else 1})
    client = RemotingClient(address)
    beat_when_leading(client, "steady", "orders", group="steady")
    send(client, "orders", 0, b"one")
    asked = []
    for number in range(60):
        group = "steady" if number == 30 else f"made-{number}"
        asked.append(client.send(Code.UPDATE_CONSUMER_OFFSET, commit_of(group, 0)))
    replies = [client.reply_to(one) for one in asked]
    steady = client.ask(Code.UPDATE_CONSUMER_OFFSET, commit_of("steady", 1))
    listed = client.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    groups = json.loads(bytes(listed.body))["subscriptionGroupTable"]
    client.close()
    refused = [reply.remark or "" for reply in replies if reply.code != ResponseCode.SUCCESS]

    assert replies[30].code == steady.code == ResponseCode.SUCCESS
    assert refused
    assert all(f"limits.{limit}" in remark for remark in refused)
    assert 0 < len([name for name in groups if name.startswith("made-")]) == 59 - len(refused)
    assert node.stop() == 0


def commit_of(group: str, offset: int) -> dict[str, object]:
    return {"consumerGroup": group, "topic": "orders", "queueId": 0, "commitOffset": offset}


def test_only_so_many_topics_are_made_and_those_there_are_can_be_changed(node: Node) -> None:
    start_remoting_node(node, limits={"topics_max": 40})
    with Admin(f"ipc://{node.runtime}") as admin:
        made, refused = 0, None
        while refused is None:
            try:
                admin.create_topic(f"made-{made}", queues=1)
                made += 1
            except MessageIllegalError as error:
                refused = error
        admin.delete_topic("made-0")
        admin.create_topic("another", queues=1)

    assert 0 < made < 40
    assert "there=40" in str(refused)
    assert "limit=40, setting='limits.topics_max'" in str(refused)
    assert node.stop() == 0


def test_a_quota_of_a_topic_holds_for_pulls_and_views_at_the_port(node: Node) -> None:
    address = start_remoting_node(node)
    client = RemotingClient(address)
    beat_when_leading(client, "reader", "orders")
    stored = send(client, "orders", 0, *[bytes(4_000)] * 8)
    position = str(int(stored[0].fields["msgId"][16:], 16))
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        AccessAdmin(broker).set_quota("topic:orders", consume_bytes=1_000)
    pulled = [client.ask(Code.PULL_MESSAGE, pull_fields("orders", 0, 0)) for _ in range(10)]
    viewed = [client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": position}) for _ in range(3)]
    throttled = counters(node)["throttled"]
    client.close()

    # The first one overdraws what is saved up; nothing comes before that is paid back.
    assert [reply.code for reply in pulled[1:]] == [ResponseCode.SYSTEM_BUSY] * 9
    assert [reply.code for reply in viewed] == [ResponseCode.SYSTEM_BUSY] * 3
    assert "topic:orders" in str(viewed[0].remark)
    assert throttled >= 12
    assert node.stop() == 0
