"""Connections that speak ZMTP of any version and mechanism byte by byte, rightly or wrongly.

https://rfc.zeromq.org/spec/23/: a signature of ten bytes, the version, the mechanism in twenty
bytes, who is the server, 31 zeros; then commands and messages as frames.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from tests.process.raw_zmtp import LONG, MORE, SHORT_MAX

COMMAND = 4
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
MECHANISMS = (b"NULL", b"PLAIN", b"CURVE", b"GSSAPI", b"", b"null", b"X" * 20)
VERSIONS = ((3, 0), (3, 1), (3, 9), (4, 0), (255, 255))
WAIT_S = 15.0


def greeting(version: tuple[int, int] = (3, 0), mechanism: bytes = b"NULL") -> bytes:
    """The 64 bytes with which a connection begins."""
    return SIGNATURE + bytes(version) + mechanism.ljust(20, b"\0") + bytes(32)


def frame(content: bytes, flags: int = 0) -> bytes:
    """One frame; ``flags`` of ``MORE`` and ``COMMAND``."""
    if len(content) > SHORT_MAX:
        return bytes([flags | LONG]) + len(content).to_bytes(8, "big") + content
    return bytes([flags, len(content)]) + content


def command(name: bytes, data: bytes = b"") -> bytes:
    """A command frame."""
    return frame(bytes([len(name)]) + name + data, COMMAND)


def ready(**properties: bytes) -> bytes:
    """READY of a DEALER, with these properties besides."""
    told = {"Socket-Type": b"DEALER", "Identity": b"", **properties}
    data = b"".join(
        bytes([len(name)]) + name.encode() + len(value).to_bytes(4, "big") + value
        for name, value in told.items()
    )
    return command(b"READY", data)


def message(parts: Sequence[bytes]) -> bytes:
    """The frames of a message."""
    last = len(parts) - 1
    return b"".join(frame(part, MORE if row < last else 0) for row, part in enumerate(parts))


def connect(address: tuple[str, int]) -> socket.socket:
    """A connection that has said nothing yet."""
    return socket.create_connection(address, timeout=WAIT_S)


def send_until_closed(connection: socket.socket, data: bytes) -> None:
    """Send what the other side takes; that it hangs up, or reads no more, is an answer, too."""
    try:
        connection.sendall(data)
    except (ConnectionError, TimeoutError):
        return
