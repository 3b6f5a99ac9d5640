"""Direct connection to one member: of raft processes to one another, and of writers.

The connection is TLS over bytes in memory, one call of the kernel a message. Both sides show a
certificate that was made for this life of their raft process, and believe no other one.

A message is its sizes and its parts, as ``wire/byte_stream.py`` has them; a record of TLS may hold
several, and a large one is several records. Nothing here blocks: what the kernel does not take at
once leaves when it does.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterable, Sequence

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId
from ledgermq.wire.byte_stream import HEAD_SIZE, pack_head, unpack_head

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

TAKEN_SIZE = 256 * 1024
"""Bytes taken in one turn; the kernel is asked again in the next one."""

_RECORD_SIZE = 16 * 1024
"""What one record of TLS holds at most."""

_JOINED_MAX = 8 * 1024
"""Parts up to this size share a record with what stands before them."""

_NO_BODY = memoryview(b"")

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
) -> ssl.SSLContext:
    """TLS 1.3 that shows one certificate, and believes others alone.

    Args:
        pem: the certificate to show, with its key.
        believed: certificates (DER).
        protocols: of ALPN; without any it is not used.

    Raises:
        OSError: one of them is no certificate; or no descriptor is left.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    # The key is read by a path, and is in no file system.
    descriptor = os.memfd_create("raft-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    for certificate in believed:
        context.load_verify_locations(cadata=certificate)
    if is_server:
        context.num_tickets = 0
    return context


class DirectConnection:
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
        context: ssl.SSLContext,
        poll: select.epoll,
        *,
        is_server: bool,
    ) -> None:
        """Take a socket that does not block, and is connected or is about to be."""
        self.descriptor = connected.fileno()
        self.is_open = False
        self.failure = ""
        self.peer: NodeId | None = None
        self._socket = connected
        self._poll = poll
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._rest = b""
        self._body = _NO_BODY
        self._missing = 0
        self._first_size = 0
        self._has_second = False
        for level, option, value in _KEEPALIVE:
            connected.setsockopt(level, option, value)
        # Of who dials, until the connection stands; then its first words go out.
        poll.register(self.descriptor, select.EPOLLIN | (0 if is_server else select.EPOLLOUT))
        self._awaits_room = not is_server

    @property
    def certificate(self) -> bytes:
        """The other side's (DER), once it is open."""
        return self._tls.getpeercert(binary_form=True) or b""

    @property
    def protocol(self) -> str:
        """What both sides know of ``RAFT_PROTOCOL`` and ``WRITER_PROTOCOL``, once it is open; empty
        where the other one is of an earlier version.
        """
        return self._tls.selected_alpn_protocol() or ""

    @property
    def host(self) -> str:
        """Numeric address of the other side; empty where the connection has ended."""
        try:
            return str(self._socket.getpeername()[0])
        except OSError:
            return ""

    def send(self, first: bytes, second: bytes | None = None) -> bool:
        """Send a message of one part or of two; false when none is taken now, or it has ended."""
        if self.failure or self._unsent_bytes > UNSENT_MAX:
            return False
        write = self._tls.write
        try:
            if second is None:
                write(pack_head(len(first), 0) + first)
            else:
                size = len(second)
                head = pack_head(len(first), size + 1)
                if size <= _JOINED_MAX:
                    # Joined by copies, which are short: a list of parts costs more.
                    write(head + first + second)
                else:
                    write(head + first)
                    write(second)
        except ssl.SSLError as error:
            self.end(f"{error.reason}")
            return False
        if self._awaits_room:
            self._flush_tls()
            return not self.failure
        # Nothing waits before it, nearly always, and the kernel takes all of it.
        data = self._outgoing.read()
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.end(str(error.strerror))
            return False
        if sent != len(data):
            self._keep_unsent(memoryview(data)[sent:])
        return True

    def receive(self) -> list[list[memoryview]]:
        """Take what has come; the messages that are whole by it."""
        messages: list[list[memoryview]] = []
        try:
            data = self._socket.recv(TAKEN_SIZE)
        except BlockingIOError:
            return messages
        except OSError as error:
            self.end(str(error.strerror))
            return messages
        if not data:
            self.end("closed by the other side")
            return messages
        self._incoming.write(data)
        try:
            if self.is_open or self._shake_hands():
                self._decrypt(messages)
        except (ssl.SSLError, ProtocolError) as error:
            self.end(f"{error.reason if isinstance(error, ssl.SSLError) else error}")
            return messages
        if self._outgoing.pending:
            self._flush_tls()
        return messages

    def go_on(self) -> None:
        """The socket has room, or the connection stands."""
        if not self.is_open:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self.end(f"not connected: errno {error}")
                return
            try:
                self._shake_hands()
            except ssl.SSLError as failure:
                self.end(f"{failure.reason}")
                return
        self._flush_tls()

    def end(self, reason: str) -> None:
        """Close it; nothing more is sent or taken."""
        if not self.failure:
            self.failure = reason or "ended"
            self.is_open = False
            self._poll.unregister(self.descriptor)
            self._socket.close()
            self._unsent.clear()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._outgoing.pending:
                self._flush_tls()
            return False
        self.is_open = True
        return True

    def _flush_tls(self) -> None:
        """Send what TLS has made, behind what has not left yet."""
        if self._outgoing.pending:
            data = memoryview(self._outgoing.read())
            if not self._unsent:
                data = data[self._sent(data) :]
            if data and not self.failure:
                self._keep_unsent(data)
                return
        elif self._unsent:
            self._flush_unsent()
        self._await_room(wanted=bool(self._unsent))

    def _keep_unsent(self, data: memoryview) -> None:
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self._await_room(wanted=True)

    def _await_room(self, *, wanted: bool) -> None:
        if wanted is not self._awaits_room and not self.failure:
            self._awaits_room = wanted
            events = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
            self._poll.modify(self.descriptor, events)

    def _flush_unsent(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            sent = self._sent(data)
            if self.failure:
                return
            self._unsent_bytes -= sent
            if sent < len(data):
                self._unsent[0] = data[sent:]
                return
            self._unsent.popleft()

    def _sent(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.end(str(error.strerror))
            return 0

    def _decrypt(self, messages: list[list[memoryview]]) -> None:
        tls, incoming = self._tls, self._incoming
        try:
            # An exception where a record is not whole yet: seldom, and not with each message.
            while incoming.pending:
                if not self._missing:
                    # No record has more than that, so nothing of it is left behind.
                    self._take(tls.read(_RECORD_SIZE), messages)
                    continue
                count = tls.read(self._missing, self._body[-self._missing :])
                assert isinstance(count, int)
                self._missing -= count
                if not self._missing:
                    body, self._body = self._body.toreadonly(), _NO_BODY
                    messages.append(self._parts(body))
                    if tls.pending():
                        self._take(tls.read(_RECORD_SIZE), messages)
        except ssl.SSLWantReadError:
            return

    def _take(self, data: bytes, messages: list[list[memoryview]]) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        view = memoryview(data)
        while end - at >= HEAD_SIZE:
            first, second = unpack_head(data, at)
            if not 0 < first <= PART_SIZE_MAX or second > PART_SIZE_MAX + 1:
                raise ProtocolError("part of no size that there is", sizes=(first, second))
            at += HEAD_SIZE
            # One more than its size, where there is a second part.
            after = at + first + (second - 1 if second else 0)
            if after > end:
                self._first_size, self._has_second = first, second > 0
                body = bytearray(after - at)
                body[: end - at] = view[at:]
                self._body, self._missing = memoryview(body), after - end
                return
            part = view[at : at + first]
            messages += ([part, view[at + first : after]] if second else [part],)
            at = after
        self._rest = data[at:]

    def _parts(self, body: memoryview) -> list[memoryview]:
        first = self._first_size
        return [body[:first], body[first:]] if self._has_second else [body]
