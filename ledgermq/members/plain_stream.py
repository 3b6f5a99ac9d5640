"""Plain form of a connection's TLS records and messages, by the objects of Python's ``ssl``.

It does what ``formats/kernels/_secure.pyx`` does where that is not built, or Python has loaded
another library than OpenSSL 3.
"""

from __future__ import annotations

import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence

from ledgermq.wire.byte_stream import HEAD_SIZE, pack_head, unpack_head

TAKEN_SIZE = 256 * 1024
"""Bytes taken in one turn; the kernel is asked again in the next one."""

_RECORD_SIZE = 16 * 1024
"""What one record of TLS holds at most."""

_JOINED_MAX = 8 * 1024
"""Parts up to this size share a record with what stands before them."""

_NO_BODY = memoryview(b"")


def plain_context(
    pem: bytes,
    believed: Iterable[bytes],
    protocols: Sequence[str],
    *,
    is_server: bool,
    verify_flags: int,
) -> ssl.SSLContext:
    """What is shown and believed; see ``tls_context`` of ``members/direct_connection.py``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags(verify_flags)
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


class PlainStream(ABC):
    """The bytes of one connection; what seldom happens to it is its subclass's.

    Attributes:
        descriptor: of the socket.
        is_open: the handshake is over.
        failure: why it has ended; empty while it has not.
        awaits_room: what ``await_room`` was told last.
    """

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        is_server: bool,
        unsent_max: int,
        part_max: int,
    ) -> None:
        """Take a socket that does not block.

        Args:
            connected: the socket; it is the subclass's.
            unsent_max: with more bytes that wait to leave no message is taken.
            part_max: largest part of a message; a peer that sends more is disconnected.
        """
        self.descriptor = connected.fileno()
        self.is_open = False
        self.failure = ""
        self.awaits_room = not is_server
        self._connected = connected
        self._unsent_max, self._part_max = unsent_max, part_max
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._rest = b""
        self._body = _NO_BODY
        self._missing = 0
        self._first_size = 0
        self._has_second = False

    @abstractmethod
    def end(self, reason: str) -> None:
        """Close the socket; nothing more is sent or taken."""

    @abstractmethod
    def await_room(self, wanted: bool) -> None:
        """Say whether ``flush`` is to be called once the socket takes more."""

    @property
    def certificate(self) -> bytes:
        """The other side's (DER), once it is open."""
        return self._tls.getpeercert(binary_form=True) or b""

    @property
    def protocol(self) -> str:
        """The one of ALPN that both sides know, once it is open; empty where there is none."""
        return self._tls.selected_alpn_protocol() or ""

    def send(self, first: bytes, second: bytes | None = None) -> bool:
        """Send a message of one part or of two; false when none is taken now, or it has ended."""
        if not self.is_open or self._unsent_bytes > self._unsent_max:
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
        if self.awaits_room:
            self.flush()
            return not self.failure
        # Nothing waits before it, nearly always, and the kernel takes all of it.
        data = self._outgoing.read()
        try:
            sent = self._connected.send(data)
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
            data = self._connected.recv(TAKEN_SIZE)
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
            if self.is_open or self.shake_hands():
                self._decrypt(messages)
        except ssl.SSLError as error:
            self.end(f"{error.reason}")
        if self._outgoing.pending and not self.failure:
            self.flush()
        return messages

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is over."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return False
        except ssl.SSLError as error:
            self.end(f"{error.reason}")
            return False
        self.is_open = True
        self.flush()
        return True

    def flush(self) -> None:
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
        self._look_for_room()

    def _keep_unsent(self, data: memoryview) -> None:
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self._look_for_room()

    def _look_for_room(self) -> None:
        is_wanted = bool(self._unsent)
        if is_wanted is not self.awaits_room and not self.failure:
            self.await_room(is_wanted)

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
            return self._connected.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.end(str(error.strerror))
            return 0

    def _decrypt(self, messages: list[list[memoryview]]) -> None:
        tls, incoming = self._tls, self._incoming
        try:
            # An exception where a record is not whole yet: seldom, and not with each message.
            while incoming.pending and not self.failure:
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
            if not 0 < first <= self._part_max or second > self._part_max + 1:
                self.end(f"part of no size that there is: sizes=({first}, {second})")
                return
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
