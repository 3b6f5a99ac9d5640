"""Peers over the network: one socket that receives from all, one to each of them.

One ROUTER receives from all, one DEALER a peer sends. Every message begins with a preamble
(``wire.peer_preamble``) that is checked once for each connection; later ones are compared with it.
Who is refused is told why, and so is the operator: once in the log, and in ``refusals`` as long as
it lasts.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import zmq

from ledgermq.hosts.socket_monitor import monitor_of
from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, FeedFrom
from ledgermq.ipc.zmq_flags import NOBLOCK, POLLIN, has_input
from ledgermq.members.peer_addresses import PeerAddress, parse_peer
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.events import Event
from ledgermq.model.features import LEVEL_OF_DIRECT
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.direct_peers import DirectPeers
from ledgermq.raft_node.peers.peer_admission import Admission, PeerVerdict
from ledgermq.raft_node.peers.peer_presence import PeerPresence, Refusals
from ledgermq.raft_node.peers.peer_sockets import (
    HANDSHAKE_FAILURES,
    HEARTBEATS_QUEUED_MAX,
    PARTS_MAX,
    PeerGuard,
    PeerOutlets,
    Trouble,
    address_of,
    bound_host,
    last_failure,
    open_inbox,
    property_of,
    take_frames,
)
from ledgermq.raft_node.peers.peers import Arrived, PeerMessage
from ledgermq.sessions.keys.peer_keys import PeerKeys, is_alone, keys_directory, load_keys
from ledgermq.wire.direct_offer import OFFER_MAGIC
from ledgermq.wire.peer_preamble import decode_refusal, encode_refusal

logger = logging.getLogger(__name__)

SKIPPED_MAX = 64
"""Most messages that are not let in and are looked at in one call; then the caller has its turn."""

ATTEND_EVERY = 32
"""Handshakes and refusals are attended to after so many messages even if more wait."""

WATCH_S = 0.2

# What a named tuple's own way to be made calls.
_new_tuple = tuple.__new__

HANDSHAKES_ENDED_MAX = 3
"""Handshakes that ended in a row with no member let in between: so many are no accident."""


_FAILURE_REASONS = {
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): (
        "{peer} does not know the key of {node}: the keys in raft.keys_dir there are others"
    ),
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): (
        "{peer} and {node} cannot agree on how to talk: raft.curve differs, or another program"
        " listens there"
    ),
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): (
        "{peer} ended the handshake: it is stopping, or its key is not the one that {node} has"
        " of it in raft.keys_dir"
    ),
}


class _Connection(NamedTuple):
    """A connection whose sender was let in, and the preamble that it was let in with."""

    preamble: bytes
    node: NodeId


class PeerGroup:
    """``Peers`` over sockets to all members but this one; a group of one has none, and touches no
    file.

    Nothing here blocks. Invariants: ``receive`` returns only what comes from members whose preamble
    was let in; with CURVE, whose connection was made with the key of that very member.

    Attributes:
        voters: all members, this one first.
        malformed_count: messages dropped because nothing could be told of them.
    """

    def __init__(
        self,
        context: Context,
        self_id: NodeId,
        addresses: Mapping[NodeId, PeerAddress],
        *,
        admission: Admission | None,
        keys: PeerKeys | None,
        keys_dir: Path,
        queued_max: int,
        direct_port: int | None,
        knows_writers: bool,
    ) -> None:
        """Bind and connect.

        Args:
            addresses: of all members; empty in a group of one.
            admission: who is let in; None in a group of one.
            keys: of CURVE; None: members talk in the clear.
            keys_dir: where the keys of members are that join later.
            queued_max: messages that wait for a peer, and that wait here for being read from it.
            direct_port: where direct connections are awaited, 0: anywhere; None: there are none.
            knows_writers: there may be such of writers, too.

        Raises:
            ConfigError, StorageError: the own address cannot be bound.
        """
        self.voters = (self_id, *(node for node in addresses if node != self_id))
        self.malformed_count = 0
        self._self = self_id
        self._admission = admission
        self._refused_here = Refusals()
        self._refused_there = Refusals()
        self._malformed = Refusals()
        self._connections: dict[bytes, _Connection] = {}
        self._levels: dict[NodeId, int] = {}
        self._levels_refused: dict[NodeId, int] = {}
        self._presence = PeerPresence()
        self._level_needed = 0
        self._is_guarded = keys is not None
        self._guard: PeerGuard | None = None
        self._in: zmq.Socket[bytes] | None = None
        self._in_monitor: zmq.Socket[bytes] | None = None
        self._out: PeerOutlets | None = None
        self._direct: DirectPeers | None = None
        self._polled: list[tuple[zmq.Socket[bytes], int]] = []
        self._unattended = 0
        self._handshakes_ended = 0
        self._watch_at = 0.0
        if admission is None:
            return
        if keys is not None:
            # Before the first connection is accepted: without an answer ZeroMQ lets every key in.
            self._guard = PeerGuard(context, dict(keys.public))
        try:
            self._in = open_inbox(context, addresses[self_id], keys=keys, queued_max=queued_max)
            self._polled = [(self._in, POLLIN)]
            if self._guard is not None:
                self._polled.append((self._guard.socket, POLLIN))
            self._in_monitor = monitor_of(self._in, HANDSHAKE_FAILURES)
            self._out = PeerOutlets(
                context,
                self_id,
                preamble_to=admission.preamble_to,
                keys=keys,
                keys_dir=keys_dir,
                guard=self._guard,
                queued_max=queued_max,
            )
            self._set_peers(addresses, time.monotonic())
            if direct_port is not None:
                host = bound_host(self._in)
                self._direct = DirectPeers(
                    self_id, host, port=direct_port, knows_writers=knows_writers, say=self._say
                )
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, settings: Settings, context: Context) -> Self:
        """The group that the settings name.

        Raises:
            ConfigError: keys are missing or wrong, the store is another member's, or the own
                address cannot be bound.
            CorruptLogError, StorageError: what the store knows of the group cannot be read.
        """
        own = NodeId(settings.node.self_id)
        keys = load_keys(settings)
        alone = is_alone(settings)
        return cls(
            context,
            own,
            {} if alone else dict(parse_peer(peer) for peer in settings.node.peers),
            admission=None if alone else Admission(settings),
            keys=keys,
            keys_dir=keys_directory(settings),
            queued_max=settings.raft.in_flight_frames + HEARTBEATS_QUEUED_MAX,
            direct_port=settings.raft.direct_port if settings.raft.direct else None,
            knows_writers=settings.raft.direct_writers,
        )

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process; refusals, the one thing that outlets bring, can wait."""
        if self._in is None:
            return []
        sources: list[Pollable] = [self._in]
        if self._guard is not None:
            sources.append(self._guard.socket)
        if self._direct is not None:
            sources.append(self._direct.source)
        return sources

    @property
    def direct(self) -> Collection[NodeId]:
        return () if self._direct is None else self._direct.open.keys()

    @property
    def refusals(self) -> dict[NodeId, str]:
        """Why peers are not let in, and do not let this node in, as far as it lasts.

        What calls itself no member's name, or gives none, stands under that name or its address.
        """
        now = time.monotonic()
        found: dict[NodeId, str] = {}
        for refusals in (self._refused_there, self._refused_here, self._malformed):
            for peer, reason in refusals.current(now).items():
                found[peer] = f"{found[peer]}; {reason}" if peer in found else reason
        return found

    @property
    def refused_here_count(self) -> int:
        """Messages and connections that were refused here."""
        return self._refused_here.count

    @property
    def levels(self) -> Mapping[NodeId, int]:
        return self._levels

    @property
    def absent(self) -> Sequence[NodeId]:
        return self._presence.absent(time.monotonic())

    def need_level(self, level: int) -> None:
        """Let in only who knows this feature level; who is connected is checked anew when it sends
        again.
        """
        if level <= self._level_needed or self._admission is None:
            return
        self._level_needed = level
        self._admission.need_level(level)
        self._connections = {
            at: one
            for at, one in self._connections.items()
            if self._levels.get(one.node, 0) >= level
        }
        self._end_direct()

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Hand a message to the direct connection, or to ZeroMQ; false when none is taken now.

        Parts of less than 64 KiB are copied. A larger one is ZeroMQ's until it was sent, which
        keeps it alive: it must not change, as bytes cannot.
        """
        if self._direct is not None:
            is_sent = self._direct.send(peer, parts)
            if is_sent is not None:
                return is_sent
        return self._out is not None and self._out.send(peer, parts)

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """The group has these members now, this one or not; ``HOST:PORT`` each.

        A group of one that was opened alone stays so.

        Raises:
            ConfigError: an address is none.
        """
        if self._out is None or self._admission is None:
            return
        parsed = dict(parse_peer(f"{node}-{address}") for node, address in addresses.items())
        self.voters = (self._self, *(node for node in parsed if node != self._self))
        self._admission.set_members(parsed)
        self._levels = {node: at for node, at in self._levels.items() if node in parsed}
        gone = [at for at, one in self._connections.items() if one.node not in parsed]
        for routing_id in gone:
            del self._connections[routing_id]
        self._end_direct()
        self._set_peers(parsed, time.monotonic())

    def check_new(self, node: NodeId) -> bool:
        """Go on where this node could talk with ``node``, which is no member yet; its key is known
        from then on, so it is heard of soon if it runs.

        Raises:
            ConfigError: it could not; says what is missing, or that it is too old for the level in
                force, as it has just told.
            StorageError: the operating system refused.
        """
        if self._out is None or self._admission is None:
            raise ConfigError(
                "this node talks with no other one: name its own address in node.peers, give it"
                " keys (ledgermq keys init), and start it again",
                node=self._self,
                setting="node.peers",
            )
        self._out.need_key(node)
        return self.check_level(node) or not self._level_needed

    def check_level(self, node: NodeId) -> bool:
        if self._admission is None or node not in self._refused_here.current(time.monotonic()):
            return False
        level = self._levels_refused.get(node)
        if level is None:
            return False
        reason = self._admission.too_old(node, level)
        if reason:
            raise ConfigError(reason, node=node)
        return True

    def may_feed(self, leader: NodeId) -> bool:
        return self._direct is not None and self._direct.knows_feeding(leader)

    def await_follower(self, peer: NodeId) -> AwaitFollower | None:
        return None if self._direct is None else self._direct.await_follower(peer)

    def feed_from(self, peer: NodeId, port: int) -> FeedFrom | None:
        return None if self._direct is None else self._direct.feed_from(peer, port)

    def arrived(self) -> deque[Arrived]:
        """Messages that came over direct connections."""
        return deque() if self._direct is None else self._direct.arrived()

    def ended(self) -> Sequence[NodeId]:
        return () if self._direct is None else self._direct.ended()

    def receive(self) -> PeerMessage | None:
        """The next message of a peer, None when none waits.

        Answers handshakes, too: call it whenever one of ``sources`` can be read. Refusals are read
        now and then here, and by ``watch``.
        None may also mean that much had to be dropped; ``sources`` can still be read then.
        """
        inbox = self._in
        if inbox is None:
            return None
        if self._direct is not None:
            message = self._direct.receive()
            if message is not None:
                return message
        for _ in range(SKIPPED_MAX):
            waiting = zmq.zmq_poll(self._polled, 0)
            self._unattended += 1
            if (waiting and waiting[-1][0] is not inbox) or self._unattended >= ATTEND_EVERY:
                self._attend()
            if not waiting or waiting[0][0] is not inbox:
                return None
            frames, count = take_frames(inbox)
            node = self._sender(frames, count)
            if node is None:
                continue
            if count == 2:
                # A preamble alone is a greeting.
                self._presence.greeted(node, time.monotonic())
                continue
            parts = [frames[2].buffer]
            if count > 3:
                parts += [frame.buffer for frame in frames[3:]]
            elif parts[0][:4] == OFFER_MAGIC:
                self._take_offer(node, frames[2])
                continue
            return _new_tuple(PeerMessage, (node, parts))
        return None

    def watch(self) -> None:
        """Greet the peers, tell which handshakes have failed, and begin those anew.

        No source tells of that: call it a few times a second at least.
        """
        now = time.monotonic()
        if self._in_monitor is None or self._out is None or now < self._watch_at:
            return
        self._watch_at = now + WATCH_S
        self._attend()
        self._note_troubles(self._out.look(now), now)
        for peer in self._out.lost:
            self._presence.lost(peer)
        if self._direct is not None:
            self._direct.watch(now, self._knowing_of_direct())
        failure = last_failure(self._in_monitor)
        if failure == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and self._is_guarded:
            # Whoever talks without CURVE may find out first, and go. One that stops does so, too.
            self._handshakes_ended += 1
        if (
            failure == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            or self._handshakes_ended >= HANDSHAKES_ENDED_MAX
        ):
            self._handshakes_ended = 0
            # ZeroMQ does not tell where such a connection came from.
            talk = "CURVE, with the right key of this node" if self._is_guarded else "without CURVE"
            reason = f"handshake failed: members talk {talk} (raft.curve, raft.keys_dir)"
            self._refuse(NodeId("unknown"), reason, "unknown")

    def forget(self, node: NodeId) -> bool:
        """Trust the next disk that ``node`` is seen with; false when none was known.

        Raises:
            StorageError: that could not be made durable.
        """
        if self._admission is None or not self._admission.known.forget(node):
            return False
        self._refused_here.lift(node)
        if self._direct is not None:
            self._direct.drop(node)
        self._connections = {
            routing_id: connection
            for routing_id, connection in self._connections.items()
            if connection.node != node
        }
        logger.info("disk of a peer forgotten: peer=%s", node)
        return True

    def close(self) -> None:
        """Close the sockets."""
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._out is not None:
            self._out.close()
        if self._in is not None:
            if self._in_monitor is not None:
                self._in.disable_monitor()
                self._in_monitor.close(0)
            self._in.close(0)
            self._in = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _sender(self, frames: list[zmq.Frame], count: int) -> NodeId | None:
        """The member that has sent this; None when it is dropped."""
        routing_id = frames[0].bytes
        if not 2 <= count <= PARTS_MAX + 2:
            self._drop(frames[0], f"message of {count - 1} parts")
            return None
        preamble = frames[1].bytes
        known = self._connections.get(routing_id)
        if known is None or known.preamble != preamble:
            return self._let_in(routing_id, preamble, frames[1])
        if self._is_guarded and property_of(frames[1], "User-Id") != known.node:
            # Another connection has taken over the routing id.
            return self._let_in(routing_id, preamble, frames[1])
        return known.node

    def _let_in(self, routing_id: bytes, preamble: bytes, frame: zmq.Frame) -> NodeId | None:
        """Look at a new or changed preamble."""
        assert self._admission is not None and self._in is not None
        self._connections.pop(routing_id, None)
        key_owner = NodeId(property_of(frame, "User-Id")) if self._is_guarded else None
        if key_owner == "":
            self._drop(frame, "connection without a key")
            return None
        try:
            verdict = self._admission.judge(preamble, key_owner=key_owner)
        except ProtocolError as error:
            self._drop(frame, str(error))
            return None
        if self._direct is not None:
            # It begins anew, or is let in no more.
            self._direct.drop(verdict.node)
        if verdict.reason:
            self._refuse(verdict.node, verdict.reason, address_of(frame))
            self._note_level(verdict)
            # A ROUTER drops what it cannot deliver at once.
            self._in.send_multipart([routing_id, encode_refusal(verdict.reason)], NOBLOCK)
            return None
        if self._refused_here.lift(verdict.node):
            logger.info(
                "peer is let in now: peer=%s", verdict.node, extra={"event": Event.PEER_ADMITTED}
            )
        # One connection a member: what an older one still brings is looked at anew.
        older = [other for other, known in self._connections.items() if known.node == verdict.node]
        for other in older:
            del self._connections[other]
        self._handshakes_ended = 0
        assert verdict.level is not None
        self._levels[verdict.node] = verdict.level
        self._connections[routing_id] = _Connection(preamble, verdict.node)
        return verdict.node

    def _say(self, peer: NodeId, part: bytes) -> bool:
        """Send a part by ZeroMQ's connection, which has proved who both sides are; false: it took
        none.
        """
        return self._out is not None and self._out.send(peer, (part,))

    def _knowing_of_direct(self) -> set[NodeId]:
        """Peers that are let in, and know of direct connections."""
        return {
            one.node
            for one in self._connections.values()
            if self._levels.get(one.node, 0) >= LEVEL_OF_DIRECT
        }

    def _end_direct(self) -> None:
        """End the direct connections of who is let in no more."""
        if self._direct is not None:
            for peer in set(self._direct.open) - self._knowing_of_direct():
                self._direct.drop(peer)

    def _take_offer(self, node: NodeId, frame: zmq.Frame) -> None:
        if self._direct is None:
            return
        assert self._out is not None
        address = self._out.host(node) or address_of(frame)
        try:
            self._direct.take_offer(node, frame.bytes, address, time.monotonic())
        except ProtocolError as error:
            self._drop(frame, str(error))

    def _note_level(self, verdict: PeerVerdict) -> None:
        """What a member knows that is refused now, or one that may be added next."""
        if verdict.level is None:
            return
        known = self._refused_here.peers
        self._levels_refused = {
            node: level for node, level in self._levels_refused.items() if node in known
        }
        if verdict.node in known:
            self._levels_refused[verdict.node] = verdict.level
        if verdict.node in self._levels:
            self._levels[verdict.node] = verdict.level

    def _refuse(self, who: NodeId, reason: str, address: str) -> None:
        if self._refused_here.note(who, reason, time.monotonic()):
            logger.warning(
                "peer refused: peer=%s address=%s reason=%s",
                who,
                address,
                reason,
                extra={"event": Event.PEER_REFUSED},
            )

    def _drop(self, frame: zmq.Frame, reason: str) -> None:
        self.malformed_count += 1
        address = address_of(frame)
        if self._malformed.note(NodeId(address), f"malformed message: {reason}", time.monotonic()):
            logger.warning("malformed message dropped: address=%s reason=%s", address, reason)

    def _attend(self) -> None:
        """Answer handshakes, read refusals."""
        self._unattended = 0
        if self._guard is not None:
            for address, key in self._guard.serve():
                reason = f"unknown key {key}: it is none of the public keys in raft.keys_dir"
                self._refuse(NodeId(address), reason, address)
        for peer, socket in self._out or ():
            while has_input(socket):
                self._take_refusal(peer, socket)

    def _set_peers(self, addresses: Mapping[NodeId, PeerAddress], now: float) -> None:
        assert self._out is not None
        others = {peer: address for peer, address in addresses.items() if peer != self._self}
        self._presence.set_peers(others, now)
        self._out.set_peers(others)
        self._note_troubles(self._out.open_wanted(now), now)

    def _note_troubles(self, troubles: Sequence[Trouble], now: float) -> None:
        for peer, event, reason in troubles:
            if not event:
                self._note_refused_there(peer, reason, now)
            # Without keys, a connection that ends in its handshake is one to a node that stops.
            elif self._is_guarded or event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._note_refused_there(
                    peer, _FAILURE_REASONS[event].format(peer=peer, node=self._self), now
                )

    def _take_refusal(self, peer: NodeId, socket: zmq.Socket[bytes]) -> None:
        frames, _ = take_frames(socket)
        try:
            reason = decode_refusal(frames[0].bytes)
        except ProtocolError as error:
            self._drop(frames[0], str(error))
            return
        if self._out is not None:
            self._out.doubt(peer)
        self._note_refused_there(peer, f"{peer} refuses {self._self}: {reason}", time.monotonic())

    def _note_refused_there(self, peer: NodeId, reason: str, now: float) -> None:
        if self._refused_there.note(peer, reason, now):
            logger.warning(
                "refused by a peer: peer=%s reason=%s",
                peer,
                reason,
                extra={"event": Event.REFUSED_BY_PEER},
            )
