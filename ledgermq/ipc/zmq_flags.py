"""ZeroMQ's flags as plain integers, and its input: an enum costs more than a call that takes it."""

from __future__ import annotations

import zmq

RCVMORE = int(zmq.RCVMORE)
POLLIN, NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)
MORE = NOBLOCK | int(zmq.SNDMORE)
"""Flags for sending a part of a message that others follow."""


def has_input(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits."""
    # Half of what the socket's option EVENTS costs, which pyzmq looks up in an enum first.
    return bool(zmq.zmq_poll([(socket, POLLIN)], 0))
