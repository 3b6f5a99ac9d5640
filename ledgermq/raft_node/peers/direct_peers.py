"""Direct peers: the direct connections of one member, how they come about, and when they end.

Two members that have let one another in over ZeroMQ tell each other there, in the encrypted
connection that proves who says it, a certificate that holds for this life of theirs. The one whose
id is the smaller dials; the other one listens as long as it awaits somebody. Each believes that
certificate and no other. What goes wrong on the way, or later, leaves the two with ZeroMQ's
connection, which stands all the time: nothing depends on this one but how long a message takes.

Where both know of it, the writer of the one has a connection to the writer of the other one, too,
which leads: over the two raft processes' own one it is said where that listens, and the writer
dials. Both show the certificate of their raft process (docs/decisions/0133).
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import select
import socket
import ssl
import subprocess
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from ledgermq.formats.records.host_address import PORT_MAX
from ledgermq.hosts.host_name import socket_address
from ledgermq.ipc.orders import AwaitFollower, FeedFrom
from ledgermq.ipc.page_slots import names_cells
from ledgermq.members.direct_connection import (
    HANDSHAKE_S,
    RAFT_PROTOCOL,
    Context,
    DirectConnection,
    tls_context,
)
from ledgermq.members.direct_listener import HANDSHAKES_MAX, DirectListener
from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peers import Arrived, PeerMessage
from ledgermq.wire.direct_offer import DirectOffer, OfferKind, decode_offer, encode_offer

_DAYS = "3650"


class OwnCertificate:
    """Certificate and key, which are there once the program ``openssl`` has made them.

    Attributes:
        failure: why there will be none; empty as long as there may.
        pem: both, for this node's writer; empty while they are being made.
    """

    def __init__(self, node: NodeId, *, knows_writers: bool) -> None:
        """Nothing is made yet.

        Args:
            knows_writers: it is said to others that writers may connect, too.
        """
        self._knows_writers = knows_writers
        self.failure = ""
        self._node = node
        self._making: subprocess.Popen[bytes] | None = None
        self.pem = b""
        self._der = b""

    def look(self) -> bytes:
        """The certificate (DER); empty while it is being made, which the first look begins."""
        if self._der or self.failure:
            return self._der
        if self._making is None:
            self._begin()
        elif self._making.poll() is not None:
            self._take(self._making)
        return self._der

    def context(self, believed: Iterable[bytes], *, is_server: bool) -> Context:
        """TLS 1.3 that shows this certificate and believes these (DER) alone; see ``look``."""
        protocols = (RAFT_PROTOCOL,) if self._knows_writers else ()
        return tls_context(self.pem, believed, protocols, is_server=is_server)

    def check(self, certificate: bytes) -> None:
        """Go on where ``certificate`` can be believed; see ``look``.

        Raises:
            ProtocolError: it is none.
        """
        try:
            self.context([certificate], is_server=True)
        except OSError as error:
            # Of OpenSSL's for what is none; of the system's where no descriptor is left.
            raise ProtocolError("certificate not taken", reason=error.strerror) from error

    def close(self) -> None:
        """End the program, if it runs."""
        if self._making is not None:
            self._making.kill()
            self._making.communicate()
            self._making = None

    def _begin(self) -> None:
        # A name of its own for each life: two certificates of one name are taken for one another.
        name = f"{self._node}-{secrets.token_hex(8)}"
        command = [
            *("openssl", "req", "-x509", "-nodes", "-days", _DAYS, "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", "-", "-out", "-"),
        ]
        try:
            self._making = subprocess.Popen(  # noqa: S603 - openssl, with words of our own
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self.failure = f"openssl, which makes certificates, was not started: {error.strerror}"

    def _take(self, making: subprocess.Popen[bytes]) -> None:
        # It has ended, and what it has printed fits into a pipe.
        printed, _ = making.communicate()
        self._making = None
        text = printed.decode("ascii", "replace")
        begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
        if making.returncode or begin < 0 or end < 0:
            self.failure = f"openssl made no certificate: status {making.returncode}"
            return
        self.pem = printed
        self._der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])


logger = logging.getLogger(__name__)

AGAIN_S, AGAIN_S_MAX = 1.0, 30.0
"""Seconds between two attempts with one peer, and the most: doubled with each attempt that
fails."""

WAITING_MAX = 32
"""With more messages than that the process is woken for those that its turn leaves."""

Say = Callable[[NodeId, bytes], bool]


class DirectPeers:
    """Owned by ``PeerGroup``, which says who is let in.

    Invariants: ``open`` has one connection a peer, to the very certificate that this peer has told
    over a connection that was let in; a peer that is not let in any more has none.

    Attributes:
        open: by peer.
        source: wakes the process when anything can be read.
    """

    def __init__(self, own: NodeId, host: str, *, port: int, knows_writers: bool, say: Say) -> None:
        """Nothing is opened but the poll set.

        Args:
            host: numeric, to listen at.
            port: to listen at; 0: any that is free.
            knows_writers: writers may connect, too, and be connected.
            say: hands a part to ZeroMQ's connection to a peer.
        """
        self.open: dict[NodeId, DirectConnection] = {}
        self._own = own
        self._host = host
        self._port = port
        self._say = say
        self._certificate = OwnCertificate(own, knows_writers=knows_writers)
        self._believed: dict[NodeId, bytes] = {}
        self._shaking: dict[DirectConnection, tuple[float, NodeId | None]] = {}
        self._by_descriptor: dict[int, DirectConnection] = {}
        self._again: dict[NodeId, tuple[float, float]] = {}
        self._told: dict[NodeId, str] = {}
        self._messages: deque[Arrived] = deque()
        self._ended: set[NodeId] = set()
        self._was_looked = False
        self._poll = select.epoll()
        self._listener = DirectListener(self._poll)
        self.source = self._poll.fileno()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.EPOLLIN)
        self._is_rung = False

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool | None:
        """Send a message; false when none is taken now, None when it has to go over ZeroMQ."""
        connection = self.open.get(peer)
        first, *rest = parts
        if connection is None or rest[1:]:
            return None
        is_sent = connection.send(first, rest[0] if rest else None)
        if connection.failure:
            # Its socket has left the poll set, and does not tell of that.
            self._note_end(connection, peer)
            self._ring()
            return None
        return is_sent

    def knows_feeding(self, peer: NodeId) -> bool:
        """Whether ``peer`` has a direct connection, and knows of those that writers make."""
        connection = self.open.get(peer)
        return connection is not None and connection.protocol != ""

    def await_follower(self, peer: NodeId) -> AwaitFollower | None:
        """What has this node's writer await that of ``peer``; None where nothing is known of it any
        more.
        """
        believed = self._believed.get(peer)
        if believed is None or not self.knows_feeding(peer):
            return None
        name, *_ = names_cells([peer])
        port = self._port + 1 if self._port else 0
        return AwaitFollower(name, port, self._host, self._certificate.pem, believed)

    def feed_from(self, peer: NodeId, port: int) -> FeedFrom | None:
        """What has this node's writer dial ``peer``, which awaits it at ``port``; None where
        nothing is known of it any more.
        """
        connection, believed = self.open.get(peer), self._believed.get(peer)
        if connection is None or believed is None or not 0 < port <= PORT_MAX:
            return None
        name, *_ = names_cells([peer])
        return FeedFrom(name, port, connection.host, self._certificate.pem, believed)

    def receive(self) -> PeerMessage | None:
        """The next message of a peer, None when none waits.

        Behind what had come when it was looked, None once: ``source`` tells of what came meanwhile.
        """
        messages = self._messages
        if not messages:
            if self._was_looked:
                self._was_looked = False
                return None
            if not self.arrived():
                return None
            self._was_looked = True
        node, parts = messages.popleft()
        if self._is_rung:
            self._unring()
        return PeerMessage(node, parts)

    def arrived(self) -> deque[Arrived]:
        """All messages that wait, for the caller to take: see ``Peers``."""
        messages = self._messages
        if messages:
            return messages
        if self._is_rung:
            self._unring()
        for descriptor, events in self._poll.poll(0):
            connection = self._by_descriptor.get(descriptor)
            if connection is not None:
                self._serve(connection, events)
            elif descriptor == self._listener.descriptor:
                self._accept()
        if len(messages) > WAITING_MAX:
            self._ring()
        return messages

    def ended(self) -> Sequence[NodeId]:
        """Peers whose connection has ended by itself since the last call; see ``Peers``."""
        if not self._ended or self._messages:
            return ()
        ended = sorted(self._ended)
        self._ended.clear()
        return ended

    def watch(self, now: float, wanted: Collection[NodeId]) -> None:
        """Begin what is due, end what takes too long; a few times a second.

        Args:
            now: seconds, of a clock that only goes on.
            wanted: peers that are let in, and know of direct connections.
        """
        for peer in [one for one in self._believed if one not in wanted]:
            self.drop(peer)
        if any(peer not in self.open for peer in wanted):
            # Also of who will be dialled: it has to be there when the offer comes.
            self._certificate.look()
        for peer in self.open:
            if now >= self._due_at(peer) + AGAIN_S_MAX:
                self._again.pop(peer, None)
        for connection, (until, dialled) in list(self._shaking.items()):
            if now >= until:
                connection.end("no handshake in time")
                self._note_end(connection, dialled)
        self._listener.look(now)
        due = [
            peer
            for peer in wanted
            if self._own < peer and peer not in self.open and now >= self._due_at(peer)
        ]
        if not due:
            return
        certificate = self._certificate.look()
        if self._certificate.failure:
            for peer in due:
                self._fail(peer, self._certificate.failure, now)
        elif certificate:
            offer = encode_offer(DirectOffer(OfferKind.OFFER, 0, certificate))
            for peer in due:
                self._wait_longer(peer, now)
                self._say(peer, offer)

    def take_offer(self, peer: NodeId, part: bytes, address: str, now: float) -> None:
        """What ``peer``, which was just let in, has said of a direct connection.

        Args:
            address: of the host that it has said it from.

        Raises:
            ProtocolError: it is no offer, or without a certificate.
        """
        offer = decode_offer(part)
        certificate = self._certificate.look()
        if (offer.kind is OfferKind.OFFER) is not (peer < self._own):
            raise ProtocolError("offer of a direct connection by who should await one", peer=peer)
        if not certificate:
            # It is being made, or there will be none: the other side asks again.
            return
        if self._believed.get(peer) != offer.certificate:
            self._certificate.check(offer.certificate)
            self.drop(peer)
            self._believed[peer] = offer.certificate
        if offer.kind is OfferKind.INVITATION:
            self._dial(peer, address, offer.port, now)
        elif port := self._listen(peer, now):
            self._say(peer, encode_offer(DirectOffer(OfferKind.INVITATION, port, certificate)))

    def drop(self, peer: NodeId) -> None:
        """``peer`` is not let in, or begins anew: nothing of it is believed."""
        self._believed.pop(peer, None)
        connection = self.open.pop(peer, None)
        if connection is not None:
            connection.end("no longer let in")
            self._forget(connection)
            kept = [message for message in self._messages if message[0] != peer]
            self._messages.clear()
            self._messages.extend(kept)
            self._unring()

    def close(self) -> None:
        """Close everything."""
        self._certificate.close()
        for connection in list(self._by_descriptor.values()):
            connection.end("this node stops")
        self._by_descriptor.clear()
        self.open.clear()
        self._listener.close()
        os.close(self._bell)
        self._poll.close()

    def _serve(self, connection: DirectConnection, events: int) -> None:
        node = connection.peer
        if node is not None and events == select.EPOLLIN:
            messages = self._messages
            for parts in connection.receive():
                messages += ((node, parts),)
            if connection.failure:
                self._note_end(connection, node)
            return
        received: list[list[memoryview]] = []
        if events & select.EPOLLOUT:
            connection.go_on()
        if not connection.failure and events & ~select.EPOLLOUT:
            received = connection.receive()
        if connection.is_open and connection in self._shaking:
            self._opened(connection)
        if connection.peer is not None and not connection.failure:
            self._messages += [(connection.peer, parts) for parts in received]
        if connection.failure:
            known = connection.peer
            _, dialled = self._shaking.get(connection, (0.0, None))
            self._note_end(connection, known or dialled)

    def _opened(self, connection: DirectConnection) -> None:
        """The handshake is over: whose certificate it was with says whose connection this is."""
        _, dialled = self._shaking.pop(connection)
        certificate = connection.certificate
        node = next((one for one, der in self._believed.items() if der == certificate), None)
        if node is None or dialled not in (None, node):
            connection.end("certificate of nobody who was asked")
            return
        older = self.open.pop(node, None)
        if older is not None:
            older.end("a newer connection")
            self._forget(older)
        self.open[node] = connection
        connection.peer = node
        self._told.pop(node, None)
        logger.info("direct connection: peer=%s", node)

    def _note_end(self, connection: DirectConnection, peer: NodeId | None) -> None:
        if peer is not None and self.open.get(peer) is connection:
            del self.open[peer]
            self._ended.add(peer)
        if peer is not None:
            self._tell(peer, connection.failure)
        self._forget(connection)

    def _forget(self, connection: DirectConnection) -> None:
        self._by_descriptor.pop(connection.descriptor, None)
        connection.peer = None
        self._shaking.pop(connection, None)

    def _dial(self, peer: NodeId, address: str, port: int, now: float) -> None:
        if len(self._shaking) >= HANDSHAKES_MAX or peer in self.open:
            return
        if any(dialled == peer for _, dialled in self._shaking.values()):
            return
        try:
            family, target = socket_address(address, port)
            dialling = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self._fail(peer, f"address {address}: {error}", now)
            return
        number = dialling.connect_ex(target)
        if number not in (0, errno.EINPROGRESS):
            dialling.close()
            self._fail(peer, f"not connected: {os.strerror(number)}", now)
            return
        failure = self._begin(dialling, [self._believed[peer]], peer, now)
        if failure:
            self._fail(peer, failure, now)

    def _listen(self, peer: NodeId, now: float) -> int:
        """Be there for ``peer``; the port, 0 where that cannot be."""
        try:
            return self._listener.open(self._host, self._port, now)
        except OSError as error:
            self._fail(peer, f"not listening at {self._host}:{self._port}: {error.strerror}", now)
            return 0

    def _accept(self) -> None:
        failure = ""
        try:
            accepted = self._listener.accept(len(self._shaking))
        except OSError as error:
            failure = str(error.strerror)
        else:
            if accepted is not None:
                believed = self._believed.values()
                failure = self._begin(accepted, believed, None, self._listener.until)
        if failure:
            logger.info("direct connection not accepted: %s", failure)

    def _begin(
        self, own: socket.socket, believed: Iterable[bytes], dialled: NodeId | None, now: float
    ) -> str:
        """Begin a handshake; why it could not be, and is closed: empty when it has begun."""
        is_server = dialled is None
        try:
            context = self._certificate.context(believed, is_server=is_server)
            connection = DirectConnection(own, context, self._poll, is_server=is_server)
        except OSError as error:
            # No descriptor is left, say.
            own.close()
            return str(error.strerror)
        self._by_descriptor[connection.descriptor] = connection
        self._shaking[connection] = (now + HANDSHAKE_S, dialled)
        return ""

    def _ring(self) -> None:
        if not self._is_rung:
            self._is_rung = True
            os.eventfd_write(self._bell, 1)

    def _unring(self) -> None:
        if self._is_rung and not self._messages:
            self._is_rung = False
            os.eventfd_read(self._bell)

    def _due_at(self, peer: NodeId) -> float:
        return self._again.get(peer, (0.0, 0.0))[0]

    def _wait_longer(self, peer: NodeId, now: float) -> None:
        wait_s = self._again.get(peer, (0.0, 0.0))[1] or AGAIN_S
        self._again[peer] = (now + wait_s, min(2 * wait_s, AGAIN_S_MAX))

    def _fail(self, peer: NodeId, reason: str, now: float) -> None:
        self._wait_longer(peer, now)
        self._tell(peer, reason)

    def _tell(self, peer: NodeId, reason: str) -> None:
        """Why there is none, once for each reason in a row."""
        if self._told.get(peer) != reason:
            self._told[peer] = reason
            logger.info("no direct connection: peer=%s reason=%s", peer, reason)
