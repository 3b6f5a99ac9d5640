"""Local connections: whose they are, turns, bounds, and what becomes of who breaks one."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.sessions.client_rights import Peer
from ledgermq.sessions.local_connections import (
    ANSWERS_QUEUED_MAX,
    FRAMES_READ_SIZE,
    MESSAGES_AT_ONCE,
    POLL_EVERY,
    LocalConnections,
    is_local_name,
)
from ledgermq.sessions.socket_watch import SocketWatch, WatchLimits
from ledgermq.wire.byte_stream import message_head
from tests.suite.patience import PATIENCE_S

PART_MAX = 1 << 20
UNREAD_MAX = 4 * PART_MAX
STRANGER = "uid 4711"


class Server:
    """The connections of a process, and how many of them it has ended."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "produce.sock"
        self.ended = 0
        self.watch = SocketWatch(WatchLimits(UNREAD_MAX, 100, 3, 1 << 30), is_sealed=False)
        self.local = LocalConnections(
            self.path, mode=0o600, part_size_max=PART_MAX, note_ended=self._note
        )
        self.local.share(self.watch)

    def _note(self) -> None:
        self.ended += 1

    def wait(self) -> None:
        poll = select.poll()
        poll.register(self.local.source, select.POLLIN)
        assert self.local.ready or poll.poll(PATIENCE_S * 1_000), "nothing has come"

    def take(self) -> list[bytes]:
        """The next message, which comes."""
        while (parts := self.local.receive()) is None:
            self.wait()
        return parts

    def turn(self) -> list[list[bytes]]:
        """What waits now."""
        return list(iter(self.local.receive, None))

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(str(self.path))
        return client

    def let_in(self) -> socket.socket:
        """One that is known here."""
        client = self.connect()
        self.wait()
        assert self.turn() == []
        return client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.local.close()
    made.watch.close()


def as_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who connects from now on is no operator."""
    monkeypatch.setattr(Peer, "host", property(lambda _: STRANGER))


def whole(*parts: bytes) -> bytes:
    return b"".join((message_head(parts)[0], *parts))


def has_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_message_comes_with_the_name_and_the_account_of_its_sender(server: Server) -> None:
    with server.connect() as client:
        client.sendall(whole(b"head", b"body"))
        identity, *parts = server.take()

        assert parts == [b"head", b"body"]
        assert is_local_name(identity)
        assert server.local.peer == Peer(f"localhost:{os.getuid()}:{os.getgid()}:{os.getpid()}")
        assert server.local.send(identity, [b"answer"])
        assert client.recv(100) == whole(b"answer")


def test_clients_have_their_turns_one_message_each(server: Server) -> None:
    with server.connect() as greedy, server.connect() as modest:
        greedy.sendall(whole(b"greedy") * 5)
        first = server.take()
        modest.sendall(whole(b"modest"))
        rest = [server.take() for _ in range(5)]

        assert first[1] == b"greedy"
        assert [parts[1] for parts in rest].count(b"modest") == 1


def test_what_was_read_and_not_taken_is_told_of(server: Server) -> None:
    with server.connect() as client:
        client.sendall(whole(b"one") + whole(b"two"))
        server.take()

        assert server.local.ready
        assert server.local.receive() is not None
        assert not server.local.ready


def test_a_part_that_is_too_large_ends_its_connection_alone(server: Server) -> None:
    with server.connect() as bad, server.connect() as good:
        bad.sendall(message_head([bytes(PART_MAX + 1)])[0])
        good.sendall(whole(b"good"))

        assert server.take()[1] == b"good"
        server.turn()
        assert has_ended(bad)


def test_the_message_that_was_begun_first_goes_where_all_hold_too_much(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.watch, "limits", WatchLimits(3 * 100, 100, 100, UNREAD_MAX))
    clients = [server.connect() for _ in range(4)]
    for client in clients:
        client.sendall(message_head([bytes(1_000)])[0] + bytes(92))
        server.wait()
        assert server.turn() == []
    clients[3].sendall(bytes(908))

    assert has_ended(clients[0])
    assert server.take()[1] == bytes(1_000)
    assert server.ended == 1
    for client in clients:
        client.close()


def test_connections_that_break_within_a_message_leave_nothing_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        server.watch, "limits", WatchLimits(3 * FRAMES_READ_SIZE, 100, 100, UNREAD_MAX)
    )
    announced = message_head([bytes(PART_MAX)])[0]
    for _ in range(8):
        with server.let_in() as one:
            # It ends with the read that has begun the message.
            one.sendall(announced + bytes(FRAMES_READ_SIZE - len(announced)))
        server.wait()
        assert server.turn() == []
    for _ in range(8):
        with server.let_in() as one:
            one.sendall(message_head([bytes(FRAMES_READ_SIZE)])[0] + bytes(FRAMES_READ_SIZE - 8))
            server.wait()
            assert server.turn() == []
            # All the rest of a message, and then none.
            one.sendall(bytes(8) + message_head([bytes(PART_MAX + 1)])[0])
            server.wait()
            assert server.turn() == []
            assert has_ended(one)
    assert server.ended == 0
    clients = [server.let_in() for _ in range(4)]
    ended = []
    for client in clients:
        client.sendall(announced + bytes(FRAMES_READ_SIZE - len(announced) - 8))
        server.wait()
        assert server.turn() == []
        ended.append(server.ended)

    assert ended == [0, 0, 0, 1]
    for client in clients:
        client.close()


def test_an_account_has_so_many_connections_and_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_strangers(monkeypatch)
    clients = [server.connect() for _ in range(3)]
    for client in clients:
        client.sendall(whole(b"known"))
        server.take()
    clients.append(server.connect())
    while not server.ended:
        server.wait()
        server.turn()

    assert has_ended(clients[3])
    assert server.ended == 1
    clients[0].close()
    server.wait()
    server.turn()
    with server.connect() as another:
        another.sendall(whole(b"let in"))
        assert server.take()[1] == b"let in"
    for client in clients:
        client.close()


def test_who_does_not_read_is_answered_no_more_and_what_was_taken_arrives_whole(
    server: Server,
) -> None:
    answer = bytes(10_000)
    with server.connect() as client:
        client.sendall(whole(b"ask"))
        identity = server.take()[0]
        taken = 0
        while server.local.send(identity, [answer]):
            taken += 1
            assert taken < 2 * ANSWERS_QUEUED_MAX
        size = len(whole(answer))
        come = b""
        while len(come) < taken * size:
            server.turn()
            come += client.recv(1 << 20)

        assert come == whole(answer) * taken
        assert server.local.send(identity, [answer])


def test_nobody_is_sent_the_answers_to_who_has_gone(server: Server) -> None:
    with server.connect() as client:
        client.sendall(whole(b"ask"))
        identity = server.take()[0]
    server.wait()
    server.turn()

    assert not server.local.send(identity, [b"answer"])


def test_who_comes_while_others_have_much_to_say_has_a_turn_before_they_are_through(
    server: Server,
) -> None:
    flood = whole(b"x") * (FRAMES_READ_SIZE // len(whole(b"x")))
    floods = [server.let_in(), server.let_in()]
    for client in floods:
        client.sendall(flood)
    taken = [server.take() for _ in range(POLL_EVERY)]
    late = server.connect()
    late.sendall(whole(b"late"))
    while taken[-1][1] != b"late":
        taken.append(server.take())

    # As long until it is seen, and until it is known, and a message of each before it.
    assert len(taken) <= 4 * POLL_EVERY
    for client in (*floods, late):
        client.close()


def test_of_many_small_messages_a_few_are_objects_and_all_come(server: Server) -> None:
    client = server.let_in()
    count = 3 * MESSAGES_AT_ONCE
    client.sendall(b"".join(whole(b"%d" % number) for number in range(count)) + whole(b"cut")[:9])
    first = server.take()
    (connection,) = server.local.by_identity.values()
    made = len(connection.reader.messages)
    rest = server.turn()
    client.sendall(whole(b"cut")[9:])

    assert made < MESSAGES_AT_ONCE
    assert [one[1] for one in (first, *rest)] == [b"%d" % number for number in range(count)]
    assert server.take()[1] == b"cut"
    client.close()


def test_who_has_most_answers_unread_goes_where_all_have_too_many(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_strangers(monkeypatch)
    few, many = server.connect(), server.connect()
    names = {}
    for client, text in ((few, b"few"), (many, b"many")):
        client.sendall(whole(text))
        identity, said = server.take()
        names[said] = identity
    answer = bytes(60_000)

    def fill(name: bytes, size: int) -> None:
        """Until so much of it waits here, and not in the kernel."""
        connection = server.local.by_identity[name]
        while connection.unsent_bytes < size:
            assert server.local.send(name, [answer])

    monkeypatch.setattr(server.watch, "limits", WatchLimits(UNREAD_MAX, 100, 100, 1_000_000))
    fill(names[b"few"], 100_000)
    fill(names[b"many"], 700_000)
    while server.local.send(names[b"few"], [answer]) and names[b"many"] in server.local.by_identity:
        pass

    assert list(server.local.by_identity) == [names[b"few"]]
    assert server.ended == 1
    fill(names[b"few"], 700_000)
    while server.local.send(names[b"few"], [answer]):
        pass
    assert not server.local.by_identity
    assert server.ended == 2
    few.close()
    many.close()


def test_who_has_said_nothing_whole_gives_way_to_who_comes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_strangers(monkeypatch)
    speaks = server.connect()
    speaks.sendall(whole(b"first"))
    told = [server.take()[1:]]
    silent = [server.let_in(), server.let_in()]
    silent[0].sendall(whole(b"cut")[:-1])
    server.wait()
    assert server.turn() == []
    comes = server.connect()
    comes.sendall(whole(b"second"))
    told.append(server.take()[1:])
    speaks.sendall(whole(b"third"))
    told.append(server.take()[1:])

    assert told == [[b"first"], [b"second"], [b"third"]]
    assert has_ended(silent[0])
    assert server.ended == 1
    for client in (speaks, comes, *silent):
        client.close()
