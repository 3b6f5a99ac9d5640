"""Clients that speak ZMTP 1.0 and 2.0, byte by byte, over tcp: such connections have no properties.

https://rfc.zeromq.org/spec/15/: signature, revision, socket type, identity; then frames: a byte of
flags, a size of one or eight bytes, the content. https://rfc.zeromq.org/spec/13/ is 1.0: frames
alone, the size before the flags and with them; the first one is the identity.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.session import Refusal, decode_refused, encode_call, encode_hello
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S

MORE, LONG = 1, 2
REVISION_2, DEALER = b"\x01", b"\x05"
SHORT_MAX = 255
FIRST_LONG, FIRST_MARK = 0xFF, 0x7F


class ZmtpClient:
    """One connection to a ROUTER by ZMTP 2.0, under an identity of the test's choice."""

    def __init__(self, address: tuple[str, int], *, identity: bytes = b"") -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE_S)
        self._stream = self._socket.makefile("rb")
        self._greet(identity)

    def _greet(self, identity: bytes) -> None:
        signature = b"\xff" + (1 + len(identity)).to_bytes(8, "big") + b"\x7f"
        self._socket.sendall(signature + REVISION_2 + DEALER + self._frame(identity, more=False))
        # The other side's signature, revision and type, then its identity.
        self._exactly(12)
        self._take_frame()

    def hello(self) -> Kind:
        """Say HELLO; what the answer is."""
        self.send(encode_hello(1, client="stranger", library="raw"))
        return decode_header(self.receive()[0]).kind

    def call(self, number: int, verb: str, **arguments: object) -> Any:
        """The result of a call, or the refusal."""
        self.send(encode_call(number, verb, **arguments))
        while True:
            parts = self.receive()
            header = decode_header(parts[0])
            if header.request_id == number:
                return _outcome(header.kind, parts[1])

    def send(self, parts: Sequence[bytes]) -> None:
        """Send one message."""
        last = len(parts) - 1
        frames = (self._frame(part, more=row < last) for row, part in enumerate(parts))
        self._socket.sendall(b"".join(frames))

    def receive(self) -> list[bytes]:
        """The next message.

        Raises:
            EOFError: the other side has closed the connection.
            TimeoutError: nothing has come.
        """
        parts = []
        has_more = True
        while has_more:
            has_more, part = self._take_frame()
            parts.append(part)
        return parts

    def has_answer(self) -> bool:
        """Whether anything has come that was not received yet."""
        return is_readable(self._socket, 0)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()
        self._socket.close()

    @staticmethod
    def _frame(content: bytes, *, more: bool) -> bytes:
        flags = MORE if more else 0
        if len(content) > SHORT_MAX:
            return bytes([flags | LONG]) + len(content).to_bytes(8, "big") + content
        return bytes([flags, len(content)]) + content

    def _take_frame(self) -> tuple[bool, bytes]:
        flags = self._exactly(1)[0]
        size = int.from_bytes(self._exactly(8 if flags & LONG else 1), "big")
        return bool(flags & MORE), self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        content = self._stream.read(size)
        if len(content) < size:
            raise EOFError("connection closed")
        return content


class FirstZmtpClient(ZmtpClient):
    """The same by ZMTP 1.0, which does not even say that it is."""

    def _greet(self, identity: bytes) -> None:
        self._socket.sendall(self._frame(identity, more=False))
        # The signature of the other side reads as an identity of no bytes.
        self._take_frame()

    @staticmethod
    def _frame(content: bytes, *, more: bool) -> bytes:
        size = len(content) + 1
        head = bytes([size]) if size < FIRST_LONG else bytes([FIRST_LONG]) + size.to_bytes(8, "big")
        return head + bytes([MORE if more else 0]) + content

    def _take_frame(self) -> tuple[bool, bytes]:
        size = self._exactly(1)[0]
        if size == FIRST_LONG:
            size = int.from_bytes(self._exactly(8), "big")
        flags = self._exactly(1)[0]
        # The flags of a signature are another version's.
        return bool(flags & MORE) and flags != FIRST_MARK, self._exactly(size - 1)


def _outcome(kind: Kind, body: bytes) -> Refusal | Any:
    return decode_refused(body) if kind is Kind.REFUSED else json.loads(body)
