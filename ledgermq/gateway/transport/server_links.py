"""Outgoing connections of the node: to name servers, and to the leader.

None waits for anything: a connection is made with the first request, ends when nothing comes from
it while an answer stays out, and is made anew with the next request. Where other answers came
meanwhile, whoever waits for the one that is late is told alone. Hosts are addresses: to look a name
up would wait.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.transport.tls_channel import TlsChannel
from ledgermq.hosts.address_share import ip_of
from ledgermq.hosts.host_name import socket_address
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    LedgerError,
    ProtocolError,
    TimedOutError,
)
from ledgermq.remoting.command import ONEWAY, Command, decode_command, encode_handed_on
from ledgermq.remoting.frames import FrameSplitter
from ledgermq.sessions.keys.tls_files import client_context

SERVER_WAITING_MAX = 1_000
UNSENT_MAX = 32 * 1024 * 1024
"""Bytes of requests that a server has not taken yet; one more request is let over that."""

READ_SIZE = 64 * 1024

TakeReply = Callable[[Command | LedgerError], None]


class Authorities(NamedTuple):
    """Who has signed a server's certificate: a PEM file, and the setting that names it."""

    file: Path
    setting: str


class _Waiting(NamedTuple):
    take: TakeReply
    asked_ms: int
    until_ms: int


class ServerLink:
    """One of them. Invariant: whoever asks is told once, the reply or why there is none."""

    def __init__(self, address: str, epoll: select.epoll, authorities: Authorities | None) -> None:
        """Nothing is connected yet.

        Args:
            address: ``HOST:PORT``, the host an address.
            authorities: who has signed the server's certificate, read for each connection; None:
                it is spoken to in clear.
        """
        self.address = address
        self._authorities = authorities
        self._tls: TlsChannel | None = None
        self._unsealed = bytearray()
        self._epoll = epoll
        self._ids = itertools.count(1)
        self._sock: socket.socket | None = None
        self._splitter = FrameSplitter()
        self._unsent = bytearray()
        self._waiting: dict[int, _Waiting] = {}
        self._heard_ms = -1

    @property
    def fileno(self) -> int | None:
        """Descriptor of the connection, while there is one."""
        return None if self._sock is None else self._sock.fileno()

    def next_deadline_ms(self) -> int | None:
        """When the first answer is out for too long."""
        return min((one.until_ms for one in self._waiting.values()), default=None)

    def ask(self, command: Command, *, now_ms: int, timeout_ms: int, take: TakeReply) -> None:
        """Send a request under a number of this link; ``take`` is told later.

        Raises:
            BusyError: too many wait, or too many bytes.
            TimedOutError: the server cannot be reached.
            ProtocolError: the request cannot be handed on; the link, which is that of all, lives.
        """
        if len(self._unsent) + len(self._unsealed) >= UNSENT_MAX:
            raise BusyError("a server takes requests too slowly", limit=UNSENT_MAX)
        if len(self._waiting) >= SERVER_WAITING_MAX:
            raise BusyError("too many requests wait for a server", limit=SERVER_WAITING_MAX)
        self._queue(command)
        # First: writing may find that nobody is there, and tells those who wait.
        self._waiting[command.opaque] = _Waiting(take, now_ms, now_ms + timeout_ms)
        self._write()

    def tell(self, command: Command) -> None:
        """Send what wants no reply, if there is a connection."""
        if self._sock is not None:
            command.flag |= ONEWAY
            self._queue(command)
            self._write()

    def take(self, events: int, now_ms: int) -> None:
        """The connection can be read or written, or has ended."""
        if events & select.EPOLLOUT:
            self._write()
        if events & ~select.EPOLLOUT and self._sock is not None:
            self._read(self._sock, now_ms)

    def expire(self, now_ms: int) -> None:
        """Tell those whose answers stay out; the connection ends where none came since they asked.

        A server that answers others is there, and only slow with one.
        """
        due_ms = self.next_deadline_ms()
        if due_ms is None or due_ms > now_ms:
            return
        late = {number: one for number, one in self._waiting.items() if one.until_ms <= now_ms}
        if any(self._heard_ms <= one.asked_ms for one in late.values()):
            self.close("has not answered in time")
            return
        for number, one in late.items():
            if self._waiting.pop(number, None) is not None:
                one.take(TimedOutError("server has not answered in time", address=self.address))

    def close(self, reason: str = "connection has ended") -> None:
        """End the connection; those who wait are told."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._epoll.unregister(sock.fileno())
            sock.close()
        self._unsent.clear()
        self._unsealed.clear()
        self._tls = None
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.take(TimedOutError("server " + reason, address=self.address))

    def _queue(self, command: Command) -> None:
        if self._sock is None:
            self._connect()
        command.opaque = next(self._ids) % 2**31
        for part in encode_handed_on(command):
            (self._unsent if self._tls is None else self._unsealed).extend(part)
        self._seal()

    def _seal(self) -> None:
        """What waits for the handshake goes out with it."""
        if self._tls is None:
            return
        if self._tls.is_ready and self._unsealed:
            self._unsent += self._tls.seal([bytes(self._unsealed)])
            self._unsealed.clear()
        self._unsent += self._tls.take_sent()

    def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        tls = self._channel()
        try:
            family, target = socket_address(host.strip("[]"), int(port))
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise TimedOutError(
                "server cannot be reached", address=self.address, reason=error.strerror
            ) from error
        number = sock.connect_ex(target)
        if number not in (0, errno.EINPROGRESS):
            sock.close()
            raise TimedOutError(
                "server cannot be reached", address=self.address, reason=os.strerror(number)
            )
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._tls = sock, tls
        self._splitter = FrameSplitter()
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _channel(self) -> TlsChannel | None:
        if self._authorities is None:
            return None
        try:
            context = client_context(self._authorities.file, setting=self._authorities.setting)
        except ConfigError as error:
            raise TimedOutError("server cannot be reached", reason=str(error)) from error
        channel = TlsChannel(context, is_server=False)
        channel.open(b"")
        return channel

    def _write(self) -> None:
        if self._sock is None:
            return
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            # Not connected yet, or its buffer is full: epoll tells.
            pass
        except OSError as error:
            self.close(f"cannot be reached: {error.strerror}")
            return
        events = select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0)
        self._epoll.modify(self._sock.fileno(), events)

    def _read(self, sock: socket.socket, now_ms: int) -> None:
        try:
            data = sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"has gone: {error.strerror}")
            return
        if not data:
            self.close()
            return
        try:
            opened = data if self._tls is None else self._tls.open(data)
            replies = [decode_command(frame) for frame in self._splitter.feed(opened)]
        except ProtocolError as error:
            self.close(f"sends what is no reply: {error}")
            return
        if replies:
            self._heard_ms = now_ms
        for reply in replies:
            waiting = self._waiting.pop(reply.opaque, None) if reply.is_reply else None
            if waiting is not None:
                waiting.take(reply)
        if self._tls is not None:
            self._seal()
            self._write()


class ServerLinks(PortPart):
    """All of them, by address; ``fileno`` can be read when ``turn`` has work."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._links: dict[tuple[str, str], ServerLink] = {}

    def fileno(self) -> int:
        """Descriptor of all links, for the port's poll set."""
        return self._epoll.fileno()

    def to(
        self, address: str, purpose: str = "", *, authorities: Authorities | None = None
    ) -> ServerLink:
        """The link to ``HOST:PORT`` for a purpose, which others do not hold up.

        Args:
            authorities: see ``ServerLink``.
        """
        link = self._links.get((address, purpose))
        if link is None:
            link = ServerLink(address, self._epoll, authorities)
            self._links[address, purpose] = link
        return link

    def drop(self, address: str, purpose: str = "") -> None:
        """End a link, which nobody wants any more; who waits there is told."""
        link = self._links.pop((address, purpose), None)
        if link is not None:
            link.close()

    def add_source(self, descriptor: int) -> None:
        """Have it wake the port while it can be read, which another part sees to."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove_source(self, descriptor: int) -> None:
        """It is closed, and wakes nobody any more."""
        self._epoll.unregister(descriptor)

    def turn(self, now_ms: int) -> None:
        """Take what has come, and end what is late."""
        if not self._links:
            return
        by_fd: Mapping[int | None, ServerLink] = {
            link.fileno: link for link in self._links.values()
        }
        for fd, events in self._epoll.poll(0):
            link = by_fd.get(fd)
            if link is not None and link.fileno == fd:
                link.take(events, now_ms)
        for link in list(self._links.values()):
            link.expire(now_ms)

    def next_deadline_ms(self) -> int | None:
        found = (link.next_deadline_ms() for link in self._links.values())
        return min((one for one in found if one is not None), default=None)

    def close(self) -> None:
        for link in list(self._links.values()):
            link.close()
        self._epoll.close()


def is_address(address: str) -> bool:
    """Whether the host of ``HOST:PORT`` is an address, and no name."""
    return ip_of(address.rpartition(":")[0].strip("[]")) is not None
