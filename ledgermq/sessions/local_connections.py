"""Local connections of producers: a stream socket of our own, beside ZeroMQ's, for this machine.

Who is at the other end the kernel says (SO_PEERCRED), once a connection. What a client sends stays
in the kernel until it is the client's turn; of a message that is not whole its bytes are held, and
where all clients hold too much, the message that was begun first ends with its connection.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.sessions.client_rights import Peer
from ledgermq.sessions.client_socket import BACKLOG
from ledgermq.sessions.socket_watch import CREDENTIALS, SocketWatch
from ledgermq.wire.byte_stream import HEAD_SIZE, MessageReader, message_head, pack_head

FRAMES_READ_SIZE = 64 * 1024
READ_SIZE_MAX = 1024 * 1024
"""Most bytes of a large message that are read at once."""

READY_MANY = 64
SMALL_READ_SIZE = 4 * 1024
"""Where many clients have something at once, so many bytes are read of each."""

MESSAGES_AT_ONCE = 32
"""Messages that are made of what was read of one client."""

POLL_EVERY = 64
"""Messages after which it is looked who else has something, though not all is taken yet."""

EVENTS_MAX = 256
ACCEPTED_MAX = 64
"""Connections that are accepted in one turn."""

ANSWERS_QUEUED_MAX = 4_096
ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Answers that one client has not read: who has more loses its session, as with ZeroMQ."""

ANSWER_OVERHEAD = 128
"""Bytes that an answer takes besides its own while it waits."""

IDENTITY_SIZE = 17
_TRANSIENT = frozenset({errno.EAGAIN, errno.ECONNABORTED, errno.EINTR})


def is_local_name(identity: bytes) -> bool:
    """Whether an identity is of a connection here; no client of a ROUTER may have such a one."""
    return len(identity) == IDENTITY_SIZE and identity[0] == 0


class LocalConnection:
    """One client's.

    Invariant: ``unsent`` is empty, or the socket takes no more now.

    Attributes:
        counted: bytes of what its reader holds, as they were counted last.
        is_ready: whether it is in line for its turn.
        is_stranger: no message of it has come yet.
    """

    __slots__ = (
        "begun_ns",
        "counted",
        "host",
        "identity",
        "is_ready",
        "is_stranger",
        "peer",
        "reader",
        "sock",
        "unsent",
        "unsent_bytes",
    )

    def __init__(self, sock: socket.socket, peer: Peer, part_size_max: int) -> None:
        self.sock = sock
        self.peer = peer
        self.host = peer.host
        # Beginning with a zero, which no client of a ROUTER may; and nobody foresees it.
        self.identity = b"\0" + os.urandom(IDENTITY_SIZE - 1)
        self.reader = MessageReader(part_size_max, at_once=MESSAGES_AT_ONCE)
        self.is_ready = False
        self.is_stranger = True
        self.begun_ns = 0
        self.counted = 0
        self.unsent: deque[bytes | memoryview] = deque()
        self.unsent_bytes = 0


class LocalConnections:
    """``ClientSocket`` of the listening socket and all its connections; owned by one process,
    nothing blocks.

    Invariants: ``_held`` is the sum of what is counted of them, ``_unsent`` that of the answers
    that wait in them, with their overhead; ``ready`` has each once that ``is_ready``.

    Attributes:
        ready: connections that have messages, or bytes; their turns. Of messages that were read
            already ``source`` does not tell.
        by_identity: all of them; others only look.
    """

    def __init__(
        self,
        path: Path,
        *,
        mode: int,
        part_size_max: int,
        note_ended: Callable[[], object],
    ) -> None:
        """Listen at ``path``; nobody is let in before ``share`` was called.

        Args:
            mode: permissions of the socket.
            part_size_max: who announces a larger part is disconnected.
            note_ended: called for each connection that is ended for a bound.

        Raises:
            ConfigError: the path cannot be bound.
        """
        self.peer = Peer()
        self._path = path
        self._part_size_max = part_size_max
        self._watch: SocketWatch | None = None
        self._note_ended = note_ended
        self._by_fd: dict[int, LocalConnection] = {}
        self.by_identity: dict[bytes, LocalConnection] = {}
        self.ready: deque[LocalConnection] = deque()
        self._has_polled = False
        self._held = self._unsent = 0
        self._until_poll = POLL_EVERY
        self._is_listening = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            path.unlink(missing_ok=True)
            self._listener.bind(str(path))
            path.chmod(mode)
            self._listener.listen(BACKLOG)
        except OSError as error:
            self._listener.close()
            raise ConfigError(
                "socket for clients not bound", endpoint=str(path), reason=str(error)
            ) from error
        self._epoll = select.epoll()

    def share(self, watch: SocketWatch) -> None:
        """Let clients in.

        Args:
            watch: counts connections, those of the ROUTER beside it, too, and has the limits.
        """
        self._watch = watch
        self.look()

    @property
    def is_watched(self) -> bool:
        """Whether ``look`` has work although nothing comes."""
        return not self._is_listening

    @property
    def source(self) -> int:
        """What wakes the process: it can be read when anything here can go on."""
        return self._epoll.fileno()

    def receive(self) -> list[bytes] | None:
        """The client's identity and the parts of its message, one message of each client in turn;
        None when none waits.
        """
        ready = self.ready
        while True:
            if ready and self._until_poll <= 0:
                # Who has much to say holds up nobody who comes meanwhile.
                self._poll()
            if not ready:
                if self._has_polled:
                    # All that could be read then has been; what has come since wakes the process.
                    self._has_polled = False
                    return None
                self._poll()
                if not ready:
                    return None
                self._has_polled = True
            self._until_poll -= 1
            connection = ready.popleft()
            reader = connection.reader
            messages = reader.messages
            if not messages and not self._read(connection):
                continue
            parts = [connection.identity, *messages.popleft()]
            if messages or reader.waits:
                ready.append(connection)
            else:
                connection.is_ready = False
            self.peer = connection.peer
            return parts

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        connection = self.by_identity.get(identity)
        if connection is None:
            return False
        if len(parts) == 1:
            # An answer to most: its bytes at once, in half of the calls.
            size = len(parts[0])
            data = pack_head(size, 0) + parts[0]
            size += HEAD_SIZE
        else:
            head, size = message_head(parts)
            data = b"".join((head, *parts))
        if connection.unsent:
            whole = connection.unsent_bytes + size
            if len(connection.unsent) >= ANSWERS_QUEUED_MAX or whole > ANSWER_BYTES_MAX:
                return False
            connection.unsent.append(data)
            connection.unsent_bytes = whole
            return self._bears(connection, size + ANSWER_OVERHEAD)
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end(connection)
            return False
        if sent < size:
            connection.unsent.append(memoryview(data)[sent:])
            connection.unsent_bytes = size - sent
            self._epoll.modify(connection.sock, select.EPOLLIN | select.EPOLLOUT)
            return self._bears(connection, size - sent + ANSWER_OVERHEAD)
        return True

    @property
    def by_descriptor(self) -> dict[int, LocalConnection]:
        """All of them; others only look."""
        return self._by_fd

    def feed(self, connection: LocalConnection, data: bytes) -> None:
        """Somebody else has read ``data`` of a connection whose reader held nothing."""
        try:
            connection.reader.feed(data)
        except ProtocolError:
            self._end(connection)
            return
        self._note_fed(connection)
        if connection.reader.messages and not connection.is_ready:
            connection.is_ready = True
            self.ready.append(connection)

    def read_begun(self, connection: LocalConnection) -> bool:
        """Somebody else takes the messages of a connection that is not in line, and of which one
        has begun; whether one is whole now, and his to take.
        """
        return connection.sock.fileno() >= 0 and self._read(connection)

    def put_back(self, connection: LocalConnection, parts: list[bytes]) -> None:
        """Somebody else has taken a message of a connection, which comes again in its turn, before
        all others.
        """
        connection.reader.messages.appendleft(parts)
        self.leave(connection)

    def leave(self, connection: LocalConnection) -> None:
        """Somebody else has left messages of a connection; they come in their turn."""
        if not connection.is_ready:
            connection.is_ready = True
            self.ready.append(connection)

    def keep_unsent(self, connection: LocalConnection, rest: bytes) -> None:
        """Somebody else has sent an answer but for its end."""
        connection.unsent.append(rest)
        connection.unsent_bytes = len(rest)
        self._epoll.modify(connection.sock, select.EPOLLIN | select.EPOLLOUT)
        self._bears(connection, len(rest) + ANSWER_OVERHEAD)

    def look(self) -> None:
        """Accept again, after there was no room for a connection; to be called now and then."""
        if not self._is_listening:
            self._is_listening = True
            self._epoll.register(self._listener, select.EPOLLIN)

    def close(self) -> None:
        """Close all; what was sent is the kernel's to deliver."""
        self._path.unlink(missing_ok=True)
        self._listener.close()
        for connection in list(self._by_fd.values()):
            self._end(connection)
        self._epoll.close()

    @property
    def _shared(self) -> SocketWatch:
        assert self._watch is not None
        return self._watch

    def _bears(self, connection: LocalConnection, size: int) -> bool:
        """An answer waits in ``connection``; where all together are too much, who has most unread
        must go: whether that is another one.
        """
        self._unsent += size
        limit = self._shared.limits.answers_bytes
        while self._unsent > limit:
            largest = max(
                self._by_fd.values(), key=lambda one: (bool(one.host), _waiting_bytes(one))
            )
            if not largest.unsent:
                # Only an operator's is left.
                largest = max(self._by_fd.values(), key=_waiting_bytes)
            figures = {"bytes": largest.unsent_bytes, "limit": limit}
            self._shared.tell_ended(largest.host, "limits.total_answers_bytes", figures)
            self._note_ended()
            self._end(largest)
        return connection.identity in self.by_identity

    def _poll(self) -> None:
        self._until_poll = POLL_EVERY
        for fd, events in self._epoll.poll(0, EVENTS_MAX):
            connection = self._by_fd.get(fd)
            if connection is None:
                if fd == self._listener.fileno():
                    self._accept()
                continue
            if events & select.EPOLLOUT and not self._flush(connection):
                continue
            if events & ~select.EPOLLOUT and not connection.is_ready:
                connection.is_ready = True
                self.ready.append(connection)

    def _read(self, connection: LocalConnection) -> bool:
        """Read what there is of one message, or of several small ones; whether one is whole now."""
        reader = connection.reader
        wanted = FRAMES_READ_SIZE if len(self.ready) < READY_MANY else SMALL_READ_SIZE
        try:
            while not reader.waits:
                if reader.missing > wanted:
                    wanted = min(reader.missing, READ_SIZE_MAX)
                data = connection.sock.recv(wanted)
                if data:
                    reader.feed(data)
                # Of a large message the rest is mostly there: a turn of its own would cost more.
                if len(data) < wanted or reader.messages:
                    break
            else:
                reader.go_on()
                data = b" "
        except BlockingIOError:
            # All of it was read before.
            data = b" "
        except (ProtocolError, OSError):
            data = b""
        if not data:
            self._end(connection)
            return False
        self._note_fed(connection)
        if reader.messages:
            return True
        connection.is_ready = False
        return False

    def _note_fed(self, connection: LocalConnection) -> None:
        reader = connection.reader
        if reader.begun or connection.counted:
            self._hold(connection, len(reader.begun))
        if reader.messages and connection.is_stranger:
            connection.is_stranger = False
            self._shared.known(connection)

    def _hold(self, connection: LocalConnection, held: int) -> None:
        """A message of ``connection`` has begun or gone on; where that is too much, one must go."""
        self._held += held - connection.counted
        connection.counted = held
        if connection.reader.messages:
            # What stands behind them begins now.
            connection.begun_ns = 0
        if held and not connection.begun_ns:
            connection.begun_ns = time.monotonic_ns()
        limit = self._shared.limits.unread_bytes
        while self._held > limit:
            oldest = self._most_unread()
            figures = {"bytes": oldest.counted, "limit": limit}
            self._shared.tell_ended(oldest.host, "limits.total_unread_bytes", figures)
            self._note_ended()
            self._end(oldest)

    def _most_unread(self) -> LocalConnection:
        """The message that was begun first of whoever holds most; an operator's at last."""
        holding = [one for one in self._by_fd.values() if one.counted]
        held: Counter[str] = Counter()
        for one in holding:
            held[one.host] += one.counted
        return min(holding, key=lambda one: (not one.host, -held[one.host], one.begun_ns))

    def _flush(self, connection: LocalConnection) -> bool:
        """Send what could not be sent; false when the connection has ended."""
        unsent = connection.unsent
        try:
            while unsent:
                data = unsent[0]
                sent = connection.sock.send(data)
                connection.unsent_bytes -= sent
                self._unsent -= sent
                if sent < len(data):
                    unsent[0] = memoryview(data)[sent:]
                    return True
                unsent.popleft()
                self._unsent -= ANSWER_OVERHEAD
        except BlockingIOError:
            return True
        except OSError:
            self._end(connection)
            return False
        self._epoll.modify(connection.sock, select.EPOLLIN)
        return True

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                sock, _address = self._listener.accept()
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    # No descriptor is left: those who wait are asked for again by ``look``.
                    self._is_listening = False
                    self._epoll.unregister(self._listener)
                return
            sock.setblocking(False)
            told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            pid, uid, gid = CREDENTIALS.unpack(told)
            connection = LocalConnection(
                sock, Peer(f"localhost:{uid}:{gid}:{pid}"), self._part_size_max
            )
            refused = self._shared.admit(
                connection.host, connection, partial(self._give_way, connection)
            )
            if refused is not None:
                self._shared.tell_ended(connection.host, *refused)
                self._note_ended()
                sock.close()
                continue
            self._by_fd[sock.fileno()] = connection
            self.by_identity[connection.identity] = connection
            self._epoll.register(sock, select.EPOLLIN)

    def _give_way(self, connection: LocalConnection) -> None:
        self._note_ended()
        self._end(connection)

    def _end(self, connection: LocalConnection) -> None:
        """Close a connection; what it had sent, and was not taken, is gone with it."""
        del self._by_fd[connection.sock.fileno()]
        del self.by_identity[connection.identity]
        # What was read and not counted, when the connection broke, is of no account.
        self._held -= connection.counted
        self._unsent -= _waiting_bytes(connection)
        connection.reader.messages.clear()
        with suppress(ValueError):
            self.ready.remove(connection)
        self._shared.release(connection.host, connection)
        connection.sock.close()


def _waiting_bytes(connection: LocalConnection) -> int:
    return connection.unsent_bytes + ANSWER_OVERHEAD * len(connection.unsent)
