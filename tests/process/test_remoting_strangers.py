"""Programs at a real node's port that speak another protocol than RocketMQ's remoting."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.remoting_node import start_remoting_node
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

# A gRPC client's first bytes: HTTP/2's preface, and an empty frame of its settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


STRANGERS = [
    (PREFACE, "a gRPC client of RocketMQ 5"),
    (b"GET / HTTP/1.1\r\nHost: n0\r\n\r\n", "an HTTP request"),
    (b"\xff" + bytes(7) + b"\x01\x7f", "a client of LedgerMQ's own"),
]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, str]]:
    with nodes_made() as make:
        node = make()
        yield node, start_remoting_node(node)
        node.stop()


@pytest.mark.parametrize(("first", "named"), STRANGERS)
def test_who_speaks_another_protocol_is_sent_away_and_named_in_the_log(
    served: tuple[Node, str], first: bytes, named: str
) -> None:
    node, address = served
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as client:
        client.sendall(first)
        assert client.recv(1) == b""

    wait_until(lambda: node.logged(named), "the line about it", PATIENCE_S)
