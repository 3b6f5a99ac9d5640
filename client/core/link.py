"""Link: one session with one socket of a node, opened anew when it ends.

A ``Link`` never blocks and has no thread; whoever owns it polls its file descriptors and calls
``advance`` and ``receive``. It is not safe to share among threads without a lock.

A connection that ended is never used again: its socket is closed with all that is queued in it, and
the next one has another identity. So nothing of an old session reaches the next writer unasked.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import cast

import zmq
from zmq.utils.monitor import parse_monitor_message

import ledgermq
from ledgermq.client.core.address import Address
from ledgermq.client.core.keys import ClientKeys, load_client_keys
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
)
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.session import Welcome, decode_refused, decode_welcome, encode_hello

Context = zmq.Context[zmq.Socket[bytes]]
Part = bytes | memoryview

NEVER = float("inf")
"""A deadline that does not come."""

REOPEN_MS_MIN = 5
REOPEN_MS_MAX = 500
HELLO_TIMEOUT_S = 5.0
GOODBYE_LINGER_MS = 100
HEARTBEAT_MS = 2_000
MESSAGES_QUEUED_MAX = 16_384
MESSAGE_SIZE_MAX = 80 * 1024 * 1024
"""Largest part that a node may send: a whole PULLED."""

_ENDED = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_ENDED |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
# Plain integers: an enumeration's operators cost more than the question to ZeroMQ.
_POLLIN, _NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)
_NOT_LAST = _NOBLOCK | int(zmq.SNDMORE)
MONITOR_S = 0.001
"""The monitor is looked at no more often: the descriptors wake a poller, and stay readable."""

_LIBRARY = f"ledgermq-python/{ledgermq.__version__}"


class Link:
    """A session that comes back.

    Invariants: ``welcome`` is set exactly while a session stands; ``generation`` grows whenever a
    socket is opened or closed, so that pollers know when ``descriptors`` are others.

    Attributes:
        welcome: what the node told us, ``None`` while there is no session.
        last_welcome: the latest one, also between sessions.
        failure: why no session can ever stand, if that is known.
        lost_count: sessions and attempts that ended.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        client: str,
        group: str = "",
        keys: ClientKeys | None = None,
    ) -> None:
        """A link that opens its first session with the first ``advance``.

        Args:
            client: name that the node is told.
            group: the subscription group that its pulls are for; empty for none.
            keys: for a node that asks for them, over tcp.
        """
        self._keys = keys
        self._is_locked_out = False
        self.endpoint = endpoint
        self.welcome: Welcome | None = None
        self.last_welcome: Welcome | None = None
        self.failure: LedgerError | None = None
        self.generation = 0
        self.lost_count = 0
        self._context = context
        self._client = client
        self._group = group
        self._instance = os.urandom(12).hex()
        self._ids: Iterator[int] = itertools.count(1)
        self._socket: zmq.Socket[bytes] | None = None
        self._polled: tuple[tuple[zmq.Socket[bytes], int], ...] = ()
        self._monitor: zmq.Socket[bytes] | None = None
        self._hello_id = 0
        self._hello_until = 0.0
        self._is_asking = False
        self._reopen_at = 0.0
        self._monitor_at = 0.0
        self._reopen_ms = REOPEN_MS_MIN

    def next_id(self) -> int:
        """A request id that this link has not used."""
        return next(self._ids)

    def share_ids(self, ids: Iterator[int]) -> None:
        """Take request ids from ``ids``, which others take theirs from, too."""
        self._ids = ids

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors that become readable when ``receive`` or ``advance`` has work.

        Edge-triggered: they say nothing of what was there before the last ``receive`` found none.
        """
        if self._socket is None or self._monitor is None:
            return ()
        return cast("int", self._socket.getsockopt(zmq.FD)), cast(
            "int", self._monitor.getsockopt(zmq.FD)
        )

    @property
    def deadline(self) -> float:
        """When ``advance`` has work that no descriptor tells of."""
        if self._socket is None:
            return self._reopen_at
        return self._hello_until if self._awaits_greeting else NEVER

    @property
    def _awaits_greeting(self) -> bool:
        return self.welcome is None or self._is_asking

    def advance(self, now: float) -> bool:
        """Open what is due, and look whether the connection ended; true when a session ended.

        Call ``receive`` until it gives nothing first: answers may lie before the end.
        """
        if self._socket is None:
            if now >= self._reopen_at and self.failure is None:
                self._open(now)
            return False
        if now < self._monitor_at:
            return False
        self._monitor_at = now + MONITOR_S
        if self._has_ended() or (self._awaits_greeting and now >= self._hello_until):
            return self.lose(now)
        return False

    def receive(self) -> list[Part] | None:
        """The parts of the next message that is not about the session itself.

        The first part is of bytes, the others are views of ZeroMQ's own buffers, which live as long
        as the views do.
        """
        socket = self._socket
        if socket is None:
            return None
        # Half of what the option EVENTS costs, and a frame knows whether more comes.
        while zmq.zmq_poll(self._polled, 0):
            frame = socket.recv(_NOBLOCK, copy=False)
            parts: list[Part] = [frame.bytes]
            while frame.more:
                frame = socket.recv(_NOBLOCK, copy=False)
                parts.append(frame.buffer)
            if self.welcome is not None and not (self._is_asking and self._is_greeting(parts)):
                return parts
            self._take_greeting(parts)
            # ``FoundLink`` closes it with the greeting, to go on at the writer.
            if self._socket is not socket:
                break
        return None

    def send(self, parts: Sequence[bytes]) -> bool:
        """Hand a message to ZeroMQ; false when it takes none. Only while ``welcome`` is set."""
        socket = self._socket
        assert socket is not None and self.welcome is not None
        try:
            # Only the first part can be refused.
            for part in parts[:-1]:
                socket.send(part, _NOT_LAST)
            socket.send(parts[-1], _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def lose(self, now: float) -> bool:
        """Give up the connection, and open another one soon; true when a session ended."""
        stood = self.welcome is not None
        self._close(0)
        self.lost_count += 1
        if stood:
            self._reopen_ms = REOPEN_MS_MIN
        self._reopen_at = now + self._reopen_ms / 1_000
        self._reopen_ms = min(2 * self._reopen_ms, REOPEN_MS_MAX)
        return stood

    def ask_again(self, now: float) -> None:
        """Say HELLO once more, for whoever waits for what this node tells.

        The session that stands is told anew, or begun anew where the node has forgotten it; a
        connection at whose other end nobody answers is given up. A node that has refused for good
        is asked whether it still does.
        """
        if self.failure is not None:
            self.failure = None
            self.lose(now)
        elif self._socket is not None and not self._awaits_greeting:
            self._is_asking = True
            self._say_hello(self._socket, now)

    def unreachable(self) -> LedgerError:
        """What to tell who waited for a session that never stood; nothing was sent."""
        if self._is_locked_out:
            return NoPermissionError(
                "node does not let this client in: it asks for keys (?keys=FILE behind the"
                " address), those of its users (ledgermq acl list); nothing was stored",
                endpoint=self.endpoint,
            )
        return self.failure or NotLeaderError(
            "no node answers: is it running, and may this user connect? Nothing was stored",
            endpoint=self.endpoint,
        )

    def close(self) -> None:
        """Say goodbye, and close the socket for good."""
        if self.welcome is not None:
            self.send([encode_header(Kind.GOODBYE, self.next_id())])
            self._close(GOODBYE_LINGER_MS)
        else:
            self._close(0)
        self._reopen_at = NEVER

    def _open(self, now: float) -> None:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, MESSAGES_QUEUED_MAX)
        socket.setsockopt(zmq.RCVHWM, MESSAGES_QUEUED_MAX)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_SIZE_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, 20)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        if self.endpoint.startswith("tcp://"):
            socket.setsockopt(zmq.IPV6, 1)
            socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
            if self._keys is not None:
                socket.setsockopt(zmq.CURVE_SERVERKEY, self._keys.server)
                socket.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public)
                socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
        # Before it connects: an end that comes at once would be missed.
        self._monitor = socket.get_monitor_socket(_ENDED)
        self._socket = socket
        self._polled = ((socket, _POLLIN),)
        try:
            socket.connect(self.endpoint)
        except zmq.ZMQError as error:
            # Only an endpoint that can never be connected is refused here.
            self._close(0)
            self.failure = ProtocolError(
                "endpoint cannot be connected", endpoint=self.endpoint, reason=str(error)
            )
            return
        self.generation += 1
        self._say_hello(socket, now)

    def _say_hello(self, socket: zmq.Socket[bytes], now: float) -> None:
        self._hello_id = self.next_id()
        self._hello_until = now + HELLO_TIMEOUT_S
        try:
            socket.send_multipart(
                encode_hello(
                    self._hello_id,
                    client=self._client,
                    library=_LIBRARY,
                    instance=self._instance,
                    group=self._group,
                ),
                zmq.NOBLOCK,
            )
        except zmq.Again:
            # The node has refused the keys already, and its refusal waits in the monitor; or nobody
            # takes what was sent before.
            self._hello_until = now

    def _has_ended(self) -> bool:
        monitor = self._monitor
        assert monitor is not None
        ended = False
        while zmq.zmq_poll(((monitor, _POLLIN),), 0):
            event = parse_monitor_message(monitor.recv_multipart(_NOBLOCK))
            ended = ended or bool(event["event"] & _ENDED)
            if event["event"] & _REFUSED:
                self._is_locked_out = True
        return ended

    def _is_greeting(self, parts: list[Part]) -> bool:
        """Whether a message of a session that stands answers the HELLO that was said again."""
        return decode_header(parts[0]).request_id == self._hello_id

    def _take_greeting(self, parts: list[Part]) -> None:
        header = decode_header(parts[0])
        if header.request_id != self._hello_id or len(parts) < 2:
            raise ProtocolError("answer to no question of this session", kind=header.kind.name)
        if header.kind is Kind.WELCOME:
            self.welcome = self.last_welcome = decode_welcome(parts[1])
            self._is_locked_out = self._is_asking = False
            self._hello_until = NEVER
            return
        refusal = decode_refused(parts[1])
        if refusal.retriable or self._is_asking:
            # ``advance`` ends what there is of a session.
            self._hello_until = 0.0
        if not refusal.retriable:
            self.failure = refusal.to_error()

    def _close(self, linger_ms: int) -> None:
        self.welcome = None
        self._is_asking = False
        if self._socket is not None and self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(linger_ms)
            self.generation += 1
        self._socket = self._monitor = None
        self._polled = ()


def keys_of(address: Address) -> ClientKeys | None:
    """The keys that ``address`` names; None when it names none.

    Raises:
        ConfigError: they cannot be used.
    """
    return load_client_keys(address.keys) if address.keys else None


class FoundLink(Link):
    """A session with the writer of a node of which only the broker's address is known.

    The broker is asked first, and again whenever no writer answers where it said.
    """

    def __init__(self, context: Context, address: Address, *, client: str) -> None:
        super().__init__(context, address.consume, client=client, keys=keys_of(address))
        self._address = address
        self._is_found = False

    def lose(self, now: float) -> bool:
        """Give up the connection, and open another one soon; true when a session ended."""
        stood = super().lose(now)
        if not stood:
            self._is_found = False
            self.endpoint = self._address.consume
        return stood

    def _take_greeting(self, parts: list[Part]) -> None:
        super()._take_greeting(parts)
        if self.welcome is None or self._is_found:
            return
        told = self.welcome.produce
        self._close(0)
        try:
            self.endpoint = self._address.produce_endpoint(told)
        except ConfigError as error:
            self.failure = error
            return
        self._is_found = True
        self._reopen_at = 0.0
