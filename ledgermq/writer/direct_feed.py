"""Connections of this node's writer to the writers of other members, which may lead.

A raft process that has a direct connection to this node's one says there where its writer awaits
this one (``raft_node/peers/direct_peers.py``); this writer dials, and shows the certificate of its
own raft process, which the other one believes. What goes wrong leaves the members with the
connection of the two raft processes.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket

from ledgermq.hosts.host_name import socket_address
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import FeedFrom
from ledgermq.ipc.page_slots import names_of
from ledgermq.members.direct_connection import (
    WRITER_PROTOCOL,
    DirectConnection,
    tls_context,
)
from ledgermq.members.roster import MEMBERS_MAX
from ledgermq.model.ids import NodeId
from ledgermq.writer.followed_run import Fed

logger = logging.getLogger(__name__)


class DirectFeed:
    """The real ``MemberFeed``, owned by the writer process. Nothing here blocks.

    Invariant: one connection a member, to the very certificate that raft has named.
    """

    def __init__(self) -> None:
        """Nothing is opened but the poll set."""
        self._poll = select.epoll()
        self._by_descriptor: dict[int, DirectConnection] = {}
        self._by_peer: dict[NodeId, DirectConnection] = {}

    @property
    def sources(self) -> list[Pollable]:
        return [self._poll.fileno()]

    def dial(self, order: FeedFrom) -> None:
        """Connect as ``order`` says; why that could not be begun is told in the log."""
        peer = next(iter(names_of([order.peer])), NodeId(""))
        self._end(peer, "a newer connection")
        if len(self._by_peer) >= MEMBERS_MAX:
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
        self._by_descriptor[connection.descriptor] = connection
        self._by_peer[peer] = connection

    def take(self) -> list[Fed]:
        """What has come over all connections, in the order of each."""
        found: list[Fed] = []
        for descriptor, events in self._poll.poll(0):
            connection = self._by_descriptor.get(descriptor)
            if connection is None or connection.peer is None:
                continue
            peer = connection.peer
            if events & select.EPOLLOUT:
                connection.go_on()
            if not connection.failure and events & ~select.EPOLLOUT:
                found += [(peer, parts) for parts in connection.receive()]
            if connection.failure:
                self._end(peer, connection.failure)
        return found

    def send(self, peer: NodeId, reply: bytes) -> None:
        """Answer ``peer``; without a connection, or where it takes none, the answer is lost."""
        connection = self._by_peer.get(peer)
        if connection is not None and connection.is_open:
            connection.send(reply)
            if connection.failure:
                self._end(peer, connection.failure)

    def close(self) -> None:
        """End all connections."""
        for peer in list(self._by_peer):
            self._end(peer, "this node stops")
        self._poll.close()

    def _end(self, peer: NodeId, reason: str) -> None:
        connection = self._by_peer.pop(peer, None)
        if connection is not None:
            connection.end(reason)
            del self._by_descriptor[connection.descriptor]
            logger.info("no connection to a leader: peer=%s reason=%s", peer, connection.failure)
