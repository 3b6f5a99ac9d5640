"""Direct connection to one member: of raft processes to one another, and of writers.

The connection is TLS over bytes in memory, one call of the kernel a message. Both sides show a
certificate that was made for this life of their raft process, and believe no other one.

A message is its sizes and its parts, as ``wire/byte_stream.py`` has them; a record of TLS may hold
several, and a large one is several records. Nothing here blocks: what the kernel does not take at
once leaves when it does. Records and messages are made in one compiled piece where that is built
and Python has loaded OpenSSL 3 (``formats/kernels/_secure.pyx``), else by ``PlainStream``.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ledgermq.formats.kernels.kernel import compiled_only
from ledgermq.members.plain_stream import PlainStream, plain_context
from ledgermq.model.ids import NodeId

if TYPE_CHECKING:
    # Both forms have the interface of this one.
    Context = ssl.SSLContext
    Stream = PlainStream
    _make_context = plain_context
    IS_COMPILED = True
else:
    _secure = compiled_only("_secure")
    IS_COMPILED = _secure is not None and _secure.is_loaded
    Stream = _secure.SecureStream if IS_COMPILED else PlainStream
    Context = _secure.SecureContext if IS_COMPILED else ssl.SSLContext
    _make_context = _secure.SecureContext if IS_COMPILED else plain_context

PART_SIZE_MAX = 8 * 1024 * 1024 + 64 * 1024
"""The largest ``raft.frame_bytes``, and some; a peer that sends more is disconnected."""

SILENCE_MS = 3_000
"""A connection without a sign of life for so long is given up."""

HANDSHAKE_S = 2.0

RAFT_PROTOCOL, WRITER_PROTOCOL = "ledgermq-raft", "ledgermq-writer"
"""Protocols by ALPN: who knows the first one knows of connections that writers make, by the
second one. Earlier versions know none."""

_NO_CHECK_TIME = 0x200000
"""OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``: a certificate that was told for this life of its owner
has no other time, and members' clocks may differ."""

UNSENT_MAX = 16 * 1024 * 1024
"""Bytes that wait to leave; with more nothing is taken. Raft lets half of that be under way."""

_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE_MS // 1_000),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
"""A network that takes nothing any more ends a connection as soon as it does one of ZeroMQ's."""


def tls_context(
    pem: bytes, believed: Iterable[bytes], protocols: Sequence[str], *, is_server: bool
) -> Context:
    """TLS 1.3 that shows one certificate, and believes others alone.

    Args:
        pem: the certificate to show, with its key.
        believed: certificates (DER).
        protocols: of ALPN; without any it is not used.

    Raises:
        OSError: one of them is no certificate; or no descriptor is left.
    """
    return _make_context(pem, believed, protocols, is_server=is_server, verify_flags=_NO_CHECK_TIME)


class DirectConnection(Stream):
    """One TCP connection, from its first byte on.

    Attributes:
        descriptor: of its socket; it is in the poll set that it was made with.
        is_open: the handshake is over, and messages may be sent.
        failure: why it has ended; empty while it has not.
        peer: whose it is, as its owner has found.
    """

    def __init__(
        self,
        connected: socket.socket,
        context: Context,
        poll: select.epoll,
        *,
        is_server: bool,
    ) -> None:
        """Take a socket that does not block, and is connected or is about to be.

        Raises:
            OSError: the library has no memory for it.
        """
        super().__init__(
            connected, context, is_server=is_server, unsent_max=UNSENT_MAX, part_max=PART_SIZE_MAX
        )
        self.peer: NodeId | None = None
        self._socket = connected
        self._poll = poll
        for level, option, value in _KEEPALIVE:
            connected.setsockopt(level, option, value)
        # Of who dials, until the connection stands; then its first words go out.
        poll.register(self.descriptor, select.EPOLLIN | (0 if is_server else select.EPOLLOUT))

    @property
    def host(self) -> str:
        """Numeric address of the other side; empty where the connection has ended."""
        try:
            return str(self._socket.getpeername()[0])
        except OSError:
            return ""

    def go_on(self) -> None:
        """The socket has room, or the connection stands."""
        if not self.is_open:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self.end(f"not connected: errno {error}")
                return
            self.shake_hands()
        if not self.failure:
            self.flush()

    def end(self, reason: str) -> None:
        """Close it; nothing more is sent or taken."""
        if not self.failure:
            self.failure = reason or "ended"
            self.is_open = False
            self._poll.unregister(self.descriptor)
            self._socket.close()

    def await_room(self, wanted: bool) -> None:
        """Have the poll set tell when the socket takes more, or no more."""
        if not self.failure:
            self.awaits_room = wanted
            events = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
            self._poll.modify(self.descriptor, events)
