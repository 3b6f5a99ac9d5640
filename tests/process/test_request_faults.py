"""A request that meets a bug costs its sender the connection: no process ends, nobody waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.client import Producer, ProducerOptions
from ledgermq.model.errors import UnexpectedError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.wire.query_frame import KeyQuery, encode_query
from tests.process.conftest import Node
from tests.process.group_nodes import free_port
from tests.process.raw_consumer import RawConsumer
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import beat_when_leading, pull, pull_fields, send
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("faulty_node.py")
POISON = "poison"


def start(node: Node, **remoting: object) -> str:
    """A node with bugs; address of its port."""
    port = free_port()
    node.configure(
        listen={"remoting": f"127.0.0.1:{port}"}, node={"listen_port": port}, remoting=remoting
    )
    node.launch([str(PROGRAM), "serve", "--config", str(node.config)])
    node.wait_ready()
    return f"127.0.0.1:{port}"


def test_our_own_clients_bug_ends_its_session_and_nothing_else(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start(node)
    with Producer(f"ipc://{node.runtime}", options=ProducerOptions(timeout_s=PATIENCE_S)) as sender:
        for topic in (POISON, "orders"):
            sender.send(topic, b"m", queue_id=0).result()
        pids = node.pids()
        unlucky, other, waiting = (RawConsumer(node.runtime) for _ in range(3))
        unlucky.socket.send_multipart(encode_query(7, KeyQuery("orders", POISON, 1, 0, 0)))
        refused = unlucky.refusal()
        unlucky.send_pull("orders")
        without_session = unlucky.refusal()
        served = other.pull("orders")
        # At the queue's end nothing is looked at; what comes then is what the bug is in.
        waiting.send_pull(POISON, offset=1, hold_ms=30_000)
        sender.send(POISON, b"another", queue_id=0).result()
        while_it_waited = waiting.refusal()
    for one in (unlucky, other, waiting):
        one.close()

    assert refused.number == while_it_waited.number == UnexpectedError.number
    assert (refused.stored, refused.retriable) == ("unknown", False)
    assert "say HELLO" in without_session.reason
    assert len(served.records) == 1
    assert node.pids() == pids
    assert node.logged("request met a bug of the node")
    assert node.logged("ZeroDivisionError")
    assert node.stop() == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_rocketmq_clients_lose_the_connection_that_met_a_bug(
    make_node: Callable[[], Node], processes: int
) -> None:
    node = make_node()
    address = start(node, processes=processes)
    other = RemotingClient(address)
    beat_when_leading(other, "other", "orders")
    send(other, "orders", 0, b"m")
    pids = node.pids()
    outcomes = []
    for ask in (
        lambda client: client.ask(
            RequestCode.QUERY_MESSAGE,
            {"topic": "orders", "key": POISON, "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 0},
        ),
        lambda client: client.ask(RequestCode.PULL_MESSAGE, pull_fields(POISON, 0, 0)),
    ):
        unlucky = RemotingClient(address)
        beat_when_leading(unlucky, "unlucky", POISON, "orders")
        send(unlucky, POISON, 0, b"m")
        outcomes.append(ask(unlucky).code)
        with pytest.raises(ConnectionError):
            unlucky.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        unlucky.close()
    served = pull(other, "orders", 0, 0)
    other.close()

    assert outcomes == [ResponseCode.SYSTEM_ERROR] * 2
    assert served.bodies == [b"m"]
    assert node.pids() == pids
    assert node.stop() == 0
