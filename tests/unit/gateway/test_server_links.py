"""Connections that the port makes itself: answers come once, and so does their lack."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.gateway.transport.server_links import Authorities, ServerLinks, is_address
from ledgermq.gateway.transport.tls_channel import HANDSHAKE
from ledgermq.model.errors import LedgerError, TimedOutError
from ledgermq.remoting.command import Command, encode_command
from tests.certificates import make_certificate
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S


class Server:
    """A listening socket, and the links under test."""

    def __init__(self) -> None:
        self.links = ServerLinks()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.told: list[Command | LedgerError] = []

    def ask(
        self, code: int, *, now_ms: int = 0, authorities: Authorities | None = None, size: int = 0
    ) -> None:
        link = self.links.to(self.address, authorities=authorities)
        command = Command(code, body=b"x" * size)
        link.ask(command, now_ms=now_ms, timeout_ms=1_000, take=self.told.append)

    def accept(self) -> socket.socket:
        sock, _ = self.listener.accept()
        sock.settimeout(PATIENCE_S)
        return sock

    def until_told(self, count: int) -> None:
        while len(self.told) < count:
            assert is_readable(self.links, PATIENCE_S), "nothing more happens"
            self.links.turn(0)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.links.close()
    made.listener.close()


def request_of(sock: socket.socket) -> int:
    """The number of the next request: the first one has 1."""
    assert sock.recv(65_536)
    return 1


def reply(number: int) -> bytes:
    return b"".join(encode_command(Command(0, number, flag=1)))


def test_a_reply_is_told_to_who_asked(server: Server) -> None:
    server.ask(103)
    sock = server.accept()
    server.links.turn(0)
    number = request_of(sock)
    sock.sendall(reply(99) + reply(number))
    server.until_told(1)
    sock.close()

    (told,) = server.told
    assert isinstance(told, Command)
    assert told.opaque == number
    assert server.links.next_deadline_ms() is None


def test_who_waits_too_long_is_told_and_the_connection_ends(server: Server) -> None:
    server.ask(103)
    sock = server.accept()
    server.links.turn(0)
    request_of(sock)
    assert server.links.next_deadline_ms() == 1_000
    server.links.turn(999)
    assert server.told == []

    server.links.turn(1_000)

    assert isinstance(server.told[0], TimedOutError)
    assert sock.recv(1) == b""
    server.ask(103)
    server.accept().close()
    sock.close()
    server.until_told(2)
    assert isinstance(server.told[1], TimedOutError)


def test_a_server_that_is_not_there_is_no_trouble(server: Server) -> None:
    server.listener.close()
    server.ask(103)
    server.until_told(1)

    assert isinstance(server.told[0], TimedOutError)


def test_what_is_no_reply_ends_the_connection(server: Server) -> None:
    server.ask(103)
    sock = server.accept()
    server.links.turn(0)
    sock.sendall(b"\xff" * 16)
    server.until_told(1)
    sock.close()

    assert isinstance(server.told[0], TimedOutError)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("10.0.0.1:9876", True), ("[::1]:9876", True), ("names.example:9876", False)],
)
def test_only_addresses_are_connected_to(address: str, expected: bool) -> None:
    assert is_address(address) == expected


class TlsServer(threading.Thread):
    """Shakes hands with one who connects, and answers what comes; in a thread of its own."""

    def __init__(self, server: Server, certificate: Path, key: Path) -> None:
        super().__init__()
        self._server = server
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        self.seen = b""

    def run(self) -> None:
        with self._server.accept() as raw:
            try:
                with self._tls.wrap_socket(raw, server_side=True) as sock:
                    while len(self.seen) < SIZE:
                        self.seen += sock.recv(65_536)
                    sock.sendall(reply(1) + reply(2))
                    sock.recv(1)
            except (ssl.SSLError, OSError):
                return


SIZE = 1_000_000
SETTING = "remoting.name_servers_ca_file"


def test_requests_go_by_tls_to_a_server_that_an_authority_has_certified(
    server: Server, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    running = TlsServer(server, certificate, key)
    running.start()
    # Both before there is a connection: they wait for the handshake.
    server.ask(103, authorities=Authorities(certificate, SETTING), size=SIZE)
    server.ask(322, authorities=Authorities(certificate, SETTING))
    server.until_told(2)
    server.links.to(server.address).close()
    running.join(PATIENCE_S)

    assert [isinstance(one, Command) and one.opaque for one in server.told] == [1, 2]
    assert running.seen.count(b"x") >= SIZE


def test_a_server_that_nobody_known_has_certified_is_told_nothing(
    server: Server, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    known, _ = make_certificate(mine)
    running = TlsServer(server, *make_certificate(other))
    running.start()
    server.ask(103, authorities=Authorities(known, SETTING))
    server.until_told(1)
    running.join(PATIENCE_S)

    (told,) = server.told
    assert isinstance(told, TimedOutError) and "TLS failed" in str(told), told
    assert running.seen == b""


def test_a_server_in_clear_and_authorities_that_cannot_be_read_are_told(
    server: Server, tmp_path: Path
) -> None:
    known, _ = make_certificate(tmp_path)
    server.ask(103, authorities=Authorities(known, SETTING))
    with server.accept() as sock:
        hello = sock.recv(65_536)
        sock.sendall(reply(1))
        server.until_told(1)
    known.write_text("no certificate")
    with pytest.raises(TimedOutError, match=SETTING):
        server.ask(103)

    assert hello[0] == HANDSHAKE
    assert isinstance(server.told[0], TimedOutError)
