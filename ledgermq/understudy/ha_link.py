"""HA link: the one connection of an understudy to the port where a master waits for its slaves."""

from __future__ import annotations

import socket

from ledgermq.model.config.host_texts import split_address
from ledgermq.model.errors import UnreachableError
from ledgermq.remoting.ha_frames import REPORT, FrameReader
from ledgermq.understudy.master_questions import CONNECT_TIMEOUT_S

SEND_TIMEOUT_S = 5.0

READ_SIZE = 1024 * 1024
"""Most bytes that are taken at once, and made durable by one sync."""


class HaLink:
    """Open from its making on; what is read of it is the log from where it was begun.

    Attributes:
        reported: what the master was told last that is here.
    """

    def __init__(self, address: str) -> None:
        """Connect.

        Raises:
            UnreachableError: nobody answers there.
            ConfigError: not an address.
        """
        self.address = address
        self.reported = -1
        self._frames = FrameReader(0)
        host, port = split_address(address)
        try:
            self._socket = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            raise self._gone("the master's HA port is not reached", error) from error
        self._socket.settimeout(SEND_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, position: int) -> None:
        """Ask for what follows ``position``.

        Raises:
            UnreachableError: the connection has ended.
        """
        self._frames = FrameReader(position)
        self.report(position)

    def fileno(self) -> int:
        """For who waits until there is something to read."""
        return self._socket.fileno()

    def receive(self) -> list[memoryview]:
        """Bytes of the log, of what has come; none where it was a sign of life.

        Raises:
            ProtocolError: no frame of a master; the link is to be closed.
            UnreachableError: the connection has ended.
        """
        return self._frames.feed(self._received(READ_SIZE))

    def report(self, position: int) -> None:
        """Tell the master that all before ``position`` is here.

        Raises:
            UnreachableError: the connection has ended.
        """
        self._send(REPORT.pack(position))
        self.reported = position

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._gone("the connection to the master is broken", error) from error

    def _received(self, size: int) -> bytes:
        """At most ``size`` bytes, of what has come."""
        try:
            data = self._socket.recv(size)
        except OSError as error:
            raise self._gone("the connection to the master is broken", error) from error
        if not data:
            raise self._gone("the master has ended the connection", None)
        return data

    def _gone(self, what: str, error: OSError | None) -> UnreachableError:
        return UnreachableError(what, address=self.address, reason=str(error or "its end"))
