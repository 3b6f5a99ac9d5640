"""RocketMQ's clients at three port processes of a real node are clients of one broker."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Callable, Iterator

import pytest

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.certificates import make_certificate
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.port_processes import (
    CONNECTIONS_MAX,
    one_at_each,
    role_of,
    roles_of_ports,
)
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import (
    beat,
    beat_when_leading,
    heartbeat_body,
    members,
    offset_fields,
    pull,
    pull_fields,
    pulled,
    send,
)
from tests.process.test_remoting_produce import fields
from tests.process.test_remoting_transactions import connect, send_half
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

THREE = {"processes": 3}
V2 = RequestCode.SEND_MESSAGE_V2


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    """A node with three port processes, which asks for transactions soon, and its port."""
    with nodes_made() as make:
        node = make()
        rules = {"transaction_check_interval_ms": 300, "transaction_timeout_ms": 1_000}
        rules["transaction_check_max"] = 1_000
        yield node, start_leading(node, transactions=rules)
        assert node.stop() == 0


def start_leading(node: Node, **tables: dict[str, object]) -> str:
    address = start_remoting_node(node, remoting={**THREE, **tables.pop("remoting", {})}, **tables)
    client = RemotingClient(address)
    wait_until(lambda: client.ask(V2, fields("other", 3), b"probe").code == 0, "the node leads")
    client.close()
    return address


def close_all(clients: dict[str, RemotingClient]) -> None:
    for client in clients.values():
        client.close()


def beside(node: Node, address: str, other: RemotingClient) -> RemotingClient:
    """A client at the port process of another one."""
    for _ in range(CONNECTIONS_MAX):
        client = RemotingClient(address)
        client.ask(9_999)
        if role_of(node, client) == role_of(node, other):
            return client
        client.close()
    raise AssertionError("no connection went to the same port process")


def told_of(client: RemotingClient, group: str) -> bool:
    """Whether the next that a client is told is that its group has changed."""
    told = client.next_request()
    wanted = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}
    return (told.code, told.fields) == wanted


def test_members_of_a_group_at_different_processes_see_one_another(
    served: tuple[Node, str],
) -> None:
    node, address = served
    clients = one_at_each(node, address)
    first, second, third = clients.values()
    beat_when_leading(first, "c1", "orders", group="spread")
    beat(second, "c2", "orders", group="spread")
    assert told_of(first, "spread")
    beat(third, "c3", "orders", group="spread")
    assert told_of(first, "spread")
    seen = [members(client, "spread") for client in clients.values()]
    second.close()
    wait_until(lambda: members(first, "spread") == ["c1", "c3"], "one member has gone")
    first.close()
    third.close()

    assert list(clients) == ["port-1", "port-2", "port-3"]
    assert seen == [["c1", "c2", "c3"]] * 3


def test_a_request_that_grows_as_it_is_handed_over_is_refused_to_its_sender_alone(
    served: tuple[Node, str],
) -> None:
    node, address = served
    clients = one_at_each(node, address)
    other, *_ = clients.values()
    beat_when_leading(other, "o", "orders", group="others")
    sender = beside(node, address, other)
    # In JSON that is escaped it has three times as many bytes, and more than a header may have.
    large = {"consumerGroup": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 200_000}
    body = heartbeat_body("s", "orders", group="grown")
    asked = [
        sender.send_unescaped(RequestCode.GET_CONSUMER_LIST_BY_GROUP, large),
        sender.send_unescaped(RequestCode.HEART_BEAT, large, body),
    ]
    refused = [sender.reply_to(opaque) for opaque in asked]
    still = members(sender, "others")
    sender.close()
    close_all(clients)

    for reply in refused:
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "header is too large to be handed on" in str(reply.remark)
    assert still == ["o"]
    assert not node.logged("link ended")


def test_each_process_stores_and_pulls_by_itself(served: tuple[Node, str]) -> None:
    node, address = served
    clients = one_at_each(node, address)
    for number, client in enumerate(clients.values()):
        beat_when_leading(client, f"p{number}", "orders", group="pullers")
    before = node.status()["counters"]
    bodies = [f"m{number}".encode() for number in range(len(clients))]
    for client, body in zip(clients.values(), bodies, strict=True):
        send(client, "orders", 1, body)
    found = [pull(one, "orders", 1, 0, group="pullers").bodies for one in clients.values()]
    after = node.status()["counters"]
    close_all(clients)

    assert found == [bodies] * 3
    for role in clients:
        assert after[role]["messages"] - before[role]["messages"] == 3
    assert after["broker"]["pulls"] == before["broker"]["pulls"]


def test_a_pull_waits_at_one_process_for_what_another_one_stores(
    served: tuple[Node, str],
) -> None:
    node, address = served
    clients = one_at_each(node, address)
    puller, *_, sender = clients.values()
    beat_when_leading(puller, "w", "orders", group="waiters")
    queue = {"topic": "orders", "queueId": 2}
    end = int(puller.ask(RequestCode.GET_MAX_OFFSET, queue).fields["offset"])
    opaque = puller.send(
        RequestCode.PULL_MESSAGE,
        pull_fields("orders", 2, end, group="waiters", suspend_ms=25_000, commit=end),
    )
    send(sender, "orders", 2, b"awaited")
    found = pulled(puller.reply_to(opaque))
    asked = offset_fields("orders", 2, group="waiters")
    wait_until(
        lambda: (
            sender.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).fields.get("offset") == str(end)
        ),
        "what the pull has committed is known to all",
    )
    close_all(clients)

    assert found.bodies == [b"awaited"]


def test_a_topic_that_one_process_has_made_is_used_by_all(served: tuple[Node, str]) -> None:
    node, address = served
    clients = one_at_each(node, address)
    replies = [
        client.ask(V2, fields("made-by-sending", 0), b"x").code for client in clients.values()
    ]
    refused = [client.ask(V2, fields("not a name", 0), b"x").code for client in clients.values()]
    close_all(clients)

    assert replies == [ResponseCode.SUCCESS] * 3
    assert ResponseCode.SUCCESS not in refused


def test_a_transaction_is_asked_about_at_another_process(served: tuple[Node, str]) -> None:
    node, address = served
    clients = one_at_each(node, address)
    for client in clients.values():
        client.close()
    sender = connect(address, "sender", "deals")
    send_half(sender, "deals", "deal-1", 0)
    role = role_of(node, sender)
    sender.close()
    others = one_at_each(node, address)
    other = next(client for name, client in others.items() if name != role)
    body = b'{"clientID":"other","consumerDataSet":[],"producerDataSet":[{"groupName":"deals"}]}'
    assert other.ask(RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS
    asked = other.next_request()
    close_all(others)

    assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
    assert asked.fields["transactionId"] == "deal-1"


def test_a_port_process_that_is_killed_takes_only_its_own_connections(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_leading(node)
    clients = one_at_each(node, address)
    for number, client in enumerate(clients.values()):
        beat_when_leading(client, f"k{number}", "orders", group="killed")
    first, second, third = clients.values()
    killed = node.pid("port-2")
    os.kill(killed, signal.SIGKILL)
    with pytest.raises((ConnectionError, OSError)):
        second.ask(9_999)
    wait_until(lambda: members(first, "killed") == ["k0", "k2"], "the others are told")
    send(third, "orders", 0, b"goes on")
    wait_until(lambda: node.pids().get("port-2") not in (None, 0, killed), "it is started again")
    wait_until(lambda: node.child("port-2")["state"] == "running", "it serves again")
    again = one_at_each(node, address)["port-2"]
    beat(again, "k1", "orders", group="killed")

    assert members(third, "killed") == ["k0", "k2", "k1"]
    assert pull(again, "orders", 0, 0, group="killed").bodies == [b"goes on"]
    assert node.stop() == 0


def test_connections_outlive_the_broker_process(make_node: Callable[[], Node]) -> None:
    node = make_node()
    address = start_leading(node)
    clients = one_at_each(node, address)
    for number, client in enumerate(clients.values()):
        beat_when_leading(client, f"b{number}", "orders", group="outlives")
    first, second, third = clients.values()
    held = first.send(
        RequestCode.PULL_MESSAGE,
        pull_fields("orders", 0, 0, group="outlives", suspend_ms=25_000),
    )
    broker = node.pid("broker")
    os.kill(broker, signal.SIGSTOP)
    waits = second.send(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "outlives"})
    stored = third.ask(V2, fields("orders", 0), b"meanwhile")
    given = pulled(first.reply_to(held))
    os.kill(broker, signal.SIGKILL)
    refused = second.reply_to(waits)
    wait_until(
        lambda: set(members(second, "outlives")) == {"b0", "b1", "b2"},
        "the next broker process knows who is there",
    )
    codes = [client.ask(V2, fields("orders", 1), b"after").code for client in clients.values()]

    assert stored.code == ResponseCode.SUCCESS
    assert given.bodies == [b"meanwhile"]
    assert refused.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SUCCESS)
    assert codes == [ResponseCode.SUCCESS] * 3
    assert node.pid("broker") != broker
    assert sorted(roles_of_ports(node)) == list(clients)
    assert node.stop() == 0


def test_users_sign_at_every_process_with_tls(make_node: Callable[[], Node]) -> None:
    node = make_node()
    made, key = make_certificate(node.folder)
    signs = ("orders", "12345678")
    address = start_remoting_node(
        node,
        access={"enabled": True},
        remoting={**THREE, "tls_certificate_file": str(made), "tls_key_file": str(key)},
    )
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        admin = AccessAdmin(broker)
        admin.set_user("orders", {"secretKey": signs[1], "topicPerms": ["orders=PUB"]}, mode="set")
    tls = ssl.create_default_context(cafile=str(made))
    signed = one_at_each(node, address, signs=signs, tls=tls)
    forged = one_at_each(node, address, signs=("orders", "00000000"))
    # The right one is known to each process within a moment: it reads the log by itself.
    for client in signed.values():
        wait_until(
            lambda client=client: client.ask(V2, fields("orders", 0), b"x").code == 0,
            "a user may send",
        )
    denied = [client.ask(V2, fields("other", 0), b"x").code for client in signed.values()]
    lies = [client.ask(V2, fields("orders", 0), b"x").code for client in forged.values()]
    close_all(signed)
    close_all(forged)

    assert denied == [ResponseCode.NO_PERMISSION] * 3
    assert lies == [ResponseCode.NO_PERMISSION] * 3
    assert node.stop() == 0


def test_a_node_that_stops_answers_who_waits_at_its_port_processes(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_leading(node)
    clients = one_at_each(node, address)
    waiting: dict[str, int] = {}
    for role, client in clients.items():
        beat_when_leading(client, role, "orders", group="stops")
        waiting[role] = client.send(
            RequestCode.PULL_MESSAGE,
            pull_fields("orders", 3, 0, group="stops", suspend_ms=25_000),
        )
    wait_until(
        lambda: all(node.status()["counters"][role]["pulls"] for role in clients), "pulls wait"
    )
    status = node.stop()
    codes = [client.reply_to(waiting[role]).code for role, client in clients.items()]

    assert status == 0
    assert codes == [ResponseCode.PULL_NOT_FOUND] * 3
