"""The sockets that clients connect to: ROUTERs, always on ipc, on tcp if the settings say so."""

from __future__ import annotations

from pathlib import Path

import zmq

from ledgermq.ipc.doorbell import Context
from ledgermq.model.errors import ConfigError

BACKLOG = 1_024
MESSAGES_QUEUED_MAX = 4_096
HEARTBEAT_MS = 5_000


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
