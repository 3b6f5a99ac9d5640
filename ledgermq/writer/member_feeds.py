"""Connections of this node's writer and those of other members.

While this node leads, the others' dial; its raft process says whom to await, and which certificate
to believe: that of the other one's raft process, which its writer shows. Where another one leads,
this node's writer dials, as its raft process says (``raft_node/peers/direct_peers.py``). What goes
wrong leaves the members with raft's own connections (docs/decisions/0133).
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time

from ledgermq.hosts.host_name import socket_address
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, FeedFrom
from ledgermq.ipc.page_slots import names_of
from ledgermq.members.direct_connection import (
    HANDSHAKE_S,
    WRITER_PROTOCOL,
    DirectConnection,
    tls_context,
)
from ledgermq.members.direct_listener import DirectListener
from ledgermq.members.roster import MEMBERS_MAX
from ledgermq.model.ids import NodeId
from ledgermq.writer.followed_run import Fed
from ledgermq.writer.led_run import Answers

logger = logging.getLogger(__name__)


class _Feed:
    """Owned by the writer process. Nothing here blocks.

    Invariant: one connection a member, to the very certificate that raft has named.

    Attributes:
        open: connections by member; others only look.
        by_descriptor: all that there are; others only look.
    """

    def __init__(self) -> None:
        """Nothing is opened but the poll set."""
        self._poll = select.epoll()
        self.open: dict[NodeId, DirectConnection] = {}
        self.by_descriptor: dict[int, DirectConnection] = {}

    @property
    def sources(self) -> list[Pollable]:
        return [self.descriptor]

    @property
    def descriptor(self) -> int:
        """The poll set's: it can be read when there is something to do with a connection."""
        return self._poll.fileno()


def _received(connection: DirectConnection, events: int) -> list[list[memoryview]]:
    if events & select.EPOLLOUT:
        connection.go_on()
    return connection.receive() if not connection.failure and events & ~select.EPOLLOUT else []


class LedFeed(_Feed):
    """The real ``FollowerFeed``."""

    def __init__(self) -> None:
        super().__init__()
        self._pem = b""
        self._believed: dict[NodeId, bytes] = {}
        self._shaking: dict[DirectConnection, float] = {}
        self._found: Answers = []
        self._listener = DirectListener(self._poll)

    def await_follower(self, peer: NodeId, order: AwaitFollower) -> int:
        if order.pem != self._pem:
            # Another life of this node's raft process: the others believe its certificate alone.
            self._end_all("another certificate of this node")
            self._pem = order.pem
            self._believed.clear()
        if self._believed.get(peer) != order.believed:
            self._end(self.open.get(peer), "another certificate of the member")
            if len(self._believed) >= MEMBERS_MAX:
                self._believed.clear()
            self._believed[peer] = order.believed
        if peer in self.open:
            return 0
        return self._listen(order)

    def take(self) -> Answers:
        """What has come over all connections, in the order of each."""
        found, self._found = self._found, []
        for descriptor, events in self._poll.poll(0):
            connection = self.by_descriptor.get(descriptor)
            if connection is not None:
                found += self._serve(connection, events)
            elif descriptor == self._listener.descriptor:
                self._accept()
        return found

    def put_back(self, peer: NodeId, messages: list[list[memoryview]]) -> None:
        """Have ``take`` find messages of ``peer`` that were taken of its connection."""
        self._found += [(peer, parts) for parts in messages]

    def note_end(self, peer: NodeId) -> None:
        """The connection to ``peer`` may have ended in the hands of who took messages of it."""
        connection = self.open.get(peer)
        if connection is not None and connection.failure:
            self._end(connection, connection.failure)

    def send(self, peer: NodeId, first: bytes, second: bytes | None = None) -> bool:
        connection = self.open.get(peer)
        if connection is None:
            return False
        is_sent = connection.send(first, second)
        if connection.failure:
            self._end(connection, connection.failure)
        return is_sent

    def look(self) -> None:
        """End handshakes that take too long, and listen to nobody who does not come."""
        now = time.monotonic()
        for connection, until in list(self._shaking.items()):
            if now >= until:
                self._end(connection, "no handshake in time")
        self._listener.look(now)

    def close(self) -> None:
        """End all connections."""
        self._end_all("this node stops")
        self._listener.close()
        self._poll.close()

    def _serve(self, connection: DirectConnection, events: int) -> Answers:
        received = _received(connection, events)
        if connection.is_open and connection in self._shaking:
            self._opened(connection)
        peer = connection.peer
        if connection.failure:
            self._end(connection, connection.failure)
        return [] if peer is None else [(peer, parts) for parts in received]

    def _opened(self, connection: DirectConnection) -> None:
        """The handshake is over: whose certificate it was with says whose connection this is."""
        del self._shaking[connection]
        certificate = connection.certificate
        peer = next((one for one, der in self._believed.items() if der == certificate), None)
        if peer is None or connection.protocol != WRITER_PROTOCOL:
            self._end(connection, "certificate of nobody who was awaited")
            return
        self._end(self.open.get(peer), "a newer connection")
        self.open[peer] = connection
        connection.peer = peer
        logger.info("connection to a follower's writer: peer=%s", peer)

    def _listen(self, order: AwaitFollower) -> int:
        try:
            return self._listener.open(order.host, order.port, time.monotonic())
        except OSError as error:
            logger.info(
                "followers' writers not awaited: address=%s:%s reason=%s",
                *(order.host, order.port, error.strerror),
            )
            return -1

    def _accept(self) -> None:
        accepted: socket.socket | None = None
        try:
            accepted = self._listener.accept(len(self._shaking))
            if accepted is None:
                return
            context = tls_context(
                self._pem, self._believed.values(), (WRITER_PROTOCOL,), is_server=True
            )
            connection = DirectConnection(accepted, context, self._poll, is_server=True)
        except OSError as error:
            # No descriptor is left, say.
            if accepted is not None:
                accepted.close()
            logger.info("connection of a writer not accepted: %s", error.strerror)
            return
        self.by_descriptor[connection.descriptor] = connection
        self._shaking[connection] = time.monotonic() + HANDSHAKE_S

    def _end_all(self, reason: str) -> None:
        for connection in list(self.by_descriptor.values()):
            self._end(connection, reason)

    def _end(self, connection: DirectConnection | None, reason: str) -> None:
        if connection is None:
            return
        connection.end(reason)
        self.by_descriptor.pop(connection.descriptor, None)
        self._shaking.pop(connection, None)
        peer = connection.peer
        if peer is not None and self.open.get(peer) is connection:
            del self.open[peer]
            logger.info(
                "no connection to a follower's writer: peer=%s reason=%s", peer, connection.failure
            )


class DirectFeed(_Feed):
    """The real ``MemberFeed``."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[Fed] = []

    def connection_to(self, peer: NodeId) -> DirectConnection | None:
        """The one to the writer of ``peer``, once it is open."""
        connection = self.open.get(peer)
        return connection if connection is not None and connection.is_open else None

    def put_back(self, peer: NodeId, messages: list[list[memoryview]]) -> None:
        """Have ``take`` find messages of ``peer`` that were taken of its connection."""
        self._found += [(peer, parts) for parts in messages]

    def note_end(self, peer: NodeId) -> None:
        """The connection to ``peer`` may have ended in the hands of who took messages of it."""
        connection = self.open.get(peer)
        if connection is not None and connection.failure:
            self._end(peer, connection.failure)

    def dial(self, order: FeedFrom) -> None:
        """Connect as ``order`` says; why that could not be begun is told in the log."""
        peer = next(iter(names_of([order.peer])), NodeId(""))
        self._end(peer, "a newer connection")
        if len(self.open) >= MEMBERS_MAX:
            return
        try:
            context = tls_context(order.pem, [order.believed], (WRITER_PROTOCOL,), is_server=False)
            family, target = socket_address(order.host, order.port)
            dialling = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            logger.info("leader not dialled: peer=%s reason=%s", peer, error)
            return
        number = dialling.connect_ex(target)
        if number not in (0, errno.EINPROGRESS):
            dialling.close()
            logger.info("leader not dialled: peer=%s reason=%s", peer, os.strerror(number))
            return
        connection = DirectConnection(dialling, context, self._poll, is_server=False)
        connection.peer = peer
        self.by_descriptor[connection.descriptor] = connection
        self.open[peer] = connection

    def take(self) -> list[Fed]:
        """What has come over all connections, in the order of each."""
        found, self._found = self._found, []
        for descriptor, events in self._poll.poll(0):
            connection = self.by_descriptor.get(descriptor)
            if connection is None or connection.peer is None:
                continue
            peer = connection.peer
            found += [(peer, parts) for parts in _received(connection, events)]
            if connection.failure:
                self._end(peer, connection.failure)
        return found

    def send(self, peer: NodeId, reply: bytes) -> None:
        """Answer ``peer``; without a connection, or where it takes none, the answer is lost."""
        connection = self.open.get(peer)
        if connection is not None and connection.is_open:
            connection.send(reply)
            if connection.failure:
                self._end(peer, connection.failure)

    def close(self) -> None:
        """End all connections."""
        for peer in list(self.open):
            self._end(peer, "this node stops")
        self._poll.close()

    def _end(self, peer: NodeId, reason: str) -> None:
        connection = self.open.pop(peer, None)
        if connection is not None:
            connection.end(reason)
            del self.by_descriptor[connection.descriptor]
            logger.info("no connection to a leader: peer=%s reason=%s", peer, connection.failure)
