"""Monitors of ZeroMQ's sockets, each at an address that no other one has had."""

from __future__ import annotations

import itertools

import zmq

_numbers = itertools.count()


def monitor_of(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """A socket that tells of ``events`` of another one; the caller's to close.

    pyzmq would name it by the descriptor of ``socket``. A socket is closed in the background, and
    its descriptor may be that of the next one while its old monitor still has the name: the next
    one would be refused it.

    Raises:
        zmq.ZMQError: no socket can be made now.
    """
    return socket.get_monitor_socket(events, f"inproc://ledgermq-monitor-{next(_numbers)}")
