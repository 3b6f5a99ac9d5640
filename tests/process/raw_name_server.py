"""A name server that only notes what brokers tell it; it can refuse, and stay silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter


class RawNameServer:
    """Listens on loopback; a thread for it, and one a connection.

    Attributes:
        told: requests in the order in which they came.
        code: with which it answers.
        fields: those of its answers.
        ended: connections that have ended.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.told: list[Command] = []
        self.code = int(ResponseCode.SUCCESS)
        self.fields: dict[str, str] = {}
        self.ended = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, port))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def opened(self) -> int:
        """Connections that there were."""
        return len(self._open)

    @property
    def address(self) -> str:
        """As ``remoting.name_servers`` wants it."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def ids(self) -> list[tuple[str, str]]:
        """Broker ids as they were registered, with their addresses."""
        return [(one.fields["brokerId"], one.fields["brokerAddr"]) for one in list(self.told)]

    def drop(self) -> None:
        """End all connections."""
        for sock in self._open:
            sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._serve, args=[sock], daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        # An answer to one that has ended meanwhile is an end, too.
        with suppress(OSError):
            self._answer(sock)
        with self._lock:
            self.ended += 1

    def _answer(self, sock: socket.socket) -> None:
        splitter = FrameSplitter()
        while data := sock.recv(65_536):
            for frame in splitter.feed(data):
                command = decode_command(memoryview(bytes(frame)))
                self.told.append(command)
                if not command.is_oneway:
                    reply = command.reply(self.code, fields=self.fields)
                    sock.sendall(b"".join(encode_command(reply)))


@contextmanager
def raw_name_server(host: str = "127.0.0.1", port: int = 0) -> Iterator[RawNameServer]:
    """One that ends with the block."""
    made = RawNameServer(host, port)
    try:
        yield made
    finally:
        made.close()
