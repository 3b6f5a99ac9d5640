"""The link of a port process to the broker process: what is handed over, answered and lost."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.gateway.far_sockets import FarSockets
from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.gateway.transport.port_link import OFFSETS_MS, RETRY_MS, BrokerLink
from ledgermq.gateway.transport.remoting_sockets import (
    Arrival,
    Connection,
    RemotingLimits,
    RemotingSockets,
)
from ledgermq.model.errors import NotLeaderError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import ONEWAY, REPLY, Command, decode_command, encode_command
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S

TURNS_MAX = 2_000


class Pair:
    """A port process's sockets and link, and the broker process's end, turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ports.sock"
        self.now_ms = 0
        self.epoll = select.epoll()
        listeners = open_listeners([("127.0.0.1", 0)])
        self.sockets = RemotingSockets(listeners, RemotingLimits(), now_ms=0)
        self.link = BrokerLink(self.path, self.epoll, self.sockets)
        self.broker: FarSockets | None = None
        self.noted: list[tuple[str, str, int, int, str]] = []
        self.arrived: list[Arrival] = []
        self.came: list[Arrival] = []
        self.closed: list[Connection] = []
        self._clients: list[socket.socket] = []

    def start_broker(self) -> FarSockets:
        self.broker = broker = FarSockets(self.path, self)
        self.now_ms += RETRY_MS
        return broker

    def note(self, group: str, topic: str, queue_id: int, offset: int, *, owner: str) -> None:
        """See ``NotesOffsets``."""
        self.noted.append((group, topic, queue_id, offset, owner))

    def connect(self) -> tuple[socket.socket, Connection]:
        """A client, and its connection."""
        client = socket.create_connection(self.sockets.addresses[0], timeout=PATIENCE_S)
        self._clients.append(client)
        client.sendall(sent(Command(RequestCode.GET_BROKER_CONFIG, 1)))
        self.until(lambda: bool(self.came))
        return client, self.came.pop().connection

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(TURNS_MAX):
            if condition():
                return
            is_readable(self.sockets, 0.01)
            self.turn()
        raise AssertionError("it did not come to that")

    def turn(self) -> None:
        self.came += self.sockets.turn(self.now_ms)
        for connection in self.sockets.take_closed():
            self.link.forget(connection)
        self.link.turn(self.now_ms)
        self.link.flush()
        self.sockets.flush()
        if self.broker is not None:
            self.arrived += self.broker.turn(self.now_ms)
            self.closed += self.broker.take_closed()
            self.broker.flush()

    def close(self) -> None:
        self.link.close()
        self.sockets.close()
        if self.broker is not None:
            self.broker.close()
        self.epoll.close()
        for client in self._clients:
            client.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def sent(command: Command) -> bytes:
    return b"".join(encode_command(command))


def read(client: socket.socket) -> Command:
    with client.makefile("rb") as file:
        size = int.from_bytes(file.read(4), "big")
        return decode_command(memoryview(file.read(size)))


def test_a_request_arrives_as_it_was_and_its_reply_goes_to_the_client(pair: Pair) -> None:
    broker = pair.start_broker()
    client, connection = pair.connect()
    request = Command(
        RequestCode.QUERY_MESSAGE, 7, {"topic": "orders"}, b"body", remark="why", version=300
    )
    shown: list[Command] = []
    pair.until(lambda: pair.link.is_up)

    pair.link.hand_over(connection, request, shown.append)
    pair.until(lambda: bool(pair.arrived))
    (arrival,) = pair.arrived
    waits = pair.link.waits_for(connection, frozenset((RequestCode.QUERY_MESSAGE,)))
    broker.send(arrival.connection, arrival.command.reply(fields={"a": "1"}, body=b"found"))
    pair.until(lambda: bool(shown))
    pair.turn()
    reply = read(client)

    assert arrival.connection.peer == connection.peer
    assert (arrival.command.code, arrival.command.opaque) == (RequestCode.QUERY_MESSAGE, 7)
    assert dict(arrival.command.fields) == {"topic": "orders"}
    assert (bytes(arrival.command.body), arrival.command.version) == (b"body", 300)
    assert (reply.opaque, dict(reply.fields), bytes(reply.body)) == (7, {"a": "1"}, b"found")
    assert waits
    assert not pair.link.waits_for(connection, frozenset((RequestCode.QUERY_MESSAGE,)))


def test_the_broker_asks_a_client_and_gets_its_reply(pair: Pair) -> None:
    broker = pair.start_broker()
    client, connection = pair.connect()
    pair.until(lambda: pair.link.is_up)
    pair.link.hand_over(connection, Command(RequestCode.GET_BROKER_CONFIG, 1))
    pair.until(lambda: bool(pair.arrived))
    far = pair.arrived.pop().connection

    broker.send(far, Command(RequestCode.GET_CONSUMER_RUNNING_INFO, 5))
    pair.turn()
    pair.turn()
    asked = read(client)
    pair.link.hand_over(connection, asked.reply(body=b"running"))
    pair.until(lambda: bool(pair.arrived))
    reply = pair.arrived.pop()

    assert (asked.code, asked.is_reply) == (RequestCode.GET_CONSUMER_RUNNING_INFO, False)
    assert reply.connection is far
    assert (reply.command.flag, bytes(reply.command.body)) == (REPLY, b"running")


def test_without_a_broker_requests_are_refused_as_by_a_node_that_starts(pair: Pair) -> None:
    _, connection = pair.connect()

    with pytest.raises(NotLeaderError, match="node is starting"):
        pair.link.hand_over(connection, Command(RequestCode.GET_BROKER_CONFIG, 1))

    assert not pair.link.is_up
    assert pair.link.next_deadline_ms() == RETRY_MS


def test_what_a_broker_that_ends_has_not_answered_is_refused(pair: Pair) -> None:
    broker = pair.start_broker()
    client, connection = pair.connect()
    pair.until(lambda: pair.link.is_up)
    pair.link.hand_over(connection, Command(RequestCode.GET_BROKER_CONFIG, 9))
    pair.link.hand_over(connection, Command(RequestCode.GET_BROKER_CONFIG, 10, flag=ONEWAY))
    pair.until(lambda: len(pair.arrived) == 2)
    broker.close()
    pair.broker = None
    pair.until(lambda: not pair.link.is_up)
    pair.turn()

    reply = read(client)
    assert (reply.code, reply.opaque) == (ResponseCode.SERVICE_NOT_AVAILABLE, 9)
    assert connection.is_open


def test_a_broker_that_begins_is_told_of_the_clients_once(pair: Pair) -> None:
    _, connection = pair.connect()
    _, gone = pair.connect()
    heartbeat = Command(RequestCode.HEART_BEAT, 3, {}, json.dumps({"clientID": "c"}).encode())
    pair.link.keep_heartbeat(connection, heartbeat)
    pair.link.keep_heartbeat(gone, heartbeat)
    pair.sockets.close_one(gone, "")
    pair.turn()

    pair.start_broker()
    pair.until(lambda: bool(pair.arrived))
    (told,) = pair.arrived

    assert told.connection.peer == connection.peer
    assert (told.command.code, told.command.is_oneway) == (RequestCode.HEART_BEAT, True)
    assert bytes(told.command.body) == b'{"clientID": "c"}'


def test_ends_of_connections_and_of_links_are_told(pair: Pair) -> None:
    pair.start_broker()
    _, first = pair.connect()
    _, second = pair.connect()
    pair.until(lambda: pair.link.is_up)
    for connection in (first, second):
        pair.link.hand_over(connection, Command(RequestCode.GET_BROKER_CONFIG, 1))
    pair.until(lambda: len(pair.arrived) == 2)
    ports = [arrival.connection for arrival in pair.arrived]

    pair.sockets.close_one(first, "")
    pair.until(lambda: len(pair.closed) == 1)
    after_one = [connection.is_open for connection in ports]
    pair.link.close()
    pair.until(lambda: len(pair.closed) == 2)

    assert after_one == [False, True]
    assert pair.closed == ports
    assert ports[0].number != ports[1].number


def test_the_last_offset_of_each_queue_is_told_once_in_a_while(pair: Pair) -> None:
    pair.start_broker()
    pair.until(lambda: pair.link.is_up)
    pair.link.note("billing", "orders", 1, 5)
    pair.link.note("billing", "orders", 1, 6, owner="h")
    pair.link.note("billing", "orders", 2, 0)
    pair.turn()
    early = list(pair.noted)
    due_ms = pair.link.next_deadline_ms()
    pair.now_ms += OFFSETS_MS
    pair.until(lambda: bool(pair.noted))

    assert (early, due_ms) == ([], pair.now_ms)
    assert pair.noted == [("billing", "orders", 1, 6, "h"), ("billing", "orders", 2, 0, "")]


def test_offsets_are_told_before_what_is_handed_over_behind_them(pair: Pair) -> None:
    pair.start_broker()
    _, connection = pair.connect()
    pair.until(lambda: pair.link.is_up)
    pair.link.note("billing", "orders", 1, 5)
    pair.link.hand_over(connection, Command(RequestCode.QUERY_CONSUMER_OFFSET, 1))
    pair.until(lambda: bool(pair.arrived))

    assert pair.noted == [("billing", "orders", 1, 5, "")]


def test_large_requests_and_replies_pass_in_pieces(pair: Pair) -> None:
    broker = pair.start_broker()
    client, connection = pair.connect()
    pair.until(lambda: pair.link.is_up)
    body = bytes(range(256)) * 16_384
    pair.link.hand_over(connection, Command(RequestCode.QUERY_MESSAGE, 2, {}, body))
    pair.until(lambda: bool(pair.arrived))
    arrival = pair.arrived.pop()
    broker.send_bytes(arrival.connection, sent(arrival.command.reply(body=body)))
    received = bytearray()
    client.settimeout(0)

    def is_whole() -> bool:
        try:
            received.extend(client.recv(1_000_000))
        except BlockingIOError:
            return False
        return len(received) >= 4 + int.from_bytes(received[:4], "big")

    pair.until(is_whole)

    assert bytes(arrival.command.body) == body
    assert bytes(decode_command(memoryview(received)[4:]).body) == body


def test_brokers_that_have_registered_lose_their_connections_with_a_broker_process_that_is_new(
    pair: Pair,
) -> None:
    first = pair.start_broker()
    pair.until(lambda: pair.link.is_up)
    _, registered = pair.connect()
    _, other = pair.connect()
    pair.link.keep_registrar(registered)
    first.close()
    pair.broker = None
    pair.until(lambda: not pair.link.is_up)
    while_away = registered.is_open
    pair.start_broker()
    pair.until(lambda: pair.link.is_up)

    assert while_away
    assert (registered.is_open, other.is_open) == (False, True)
