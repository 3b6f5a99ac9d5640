"""Connections of RocketMQ's clients: TCP, one ``epoll`` for all, commands in, replies out.

An idle connection costs a descriptor and a small object. A connection that sends what is no
command, or does not read what it asked for, is closed, and no other one is harmed.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from ledgermq.broker.callers import PortClient
from ledgermq.formats.first_bytes import REMOTING_FRAME_MAX
from ledgermq.formats.records.host_address import plain_address
from ledgermq.gateway.transport.tls_channel import HANDSHAKE, READ_SIZE, TlsChannel
from ledgermq.hosts.address_share import share_of
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter
from ledgermq.sessions.socket_watch import REPORTED_MAX, Strangers

logger = logging.getLogger(__name__)

ACCEPTED_PER_TURN = 64
BYTES_PER_TURN = 8 * 1024 * 1024
"""What is read in one turn, before bells and timers get theirs; epoll tells of the rest again."""

PARTS_PER_WRITE = 64
IDLE_MS = 120_000
"""RocketMQ's ``serverChannelMaxIdleTimeSeconds``: with neither a byte in nor one out."""

IDLE_LOOK_MS = 1_000

Address = tuple[str, int]
"""Host and port; the host is an address of this machine."""


class RemotingLimits(NamedTuple):
    """What one port bears.

    Attributes:
        connections: open at a time; where more come, those make room that have not asked for
            anything yet, and else the new ones are closed.
        connections_per_address: of them, those of one host (``share_of``).
        only_tls: who does not begin with a handshake is closed.
        unread_bytes: of replies that one connection may leave before it is asked to read first.
        queued_bytes: replies of one connection that wait for it to read; more, and it is closed.
        answers_bytes: replies of all connections that wait for them to read; when it is more, the
            connections that leave most of them unread are closed.
        frame_size: of a request.
        unfinished_bytes: of requests that are not whole yet, of all connections together; when it
            is more, the connections that keep the largest parts are closed.
        idle_ms: a connection is closed when nothing came or went for so long.
    """

    connections: int = 20_000
    connections_per_address: int = 20_000
    only_tls: bool = False
    unread_bytes: int = 8 * 1024 * 1024
    queued_bytes: int = 64 * 1024 * 1024
    answers_bytes: int = 256 * 1024 * 1024
    frame_size: int = REMOTING_FRAME_MAX
    unfinished_bytes: int = 128 * 1024 * 1024
    idle_ms: int = IDLE_MS


_GONE = select.EPOLLHUP | select.EPOLLERR


class Connection(PortClient):
    """One client's.

    Attributes:
        peer: its address, as it is the born host of what it sends.
        fd: its descriptor while it is open.
        number: no other connection of this process had it or will have it.
        share: whose share it takes.
        is_stranger: no command has come over it yet.
        is_open: cleared when it is closed, by whichever side; what is sent then goes nowhere.
    """

    __slots__ = (
        "_is_begun",
        "_queued",
        "_sock",
        "_splitter",
        "_tls",
        "_waits_for_room",
        "fd",
        "is_open",
        "is_stranger",
        "last_ms",
        "number",
        "peer",
        "queued_bytes",
        "share",
        "unfinished_bytes",
    )

    def __init__(
        self, sock: socket.socket, peer: Address, number: int, frame_size: int, now_ms: int
    ) -> None:
        self._sock = sock
        self.fd = sock.fileno()
        self._splitter = FrameSplitter(frame_size)
        self._queued: deque[bytes | memoryview] = deque()
        self._waits_for_room = False
        self._is_begun = False
        self._tls: TlsChannel | None = None
        self.peer = peer
        self.number = number
        self.share = share_of(peer[0])
        self.is_stranger = True
        self.is_open = True
        self.queued_bytes = 0
        self.unfinished_bytes = 0
        self.last_ms = now_ms

    @property
    def is_sealed(self) -> bool:
        """Whether it has TLS."""
        return self._tls is not None


class Arrival(NamedTuple):
    """A command that has come."""

    connection: Connection
    command: Command


class RemotingSockets:
    """The listening sockets and all connections; ``fileno`` is readable when there is work.

    Invariants: a connection is in ``_idle`` exactly while it is open, the one that was used longest
    ago first; ``EPOLLOUT`` is asked for exactly while it has bytes queued; ``_unfinished`` and
    ``_unread`` are the sums of all open connections', and ``_of_share`` counts these.

    Attributes:
        limits: what it bears; may be replaced.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        limits: RemotingLimits,
        *,
        now_ms: int,
        wait_ms: int = 0,
        note_ended: Callable[[], object] = lambda: None,
    ) -> None:
        """Take connections of ``listeners``, non-blocking ones, which it closes at its end.

        Args:
            listeners: see there.
            limits: see there.
            now_ms: monotonic time.
            wait_ms: for so long connections are not taken before ``listen``; they wait, too.
            note_ended: called for each connection that is closed for a limit of all together.
        """
        self.limits = limits
        self._note_ended = note_ended
        self._of_share: Counter[str] = Counter()
        self._strangers = Strangers()
        self._unread = 0
        self.tls: ssl.SSLContext | None = None
        self._now_ms = now_ms
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._connections: dict[int, Connection] = {}
        self._idle: OrderedDict[int, Connection] = OrderedDict()
        self._closed: list[Connection] = []
        self._unsent: dict[int, Connection] = {}
        self._reported: set[str] = set()
        self._count = 0
        self._unfinished = 0
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._epoll = select.epoll()
        # No connection is idle for too long before.
        self._idle_look_ms = 0
        self._listens_at_ms: int | None = now_ms + wait_ms
        if not wait_ms:
            self.listen()

    @property
    def can_be_reached(self) -> bool:
        """Always: who connects before ``listen`` waits."""
        return True

    def listen(self) -> None:
        """Take connections from now on, those that wait first."""
        if self._listens_at_ms is None:
            return
        self._listens_at_ms = None
        for fd in self._listeners:
            self._epoll.register(fd, select.EPOLLIN)

    @property
    def addresses(self) -> list[Address]:
        """Where it listens; a port was chosen by the system when 0 was asked for."""
        names = [listener.getsockname() for listener in self._listeners.values()]
        return [(str(name[0]), int(name[1])) for name in names]

    @property
    def count(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    def fileno(self) -> int:
        """Descriptor of all sockets, for the poll set of the process."""
        return self._epoll.fileno()

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` listens, or closes the next idle connection; None while there is none."""
        if not self._idle:
            return self._listens_at_ms
        return self._deadline_ms(next(iter(self._idle.values())))

    def turn(self, now_ms: int, *, unread: Container[int] = ()) -> Iterator[Arrival]:
        """What has come, connection by connection, in the order in which each has sent it.

        To be gone through to its end. Bodies are views that keep what was read alive.

        Args:
            unread: numbers of connections that are not read from now.
        """
        self._now_ms = now_ms
        if self._listens_at_ms is not None and now_ms >= self._listens_at_ms:
            self.listen()
        budget = BYTES_PER_TURN
        for fd, events in self._epoll.poll(0):
            if fd in self._listeners:
                self._accept(self._listeners[fd])
                continue
            connection = self._connections.get(fd)
            # Closed meanwhile, by what this turn has taken before it.
            if connection is None:
                continue
            if events & select.EPOLLOUT:
                self._write(connection)
            if connection.number in unread:
                if events & _GONE:
                    # Nobody is there to be answered; requests that wait learn of it so.
                    self.close_one(connection, "")
                continue
            if events & ~select.EPOLLOUT and connection.is_open and budget > 0:
                data = self._read(connection)
                budget -= len(data)
                if not connection._is_begun or connection._tls is not None:
                    data = data and self._opened(connection, data)
                if data:
                    yield from self._commands(connection, data)
                    if connection._splitter.waiting != connection.unfinished_bytes:
                        self._count_unfinished(connection)
        if now_ms >= self._idle_look_ms:
            self._close_idle()

    def send(self, connection: Connection, command: Command) -> None:
        """Queue a command for a client; ``flush`` writes it. Nothing is done when it has gone."""
        if connection.is_open:
            self._queue(connection, encode_command(command))

    def send_bytes(self, connection: Connection, data: bytes) -> None:
        """Queue a whole encoded command; see ``send``."""
        if connection.is_open:
            if connection._tls is not None:
                data = connection._tls.seal([data])
            connection._queued.append(data)
            size = len(data)
            if (
                connection.queued_bytes + size > self.limits.queued_bytes
                or self._unread + size > self.limits.answers_bytes
            ):
                self._note_queued(connection, size)
                return
            # As ``_note_queued``, with each reply to a message.
            connection.queued_bytes += size
            self._unread += size
            self._unsent[connection.fd] = connection

    def _queue(self, connection: Connection, parts: Sequence[bytes | memoryview]) -> None:
        if connection._tls is not None:
            parts = [connection._tls.seal(parts)]
        connection._queued.extend(parts)
        self._note_queued(connection, sum(map(len, parts)))

    def _note_queued(self, connection: Connection, size: int) -> None:
        connection.queued_bytes += size
        self._unread += size
        if connection.queued_bytes > self.limits.queued_bytes:
            self._note_ended()
            limit = self.limits.queued_bytes
            self.close_one(connection, f"does not read: limits.unread_replies_bytes_max is {limit}")
            return
        self._unsent[connection.fd] = connection
        if self._unread > self.limits.answers_bytes:
            self._close_unread()

    def _close_unread(self) -> None:
        """What can be written makes room; then those go that leave most unread."""
        self.flush()
        limit = self.limits.answers_bytes
        while self._unread > limit:
            largest = max(self._connections.values(), key=lambda one: one.queued_bytes)
            self._note_ended()
            self.close_one(
                largest, f"leaves most replies unread: limits.total_answers_bytes is {limit}"
            )

    def flush(self) -> None:
        """Write what was queued since the last turn, as far as it goes without waiting."""
        unsent, self._unsent = self._unsent, {}
        for connection in unsent.values():
            if connection.is_open and not connection._waits_for_room:
                self._write(connection)

    @property
    def has_closed(self) -> bool:
        """Whether ``take_closed`` has something to give."""
        return bool(self._closed)

    def take_closed(self) -> list[Connection]:
        """Connections that have ended since the last call, by whichever side."""
        closed, self._closed = self._closed, []
        return closed

    def end(self, connection: Connection, reason: str) -> None:
        """Write what was queued, as far as it goes, and end a connection; logs the reason."""
        if connection.is_open:
            self._write(connection)
        self.close_one(connection, reason)

    def close_one(self, connection: Connection, reason: str) -> None:
        """End a connection; the reason is logged, once for each host and reason."""
        if not connection.is_open:
            return
        key = f"{connection.peer[0]} {reason}"
        if reason and key not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(key)
            logger.warning("connection closed: peer=%s:%d reason=%s", *connection.peer, reason)
        fd = connection.fd
        connection.is_open = False
        connection._queued.clear()
        self._unfinished -= connection.unfinished_bytes
        self._unread -= connection.queued_bytes
        connection.queued_bytes = 0
        share = connection.share
        self._strangers.discard(connection)
        self._of_share[share] -= 1
        if not self._of_share[share]:
            del self._of_share[share]
        del self._connections[fd], self._idle[fd]
        self._unsent.pop(fd, None)
        self._epoll.unregister(fd)
        connection._sock.close()
        self._closed.append(connection)

    def close(self) -> None:
        """End all connections, and listen no more."""
        for connection in list(self._connections.values()):
            self.close_one(connection, "")
        for listener in self._listeners.values():
            listener.close()
        self._epoll.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # It has gone again, or no descriptor is left: those that are open go on.
                self._report(f"connection not accepted: {error.strerror}")
                return
            host = plain_address(str(peer[0]))
            refusal = self._refusal(share_of(host))
            if refusal:
                self._note_ended()
                self._report(f"connection refused: {refusal}")
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address = (host, int(peer[1]))
            self._count += 1
            connection = Connection(
                sock, address, self._count, self.limits.frame_size, self._now_ms
            )
            self._of_share[connection.share] += 1
            self._strangers.add(connection.share, connection, partial(self._give_way, connection))
            fd = connection.fd
            self._connections[fd] = self._idle[fd] = connection
            self._epoll.register(fd, select.EPOLLIN)

    def _refusal(self, share: str) -> str:
        """Why one more connection of a share is not taken, although strangers make room; empty when
        it is.
        """
        limits = self.limits
        most = limits.connections_per_address
        if self._of_share[share] >= most and not self._strangers.give_way(share):
            return f"{most} of {share} are open, as many as limits.connections_per_address"
        if len(self._connections) >= limits.connections and not self._strangers.give_way():
            return f"{limits.connections} are open, as many as remoting.connections_max"
        return ""

    def _give_way(self, connection: Connection) -> None:
        self._note_ended()
        self.close_one(connection, "has asked for nothing, and there was no room for others")

    def _is_known(self, connection: Connection) -> None:
        connection.is_stranger = False
        self._strangers.discard(connection)

    def _read(self, connection: Connection) -> bytes:
        """What can be read now; a connection at its end is closed, and gives nothing."""
        try:
            # Into one buffer: to have one of this size made for each read costs ten times the read.
            size = connection._sock.recv_into(self._buffer)
            data = bytes(self._buffer[:size])
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.close_one(connection, "")
        return data

    def _opened(self, connection: Connection, data: bytes) -> bytes:
        """What a client has written: ``data`` itself, unless it is TLS."""
        if not connection._is_begun:
            connection._is_begun = True
            if data[0] == HANDSHAKE and self.tls is not None:
                connection._tls = TlsChannel(self.tls)
            elif data[0] == HANDSHAKE:
                self.close_one(connection, "wants TLS, for which the node has no certificate")
                return b""
            elif self.limits.only_tls:
                self.close_one(connection, "wants no TLS, which remoting.tls_mode enforces")
                return b""
        tls = connection._tls
        if tls is None:
            return data
        reason = ""
        try:
            data = tls.open(data)
        except ProtocolError as error:
            data, reason = b"", str(error)
        sent = tls.take_sent()
        if sent:
            connection._queued.append(sent)
            self._note_queued(connection, len(sent))
        if reason or (tls.has_ended and not data):
            # What TLS has to say of it goes out before that.
            self._write(connection)
            self.close_one(connection, reason)
        return data

    def _commands(self, connection: Connection, data: bytes) -> Iterator[Arrival]:
        if not connection.is_open:
            # What TLS had to say to it was more than it reads.
            return
        try:
            frame = connection._splitter.whole(data)
            if frame is not None:
                command = decode_command(frame)
                if connection.is_stranger:
                    self._is_known(connection)
                self._touch(connection)
                yield tuple.__new__(Arrival, (connection, command))
                return
            for frame in connection._splitter.feed(data):
                command = decode_command(frame)
                if connection.is_stranger:
                    self._is_known(connection)
                if connection.last_ms != self._now_ms:
                    self._touch(connection)
                yield tuple.__new__(Arrival, (connection, command))
                if not connection.is_open:
                    return
        except ProtocolError as error:
            self.close_one(connection, str(error))

    def _count_unfinished(self, connection: Connection) -> None:
        """Whoever sends large requests in small pieces may not take the memory of all others."""
        if not connection.is_open:
            return
        waiting = connection._splitter.waiting
        self._unfinished += waiting - connection.unfinished_bytes
        connection.unfinished_bytes = waiting
        while self._unfinished > self.limits.unfinished_bytes:
            largest = max(self._connections.values(), key=lambda one: one.unfinished_bytes)
            self._note_ended()
            self.close_one(
                largest,
                "keeps the largest request that is not whole: limits.total_unread_bytes is"
                f" {self.limits.unfinished_bytes}",
            )

    def _touch(self, connection: Connection) -> None:
        if connection.last_ms != self._now_ms:
            connection.last_ms = self._now_ms
            self._idle.move_to_end(connection.fd)

    def _write(self, connection: Connection) -> None:
        queued = connection._queued
        while queued:
            try:
                if len(queued) == 1:
                    written = connection._sock.send(queued[0])
                else:
                    written = connection._sock.sendmsg(list(islice(queued, PARTS_PER_WRITE)))
            except BlockingIOError:
                break
            except OSError:
                self.close_one(connection, "")
                return
            self._touch(connection)
            connection.queued_bytes -= written
            self._unread -= written
            if not connection.queued_bytes:
                queued.clear()
                break
            while queued and written >= len(queued[0]):
                written -= len(queued.popleft())
            if written:
                queued[0] = memoryview(queued[0])[written:]
        if connection._waits_for_room == bool(queued):
            return
        connection._waits_for_room = bool(queued)
        events = select.EPOLLIN | (select.EPOLLOUT if queued else 0)
        self._epoll.modify(connection.fd, events)

    def _close_idle(self) -> None:
        while self._idle:
            connection = next(iter(self._idle.values()))
            deadline_ms = self._deadline_ms(connection)
            if deadline_ms > self._now_ms:
                # Not later, for there may be other limits meanwhile.
                self._idle_look_ms = min(deadline_ms, self._now_ms + IDLE_LOOK_MS)
                return
            self.close_one(connection, "")

    def _deadline_ms(self, connection: Connection) -> int:
        return connection.last_ms + self.limits.idle_ms

    def _report(self, text: str) -> None:
        if text not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(text)
            logger.warning("%s", text)
