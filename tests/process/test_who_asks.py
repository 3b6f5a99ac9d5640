"""Who somebody is does the transport say: no bytes that a client chooses, and no missing ones."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import LedgerError, NoPermissionError
from ledgermq.wire.header import Kind
from ledgermq.wire.pull_frame import Pull, encode_pull
from ledgermq.wire.session import Refusal, encode_call, encode_hello
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.raw_zmtp import FirstZmtpClient, ZmtpClient
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def configured(node: Node, port: int, **tables: dict[str, Any]) -> None:
    node.configure(listen={"consume": f"tcp://127.0.0.1:{port}"}, **tables)


def started(node: Node) -> tuple[str, int]:
    """Where the node listens in clear, without users."""
    port = free_port()
    configured(node, port)
    node.serve()
    return "127.0.0.1", port


@pytest.mark.parametrize("protocol", [FirstZmtpClient, ZmtpClient])
def test_a_connection_that_tells_no_address_is_no_local_process(
    make_node: Callable[[], Node], protocol: type[ZmtpClient]
) -> None:
    node = make_node()
    stranger = protocol(started(node))
    greeted = stranger.hello()
    asked = stranger.call(2, "topic_create", topic="planted")
    stranger.close()
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        topics = {row.topic for row in broker.topics()}
        broker.create_topic("made", 1)

    assert greeted is Kind.REFUSED
    assert isinstance(asked, Refusal)
    assert "planted" not in topics
    assert node.stop() == 0


@pytest.mark.parametrize(
    ("protocol", "identity"),
    [
        (ZmtpClient, bytes(9)),
        (ZmtpClient, b"\0" + b"\xff" * 8),
        (ZmtpClient, bytes(1)),
        (FirstZmtpClient, bytes(9)),
        (FirstZmtpClient, b"\0orders"),
    ],
)
def test_a_client_with_a_name_of_the_nodes_own_is_not_heard(
    make_node: Callable[[], Node], protocol: type[ZmtpClient], identity: bytes
) -> None:
    node = make_node()
    address = started(node)
    pid = node.pid("broker")
    forger = protocol(address, identity=identity)
    for message in (
        [b"not even a header"],
        encode_hello(1, client="forger", library="raw"),
        encode_call(987_654, "route", topic="forged", create=True),
        [encode_pull(Pull(1, "orders", 0, 0, 32, 1 << 20, 0))],
    ):
        forger.send(message)
    with connect_broker(f"ipc://{node.runtime}", name="operator", timeout_s=PATIENCE_S) as broker:
        # Asked later, and answered: what the other one has sent was read before.
        broker.create_topic("made", 1)
        topics = {row.topic for row in broker.topics()}
    heard = forger.has_answer()
    forger.close()

    assert not heard
    assert "forged" not in topics
    assert node.pid("broker") == pid
    assert node.stop() == 0


def test_users_are_told_apart_from_the_moment_that_access_is_switched_on(
    make_node: Callable[[], Node],
) -> None:
    """The operator, who was connected before, and who comes later, are who they were."""
    node = make_node()
    port = free_port()
    configured(node, port)
    node.serve()
    local = f"ipc://{node.runtime}"
    options = ProducerOptions(timeout_s=PATIENCE_S)

    def is_on() -> bool:
        try:
            with connect_broker(
                f"tcp://127.0.0.1:{port}", name="stranger", timeout_s=PATIENCE_S
            ) as stranger:
                stranger.group_offset("g", "orders")
        except NoPermissionError:
            return True
        except LedgerError:
            return False
        return False

    with Producer(local, options=options) as early:
        early.send("orders", b"before").result()
        configured(node, port, access={"enabled": True})
        node.signal(signal.SIGHUP)
        wait_until(is_on, "users are checked")
        early.send("orders", b"behind it").result()
        with Producer(local, options=options) as late:
            late.send("orders", b"of another one").result()

    assert node.stop() == 0
