"""Sockets between members: one that receives from all, one to each that only sends.

Nothing waits: a send that cannot be taken now is refused. Nothing is queued for a peer that is not
connected. A connection on which nothing comes any more is given up, so that its place is taken by a
new one as soon as the network is back, and not when TCP tries again.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import zmq
import zmq.backend
from zmq.utils.monitor import parse_monitor_message

from ledgermq.formats.records.host_address import plain_address
from ledgermq.hosts.host_name import HostName, is_name
from ledgermq.hosts.socket_monitor import monitor_of
from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.zmq_flags import MORE, NOBLOCK, has_input
from ledgermq.members.direct_connection import PART_SIZE_MAX, SILENCE_MS
from ledgermq.members.peer_addresses import PeerAddress
from ledgermq.model.errors import ConfigError, LedgerError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.sessions.connection_names import draw_seed
from ledgermq.sessions.keys.key_guard import KeyGuard
from ledgermq.sessions.keys.peer_keys import PeerKeys, read_public_key

logger = logging.getLogger(__name__)

PARTS_MAX = 8
"""Most parts of a message behind its preamble; raft's have two."""

HEARTBEATS_QUEUED_MAX = 64
"""Room for messages without entries, beyond those with entries that raft lets be under way."""

ANSWERS_QUEUED_MAX = 16
HEARTBEAT_MS = 1_500
CONNECT_TIMEOUT_MS = 1_000
HANDSHAKE_TIMEOUT_MS = 5_000
RECONNECT_MS, RECONNECT_MS_MAX = 20, 200

UNCONNECTED_S = 10.0
"""A connection that does not come about for so long is begun anew by us. ZeroMQ itself never tries
again after some ends, as after a frame that is too large, and tells of them as of others."""

OWN_NAME_S = 10.0
"""A node that starts waits so long for what its own name stands for."""

ZAP_DOMAIN = b"ledgermq-peers"

HANDSHAKE_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
REFUSALS = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)


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


def take_frames(socket: zmq.Socket[bytes]) -> tuple[list[zmq.Frame], int]:
    """The parts of the next message, which is there; of too many, a few too many, and how many."""
    frame = socket.recv(NOBLOCK, copy=False)
    frames = [frame]
    count = 1
    while frame.more:
        frame = socket.recv(NOBLOCK, copy=False)
        if count <= PARTS_MAX + 2:
            frames += (frame,)
            count += 1
    return frames, count


def property_of(frame: zmq.Frame, name: str) -> str:
    """What ZeroMQ says of the connection that brought the frame.

    Empty when it says nothing: bytes that are no ZeroMQ may pass for its very first protocol, which
    had no properties.
    """
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return ""


def bound_host(inbox: zmq.Socket[bytes]) -> str:
    """The numeric address that it listens at."""
    endpoint = inbox.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    host = endpoint.rstrip(b"\0").decode().removeprefix("tcp://").rpartition(":")[0]
    return host.strip("[]")


def address_of(frame: zmq.Frame) -> str:
    """Address of the machine that has sent it."""
    return plain_address(property_of(frame, "Peer-Address")) or "unknown"


NAME_PAUSE_S, NAME_PAUSE_S_MAX = 1.0, 10.0
"""Seconds between an answer and the next question while there is no connection, and the most:
doubled each time."""


class PeerName:
    """Asked for when the connection is lost, until it stands again; nothing here blocks.

    Attributes:
        host: the address that is to be connected to, numeric; empty: none is known yet.
    """

    def __init__(self, peer: NodeId, name: str) -> None:
        """Nothing is asked yet."""
        self.host = ""
        self._peer = peer
        self._name = HostName(name)
        self._ask_at = 0.0
        self._pause_s = NAME_PAUSE_S
        self._failure = ""
        self._is_doubted = False

    def doubt(self) -> None:
        """Who answers at ``host`` may be another node by now."""
        self._is_doubted = True

    def look(self, now: float, *, is_connected: bool) -> bool:
        """Take an answer, and ask when it is time; true when ``host`` is another one.

        A few times a second.
        """
        name = self._name
        has_moved = False
        if name.take(now):
            self._note_failure()
            if not name.is_asked:
                has_moved = self._take_turn(now, is_needed=not is_connected or self._is_doubted)
        if is_connected and not self._is_doubted:
            # When it is lost the name is asked for at once.
            self._ask_at, self._pause_s = 0.0, NAME_PAUSE_S
        elif now >= self._ask_at:
            name.ask(now)
        return has_moved

    def close(self) -> None:
        """Ask no more."""
        self._name.close()

    def _take_turn(self, now: float, *, is_needed: bool) -> bool:
        """Take the next one of the addresses after an answer, if another one is needed; whether it
        is another.
        """
        self._ask_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, NAME_PAUSE_S_MAX)
        self._is_doubted = False
        addresses = self._name.addresses
        if not is_needed or not addresses:
            return False
        at = addresses.index(self.host) + 1 if self.host in addresses else 0
        host = addresses[at % len(addresses)]
        if host == self.host:
            return False
        logger.info("peer is looked for at an address: peer=%s address=%s", self._peer, host)
        self.host = host
        return True

    def _note_failure(self) -> None:
        name = self._name
        if name.failure != self._failure:
            self._failure = name.failure
            if name.failure:
                logger.warning(
                    "name of a peer not resolved: peer=%s name=%s reason=%s",
                    self._peer,
                    name.name,
                    name.failure,
                )


def open_inbox(
    context: Context, address: PeerAddress, *, keys: PeerKeys | None, queued_max: int
) -> zmq.Socket[bytes]:
    """A ROUTER bound where this member listens.

    The host is bound when it is an address of this machine, a name after it was resolved. Another
    one, as behind an address translation, stands for all addresses of the machine; only with CURVE,
    for without it everybody who can connect is let talk.

    Raises:
        ConfigError: there is no such address to bind; names endpoint and setting.
        StorageError: the operating system refused: another program has the port, say.
    """
    draw_seed()
    inbox = _open(context, zmq.ROUTER, queued_max=queued_max)
    inbox.setsockopt(zmq.SNDHWM, ANSWERS_QUEUED_MAX)
    if keys is not None:
        inbox.setsockopt(zmq.CURVE_SERVER, 1)
        inbox.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        inbox.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        inbox.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    try:
        _bind(inbox, address, is_guarded=keys is not None)
    except BaseException:
        inbox.close(0)
        raise
    return inbox


class Outlet:
    """The way to one peer; sends, and reads nothing but refusals.

    ZeroMQ is given addresses alone: a name would be looked up by its thread, for as long as the
    resolver likes, and nothing would come from any member meanwhile.

    Attributes:
        has_ended: whether the connection had ended at some time between the last two looks.
    """

    def __init__(
        self,
        context: Context,
        peer: NodeId,
        address: PeerAddress,
        *,
        self_id: NodeId,
        keys: PeerKeys | None,
        queued_max: int,
    ) -> None:
        self.socket = _open(context, zmq.DEALER, queued_max=queued_max)
        self.socket.setsockopt(zmq.RCVHWM, ANSWERS_QUEUED_MAX)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        self.socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        if keys is not None:
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public[self_id])
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, keys.public[peer])
        self.has_ended = False
        self._is_connected = False
        self._left_at: float | None = None
        self._monitor = monitor_of(
            self.socket,
            HANDSHAKE_FAILURES | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED,
        )
        self._reconnect_at: float | None = None
        self._address = address
        self._endpoint = self._left_endpoint = ""
        self._name = PeerName(peer, address.name) if address.name else None
        if self._name is None:
            self._connect(address)

    @property
    def host(self) -> str:
        """The address of the peer, numeric; empty while a name has not led to it."""
        if self._name is None:
            return self._address.host.strip("[]")
        return self._name.host if self._is_connected else ""

    def doubt(self) -> None:
        """Who answers may be another node than the one that is meant, if that has a name."""
        if self._name is not None:
            self._name.doubt()

    def look(self, now: float, *, again_s: float) -> int:
        """How the last handshake failed (a ZeroMQ event), 0: none has failed since the last look.

        After a refusal ZeroMQ never tries again, but the peer may have got other settings: a new
        attempt is made ``again_s`` later.
        """
        failure, is_refused, self.has_ended = 0, False, False
        while has_input(self._monitor):
            told = parse_monitor_message(self._monitor.recv_multipart(NOBLOCK))
            event = int(told["event"])
            self._note_connection(event, told["endpoint"])
            if event == zmq.EVENT_DISCONNECTED:
                self.has_ended = True
            elif event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                failure = event
                is_refused = is_refused or event in REFUSALS
        if is_refused:
            self._reconnect_at = now + again_s
        elif self._is_left(now):
            self._reconnect_at = now
        name = self._name
        if name is not None and name.look(now, is_connected=self._is_connected):
            self._reconnect_at = None
            self._connect(self._address.at(name.host))
        elif self._reconnect_at is not None and now >= self._reconnect_at:
            self._reconnect_at = None
            self._connect(self._address if name is None else self._address.at(name.host))
        return failure

    def close(self, *, linger_ms: int) -> None:
        """Disconnect; what waits is sent for at most ``linger_ms``, in the background."""
        if self._name is not None:
            self._name.close()
        self.socket.disable_monitor()
        self._monitor.close(0)
        self.socket.close(linger_ms)

    def _is_left(self, now: float) -> bool:
        """Whether nothing has come of the connection for ``UNCONNECTED_S``; true once each time."""
        if self._is_connected or not self._endpoint:
            self._left_at = None
            return False
        if self._left_at is None:
            self._left_at = now
        if now < self._left_at + UNCONNECTED_S:
            return False
        self._left_at = now
        return True

    def _note_connection(self, event: int, endpoint: bytes) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_connected = True
        elif endpoint.decode() != self._left_endpoint:
            # What ends where it was connected to before says nothing of now.
            self._is_connected = False

    def _connect(self, address: PeerAddress) -> None:
        """Connect there, and nowhere else."""
        if self._endpoint:
            with suppress(zmq.ZMQError):  # there may be nothing left to disconnect
                self.socket.disconnect(self._endpoint)
        self._is_connected = False
        if address.endpoint != self._endpoint:
            self._left_endpoint, self._endpoint = self._endpoint, address.endpoint
        self.socket.setsockopt(zmq.IPV6, int(not _is_ipv4(address.host)))
        self.socket.connect(self._endpoint)


class PeerGuard(KeyGuard):
    """Lets the members' keys in; ``User-Id`` of a message is the id of the member that sent it."""

    def __init__(self, context: Context, public: dict[NodeId, bytes]) -> None:
        self._owners = {key: node for node, key in public.items()}
        super().__init__(context, self._owner_of)

    def know(self, node: NodeId, key: bytes) -> None:
        """Let the key (Z85) of another member in."""
        self._owners[key] = node

    def _owner_of(self, key: bytes) -> bytes | None:
        owner = self._owners.get(key)
        return None if owner is None else owner.encode()


def last_failure(monitor: zmq.Socket[bytes]) -> int:
    """The latest of the failures that wait in ``monitor``, 0 when there is none."""
    failure = 0
    while has_input(monitor):
        failure = int(parse_monitor_message(monitor.recv_multipart(NOBLOCK))["event"])
    return failure


def _open(context: Context, kind: int, *, queued_max: int) -> zmq.Socket[bytes]:
    opened: zmq.Socket[bytes] = context.socket(kind)
    opened.setsockopt(zmq.LINGER, 0)
    opened.setsockopt(zmq.SNDHWM, queued_max)
    opened.setsockopt(zmq.RCVHWM, queued_max)
    opened.setsockopt(zmq.MAXMSGSIZE, PART_SIZE_MAX)
    opened.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    opened.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS - HEARTBEAT_MS)
    opened.setsockopt(zmq.HEARTBEAT_TTL, SILENCE_MS)
    opened.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS)
    opened.setsockopt(zmq.TCP_MAXRT, SILENCE_MS)
    return opened


def _bind(inbox: zmq.Socket[bytes], address: PeerAddress, *, is_guarded: bool) -> None:
    found = _resolve(address, is_guarded=is_guarded)
    for host in found:
        endpoint = (
            f"tcp://[{host}]:{address.port}" if ":" in host else f"tcp://{host}:{address.port}"
        )
        if _try_bind(inbox, endpoint):
            return
    if not is_guarded:
        raise ConfigError(
            "the host of this member is none of this machine's addresses, and all addresses are"
            " bound only with raft.curve",
            endpoint=address.endpoint,
            setting="node.peers",
        )
    everywhere = (
        f"tcp://{'[::]' if any(':' in host for host in found) else '0.0.0.0'}:{address.port}"  # noqa: S104 - only where keys are asked for
    )
    logger.info("members are awaited on all addresses: peer=%s", address.endpoint)
    if not _try_bind(inbox, everywhere):
        raise _not_bound(everywhere, errno.EADDRNOTAVAIL)


def _resolve(address: PeerAddress, *, is_guarded: bool) -> list[str]:
    """Addresses that may be bound; none for a name that means another thing to other machines.

    None, too, where the resolver does not answer and the guard is there: a member that is started
    again is not to wait for that.
    """
    host = address.host.strip("[]")
    if not is_name(host):
        return [host]
    name = HostName(host)
    try:
        name.ask(time.monotonic())
        name.wait(OWN_NAME_S)
        name.take(time.monotonic())
    finally:
        name.close()
    hosts = list(name.addresses)
    if not hosts:
        if is_guarded and not name.is_unknown:
            logger.warning("own name not resolved: name=%s reason=%s", host, name.failure)
            return []
        # Only who does not exist is an error of the settings, after which nobody would try again.
        kind = ConfigError if name.is_unknown else StorageError
        raise kind(f"name not resolved: {name.failure}", name=host, setting="node.peers")
    if host == "localhost":
        return hosts
    # Debian's /etc/hosts has the machine's own name as 127.0.1.1, which nobody else can reach.
    return [one for one in hosts if not ipaddress.ip_address(one.partition("%")[0]).is_loopback]


def _try_bind(inbox: zmq.Socket[bytes], endpoint: str) -> bool:
    """False when the address is none of this machine's."""
    inbox.setsockopt(zmq.IPV6, int("[" in endpoint))
    try:
        inbox.bind(endpoint)
    except zmq.ZMQError as error:
        number = error.errno or 0
        if number in (errno.EADDRNOTAVAIL, errno.ENODEV):
            return False
        raise _not_bound(endpoint, number) from error
    return True


def _not_bound(endpoint: str, number: int) -> StorageError:
    # No error of the settings, after which nobody would start the node again: a connection that the
    # machine has made may have the port, and end.
    is_taken = number == errno.EADDRINUSE
    return StorageError(
        "another program has the port at which this member is awaited"
        if is_taken
        else "socket for members not bound",
        errno=number,
        endpoint=endpoint,
        setting="node.peers",
        reason=zmq.strerror(number),
    )


def _is_ipv4(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 4
    except ValueError:
        return False


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
