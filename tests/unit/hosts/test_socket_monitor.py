"""Tests of ``ledgermq.hosts.socket_monitor``."""

from __future__ import annotations

import zmq
from zmq.utils.monitor import parse_monitor_message

from ledgermq.client.core.connection import ZmqConnection
from tests.suite.patience import PATIENCE_S


def test_a_connection_is_watched_whatever_name_an_older_monitor_still_has() -> None:
    """The older one is closed in the background, and its socket's descriptor is free by then."""
    with zmq.Context() as context:
        older: zmq.Socket[bytes] = context.socket(zmq.PAIR)
        # Those before are this process's, and the next sockets have some of the first free ones.
        beyond = older.getsockopt(zmq.FD) + 100
        for descriptor in range(beyond):
            older.bind(f"inproc://monitor.s-{descriptor}")
        listening: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        port = listening.bind_to_random_port("tcp://127.0.0.1")

        connection = ZmqConnection(context, f"tcp://127.0.0.1:{port}", None)
        try:
            assert connection._socket.getsockopt(zmq.FD) < beyond
            assert connection.send([b"one"])
            assert listening.poll(1_000 * PATIENCE_S)
            listening.close(0)
            assert connection._monitor.poll(1_000 * PATIENCE_S)
            told = parse_monitor_message(connection._monitor.recv_multipart())
        finally:
            connection.close(0)
            older.close(0)
            listening.close(0)

    assert told["event"] == zmq.EVENT_DISCONNECTED
