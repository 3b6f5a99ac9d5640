"""Bound on unread input of tcp clients, which ZeroMQ keeps without one: the kernel is asked.

ZeroMQ keeps the parts of a message until its last one has come, however many there are, and counts
whole messages alone. So the kernel is asked what has come over a connection, and what the process
has taken of it is subtracted. When the process has grown, those connections are ended that hold
most of what nobody has taken, those first of which nothing was taken since the last look: a
message without an end is one.

Of unix sockets the kernel does not count bytes. Where the process has grown by the whole bound, and
tcp does not explain it, those of them are ended of which nothing was taken since the last look:
whoever is honest connects again. Operators' are counted and ended never.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import re
import socket
import struct
import termios
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from ledgermq.formats.records.host_address import plain_address
from ledgermq.hosts.address_share import share_of
from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.zmq_flags import NOBLOCK, has_input
from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import OUT_OF_DESCRIPTORS
from ledgermq.sessions.client_rights import Peer
from ledgermq.store.files.descriptor_cache import connections_allowed

logger = logging.getLogger(__name__)


class Strangers:
    """Those of one listener, of all shares and of each.

    Who connects and says nothing keeps a place that costs nothing to take. Where all are taken, one
    of these makes room, so that nobody is kept out by silence.
    """

    def __init__(self) -> None:
        self._all: OrderedDict[Hashable, tuple[str, Callable[[], object]]] = OrderedDict()
        self._of_share: dict[str, OrderedDict[Hashable, None]] = {}

    def add(self, share: str, one: Hashable, end: Callable[[], object]) -> None:
        """``one`` has connected, and takes of ``share``; ``end`` is called where it gives way."""
        self._all[one] = share, end
        self._of_share.setdefault(share, OrderedDict())[one] = None

    def discard(self, one: Hashable) -> None:
        """It has asked for something, or has gone; nothing is done when it is no stranger."""
        share, _ = self._all.pop(one, ("", None))
        mine = self._of_share.get(share)
        if mine is not None:
            mine.pop(one, None)
            if not mine:
                del self._of_share[share]

    def give_way(self, share: str | None = None) -> bool:
        """End who came first, of a share or of all; whether there was one."""
        among = self._all if share is None else self._of_share.get(share)
        if not among:
            return False
        first = next(iter(among))
        _, end = self._all[first]
        self.discard(first)
        end()
        return True


MEMORY_LOOK_NS = 100_000_000
"""Nanoseconds between two looks at the process's memory."""

LOOK_SHARE = 10
"""A look at all connections takes about the n-th part of the time to the next one."""

GROWN_SHARE = 4
"""Connections are looked at when the process has grown by the n-th part of the bound."""

COST_NS = 20_000
"""Time that looking at one connection takes."""

PART_OVERHEAD = 32
"""Bytes of memory for each byte on the wire, at worst: an empty part has two there, and 64 here."""

STUCK_SIZE_MIN = 64 * 1024
"""Who holds less is not ended for being stuck: it may be within its greeting."""

SHORT_MAX = 255
SHORT_HEAD, LONG_HEAD = 2, 9
"""Bytes of ZMTP before a part of up to ``SHORT_MAX`` bytes, and before a larger one."""

CURVE_HEAD = 33
"""Bytes of ZMTP's CURVE within each part: name, nonce, seal and flags."""

REPORTED_MAX = 1_000
TCP_INFO_SIZE = 256
RECEIVED_OFFSET = 128
"""Place of ``tcpi_bytes_received`` in Linux's ``tcp_info``."""

_EVENTS = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
_ACCEPTED = int(zmq.EVENT_ACCEPTED)
CREDENTIALS = struct.Struct("=iii")
"""What SO_PEERCRED gives: process, user, group."""


class WatchLimits(NamedTuple):
    """What one socket bears from all clients together, but for operators at its unix side.

    Attributes:
        unread_bytes: sent, and not taken by the process.
        connections: open at a time; more are ended as they come.
        connections_per_address: of one host (``share_of``), or one account of this machine.
        answers_bytes: sent to local connections, and not read by them.
    """

    unread_bytes: int
    connections: int
    connections_per_address: int
    answers_bytes: int


def watch_limits(limits: LimitsSection) -> WatchLimits:
    """What the settings say, as far as this process may open files."""
    connections, share = connections_allowed(limits.connections_max, limits.connections_per_address)
    return WatchLimits(
        unread_bytes=limits.total_unread_bytes,
        connections=connections,
        connections_per_address=share,
        answers_bytes=limits.total_answers_bytes,
    )


class WatchedConnection:
    """One client's: what was taken of it, in bytes on the wire.

    Attributes:
        address: of the client's host; empty for a unix socket.
        host: whose share it takes: the address, or a local account; empty: an operator's.
        peer: who has begun a session over it.
        taken: bytes, of a unix socket messages; counted by whoever receives.
        seen: ``taken`` when it was looked at last; -1 before.
        is_ended: whether ZeroMQ was made to close it, and has perhaps not come to that yet.
    """

    __slots__ = (
        "address",
        "fd",
        "host",
        "identity",
        "inode",
        "is_ended",
        "peer",
        "seen",
        "taken",
    )

    def __init__(self, fd: int, inode: int, address: str, host: str) -> None:
        self.fd = fd
        self.inode = inode
        self.address = address
        self.host = host
        self.peer = Peer()
        self.identity = b""
        self.taken = 0
        self.seen = -1
        self.is_ended = False


class SocketWatch:
    """Keeps the connections of one ROUTER within bounds; who receives from it counts in
    ``accounts``, and calls ``look``.

    Invariants: ``accounts`` has connections that have been greeted and not ended, by identity;
    ``_per_address`` counts those of ``_connections`` over tcp, and ``_count`` all of these.
    """

    def __init__(
        self,
        limits: WatchLimits,
        *,
        is_sealed: bool,
        note_ended: Callable[[], object] = lambda: None,
    ) -> None:
        """Nobody is connected.

        Args:
            limits: see there; may be replaced.
            is_sealed: whether clients over tcp have to speak CURVE.
            note_ended: called for each connection that is ended for a bound.
        """
        self.limits = limits
        self.accounts: dict[bytes, WatchedConnection] = {}
        self._extra = CURVE_HEAD if is_sealed else 0
        self._note_ended = note_ended
        self._port = 0
        self._monitor: zmq.Socket[bytes] | None = None
        self._connections: dict[int, WatchedConnection] = {}
        self._per_address: Counter[str] = Counter()
        self._strangers = Strangers()
        self._count = 0
        self._reported: set[str] = set()
        self._next_ns = 0
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._base = self._local_base = self._anonymous()

    def attach(self, context: Context, router: zmq.Socket[bytes], name: str) -> None:
        """Hear who connects; before the socket is bound.

        Args:
            name: no other socket of the context has it.
        """
        endpoint = f"inproc://watch-{name}"
        router.monitor(endpoint, _EVENTS)
        self._monitor = context.socket(zmq.PAIR)
        # An event that finds no place would make ZeroMQ's thread wait for us.
        self._monitor.setsockopt(zmq.RCVHWM, 0)
        self._monitor.connect(endpoint)

    def bound(self, router: zmq.Socket[bytes]) -> None:
        """The socket was bound over tcp just now."""
        last = router.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(last, bytes)
        found = re.search(rb":(\d+)\0?$", last)
        assert found is not None, last
        self._port = int(found[1])

    def wire_size(self, parts: list[bytes]) -> int:
        """Bytes on the wire of a message; the first of ``parts`` is the client's identity."""
        size, extra = 0, self._extra
        for part in parts[1:]:
            sealed = len(part) + extra
            size += sealed + (SHORT_HEAD if sealed <= SHORT_MAX else LONG_HEAD)
        return size

    def greet(self, identity: bytes, fd: int) -> None:
        """A client has said HELLO over the connection with the descriptor ``fd``."""
        self._take_events()
        connection = self._connections.get(fd)
        if connection is None:
            return
        self.accounts.pop(connection.identity, None)
        self._strangers.discard(connection)
        connection.identity = identity
        self.accounts[identity] = connection

    def end_sender(self, identity: bytes, fd: int) -> None:
        """End the connection of a client: a message of it has more parts than any may.

        Args:
            fd: the descriptor that it came over, of a client that was not greeted.
        """
        self._take_events()
        connection = self.accounts.get(identity) or self._connections.get(fd)
        if connection is not None:
            self._end(connection, "none: a message has very many parts")

    @property
    def source(self) -> zmq.Socket[bytes]:
        """What can be read when somebody has connected, or gone; ``hear`` takes it."""
        assert self._monitor is not None
        return self._monitor

    @property
    def is_needed(self) -> bool:
        """Whether there are connections that have to be looked at although nothing wakes us."""
        return bool(self._per_address)

    def hear(self) -> None:
        """Take note of who has connected."""
        self._take_events()

    def look(self, now_ns: int) -> None:
        """End connections that hold too much; to be called each turn, and seldom does anything."""
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + MEMORY_LOOK_NS
        self._take_events()
        if not self._per_address:
            return
        memory = self._anonymous()
        self._base = min(self._base, memory)
        self._local_base = min(self._local_base, memory)
        if memory - self._local_base > self.limits.unread_bytes:
            self._local_base = memory
            self._end_stuck_local()
        grown = memory - self._base
        if grown * GROWN_SHARE >= self.limits.unread_bytes:
            self._next_ns += LOOK_SHARE * COST_NS * len(self._connections)
            self._end_largest(memory, grown)

    def close(self) -> None:
        """Hear no more; the socket itself is closed by its owner, before."""
        if self._monitor is not None:
            self._monitor.close(0)
        os.close(self._memory)

    def _end_largest(self, memory: int, grown: int) -> None:
        limit = self.limits.unread_bytes
        held: list[tuple[bool, int, WatchedConnection]] = []
        for connection in list(self._connections.values()):
            if connection.address:
                size = self._unread(connection)
                moves = connection.seen != connection.taken
                connection.seen = connection.taken
                held.append((moves, -size, connection))
        total = sum(-size for _, size, _ in held)
        if total * PART_OVERHEAD < grown:
            # The process's own, or what the allocator keeps: growth counts from here on.
            self._base = memory
            return
        held.sort(key=lambda one: one[:2])
        for moves, size, connection in held:
            is_stuck = not moves and -size >= STUCK_SIZE_MIN
            is_dear = grown >= limit and total * PART_OVERHEAD > limit
            if total > limit or (is_stuck and is_dear):
                self._end(connection, "limits.total_unread_bytes", bytes=-size, limit=limit)
                total += size

    def _end_stuck_local(self) -> None:
        """What the kernel does not count: nothing whole has come over these for a while."""
        for connection in list(self._connections.values()):
            if connection.address or not connection.host:
                continue
            if connection.seen == connection.taken:
                limit = self.limits.unread_bytes
                self._end(connection, "limits.total_unread_bytes", limit=limit)
            connection.seen = connection.taken

    def _unread(self, connection: WatchedConnection) -> int:
        """Bytes that ZeroMQ has of a connection and nobody has taken; 0 when it has gone."""
        with _opened(connection.fd) as sock:
            if sock is None or os.fstat(sock.fileno()).st_ino != connection.inode:
                return 0
            try:
                told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
                waiting = fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4))
            except OSError:
                return 0
        (received,) = struct.unpack_from("=Q", told, RECEIVED_OFFSET)
        (in_kernel,) = struct.unpack("=i", waiting)
        return max(0, int(received) - int(in_kernel) - connection.taken)

    def _end(self, connection: WatchedConnection, setting: str, **figures: int) -> None:
        """Have ZeroMQ find the connection at its end: it drops what it has of it."""
        if connection.is_ended:
            return
        with _opened(connection.fd) as sock:
            # The number may be another connection's by now, which is not to end for this one.
            if sock is None or os.fstat(sock.fileno()).st_ino != connection.inode:
                return
            try:
                # ZeroMQ's close then resets it, whatever the client has under way.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It has ended by itself.
                return
        connection.is_ended = True
        self._note_ended()
        self.tell_ended(connection.host, setting, figures)

    def tell_ended(self, host: str, setting: str, figures: Mapping[str, int]) -> None:
        """Log that a connection of ``host`` was ended for a bound, once for each."""
        key = f"{host} {setting}"
        if key not in self._reported and len(self._reported) < REPORTED_MAX:
            self._reported.add(key)
            told = " ".join(f"{name}={value}" for name, value in figures.items())
            logger.warning("client's connection ended: peer=%s %s setting=%s", host, told, setting)

    def _take_events(self) -> None:
        monitor = self._monitor
        assert monitor is not None
        while has_input(monitor):
            event = parse_monitor_message(monitor.recv_multipart(NOBLOCK))
            fd = int(event["value"])
            self._forget(fd)
            if event["event"] == _ACCEPTED:
                self._accepted(fd)

    def _accepted(self, fd: int) -> None:
        with _opened(fd) as sock:
            if sock is None:
                return
            try:
                if sock.family != socket.AF_UNIX and sock.getsockname()[1] != self._port:
                    # Of something else by now.
                    return
                is_local = sock.family == socket.AF_UNIX
                address = "" if is_local else plain_address(str(sock.getpeername()[0]))
                host = _account_of(sock) if is_local else share_of(address)
            except OSError:
                return
            connection = WatchedConnection(fd, os.fstat(sock.fileno()).st_ino, address, host)
        self._connections[fd] = connection
        refused = self._admit(host, connection, partial(self._give_way, connection))
        if refused is not None:
            setting, figures = refused
            self._end(connection, setting, **figures)

    def admit(
        self, host: str, one: Hashable, end: Callable[[], object]
    ) -> tuple[str, Mapping[str, int]] | None:
        """Count a connection that is not ZeroMQ's; the setting that is against it, and figures.

        Args:
            host: whose share it takes; empty: an operator's, which is not counted.
            one: the connection, until ``known`` or ``release`` a stranger.
            end: has it make room for others: it ends, and ``release`` is called.
        """
        refused = self._admit(host, one, end)
        if refused is not None:
            self.release(host, one)
        return refused

    def known(self, one: Hashable) -> None:
        """A connection that was admitted has said something whole."""
        self._strangers.discard(one)

    def release(self, host: str, one: Hashable) -> None:
        """A connection that was counted has ended."""
        self._strangers.discard(one)
        if host:
            self._count -= 1
            self._per_address[host] -= 1
            if not self._per_address[host]:
                del self._per_address[host]

    def _admit(
        self, host: str, one: Hashable, end: Callable[[], object]
    ) -> tuple[str, dict[str, int]] | None:
        """Count a connection, strangers making room for it; what is against it all the same."""
        if not host:
            return None
        self._per_address[host] += 1
        self._count += 1
        refused = self._is_too_many(host)
        while refused is not None:
            # Of all where there are too many of all, of its own share else.
            of_all = refused[0] == "limits.connections_max"
            if not self._strangers.give_way(None if of_all else host):
                return refused
            refused = self._is_too_many(host)
        self._strangers.add(host, one, end)
        return None

    def _give_way(self, connection: WatchedConnection) -> None:
        """What ZeroMQ tells of its end later is of a connection that is not known any more."""
        self._end(connection, "none: it has asked for nothing, and there was no room for others")
        self._forget(connection.fd)

    def _is_too_many(self, host: str) -> tuple[str, dict[str, int]] | None:
        if not host:
            return None
        limits = self.limits
        mine, share = self._per_address[host], limits.connections_per_address
        if mine > share:
            return "limits.connections_per_address", {"connections": mine, "limit": share}
        if self._count > limits.connections:
            figures = {"connections": self._count, "limit": limits.connections}
            return "limits.connections_max", figures
        return None

    def _forget(self, fd: int) -> None:
        connection = self._connections.pop(fd, None)
        if connection is None:
            return
        if self.accounts.get(connection.identity) is connection:
            del self.accounts[connection.identity]
        self.release(connection.host, connection)

    def _anonymous(self) -> int:
        """Bytes of memory that are the process's alone, and of no file."""
        fields = os.pread(self._memory, 128, 0).split()
        return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE


def _account_of(sock: socket.socket) -> str:
    """Whose share a connection of a unix socket takes, as ``Peer.host`` says it."""
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, gid = CREDENTIALS.unpack(told)
    return Peer(f"localhost:{uid}:{gid}:{pid}").host


@contextmanager
def _opened(fd: int) -> Iterator[socket.socket | None]:
    """The socket behind a descriptor of ZeroMQ's, which may close it meanwhile, and use it anew.

    A descriptor of our own keeps the socket the same while it is looked at; None if it is none.
    Where none is left, ZeroMQ's is looked at itself: who is not seen then is ended by nobody, and
    that may be who has taken the last one.
    """
    try:
        own = os.dup(fd)
    except OSError as error:
        if error.errno not in OUT_OF_DESCRIPTORS:
            yield None
            return
        own = fd
    try:
        sock = socket.socket(fileno=own)
    except OSError:
        if own != fd:
            os.close(own)
        yield None
        return
    try:
        yield sock
    finally:
        if own == fd:
            sock.detach()
        sock.close()
