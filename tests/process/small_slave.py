"""A slave as RocketMQ's are one, as far as the log goes: keeps in memory what its master sends."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from ledgermq.remoting.ha_frames import REPORT, FrameReader
from tests.suite.patience import PATIENCE_S


class SmallSlave:
    """Has ``log`` from position ``begin`` on, and reports what it has with each piece."""

    def __init__(self, address: str, begin: int = 0, log: bytes = b"") -> None:
        """Nothing is connected yet."""
        self.begin = begin
        self.log = bytearray(log)
        self._address = address
        self._socket: socket.socket | None = None
        self._frames = FrameReader(0)

    @property
    def end(self) -> int:
        """Position behind what it has."""
        return self.begin + len(self.log)

    def connect(self) -> None:
        """Say what it has."""
        self.connect_saying(REPORT.pack(self.end))

    def connect_saying(self, data: bytes) -> None:
        """Say something else."""
        self.close()
        host, _, port = self._address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._frames = FrameReader(self.end)
        self.say(data)

    def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self._socket is not None
        self._socket.sendall(data)

    def flood(self, data: bytes, *, seconds: float) -> None:
        """Say the same as often as it goes, or is let to."""
        assert self._socket is not None
        self._socket.setblocking(False)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(BlockingIOError):
                self._socket.send(data * 1_000)

    def follow(self, end: int) -> None:
        """Read until it has all before ``end``; connects again as often as it must."""
        deadline = time.monotonic() + PATIENCE_S
        while self.end < end:
            assert time.monotonic() < deadline, (self.end, end)
            try:
                if self._socket is None:
                    self.connect()
                self.take()
            except (ConnectionError, EOFError):
                self.close()
                time.sleep(0.01)

    def take(self) -> None:
        """Read what has come, and report it.

        Raises:
            EOFError, ConnectionError: the master has ended the connection.
        """
        assert self._socket is not None
        data = self._socket.recv(1024 * 1024)
        if not data:
            raise EOFError
        for part in self._frames.feed(data):
            self.log += part
        self.say(REPORT.pack(self.end))

    def is_let_go(self) -> bool:
        """Whether the master ends the connection, read to its end."""
        assert self._socket is not None
        try:
            while self._socket.recv(1024 * 1024):
                pass
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
