"""Connections over loopback: what comes in, what goes out, and who is closed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.gateway.transport.remoting_sockets import Arrival, RemotingLimits, RemotingSockets
from ledgermq.remoting.command import Command, decode_command, encode_command
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S

LIMITS = RemotingLimits(
    connections=3, queued_bytes=4 * 1024 * 1024, frame_size=64 * 1024, idle_ms=1_000
)


class Port:
    """The sockets under test, turned until something is so."""

    def __init__(self, limits: RemotingLimits = LIMITS, *, wait_ms: int = 0) -> None:
        self.now_ms = 0
        listeners = open_listeners([("127.0.0.1", 0)])
        self.sockets = RemotingSockets(listeners, limits, now_ms=0, wait_ms=wait_ms)
        self.arrived: list[Arrival] = []
        self._clients: list[socket.socket] = []

    def connect(self) -> socket.socket:
        client = socket.create_connection(self.sockets.addresses[0], timeout=PATIENCE_S)
        self._clients.append(client)
        return client

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert is_readable(self.sockets, PATIENCE_S), "nothing more happens"
            self.turn()

    def turn(self) -> None:
        self.arrived += self.sockets.turn(self.now_ms)
        self.sockets.flush()

    def close(self) -> None:
        self.sockets.close()
        for client in self._clients:
            client.close()


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.close()


def sent(opaque: int, body: bytes = b"") -> bytes:
    return b"".join(encode_command(Command(34, opaque, body=body)))


def received(client: socket.socket) -> Command:
    size = int.from_bytes(exactly(client, 4), "big")
    return decode_command(memoryview(exactly(client, size)))


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part, "connection was closed"
        data += part
    return data


def is_closed(client: socket.socket) -> bool:
    """Whether the other side has ended the connection, or does within the time of the test."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_commands_come_in_their_order_and_replies_go_back(port: Port) -> None:
    client = port.connect()
    client.sendall(sent(1) + sent(2, b"body")[:9])
    port.until(lambda: len(port.arrived) == 1)
    client.sendall(sent(2, b"body")[9:])
    port.until(lambda: len(port.arrived) == 2)

    for connection, command in port.arrived:
        port.sockets.send(connection, command.reply(body=bytes(command.body)))
    port.sockets.flush()

    replies = [received(client), received(client)]
    assert [(one.opaque, bytes(one.body), one.is_reply) for one in replies] == [
        (1, b"", True),
        (2, b"body", True),
    ]
    assert port.arrived[0].connection.peer == client.getsockname()


@pytest.mark.parametrize("is_told", [True, False])
def test_who_comes_too_early_is_taken_when_the_port_listens(is_told: bool) -> None:
    port = Port(wait_ms=1_000)
    client = port.connect()
    client.sendall(sent(1))
    port.turn()
    assert (port.sockets.count, port.sockets.next_deadline_ms()) == (0, 1_000)

    if is_told:
        port.sockets.listen()
    else:
        port.now_ms = 1_000
        port.turn()
    port.until(lambda: bool(port.arrived))
    port.sockets.listen()

    assert [arrival.command.opaque for arrival in port.arrived] == [1]
    port.close()


def test_who_sends_no_command_is_closed_and_nobody_else(port: Port) -> None:
    good, bad = port.connect(), port.connect()
    bad.sendall(sent(1) + b"\xff\xff\xff\xff" + sent(2))
    good.sendall(sent(3))
    port.until(lambda: len(port.arrived) == 2 and port.sockets.count == 1)

    assert {arrival.command.opaque for arrival in port.arrived} == {1, 3}
    assert is_closed(bad)
    (closed,) = port.sockets.take_closed()
    assert (closed.peer, closed.is_open) == (bad.getsockname(), False)
    port.sockets.send(closed, Command(0))
    alive = next(one for one, command in port.arrived if command.opaque == 3)
    port.sockets.send(alive, Command(0, 3, flag=1))
    port.sockets.flush()
    assert received(good).opaque == 3


def test_a_frame_larger_than_the_limit_closes_its_connection(port: Port) -> None:
    client = port.connect()
    client.sendall((LIMITS.frame_size + 1).to_bytes(4, "big"))
    port.until(lambda: port.sockets.count == 0 and bool(port.sockets.take_closed()))

    assert is_closed(client)
    assert port.arrived == []


def test_requests_that_are_never_whole_take_no_more_than_their_share() -> None:
    limits = LIMITS._replace(connections=10, unfinished_bytes=100_000)
    port = Port(limits)
    clients = [port.connect() for _ in range(4)]
    frame = sent(1, bytes(60_000))
    for client, size in zip(clients, (30_000, 40_000, 20_000), strict=False):
        client.sendall(frame[:size])
    port.until(lambda: port.sockets._unfinished == 90_000)
    clients[3].sendall(frame[:15_000])
    port.until(lambda: port.sockets.count == 3)

    assert is_closed(clients[1])
    assert port.sockets._unfinished == 65_000
    for client, size in ((clients[0], 30_000), (clients[2], 20_000), (clients[3], 15_000)):
        client.sendall(frame[size:])
    port.until(lambda: len(port.arrived) == 3)

    assert port.sockets._unfinished == 0
    port.close()


def test_replies_wait_for_who_reads_slowly_and_end_who_does_not(port: Port) -> None:
    slow, stuck = port.connect(), port.connect()
    slow.sendall(sent(1))
    stuck.sendall(sent(2))
    port.until(lambda: len(port.arrived) == 2)
    of = {command.opaque: connection for connection, command in port.arrived}
    body = b"x" * (1024 * 1024)

    count = 0
    while not of[1].queued_bytes:
        port.sockets.send(of[1], Command(0, count, flag=1, body=body))
        port.sockets.flush()
        count += 1
    for _ in range(32):
        port.sockets.send(of[2], Command(0, 9, flag=1, body=body))
        port.sockets.flush()

    assert not of[2].is_open
    slow.settimeout(0.05)
    data = bytearray()
    while len(data) < count * len(body):
        try:
            data += slow.recv(1 << 20)
        except TimeoutError:
            port.turn()
    port.until(lambda: of[1].queued_bytes == 0)
    assert of[1].is_open


def test_who_is_idle_is_closed_when_its_time_comes_and_who_talks_is_not(port: Port) -> None:
    idle, talker, dripping = port.connect(), port.connect(), port.connect()
    for client in (idle, talker, dripping):
        client.sendall(sent(1))
    port.until(lambda: len(port.arrived) == 3)
    port.now_ms = 600
    talker.sendall(sent(2))
    dripping.sendall(sent(2)[:5])
    port.until(lambda: len(port.arrived) == 4)

    assert port.sockets.next_deadline_ms() == LIMITS.idle_ms
    port.now_ms = LIMITS.idle_ms
    port.turn()

    assert port.sockets.count == 1
    assert is_closed(idle)
    assert is_closed(dripping)
    assert port.sockets.next_deadline_ms() == 600 + LIMITS.idle_ms


def test_more_connections_than_allowed_are_closed_as_they_come(port: Port) -> None:
    clients = [port.connect() for _ in range(3)]
    for client in clients:
        client.sendall(sent(1))
    port.until(lambda: len(port.arrived) == 3)
    clients.append(port.connect())
    port.turn()

    assert is_closed(clients[3])
    assert port.sockets.count == 3


def test_a_client_that_goes_is_told(port: Port) -> None:
    client = port.connect()
    client.sendall(sent(1))
    port.until(lambda: len(port.arrived) == 1)
    client.close()
    closed: list[object] = []

    def gone() -> bool:
        closed.extend(port.sockets.take_closed())
        return bool(closed)

    port.until(gone)

    assert closed == [port.arrived[0].connection]
    assert port.sockets.next_deadline_ms() is None


def test_of_all_replies_that_are_not_read_only_so_many_are_kept() -> None:
    mib = 1024 * 1024
    limit = 24 * mib
    ended: list[int] = []
    port = Port(LIMITS._replace(answers_bytes=limit, queued_bytes=limit))
    port.sockets._note_ended = lambda: ended.append(1)
    slow, slowest, honest = port.connect(), port.connect(), port.connect()
    for number, client in enumerate((slow, slowest, honest)):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(sent(number))
    port.until(lambda: len(port.arrived) == 3)
    by_number = {arrival.command.opaque: arrival.connection for arrival in port.arrived}
    # The kernel takes some 4 MiB of each.
    for number, size in ((0, 10), (1, 22), (2, 12)):
        port.sockets.send(by_number[number], Command(0, number, body=bytes(size * mib), flag=1))
        port.sockets.flush()

    assert [by_number[number].is_open for number in range(3)] == [True, False, True]
    assert len(ended) == 1
    assert port.sockets._unread == sum(one.queued_bytes for one in by_number.values())
    port.close()


def test_what_all_have_left_unread_is_counted_down_as_they_read() -> None:
    port = Port(LIMITS._replace(answers_bytes=3 * 1024 * 1024))
    client = port.connect()
    client.sendall(sent(1))
    port.until(lambda: bool(port.arrived))
    connection = port.arrived[0].connection
    for _ in range(8):
        port.sockets.send(connection, Command(0, 1, body=bytes(2 * 1024 * 1024), flag=1))
        taken = 0
        while taken < 2 * 1024 * 1024:
            port.sockets.turn(0)
            port.sockets.flush()
            taken += len(client.recv(1 << 20))

    assert connection.is_open
    assert port.sockets._unread == connection.queued_bytes
    port.close()


def test_one_host_has_only_its_share_of_the_connections() -> None:
    ended: list[int] = []
    port = Port(LIMITS._replace(connections=10, connections_per_address=2))
    port.sockets._note_ended = lambda: ended.append(1)
    first, second = port.connect(), port.connect()
    for client in (first, second):
        client.sendall(sent(1))
    port.until(lambda: len(port.arrived) == 2)
    third = port.connect()
    port.until(lambda: bool(ended))
    was_refused = third.recv(1) == b""
    count = port.sockets.count
    first.close()
    port.until(lambda: port.sockets.count == 1)
    port.connect()
    port.until(lambda: port.sockets.count == 2)

    assert was_refused
    assert count == 2
    assert len(ended) == 1
    port.close()


@pytest.mark.parametrize("limits", [
    LIMITS._replace(connections=3, connections_per_address=9),
    LIMITS._replace(connections=9, connections_per_address=3),
])  # fmt: skip
def test_who_has_asked_for_nothing_gives_way_and_who_has_stays(limits: RemotingLimits) -> None:
    port = Port(limits)
    asks = port.connect()
    asks.sendall(sent(1))
    port.until(lambda: len(port.arrived) == 1)
    silent = [port.connect() for _ in range(2)]
    port.until(lambda: port.sockets.count == 3)
    # A part of a command is nothing that was asked for.
    silent[0].sendall(sent(2)[:7])
    port.turn()
    comes = port.connect()
    comes.sendall(sent(3))
    port.until(lambda: len(port.arrived) == 2)
    asks.sendall(sent(4))
    port.until(lambda: len(port.arrived) == 3)

    assert silent[0].recv(1) == b""
    assert port.sockets.count == 3
    assert [one.command.opaque for one in port.arrived] == [1, 3, 4]
    port.close()
