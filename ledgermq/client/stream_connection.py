"""Stream connection to the writer of a node on this machine, without ZeroMQ and its threads."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Sequence
from itertools import chain

from ledgermq.client.core.connection import MESSAGE_SIZE_MAX, MESSAGES_QUEUED_MAX, Part
from ledgermq.client.forks import OfOneProcess
from ledgermq.wire.byte_stream import (
    HEAD_SIZE,
    PARTS_MAX,
    MessageReader,
    message_head,
    pack_head,
)

ANSWERS_READ_SIZE = 64 * 1024
SEND_BUFFER = 1024 * 1024
"""Asked of the kernel, which may give less: frames of batches leave in one call."""

SUFFIX = ".sock"
"""End of the stream's path, behind that of ZeroMQ's socket."""

PATH_MAX = 107
"""``sun_path`` holds 108 bytes, the last of them zero."""


class StreamConnection(OfOneProcess):
    """A unix socket; what it does not take at once leaves when it does.

    Its only descriptor can be read when there is something to take, or when more can leave: so
    whoever polls it need not know which. In a child that is forked it has ended: what both sent,
    and took, would be each other's.

    Attributes:
        socket, unsent, reader: for ``kernel.Exchange``, which sends and takes single messages.
        came: what that has taken from the socket, and was not made into messages.
        told: what a poll says where this connection alone has something to take.
    """

    def __init__(self, path: str) -> None:
        """Connects at once.

        Raises:
            OSError: nobody takes the connection now.
        """
        self.is_locked_out = self.was_cut_off = False
        self.stays_readable = True
        self._has_ended = False
        self.descriptors: tuple[int, ...] = ()
        self.unsent: deque[bytes | memoryview] = deque()
        self.reader = MessageReader(MESSAGE_SIZE_MAX)
        self.came = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self._epoll = select.epoll()
        self._epoll.register(self.socket, select.EPOLLIN)
        self.descriptors = (self._epoll.fileno(),)
        self.told = [(self._epoll.fileno(), select.POLLIN)]
        self._belong()

    def receive(self) -> list[Part] | None:
        """The parts of the next message that has come; None: there is none.

        Raises:
            ProtocolError: what comes is no message.
        """
        messages = self.reader.messages
        if not messages and self.came:
            came, self.came = self.came, b""
            self.reader.feed(came)
        if not messages:
            # A third of what a receive in vain costs.
            if self._has_ended or not self._epoll.poll(0):
                return None
            if self.unsent:
                self._flush()
            # Mostly there is one message, or nothing.
            while not messages:
                if self._has_ended:
                    return None
                missing = self.reader.missing
                try:
                    data = self.socket.recv(
                        missing if missing > ANSWERS_READ_SIZE else ANSWERS_READ_SIZE
                    )
                except BlockingIOError:
                    return None
                except OSError:
                    data = b""
                if data:
                    self.reader.feed(data)
                else:
                    self._has_ended = True
        parts: list[Part] = [*messages.popleft()]
        return parts

    def send(self, parts: Sequence[bytes]) -> bool:
        if self._has_ended:
            return False
        unsent = self.unsent
        if unsent:
            if len(unsent) >= MESSAGES_QUEUED_MAX:
                return False
            unsent.extend((message_head(parts)[0], *parts))
            return True
        if len(parts) == PARTS_MAX:
            # With each frame: as ``message_head``.
            first, second = parts
            size, more = len(first), len(second)
            head = pack_head(size, more + 1)
            size += more + HEAD_SIZE
        else:
            head, size = message_head(parts)
        try:
            sent = self.socket.sendmsg((head, *parts))
        except BlockingIOError:
            sent = 0
        except OSError:
            self.end()
            return False
        if sent < size:
            rest: list[bytes | memoryview] = []
            for part in chain((head,), parts):
                if sent < len(part):
                    rest.append(memoryview(part)[sent:] if sent else part)
                    sent = 0
                else:
                    sent -= len(part)
            self.send_later(*rest)
        return True

    def send_later(self, *rest: bytes | memoryview) -> None:
        """Send the rest of a message, of which the kernel has taken what it had room for."""
        self.unsent.extend(rest)
        self._epoll.modify(self.socket, select.EPOLLIN | select.EPOLLOUT)

    def end(self) -> None:
        """Know that the other side has gone."""
        self._has_ended = True

    def has_ended(self, now: float) -> bool:
        del now
        return self._has_ended

    def close(self, linger_ms: int) -> None:
        """Close; what was handed to the kernel is its to deliver."""
        del linger_ms
        self._epoll.close()
        self.socket.close()

    def _leave(self) -> None:
        """Leave all to the parent: of what both have open, the child's is closed."""
        self._has_ended = True
        self.came = b""
        self.unsent.clear()
        self.reader.messages.clear()
        if self.descriptors:
            self.close(0)

    def _flush(self) -> None:
        unsent = self.unsent
        try:
            while unsent:
                data = unsent[0]
                sent = self.socket.send(data)
                if sent < len(data):
                    unsent[0] = memoryview(data)[sent:]
                    return
                unsent.popleft()
        except BlockingIOError:
            return
        except OSError:
            # What came before the end is read all the same; it ends with the next read.
            unsent.clear()
        self._epoll.modify(self.socket, select.EPOLLIN)


def open_stream(path: str) -> StreamConnection | None:
    """A stream to the writer whose socket of ZeroMQ's is at ``path``; None where there is none.

    A writer listens at its stream before it does at ZeroMQ's socket: where only that is heard, the
    node is of a version that has no stream, whatever a node before it may have left.

    Raises:
        OSError: no writer is there now.
    """
    if not hasattr(select, "epoll"):
        # No Linux: over ZeroMQ's socket, where that has one.
        return None
    if len(path.encode() + SUFFIX.encode()) > PATH_MAX:
        return None
    try:
        return StreamConnection(path + SUFFIX)
    except OSError:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(path)
    # It may have begun to listen between the two.
    try:
        return StreamConnection(path + SUFFIX)
    except OSError:
        return None
