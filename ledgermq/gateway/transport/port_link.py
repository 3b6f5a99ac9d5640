"""Frames between a port process and the broker process, over one stream.

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

import select
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from struct import Struct
from typing import NamedTuple

from ledgermq.gateway.transport.remoting_sockets import BYTES_PER_TURN, PARTS_PER_WRITE
from ledgermq.gateway.transport.tls_channel import READ_SIZE
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.frames import FRAME_SIZE_MAX, FrameSplitter

LAST_WORDS_S = 1.0
"""How long the end that closes waits for the other one to take what is queued."""

_HEAD = Struct(">IBQ")
LENGTH_SIZE = 4
_PAYLOAD_AT = _HEAD.size - LENGTH_SIZE

Part = bytes | memoryview


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
        self._splitter = FrameSplitter(_PAYLOAD_AT + LENGTH_SIZE + FRAME_SIZE_MAX)
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
