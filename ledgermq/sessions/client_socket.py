"""Client sockets: ROUTERs, always on ipc, on tcp if the settings say so."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Container, Sequence, Sized
from pathlib import Path
from typing import Protocol

import zmq

from ledgermq.formats.records.host_address import plain_address
from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.zmq_flags import MORE, NOBLOCK, POLLIN, RCVMORE
from ledgermq.model.config.settings import LimitsSection, Settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.events import Event
from ledgermq.sessions.client_rights import AccessGate, Peer
from ledgermq.sessions.connection_names import draw_seed
from ledgermq.sessions.keys.client_keys import load_client_secret
from ledgermq.sessions.keys.key_guard import KeyGuard
from ledgermq.sessions.socket_watch import SocketWatch, watch_limits

logger = logging.getLogger(__name__)

BACKLOG = 1_024
MESSAGES_QUEUED_MAX = 4_096
HEARTBEAT_MS = 10_000
SILENCE_MS = 20_000
"""A connection over tcp without a sign of life for so long is given up. The kernel tells of the end
of one over a unix socket."""

CLOSE_LINGER_MS = 200
PARTS_MAX = 4
PARTS_SKIPPED_MAX = 8_192
"""Most parts beyond those that any message has that are dropped in one turn: five milliseconds.
With fewer, others would wait longer who have sent something over the same socket."""

ZAP_DOMAIN = b"ledgermq-clients"
OWN_IDENTITY_SIZE = 5
"""Bytes of an identity that ZeroMQ gives: a zero, and a number."""


class ClientSocket(Protocol):
    """Messages of clients in, answers out; nothing blocks."""

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""
        ...

    @property
    def waiting(self) -> Sized:
        """What is empty while no messages wait that no source tells of; always the same object."""
        ...

    def hears(self, ready: Container[Pollable]) -> bool:
        """Whether messages wait.

        Args:
            ready: the sources that can be read.
        """
        ...

    @property
    def zmq_uses(self) -> Sequence[int]:
        """Its number changes when a socket of ZeroMQ's is used; see ``Worker.zmq_uses``."""
        ...

    @property
    def guards(self) -> list[Pollable]:
        """What wakes the process to let somebody in (``let_in``), or not."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether ``look`` has work although nothing comes: what has no end wakes nobody."""
        ...

    def let_in(self) -> None:
        """Answer about the keys of those who connect, and count them."""
        ...

    def receive(self) -> list[bytes] | None:
        """The client's identity and the parts of its message; None when none waits.

        Only a few more parts are given than any message has. A message of very many ends a turn
        with None, and others have theirs: the source can be read on.
        """
        ...

    @property
    def peer(self) -> Peer:
        """Who sent the message that was received last; nobody in particular if none is told."""
        ...

    def greet(self, identity: bytes) -> None:
        """The message that was received last, of a client, was a HELLO."""
        ...

    def look(self, now_ns: int) -> None:
        """End connections that hold too much; to be called each turn."""
        ...

    def take_limits(self, limits: LimitsSection) -> None:
        """The settings were read again."""
        ...

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        """Answer a client; false when it has gone, or does not read."""
        ...

    def close(self) -> None:
        """Unbind, once what was sent has left, or soon."""
        ...


class RouterSocket:
    """``ClientSocket`` over a ZeroMQ ROUTER as ``bind_client_socket`` makes it."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        *,
        guard: KeyGuard | None,
        gate: AccessGate,
        watch: SocketWatch,
    ) -> None:
        """Owns the socket, the guard of its context, and ``watch``.

        Args:
            gate: where it is on, it is looked with each message who has sent it; a client may
                choose its identity, and take that of another one which has gone.
        """
        self.peer = Peer()
        self.zmq_uses = [0]
        self._socket = socket
        self._polled = [(socket, POLLIN)]
        self._guard = guard
        self._gate = gate
        self.watch = self._watch = watch
        self._fd = -1
        self._unfinished: list[bytes] | None = None
        self._has_more = False

    @property
    def source(self) -> Pollable:
        """The socket."""
        return self._socket

    @property
    def sources(self) -> list[Pollable]:
        return [self._socket]

    @property
    def waiting(self) -> Sized:
        return ()

    def hears(self, ready: Container[Pollable]) -> bool:
        return self._socket in ready

    @property
    def guards(self) -> list[Pollable]:
        heard = self._watch.source
        return [heard] if self._guard is None else [self._guard.socket, heard]

    @property
    def is_watched(self) -> bool:
        return self._watch.is_needed

    def let_in(self) -> None:
        self.zmq_uses[0] += 1
        if self._guard is not None:
            report_refused(self._guard)
        self._watch.hear()

    def receive(self) -> list[bytes] | None:
        socket = self._socket
        self.zmq_uses[0] += 1
        # To ask costs a tenth of the exception that a receive in vain would raise, and this way
        # half of what the socket's option EVENTS costs, which pyzmq looks up in an enum first.
        if not zmq.zmq_poll(self._polled, 0):
            return None
        watch, parts = self._watch, self._unfinished or self._begun()
        if self._has_more and not skip_parts(socket):
            if self._unfinished is None:
                self._unfinished = parts
                watch.end_sender(parts[0], self._fd)
            return None
        self._unfinished = None
        account = watch.accounts.get(parts[0])
        if account is not None:
            account.taken += watch.wire_size(parts) if account.address else 1
        return parts

    def _begun(self) -> list[bytes]:
        """The first parts of a message, all that any has, and one more; and who sent it."""
        socket = self._socket
        # Frames know whether more comes; the option RCVMORE is dearer than they are.
        head = socket.recv(NOBLOCK, copy=False)
        parts = [head.bytes]
        account = self._watch.accounts.get(parts[0])
        if account is not None and not self._gate.is_on:
            self.peer = account.peer
        elif head.more:
            head = socket.recv(NOBLOCK, copy=False)
            if account is None:
                self._fd = descriptor_of(head)
            self.peer = peer_of(head, has_keys=self._guard is not None)
            parts.append(head.bytes)
        while head.more and len(parts) <= PARTS_MAX:
            head = socket.recv(NOBLOCK, copy=False)
            parts.append(head.bytes)
        self._has_more = head.more
        return parts

    def greet(self, identity: bytes) -> None:
        if identity not in self._watch.accounts:
            self._watch.greet(identity, self._fd)
        account = self._watch.accounts.get(identity)
        if account is not None:
            account.peer = self.peer

    def look(self, now_ns: int) -> None:
        self.zmq_uses[0] += 1
        self._watch.look(now_ns)

    def take_limits(self, limits: LimitsSection) -> None:
        self._watch.limits = watch_limits(limits)

    def send(self, identity: bytes, parts: Sequence[bytes | memoryview]) -> bool:
        socket = self._socket
        self.zmq_uses[0] += 1
        try:
            # Only the first part can be refused.
            socket.send(identity, MORE)
            for part in parts[:-1]:
                socket.send(part, MORE)
            socket.send(parts[-1], NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True

    def send_tracked(
        self, identity: bytes, parts: Sequence[bytes | memoryview]
    ) -> zmq.MessageTracker | None:
        """Send without a copy; what says when the message has left, or None where ``send`` gives
        false.
        """
        self.zmq_uses[0] += 1
        try:
            return self._socket.send_multipart([identity, *parts], NOBLOCK, copy=False, track=True)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return None

    def close(self) -> None:
        self._socket.close(CLOSE_LINGER_MS)
        self._watch.close()
        if self._guard is not None:
            self._guard.close()


def open_client_socket(
    context: Context,
    path: Path,
    endpoint: str | None,
    *,
    settings: Settings,
    gate: AccessGate,
    message_size_max: int,
    note_ended: Callable[[], object],
    answers_queued_max: int = MESSAGES_QUEUED_MAX,
    copied_max: int = zmq.COPY_THRESHOLD,
) -> RouterSocket:
    """A socket for clients as the settings say; see ``bind_client_socket``.

    Args:
        gate: whose keys are let in.
        note_ended: called for each connection that is ended because it holds too much.
        copied_max: bytes of a part that ``send_tracked`` copies all the same.

    Raises:
        ConfigError: it cannot be bound, or the key of the settings cannot be used.
    """
    listen = settings.listen
    secret = load_client_secret(listen)
    guard = None if secret is None else KeyGuard(context, gate.lets_key_in)
    limits = watch_limits(settings.limits)
    watch = SocketWatch(limits, is_sealed=secret is not None, note_ended=note_ended)
    socket = bind_client_socket(
        context,
        path,
        endpoint,
        mode=listen.socket_mode,
        message_size_max=message_size_max,
        secret=secret,
        answers_queued_max=answers_queued_max,
        watch=watch,
    )
    socket.copy_threshold = copied_max
    return RouterSocket(socket, guard=guard, gate=gate, watch=watch)


def skip_parts(socket: zmq.Socket[bytes]) -> bool:
    """Let go of the next parts of a message that has too many; whether it is at its end.

    Nothing bounds their number, and a million of empty ones takes more than a second to be let go
    of, in which nothing else comes from the socket: who calls this ends the sender's connection,
    gives everything else a turn, and goes on with the next one.
    """
    if not socket.getsockopt(RCVMORE):
        return True
    # A frame tells whether more follow; to ask the socket for it takes as long again.
    return any(not socket.recv(NOBLOCK, copy=False).more for _ in range(PARTS_SKIPPED_MAX))


def is_reserved(identity: bytes) -> bool:
    """Whether a client has chosen an identity that no client may have.

    ZeroMQ refuses identities that begin with a zero where they are set, and takes them from the
    wire: it gives such ones itself.
    """
    return identity[:1] == b"\0" and len(identity) != OWN_IDENTITY_SIZE


def _bind_tcp(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Bind an address, ``*``, or an interface: its first IPv4 address, or IPv6 where it has none.

    Raises:
        ZMQError: none of it is this machine's, or another program has the port.
    """
    has_brackets = "[" in endpoint
    # With it, * would be all IPv6 addresses, too.
    socket.setsockopt(zmq.IPV6, int(has_brackets))
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if has_brackets or error.errno != errno.ENODEV:
            raise
        socket.setsockopt(zmq.IPV6, 1)
        socket.bind(endpoint)


def peer_of(head: zmq.Frame, *, has_keys: bool) -> Peer:
    """Who sent the message that ``head`` is of.

    Args:
        has_keys: over tcp only those are let in whose key was asked about. Without that a client
            could tell a key itself, among the properties of its handshake.
    """
    peer = Peer(plain_address(_property(head, "Peer-Address")))
    if peer.is_local or not has_keys:
        return peer
    return Peer(peer.address, _property(head, "User-Id"))


def descriptor_of(head: zmq.Frame) -> int:
    """The descriptor of the connection that ``head`` came over; -1 when that is not known."""
    try:
        return int(head.get(zmq.SRCFD))
    except zmq.ZMQError:
        # Of a connection that tells no address, either.
        return -1


def _property(head: zmq.Frame, name: str) -> str:
    try:
        return str(head.get(name))
    except zmq.ZMQError:
        # The connection has none of that name.
        return ""


def report_refused(guard: KeyGuard) -> None:
    """Answer about keys, and log those that are refused, a few of each host."""
    for address, key in guard.serve():
        if guard.lines.is_news(address, key, time.monotonic()):
            logger.warning(
                "client refused: its key is no user's",
                extra={"event": Event.CLIENT_REFUSED, "from": address, "key": key},
            )


def bind_client_socket(
    context: Context,
    path: Path,
    endpoint: str | None,
    *,
    mode: int,
    message_size_max: int,
    secret: bytes | None = None,
    answers_queued_max: int = MESSAGES_QUEUED_MAX,
    watch: SocketWatch | None = None,
) -> zmq.Socket[bytes]:
    """A ROUTER bound at ``ipc://path``, and at ``endpoint`` if there is one.

    A send to a client that has gone is an error (``EHOSTUNREACH``), one to a client that does not
    read is ``Again``; neither blocks.

    Args:
        mode: permissions of the ipc socket.
        message_size_max: a client that sends a larger part is disconnected.
        secret: CURVE key (Z85) for ``endpoint``; a ``KeyGuard`` in the context answers about the
            keys of clients.
        answers_queued_max: messages that wait for one client to read.
        watch: bounds what clients over tcp may have under way; the caller's.

    Raises:
        ConfigError: the endpoint cannot be bound.
    """
    draw_seed()
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.SNDHWM, answers_queued_max)
    socket.setsockopt(zmq.RCVHWM, MESSAGES_QUEUED_MAX)
    socket.setsockopt(zmq.MAXMSGSIZE, message_size_max)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    try:
        if watch is not None:
            watch.attach(context, socket, path.name)
        socket.bind(f"ipc://{path}")
        path.chmod(mode)
        if endpoint is not None:
            # From here on: what is bound already, the unix socket, goes without.
            socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS - HEARTBEAT_MS)
            if secret is not None:
                socket.setsockopt(zmq.CURVE_SERVER, 1)
                socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
                socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
                # Without a guard nobody gets in, where ZeroMQ would let everybody in.
                socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            _bind_tcp(socket, endpoint)
            if watch is not None:
                watch.bound(socket)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ConfigError(
            "socket for clients not bound",
            endpoint=endpoint or f"ipc://{path}",
            reason=str(error),
        ) from error
    return socket
