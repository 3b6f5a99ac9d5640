"""Outgoing connections to the other members: opened and closed as the group changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import zmq
import zmq.backend

from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.zmq_flags import MORE, NOBLOCK
from ledgermq.members.peer_addresses import PeerAddress
from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_sockets import PART_SIZE_MAX, Outlet, PeerGuard
from ledgermq.sessions.keys.peer_keys import PeerKeys, read_public_key

GREET_S = 1.0
"""Followers have nothing to say to one another for days. Without greetings one whose disk is wiped
would be trusted, and could vote twice, by those who had never heard of the old disk."""

HANDSHAKE_AGAIN_S = 1.0
KEY_AGAIN_S = 1.0
"""A new member's key may come to this machine later than the member to the group."""

FAREWELL_MS = 1_000
"""A member that leaves is still sent what says so."""


# What ``zmq.Socket.send`` calls, without a look at what servers and radios have.
_SEND = zmq.backend.Socket.send


class Trouble(NamedTuple):
    """A handshake with ``peer`` failed with this ZeroMQ event, or it has no key here."""

    peer: NodeId
    event: int
    reason: str


class PeerOutlets:
    """One socket a peer. Nothing here blocks.

    Attributes:
        lost: peers to which a connection has ended between the last two looks.
    """

    def __init__(
        self,
        context: Context,
        self_id: NodeId,
        *,
        preamble_to: Callable[[NodeId], bytes],
        keys: PeerKeys | None,
        keys_dir: Path,
        guard: PeerGuard | None,
        queued_max: int,
    ) -> None:
        """No peer is known yet.

        Args:
            keys_dir: where the public key of a member is that joins later.
            guard: is told of such a key; None without ``keys``.
        """
        self.lost: list[NodeId] = []
        self._context = context
        self._self = self_id
        self._preamble_to = preamble_to
        self._keys = keys
        self._keys_dir = keys_dir
        self._guard = guard
        self._queued_max = queued_max
        self._out: dict[NodeId, Outlet] = {}
        self._addresses: dict[NodeId, PeerAddress] = {}
        self._preambles: dict[NodeId, bytes] = {}
        self._greet_at: dict[NodeId, float] = {}
        self._wanted: dict[NodeId, float] = {}

    def __iter__(self) -> Iterator[tuple[NodeId, zmq.Socket[bytes]]]:
        """Peers and the sockets to them."""
        return iter([(peer, outlet.socket) for peer, outlet in self._out.items()])

    def host(self, peer: NodeId) -> str:
        """The numeric address of ``peer``, known or found by its name; empty: there is none."""
        outlet = self._out.get(peer)
        return "" if outlet is None else outlet.host

    def doubt(self, peer: NodeId) -> None:
        """Who answers as ``peer`` says that it is another one, or lets this node not in."""
        outlet = self._out.get(peer)
        if outlet is not None:
            outlet.doubt()

    def set_peers(self, addresses: Mapping[NodeId, PeerAddress]) -> None:
        """Talk with these and no others; those whose key is missing are tried again later."""
        for peer in [one for one in self._addresses if addresses.get(one) != self._addresses[one]]:
            del self._addresses[peer]
            self._wanted.pop(peer, None)
            outlet = self._out.pop(peer, None)
            if outlet is not None:
                outlet.close(linger_ms=FAREWELL_MS)
        for peer, address in addresses.items():
            if peer not in self._addresses:
                self._addresses[peer] = address
                self._wanted[peer] = 0.0

    def open_wanted(self, now: float) -> list[Trouble]:
        """Open what is not open yet; those for which that could not be done.

        Raises:
            ConfigError: an address is none.
        """
        troubles = []
        for peer in [one for one, at in self._wanted.items() if now >= at]:
            try:
                self.need_key(peer)
            except LedgerError as error:
                self._wanted[peer] = now + KEY_AGAIN_S
                troubles.append(Trouble(peer, 0, str(error)))
                continue
            del self._wanted[peer]
            self._preambles[peer] = self._preamble_to(peer)
            self._out[peer] = Outlet(
                self._context,
                peer,
                self._addresses[peer],
                self_id=self._self,
                keys=self._keys,
                queued_max=self._queued_max,
            )
        return troubles

    def need_key(self, peer: NodeId) -> None:
        """Know the key of ``peer``, if keys are used.

        Raises:
            ConfigError: it is not in ``raft.keys_dir``, or is another member's.
            StorageError: the operating system refused.
        """
        if self._keys is None or peer in self._keys.public:
            return
        assert self._guard is not None
        key = read_public_key(self._keys_dir, peer, others=self._keys.public)
        self._keys.public[peer] = key
        self._guard.know(peer, key)

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Hand a message to ZeroMQ; false when it takes none for that peer now."""
        outlet = self._out.get(peer)
        if outlet is None:
            return False
        socket = outlet.socket
        try:
            # Only the first part can be refused.
            left = len(parts)
            _SEND(socket, self._preambles[peer], MORE if left else NOBLOCK)
            for part in parts:
                assert len(part) <= PART_SIZE_MAX, len(part)
                left -= 1
                # pyzmq copies what is below ``zmq.COPY_THRESHOLD``, which is 64 KiB.
                _SEND(socket, part, MORE if left else NOBLOCK, False)
        except zmq.Again:
            return False
        return True

    def look(self, now: float) -> list[Trouble]:
        """Greet the peers, and begin failed handshakes anew; those that have failed."""
        self.lost.clear()
        troubles = self.open_wanted(now) if self._wanted else []
        for peer, outlet in self._out.items():
            if now >= self._greet_at.get(peer, 0.0) and self.send(peer, ()):
                self._greet_at[peer] = now + GREET_S
            failure = outlet.look(now, again_s=HANDSHAKE_AGAIN_S)
            if outlet.has_ended:
                self.lost.append(peer)
            if failure:
                troubles.append(Trouble(peer, failure, ""))
        return troubles

    def close(self) -> None:
        """Close all."""
        for outlet in self._out.values():
            outlet.close(linger_ms=0)
        self._out.clear()
