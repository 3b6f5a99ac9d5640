"""The way to a peer: a connection that ZeroMQ has given up is begun anew."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from ledgermq.members.peer_addresses import PeerAddress
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers import peer_sockets
from ledgermq.raft_node.peers.peer_sockets import Outlet
from tests.adversary import zmtp3
from tests.process.raw_zmtp import LONG
from tests.suite.patience import PATIENCE_S

TOO_LARGE = bytes([LONG]) + (1 << 40).to_bytes(8, "big")


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        yield listener


@pytest.fixture(params=["127.0.0.1", "127.1"], ids=["address", "name of one address"])
def outlet(peer: socket.socket, request: pytest.FixtureRequest) -> Iterator[Outlet]:
    context = zmq.Context()
    address = PeerAddress(request.param, peer.getsockname()[1])
    made = Outlet(context, NodeId("n1"), address, self_id=NodeId("n0"), keys=None, queued_max=8)
    yield made
    made.close(linger_ms=0)
    context.term()


def accepted(peer: socket.socket, outlet: Outlet, for_s: float) -> socket.socket | None:
    """The next connection to the peer; None when there is none for a while."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        outlet.look(time.monotonic(), again_s=0.1)
        try:
            return peer.accept()[0]
        except TimeoutError:
            continue
    return None


def end_for_good(connection: socket.socket, outlet: Outlet) -> None:
    """Greet, and say then what ZeroMQ takes for the end of all."""
    connection.sendall(zmtp3.greeting() + zmtp3.ready() + TOO_LARGE)
    until = time.monotonic() + PATIENCE_S
    while not outlet.has_ended and time.monotonic() < until:
        outlet.look(time.monotonic(), again_s=0.1)
        time.sleep(0.01)
    connection.close()
    assert outlet.has_ended


def test_zeromq_alone_never_comes_back(peer: socket.socket, outlet: Outlet) -> None:
    first = accepted(peer, outlet, PATIENCE_S)
    assert first is not None
    end_for_good(first, outlet)

    # If it does one day, the watch over connections is not needed.
    assert accepted(peer, outlet, 2.0) is None


def test_a_connection_that_zeromq_has_given_up_is_begun_anew(
    peer: socket.socket, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_sockets, "UNCONNECTED_S", 0.3)
    for _ in range(3):
        connection = accepted(peer, outlet, PATIENCE_S)
        assert connection is not None
        end_for_good(connection, outlet)


def test_one_that_stands_is_left_alone(
    peer: socket.socket, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = accepted(peer, outlet, PATIENCE_S)
    assert connection is not None
    connection.sendall(zmtp3.greeting() + zmtp3.ready())
    until = time.monotonic() + PATIENCE_S
    while not outlet._is_connected and time.monotonic() < until:
        outlet.look(time.monotonic(), again_s=0.1)
        time.sleep(0.01)
    monkeypatch.setattr(peer_sockets, "UNCONNECTED_S", 0.3)

    assert accepted(peer, outlet, 2.0) is None
    connection.close()
