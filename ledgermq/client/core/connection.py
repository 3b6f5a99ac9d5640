"""Connections of a link: one socket each, from its opening to its end; ZeroMQ's is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import zmq
from zmq.utils.monitor import parse_monitor_message

from ledgermq.client.core.keys import ClientKeys
from ledgermq.hosts.socket_monitor import monitor_of
from ledgermq.model.errors import ProtocolError

Context = zmq.Context[zmq.Socket[bytes]]
Part = bytes | memoryview

MESSAGE_SIZE_MAX = 80 * 1024 * 1024
"""Largest part that a node may send: a whole PULLED."""

HEARTBEAT_MS = 2_000
MESSAGES_QUEUED_MAX = 16_384

_ENDED = zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_ENDED |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
# Plain integers: an enumeration's operators cost more than the question to ZeroMQ.
POLLIN, _NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)
_NOT_LAST = _NOBLOCK | int(zmq.SNDMORE)
# On PyPy each frame of pyzmq's says that it is the last: findings/pyzmq-cffi-frames-say-last.sh.
_FRAMES_KNOW = not isinstance(zmq.Frame.more, bool)
_NEVER = -1
MONITOR_S = 0.001
"""The monitor is looked at no more often: the descriptors wake a poller, and stay readable."""


class NodeConnection(Protocol):
    """Messages to a node and from it; nothing blocks.

    Attributes:
        is_locked_out: the node does not let this client in.
        was_cut_off: it has ended while keys were exchanged, and nothing was said why.
        stays_readable: the descriptors tell of what waits until it is taken, whatever is called
            meanwhile.
    """

    is_locked_out: bool
    was_cut_off: bool
    stays_readable: bool

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors that become readable when there is something to take."""
        ...

    def receive(self) -> list[Part] | None:
        """The parts of the next message."""
        ...

    def send(self, parts: Sequence[bytes]) -> bool:
        """Hand over a message; false when none is taken."""
        ...

    def has_ended(self, now: float) -> bool:
        """Whether the other side has gone, as far as is known without asking too often."""
        ...

    def close(self, linger_ms: int) -> None:
        """Close it; what was handed over may leave for so long."""
        ...


class ZmqConnection:
    """A DEALER, and what its monitor tells of its end; one attempt, and no second.

    A client that is not used for long reads no monitor. ZeroMQ would connect again and again
    meanwhile, and wait for room in the monitor in the thread that all sockets of the process share.
    """

    def __init__(self, context: Context, endpoint: str, keys: ClientKeys | None) -> None:
        """Connects in the background; it has ended, too, when nobody takes the connection.

        Raises:
            ProtocolError: the endpoint can never be connected.
            OSError: no socket can be made now; mostly the process has no descriptors left.
        """
        self.is_locked_out = self.was_cut_off = False
        self.stays_readable = False
        self._look_at = 0.0
        try:
            self._socket = socket = context.socket(zmq.DEALER)
        except zmq.ZMQError as error:
            raise _no_socket(error) from error
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, MESSAGES_QUEUED_MAX)
        socket.setsockopt(zmq.RCVHWM, MESSAGES_QUEUED_MAX)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_SIZE_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, _NEVER)
        if endpoint.startswith("tcp://"):
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
            if keys is not None:
                socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server)
                socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
                socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        # Before it connects: an end that comes at once would be missed.
        try:
            self._monitor = monitor_of(socket, _ENDED)
        except zmq.ZMQError as error:
            socket.close(0)
            raise _no_socket(error) from error
        self._polled = ((socket, POLLIN),)
        self._monitored = ((self._monitor, POLLIN),)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            # Only an endpoint that can never be connected is refused here.
            self.close(0)
            raise ProtocolError(
                "endpoint cannot be connected", endpoint=endpoint, reason=str(error)
            ) from error

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that can be read when something has come.

        Edge-triggered: they say nothing of what was there before the last ``receive`` found none.
        """
        return cast("int", self._socket.getsockopt(zmq.FD)), cast(
            "int", self._monitor.getsockopt(zmq.FD)
        )

    def receive(self) -> list[Part] | None:
        """What has come; the first part is of bytes, the others are views of ZeroMQ's own
        buffers, which live as long as the views do.
        """
        # Half of what the option EVENTS costs, and a frame knows whether more comes.
        if not zmq.zmq_poll(self._polled, 0):
            return None
        socket = self._socket
        frame = socket.recv(_NOBLOCK, copy=False)
        parts: list[Part] = [frame.bytes]
        while frame.more or (not _FRAMES_KNOW and socket.getsockopt(zmq.RCVMORE)):
            frame = socket.recv(_NOBLOCK, copy=False)
            parts.append(frame.buffer)
        return parts

    def send(self, parts: Sequence[bytes]) -> bool:
        socket = self._socket
        try:
            # Only the first part can be refused.
            for part in parts[:-1]:
                socket.send(part, _NOT_LAST)
            socket.send(parts[-1], _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def has_ended(self, now: float) -> bool:
        if now < self._look_at:
            return False
        self._look_at = now + MONITOR_S
        ended = False
        while zmq.zmq_poll(self._monitored, 0):
            event = parse_monitor_message(self._monitor.recv_multipart(_NOBLOCK))
            ended = ended or bool(event["event"] & _ENDED)
            if event["event"] & _REFUSED:
                self.is_locked_out = True
            elif event["event"] & zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self.was_cut_off = True
        return ended

    def close(self, linger_ms: int) -> None:
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)


def _no_socket(error: zmq.ZMQError) -> OSError:
    # ZeroMQ's errors are none of the system's, which whoever opens a connection waits out.
    return OSError(error.errno, error.strerror)
