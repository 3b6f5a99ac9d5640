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
from contextlib import suppress

import zmq
from zmq.utils.monitor import parse_monitor_message

from ledgermq.hosts.host_name import HostName, is_name
from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.zmq_flags import NOBLOCK, has_input
from ledgermq.members.peer_addresses import PeerAddress
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_name import PeerName
from ledgermq.sessions.connection_names import draw_seed
from ledgermq.sessions.keys.key_guard import KeyGuard
from ledgermq.sessions.keys.peer_keys import PeerKeys

logger = logging.getLogger(__name__)

PART_SIZE_MAX = 8 * 1024 * 1024 + 64 * 1024
"""The largest ``raft.frame_bytes``, and some; a peer that sends more is disconnected."""

HEARTBEATS_QUEUED_MAX = 64
"""Room for messages without entries, beyond those with entries that raft lets be under way."""

ANSWERS_QUEUED_MAX = 16
HEARTBEAT_MS = 1_500
SILENCE_MS = 3_000
"""A connection without a sign of life for so long is given up."""

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
        self._monitor = self.socket.get_monitor_socket(
            HANDSHAKE_FAILURES | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
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
