"""The sockets that clients connect to: ROUTERs, always on ipc, on tcp if the settings say so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import zmq

from ledgermq.daemon.loop import Pollable
from ledgermq.ipc.doorbell import Context
from ledgermq.model.errors import ConfigError

BACKLOG = 1_024
MESSAGES_QUEUED_MAX = 4_096
HEARTBEAT_MS = 5_000
CLOSE_LINGER_MS = 200
PARTS_MAX = 4
# Plain integers: an enumeration's operators cost more than the question to ZeroMQ.
_EVENTS, _RCVMORE, _POLLIN, _NOBLOCK = (
    int(option) for option in (zmq.EVENTS, zmq.RCVMORE, zmq.POLLIN, zmq.NOBLOCK)
)


class ClientSocket(Protocol):
    """Messages of clients in, answers out; nothing blocks."""

    @property
    def source(self) -> Pollable:
        """What wakes the process."""
        ...

    def receive(self) -> list[bytes] | None:
        """The client's identity and the parts of its message; None when none waits.

        Only a few more parts are given than any message has.
        """
        ...

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        """Answer a client; false when it has gone, or does not read."""
        ...

    def close(self) -> None:
        """Unbind, once what was sent has left, or soon."""
        ...


class RouterSocket:
    """A ZeroMQ ROUTER as ``bind_client_socket`` makes it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    @property
    def source(self) -> Pollable:
        """The socket."""
        return self._socket

    def receive(self) -> list[bytes] | None:
        """See ``ClientSocket``."""
        socket = self._socket
        # To ask costs a tenth of the exception that a receive in vain would raise.
        if not cast("int", socket.getsockopt(_EVENTS)) & _POLLIN:
            return None
        parts = [socket.recv(_NOBLOCK)]
        while socket.getsockopt(_RCVMORE):
            part = socket.recv(_NOBLOCK)
            if len(parts) <= PARTS_MAX:
                parts.append(part)
        return parts

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        """See ``ClientSocket``."""
        try:
            self._socket.send_multipart([identity, *parts], _NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True

    def close(self) -> None:
        """See ``ClientSocket``."""
        self._socket.close(CLOSE_LINGER_MS)


def bind_client_socket(
    context: Context,
    path: Path,
    endpoint: str | None,
    *,
    mode: int,
    message_size_max: int,
) -> zmq.Socket[bytes]:
    """A ROUTER bound at ``ipc://path``, and at ``endpoint`` if there is one.

    A send to a client that has gone is an error (``EHOSTUNREACH``), one to a client that does not
    read is ``Again``; neither blocks.

    Args:
        mode: permissions of the ipc socket.
        message_size_max: a client that sends a larger part is disconnected.

    Raises:
        ConfigError: the endpoint cannot be bound.
    """
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.SNDHWM, MESSAGES_QUEUED_MAX)
    socket.setsockopt(zmq.RCVHWM, MESSAGES_QUEUED_MAX)
    socket.setsockopt(zmq.MAXMSGSIZE, message_size_max)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
    try:
        socket.bind(f"ipc://{path}")
        path.chmod(mode)
        if endpoint is not None:
            socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ConfigError(
            "socket for clients not bound",
            endpoint=endpoint or f"ipc://{path}",
            reason=str(error),
        ) from error
    return socket
