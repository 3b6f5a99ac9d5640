"""Connections of other members' writers to this node's writer, while this node leads.

This node's raft process says whom to await, and which certificate to believe: that of the other
one's raft process, which its writer shows. What goes wrong leaves the members with raft's own
connections (docs/decisions/0133).
"""

from __future__ import annotations

import logging
import select
import socket
import time

from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower
from ledgermq.members.direct_connection import (
    HANDSHAKE_S,
    WRITER_PROTOCOL,
    DirectConnection,
    tls_context,
)
from ledgermq.members.direct_listener import DirectListener
from ledgermq.members.roster import MEMBERS_MAX
from ledgermq.model.ids import NodeId
from ledgermq.writer.led_run import Answers

logger = logging.getLogger(__name__)


class LedFeed:
    """The real ``FollowerFeed``, owned by the writer process. Nothing here blocks.

    Invariant: one connection a member, to the very certificate that raft has named.
    """

    def __init__(self) -> None:
        """Nothing is opened but the poll set."""
        self._poll = select.epoll()
        self._pem = b""
        self._believed: dict[NodeId, bytes] = {}
        self._open: dict[NodeId, DirectConnection] = {}
        self._shaking: dict[DirectConnection, float] = {}
        self._by_descriptor: dict[int, DirectConnection] = {}
        self._listener = DirectListener(self._poll)

    @property
    def sources(self) -> list[Pollable]:
        return [self._poll.fileno()]

    def await_follower(self, peer: NodeId, order: AwaitFollower) -> int:
        if order.pem != self._pem:
            # Another life of this node's raft process: the others believe its certificate alone.
            self._end_all("another certificate of this node")
            self._pem = order.pem
            self._believed.clear()
        if self._believed.get(peer) != order.believed:
            self._end(self._open.get(peer), "another certificate of the member")
            if len(self._believed) >= MEMBERS_MAX:
                self._believed.clear()
            self._believed[peer] = order.believed
        if peer in self._open:
            return 0
        return self._listen(order)

    def take(self) -> Answers:
        """What has come over all connections, in the order of each."""
        found: Answers = []
        for descriptor, events in self._poll.poll(0):
            connection = self._by_descriptor.get(descriptor)
            if connection is not None:
                found += self._serve(connection, events)
            elif descriptor == self._listener.descriptor:
                self._accept()
        return found

    def send(self, peer: NodeId, first: bytes, second: bytes | None = None) -> bool:
        connection = self._open.get(peer)
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
        received: list[list[memoryview]] = []
        if events & select.EPOLLOUT:
            connection.go_on()
        if not connection.failure and events & ~select.EPOLLOUT:
            received = connection.receive()
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
        self._end(self._open.get(peer), "a newer connection")
        self._open[peer] = connection
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
        self._by_descriptor[connection.descriptor] = connection
        self._shaking[connection] = time.monotonic() + HANDSHAKE_S

    def _end_all(self, reason: str) -> None:
        for connection in list(self._by_descriptor.values()):
            self._end(connection, reason)

    def _end(self, connection: DirectConnection | None, reason: str) -> None:
        if connection is None:
            return
        connection.end(reason)
        self._by_descriptor.pop(connection.descriptor, None)
        self._shaking.pop(connection, None)
        peer = connection.peer
        if peer is not None and self._open.get(peer) is connection:
            del self._open[peer]
            logger.info(
                "no connection to a follower's writer: peer=%s reason=%s", peer, connection.failure
            )
