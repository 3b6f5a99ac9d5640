"""HTTP by hand: what is sent is what the test says, and what comes back is what was sent."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

from tests.suite.patience import PATIENCE_S

Where = tuple[str, int] | Path


class HttpAnswer(NamedTuple):
    """One answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode()


def connect(where: Where, timeout_s: float = PATIENCE_S, *, source: str = "") -> socket.socket:
    """A connection to a tcp address, or to a unix socket; from ``source``, or any address."""
    if isinstance(where, Path):
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(timeout_s)
        made.connect(str(where))
        return made
    return socket.create_connection(where, timeout_s, (source, 0) if source else None)


def listens(where: Where) -> bool:
    """Whether a connection is taken: a unix socket has its path a moment before."""
    try:
        connect(where).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; what came before a reset, too."""
    parts = []
    while True:
        try:
            part = connection.recv(65_536)
        except ConnectionResetError:
            return b"".join(parts)
        if not part:
            return b"".join(parts)
        parts.append(part)


def parse(content: bytes) -> HttpAnswer:
    """The only answer in ``content``, which was closed behind it."""
    head, _, body = content.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return HttpAnswer(int(first.split()[1]), headers, body)


def get(
    where: Where, path: str, method: str = "GET", *, source: str = "", **headers: str
) -> HttpAnswer:
    """Ask once, and close."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with connect(where, source=source) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return parse(read_all(connection))
