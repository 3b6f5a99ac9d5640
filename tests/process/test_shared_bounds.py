"""What one client of the port takes of what all share is bounded, and others are served."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import psutil
import pytest
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import beat_when_leading, send

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode

pytestmark = pytest.mark.slow

MIB = 1 << 20
ANSWERS = 16 * MIB


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Iterator[Node]:
    yield make_node()


def memory(node: Node) -> int:
    return int(psutil.Process(node.pids()["broker"]).memory_full_info().uss)


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
    pid, before = node.pids()["broker"], memory(node)
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
    assert node.pids()["broker"] == pid
    assert node.stop() == 0
