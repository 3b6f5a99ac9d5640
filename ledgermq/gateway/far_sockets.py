"""Connections of port processes, as the broker process sees them.

Each port process has one link, a Unix stream, over which come the commands that it does not answer
itself, and go the replies. A connection is known here from its first such command on. A link that
ends takes its connections with it: its port process has died, or begins anew with the next link.
"""

from __future__ import annotations

import json
import logging
import select
import socket
import ssl
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ledgermq.gateway.consuming.offset_commits import NotesOffsets
from ledgermq.gateway.transport.port_link import LENGTH_SIZE, LinkFrame, LinkKind, Part, PortLink
from ledgermq.gateway.transport.remoting_sockets import Arrival, Connection, RemotingLimits
from ledgermq.model.errors import ProtocolError, StorageError
from ledgermq.remoting.command import Command, decode_command, encode_command

logger = logging.getLogger(__name__)

BACKLOG = 64
QUEUED_MAX = 64 * 1024 * 1024
"""Bytes that one port process may leave unread; more, and its link is ended."""


class FarConnection(Connection):
    """A client's connection to a port process; ``number`` is this process's own."""

    __slots__ = ("_has_tls", "far_number", "link")

    def __init__(
        self,
        link: PortLink,
        far_number: int,
        peer: tuple[str, int],
        number: int,
        *,
        is_sealed: bool,
    ) -> None:
        """Open; of what a connection has, only what the port's parts use is there."""
        self.link = link
        self.far_number = far_number
        self.peer = peer
        self.number = number
        self.is_open = True
        self.queued_bytes = 0
        self._has_tls = is_sealed

    @property
    def is_sealed(self) -> bool:
        return self._has_tls


class FarSockets:
    """Owned by the port of the broker process; see ``ClientSockets``.

    Invariant: ``_links`` has, by descriptor, the links that are open, and ``_connections`` theirs.

    Attributes:
        tls, limits: not used; port processes have their own.
    """

    def __init__(self, path: Path, commits: NotesOffsets) -> None:
        """Listen for port processes.

        Args:
            commits: takes what consumers have committed with their pulls.

        Raises:
            StorageError: the socket cannot be made.
        """
        self.tls: ssl.SSLContext | None = None
        self.limits = RemotingLimits()
        self._commits = commits
        self._path = path
        self._listener = _listen(path)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._links: dict[int, PortLink] = {}
        self._connections: dict[int, dict[int, FarConnection]] = {}
        self._closed: list[Connection] = []
        self._count = 0

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def can_be_reached(self) -> bool:
        """Whether there is a port process: it has its addresses before it links itself."""
        return bool(self._links)

    def listen(self) -> None:
        """Nothing: port processes listen when they know their writer."""

    def next_deadline_ms(self) -> int | None:
        """Never: port processes close idle connections."""
        return None

    def turn(self, now_ms: int, *, unread: Container[int] = ()) -> Iterator[Arrival]:
        """What has come; bodies are views that keep what was read alive. A link is read for all
        connections behind it.
        """
        del now_ms, unread
        for fd, events in self._epoll.poll(0):
            if fd == self._listener.fileno():
                self._accept()
                continue
            link = self._links[fd]
            if events & select.EPOLLOUT:
                link.flush()
            if events & ~select.EPOLLOUT:
                yield from self._take(fd, link)
            self._forget_ended(fd, link)

    def send(self, connection: Connection, command: Command) -> None:
        if connection.is_open:
            self._put(connection, encode_command(command))

    def send_bytes(self, connection: Connection, data: bytes) -> None:
        if connection.is_open:
            self._put(connection, [data])

    def flush(self) -> None:
        for fd, link in list(self._links.items()):
            if link.queued_bytes:
                link.flush()
            if link.queued_bytes > QUEUED_MAX:
                logger.warning("link ended: a port process does not read its replies")
                link.close()
            self._forget_ended(fd, link)

    @property
    def has_closed(self) -> bool:
        return bool(self._closed)

    def take_closed(self) -> list[Connection]:
        closed, self._closed = self._closed, []
        return closed

    def end(self, connection: Connection, reason: str) -> None:
        """Have the port process end a connection, and tell the reason."""
        assert isinstance(connection, FarConnection), connection
        if connection.is_open:
            connection.link.put(LinkKind.CLOSED, connection.far_number, [reason.encode()])

    def close(self) -> None:
        """Write what is queued, and end all links."""
        self._listener.close()
        for link in self._links.values():
            link.end()
        self._epoll.close()
        self._path.unlink(missing_ok=True)

    def _put(self, connection: Connection, parts: Sequence[Part]) -> None:
        assert isinstance(connection, FarConnection), connection
        connection.link.put(LinkKind.COMMAND, connection.far_number, parts)

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                link = PortLink(sock, self._epoll)
                self._links[link.fileno()] = link
                self._connections[link.fileno()] = {}

    def _take(self, fd: int, link: PortLink) -> Iterator[Arrival]:
        known = self._connections[fd]
        try:
            for frame in link.take():
                if frame.kind is LinkKind.COMMAND:
                    command = decode_command(frame.payload[LENGTH_SIZE:])
                    yield Arrival(known[frame.number], command)
                elif frame.kind is LinkKind.OPENED:
                    known[frame.number] = self._opened(link, frame)
                elif frame.kind is LinkKind.CLOSED:
                    self._end(known.pop(frame.number))
                else:
                    for group, topic, queue_id, offset, owner in json.loads(bytes(frame.payload)):
                        self._commits.note(group, topic, queue_id, offset, owner=owner)
        except ProtocolError as error:
            logger.error("link ended: a port process sends what it should not: %s", error)
            link.close()

    def _opened(self, link: PortLink, frame: LinkFrame) -> FarConnection:
        host, port, is_sealed = json.loads(bytes(frame.payload))
        self._count += 1
        return FarConnection(
            link, frame.number, (host, port), self._count, is_sealed=bool(is_sealed)
        )

    def _forget_ended(self, fd: int, link: PortLink) -> None:
        if link.is_open or self._links.get(fd) is not link:
            return
        del self._links[fd]
        for connection in self._connections.pop(fd).values():
            self._end(connection)

    def _end(self, connection: FarConnection) -> None:
        connection.is_open = False
        self._closed.append(connection)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # What an earlier broker process has left.
        path.unlink(missing_ok=True)
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StorageError(
            f"socket for port processes not made: {error.strerror}",
            errno=error.errno,
            path=str(path),
            setting="listen.runtime_dir",
        ) from error
    return listener
