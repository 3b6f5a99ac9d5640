"""Requests to clients: each gets its reply, or an error, and nobody else's."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ledgermq.gateway.clients.callbacks import ClientRequests
from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.gateway.transport.remoting_sockets import Connection, RemotingLimits, RemotingSockets
from ledgermq.model.errors import LedgerError, TimedOutError
from ledgermq.remoting.command import ONEWAY, Command, decode_command
from tests.suite.patience import PATIENCE_S


class Port:
    """Sockets with two clients, and the requests to them."""

    def __init__(self) -> None:
        self.sockets = RemotingSockets(
            open_listeners([("127.0.0.1", 0)]), RemotingLimits(), now_ms=0
        )
        self.requests = ClientRequests(self.sockets)
        self.clients: list[socket.socket] = []
        self.connections: list[Connection] = []
        for _ in range(2):
            client = socket.create_connection(self.sockets.addresses[0], timeout=PATIENCE_S)
            self.clients.append(client)
            client.sendall(bytes.fromhex("0000000a 00000006") + b"{   }\n")
            while len(self.connections) < len(self.clients):
                self.connections += [one.connection for one in self.sockets.turn(0)]

    def received(self, number: int) -> Command:
        self.sockets.flush()
        size = int.from_bytes(self.clients[number].recv(4, socket.MSG_WAITALL), "big")
        return decode_command(memoryview(self.clients[number].recv(size, socket.MSG_WAITALL)))

    def close(self) -> None:
        self.sockets.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.close()


class Outcomes(list[Command | LedgerError]):
    """What somebody who asked was told."""

    def ask(self, port: Port, number: int, *, now_ms: int = 0, timeout_ms: int = 100) -> None:
        port.requests.ask(
            port.connections[number],
            307,
            {"clientId": "a"},
            b"body",
            now_ms=now_ms,
            timeout_ms=timeout_ms,
            take=self.append,
        )


def test_what_is_told_wants_no_reply(port: Port) -> None:
    port.requests.tell(port.connections[1], 40, {"consumerGroup": "g"})

    command = port.received(1)
    assert (command.code, command.flag, command.fields) == (40, ONEWAY, {"consumerGroup": "g"})
    assert port.requests.waiting == 0


def test_a_reply_goes_to_who_asked_that_client_and_once(port: Port) -> None:
    first, second = Outcomes(), Outcomes()
    first.ask(port, 0)
    second.ask(port, 1)
    asked = port.received(0)
    reply = asked.reply(body=b"mine")

    port.requests.take_reply(port.connections[1], reply)
    assert (first, second) == ([], [])
    port.requests.take_reply(port.connections[0], reply)
    port.requests.take_reply(port.connections[0], reply)

    assert (first, second) == ([reply], [])
    assert (asked.code, bytes(asked.body)) == (307, b"body")
    assert port.requests.waiting == 1


def test_no_answer_in_time_is_an_error_and_a_late_one_goes_nowhere(port: Port) -> None:
    late, patient = Outcomes(), Outcomes()
    late.ask(port, 0, timeout_ms=100)
    patient.ask(port, 0, timeout_ms=200)

    assert port.requests.next_deadline_ms() == 100
    port.requests.turn(99)
    assert late == []
    port.requests.turn(100)
    assert [type(one) for one in late] == [TimedOutError]
    assert port.requests.next_deadline_ms() == 200

    port.requests.take_reply(port.connections[0], port.received(0).reply())
    assert (len(late), patient) == (1, [])


def test_who_has_gone_answers_nobody(port: Port) -> None:
    asked, other = Outcomes(), Outcomes()
    asked.ask(port, 0)
    other.ask(port, 1)
    port.sockets.close_one(port.connections[0], "")
    port.requests.forget(port.connections[0])

    assert [type(one) for one in asked] == [TimedOutError]
    assert other == []
    with pytest.raises(TimedOutError, match="gone"):
        asked.ask(port, 0)
    assert port.requests.waiting == 1
