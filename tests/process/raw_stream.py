"""A client of a writer's stream socket, byte by byte: it speaks as ``RawProducer`` does, and cuts
what it says where it likes.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from ledgermq.wire.byte_stream import MessageReader, message_head
from tests.process.raw_producer import RawProducer


class StreamSocket:
    """What ``RawProducer`` needs of a socket of ZeroMQ's."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._reader = MessageReader(1024 * 1024)

    def send_multipart(self, parts: Sequence[bytes]) -> None:
        self.send_bytes(b"".join((message_head(parts)[0], *parts)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def poll(self, timeout_ms: int) -> bool:
        """Whether a message is there within so many milliseconds."""
        until = time.monotonic() + timeout_ms / 1_000
        while not self._reader.messages:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                return False
            data = self._socket.recv(64 * 1024)
            if not data:
                raise ConnectionResetError("the writer has closed the connection")
            self._reader.feed(data)
        return True

    def recv_multipart(self) -> list[bytes]:
        return self._reader.messages.popleft()

    def close(self) -> None:
        self._socket.close()


class RawStream(RawProducer):
    """One connection to the stream socket of a writer."""

    def __init__(self, runtime: Path) -> None:
        super().__init__(runtime, hello=False)
        self.socket.close(0)
        self.stream = StreamSocket(runtime / "produce.sock")
        self.socket = self.stream  # type: ignore[assignment]  # all that is used of one
        self.welcome = self.hello()

    def message(self, parts: Sequence[bytes]) -> bytes:
        """The bytes of a message, for ``stream.send_bytes``."""
        return b"".join((message_head(parts)[0], *parts))

    def close(self) -> None:
        self.stream.close()
        super().close()
