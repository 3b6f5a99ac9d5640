"""Link between a port process and the broker process: frames over one stream, and the first end.

A frame, big-endian:

    size  field
    4     bytes behind this field
    1     kind
    8     number of the connection, as its port process counts; 0 for none
    n     payload

    kind     sent by       payload
    OPENED   port process  host and port of the client, whether it has TLS: a JSON list
    CLOSED   port process  nothing
    COMMAND  both          a command as it is on the client's connection, its size in front
    OFFSETS  port process  what consumers have committed: a JSON list of group, topic, queue, offset

Both ends are of one version: they are forked by one supervisor.
"""

from __future__ import annotations

import json
import select
import socket
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.first_bytes import REMOTING_FRAME_MAX
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import (
    BYTES_PER_TURN,
    PARTS_PER_WRITE,
    Connection,
    RemotingSockets,
)
from ledgermq.gateway.transport.tls_channel import READ_SIZE
from ledgermq.gateway.transport.unread_replies import check_reads
from ledgermq.model.errors import BusyError, NotLeaderError, ProtocolError
from ledgermq.remoting.command import ONEWAY, Command, decode_command, encode_handed_on
from ledgermq.remoting.frames import FrameSplitter

LAST_WORDS_S = 1.0
"""How long the end that closes waits for the other one to take what is queued."""

_HEAD = Struct(">IBQ")
LENGTH_SIZE = 4
_PAYLOAD_AT = _HEAD.size - LENGTH_SIZE

Part = bytes | memoryview

RETRY_MS = 100
"""Milliseconds between attempts to reach a broker process that is away."""

OFFSETS_MS = 20
"""Shortest time between two times that offsets are told by themselves: each is a turn of the broker
process."""

REQUESTS_QUEUED_MAX = 64 * 1024 * 1024
"""Bytes that wait for the broker process; more, and requests are refused as by a busy node."""


TakeReply = Callable[[Command], None]


class LinkKind(IntEnum):
    """What a frame says."""

    OPENED = 1
    CLOSED = 2
    COMMAND = 3
    OFFSETS = 4


class LinkFrame(NamedTuple):
    """One frame; the payload is a view that keeps what was read alive."""

    kind: LinkKind
    number: int
    payload: memoryview


class PortLink:
    """Owned by the process at this end, whose ``epoll`` tells when there is work.

    Invariant: ``EPOLLOUT`` is asked for exactly while what is queued waits for the other end.

    Attributes:
        is_open: cleared when either side has ended it.
        queued_bytes: put, and not written yet.
    """

    def __init__(self, sock: socket.socket, epoll: select.epoll) -> None:
        """Takes over a connected socket."""
        sock.setblocking(False)
        self.is_open = True
        self.queued_bytes = 0
        self._sock = sock
        self._epoll = epoll
        self._splitter = FrameSplitter(_PAYLOAD_AT + LENGTH_SIZE + REMOTING_FRAME_MAX)
        self._queued: deque[Part] = deque()
        self._waits_for_room = False
        self._buffer = memoryview(bytearray(READ_SIZE))
        epoll.register(sock.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        """The socket's, as the epoll tells it; -1 when it is closed."""
        return self._sock.fileno()

    def put(self, kind: LinkKind, number: int, parts: Sequence[Part] = ()) -> None:
        """Queue a frame; ``flush`` writes it. Nothing is done when the link has ended."""
        if not self.is_open:
            return
        size = sum(map(len, parts))
        self._queued.append(_HEAD.pack(_PAYLOAD_AT + size, kind, number))
        self._queued.extend(parts)
        self.queued_bytes += _HEAD.size + size

    def take(self) -> Iterator[LinkFrame]:
        """What has come, up to ``BYTES_PER_TURN``; epoll tells of the rest again.

        To be gone through to its end. A link that the other side has ended is closed.

        Raises:
            ProtocolError: the other end is none of this version; the link is closed.
        """
        left = BYTES_PER_TURN
        while self.is_open and left > 0:
            data = self._read()
            if not data:
                return
            left -= len(data)
            try:
                for frame in self._splitter.feed(data):
                    yield _decode(frame)
            except ProtocolError:
                self.close()
                raise
            # Less than there was room for: the socket is empty, and one more read would only say
            # so.
            if len(data) < READ_SIZE:
                return

    def flush(self) -> None:
        """Write what is queued, as far as it goes without waiting."""
        queued = self._queued
        while self.is_open and queued:
            try:
                written = self._sock.sendmsg(list(islice(queued, PARTS_PER_WRITE)))
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            self._drop(written)
        if self.is_open and self._waits_for_room != bool(queued):
            self._waits_for_room = bool(queued)
            events = select.EPOLLIN | (select.EPOLLOUT if queued else 0)
            self._epoll.modify(self._sock.fileno(), events)

    def end(self) -> None:
        """Write what is queued, waiting for the other end for a while, and close."""
        if self.is_open:
            self._sock.settimeout(LAST_WORDS_S)
            with suppress(OSError):
                # Who does not take it in time loses it, and finds the link ended.
                while self._queued:
                    self._drop(self._sock.send(self._queued[0]))
        self.close()

    def close(self) -> None:
        """End the link; what is queued is lost."""
        if self.is_open:
            self.is_open = False
            self._epoll.unregister(self._sock.fileno())
            self._sock.close()
            self._queued.clear()
            self.queued_bytes = 0

    def _read(self) -> bytes:
        try:
            size = self._sock.recv_into(self._buffer)
        except BlockingIOError:
            return b""
        except OSError:
            size = 0
        if not size:
            self.close()
        return bytes(self._buffer[:size])

    def _drop(self, written: int) -> None:
        queued = self._queued
        self.queued_bytes -= written
        while queued and written >= len(queued[0]):
            written -= len(queued.popleft())
        if written:
            queued[0] = memoryview(queued[0])[written:]


def _decode(frame: memoryview) -> LinkFrame:
    if len(frame) < _PAYLOAD_AT or frame[0] not in LinkKind._value2member_map_:
        raise ProtocolError("frame of a link that is none", size=len(frame))
    number = int.from_bytes(frame[1:_PAYLOAD_AT], "big")
    return LinkFrame(LinkKind(frame[0]), number, frame[_PAYLOAD_AT:])


class _Waiting(NamedTuple):
    request: Command
    take: TakeReply | None


class BrokerLink(PortPart):
    """The end of a port process, for what it does not answer itself.

    While the broker process is away, requests are refused as by a node that is starting, and
    clients stay connected. When it is back it is told who is connected: the last heartbeat of each
    client. Brokers that have registered lose their connections then: they register again by
    themselves.

    Invariants: a connection is in ``_told`` while the broker process knows it; a request that wants
    a reply is in ``_waiting`` until it has one, its connection ends or the link does.
    """

    def __init__(self, path: Path, epoll: select.epoll, sockets: RemotingSockets) -> None:
        """A link that ``turn`` opens.

        Args:
            path: where the broker process listens.
            epoll: wakes the process.
            sockets: get the replies.
        """
        self._path = path
        self._epoll = epoll
        self._sockets = sockets
        self._link: PortLink | None = None
        self._retry_ms = 0
        self._told: dict[int, Connection] = {}
        self._waiting: dict[int, dict[int, _Waiting]] = {}
        self._heartbeats: dict[int, tuple[Connection, Sequence[Part]]] = {}
        self._registrars: dict[int, Connection] = {}
        self._offsets: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._offsets_due_ms = self._now_ms = 0

    @property
    def is_up(self) -> bool:
        """Whether the broker process is reached."""
        return self._link is not None

    def next_deadline_ms(self) -> int | None:
        if self._link is None:
            return self._retry_ms
        return self._offsets_due_ms if self._offsets else None

    def turn(self, now_ms: int) -> None:
        """Reach the broker process if it is time to, and hand its commands to the clients."""
        self._now_ms = now_ms
        if self._link is None and now_ms >= self._retry_ms:
            self._retry_ms = now_ms + RETRY_MS
            self._connect()
        link = self._link
        if link is None:
            return
        link.flush()
        for frame in link.take():
            self._take(frame)
        if not link.is_open:
            self._lose(now_ms)

    def hand_over(
        self, connection: Connection, command: Command, take: TakeReply | None = None
    ) -> None:
        """Have the broker process answer; its reply goes to the client by itself.

        Args:
            take: is shown the reply before.

        Raises:
            NotLeaderError: the broker process is away.
            BusyError: it does not keep up, or the client does not read.
            ProtocolError: it cannot be handed over; the link, which is that of all, lives on.
        """
        link = self._link
        if link is None:
            raise _away()
        if link.queued_bytes > REQUESTS_QUEUED_MAX:
            raise BusyError(
                "broker process does not keep up",
                bytes=link.queued_bytes,
                limit=REQUESTS_QUEUED_MAX,
            )
        check_reads(connection, command.code, self._sockets.limits.unread_bytes)
        parts = encode_handed_on(command)
        if not (command.is_oneway or command.is_reply):
            # Without its body, which may be large.
            request = Command(command.code, command.opaque, flag=command.flag, kind=command.kind)
            of = self._waiting.setdefault(connection.number, {})
            of[command.opaque] = _Waiting(request, take)
        self._put(link, connection, parts)

    def waits_for(self, connection: Connection, codes: Container[int]) -> bool:
        """Whether the broker process has yet to answer a request of these codes."""
        of = self._waiting.get(connection.number)
        return of is not None and any(one.request.code in codes for one in of.values())

    def keep_heartbeat(self, connection: Connection, command: Command) -> None:
        """Have a broker process that begins anew told of a client.

        Raises:
            ProtocolError: it cannot be told.
        """
        kept = Command(
            command.code,
            command.opaque,
            dict(command.fields),
            bytes(command.body),
            ONEWAY,
            language=command.language,
            version=command.version,
            kind=command.kind,
        )
        self._heartbeats[connection.number] = connection, encode_handed_on(kept)

    def forget_heartbeat(self, connection: Connection) -> None:
        """A client has said goodbye."""
        self._heartbeats.pop(connection.number, None)

    def keep_registrar(self, connection: Connection) -> None:
        """A broker registers over it: a broker process that begins anew will know nothing of it."""
        self._registrars[connection.number] = connection

    def note(self, group: str, topic: str, queue_id: int, offset: int, *, owner: str = "") -> None:
        """Tell what a consumer has committed, soon, and before what is handed over later.

        It is lost while nobody takes it: consumers tell it again.
        """
        if not self._offsets:
            self._offsets_due_ms = self._now_ms + OFFSETS_MS
        self._offsets[group, topic, queue_id] = offset, owner

    def forget(self, connection: Connection) -> None:
        self._waiting.pop(connection.number, None)
        self._heartbeats.pop(connection.number, None)
        self._registrars.pop(connection.number, None)
        if self._told.pop(connection.number, None) is not None and self._link is not None:
            self._link.put(LinkKind.CLOSED, connection.number)

    def flush(self) -> None:
        """Write what was handed over; at the end of each turn."""
        link = self._link
        if link is None:
            self._offsets.clear()
            return
        if self._now_ms >= self._offsets_due_ms:
            self._tell_offsets(link)
        if link.queued_bytes:
            link.flush()

    def close(self) -> None:
        """Refuse all that waits, and end the link."""
        if self._link is not None:
            self._link.close()
            self._lose(0)

    def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.connect(str(self._path))
        except OSError:
            # It is not there yet, or has not begun to listen: tried again.
            sock.close()
            return
        self._link = link = PortLink(sock, self._epoll)
        for connection, heartbeat in self._heartbeats.values():
            self._put(link, connection, heartbeat)
        for connection in self._registrars.values():
            self._sockets.end(connection, "the broker process is another one: register again")
        self._registrars.clear()

    def _tell_offsets(self, link: PortLink) -> None:
        offsets, self._offsets = self._offsets, {}
        if offsets:
            rows = [[*place, *noted] for place, noted in offsets.items()]
            link.put(LinkKind.OFFSETS, 0, [json.dumps(rows).encode()])

    def _put(self, link: PortLink, connection: Connection, parts: Sequence[Part]) -> None:
        number = connection.number
        if number not in self._told:
            self._told[number] = connection
            about = json.dumps([*connection.peer, connection.is_sealed])
            link.put(LinkKind.OPENED, number, [about.encode()])
        self._tell_offsets(link)
        link.put(LinkKind.COMMAND, number, parts)

    def _take(self, frame: LinkFrame) -> None:
        connection = self._told.get(frame.number)
        if connection is None:
            # It has ended meanwhile.
            return
        if frame.kind is LinkKind.CLOSED:
            self._sockets.end(connection, bytes(frame.payload).decode())
            return
        data = bytes(frame.payload)
        try:
            command = decode_command(memoryview(data)[LENGTH_SIZE:])
        except ProtocolError as error:
            # What another client, or its own words in a remark, made too large for this one.
            self._sockets.end(connection, str(error))
            return
        if command.is_reply:
            of = self._waiting.get(frame.number, {})
            waiting = of.pop(command.opaque, None)
            if not of:
                self._waiting.pop(frame.number, None)
            if waiting is not None and waiting.take is not None:
                waiting.take(command)
        self._sockets.send_bytes(connection, data)

    def _lose(self, now_ms: int) -> None:
        """The link has ended: nobody will answer what it has."""
        self._link = None
        self._retry_ms = now_ms + RETRY_MS
        told, self._told = self._told, {}
        waiting, self._waiting = self._waiting, {}
        for number, of in waiting.items():
            for one in of.values():
                self._sockets.send(told[number], refusal(one.request, _away()))


def _away() -> NotLeaderError:
    return NotLeaderError("node is starting: its broker process does not answer yet")
