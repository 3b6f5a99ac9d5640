"""Frames of the socket that receives from all members: a message's parts, and who brought them."""

from __future__ import annotations

import zmq

from ledgermq.formats.records.host_address import plain_address
from ledgermq.ipc.zmq_flags import NOBLOCK

PARTS_MAX = 8
"""Most parts of a message behind its preamble; raft's have two."""


def take_frames(socket: zmq.Socket[bytes]) -> tuple[list[zmq.Frame], int]:
    """The parts of the next message, which is there; of too many, a few too many, and how many."""
    frame = socket.recv(NOBLOCK, copy=False)
    frames = [frame]
    count = 1
    while frame.more:
        frame = socket.recv(NOBLOCK, copy=False)
        if count <= PARTS_MAX + 2:
            frames += (frame,)
            count += 1
    return frames, count


def property_of(frame: zmq.Frame, name: str) -> str:
    """What ZeroMQ says of the connection that brought the frame.

    Empty when it says nothing: bytes that are no ZeroMQ may pass for its very first protocol, which
    had no properties.
    """
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""


def bound_host(inbox: zmq.Socket[bytes]) -> str:
    """The numeric address that it listens at."""
    endpoint = inbox.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    host = endpoint.rstrip(b"\0").decode().removeprefix("tcp://").rpartition(":")[0]
    return host.strip("[]")


def address_of(frame: zmq.Frame) -> str:
    """Address of the machine that has sent it."""
    return plain_address(property_of(frame, "Peer-Address")) or "unknown"
