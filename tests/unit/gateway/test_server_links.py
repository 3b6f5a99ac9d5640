"""Connections that the port makes itself: answers come once, and so does their lack."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S

from ledgermq.gateway.transport.server_links import ServerLinks, is_address
from ledgermq.model.errors import LedgerError, TimedOutError
from ledgermq.remoting.command import Command, encode_command


class Server:
    """A listening socket, and the links under test."""

    def __init__(self) -> None:
        self.links = ServerLinks()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.told: list[Command | LedgerError] = []

    def ask(self, code: int, *, now_ms: int = 0) -> None:
        link = self.links.to(self.address)
        link.ask(Command(code), now_ms=now_ms, timeout_ms=1_000, take=self.told.append)

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
