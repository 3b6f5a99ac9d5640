"""Requests that wait: connections take turns, each keeps its order, and a turn ends in time."""

from __future__ import annotations

import socket
from collections.abc import Container, Iterator
from typing import Any

import pytest

from ledgermq.gateway import arrivals as module
from ledgermq.gateway.arrivals import TURN_NS, Arrivals
from ledgermq.gateway.remoting_sockets import Arrival, Connection
from ledgermq.remoting.command import Command


class Sockets:
    """What has come, as the real ones give it: connection by connection."""

    def __init__(self) -> None:
        self.come: list[Arrival] = []
        self.unread: set[int] = set()

    def turn(self, now_ms: int, *, unread: Container[int] = ()) -> Iterator[Arrival]:
        del now_ms
        come, self.come = self.come, []
        self.unread = {one.connection.number for one in come if one.connection.number in unread}
        yield from come


class Clock:
    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    ends = [socket.socket() for _ in range(3)]
    yield [Connection(end, ("h", 1), number, 1_024, 0) for number, end in enumerate(ends)]
    for end in ends:
        end.close()


def asked(connection: Connection, *numbers: int, size: int = 0) -> list[Arrival]:
    return [Arrival(connection, Command(1, one, {}, bytes(size))) for one in numbers]


def of(arrivals: Iterator[Arrival]) -> list[tuple[int, int]]:
    return [(one.connection.number, one.command.opaque) for one in arrivals]


def made() -> tuple[Arrivals, Any, Clock]:
    sockets: Any = Sockets()
    clock = Clock()
    return Arrivals(sockets, clock), sockets, clock


def test_connections_take_turns_and_each_keeps_its_order(connections: list[Connection]) -> None:
    arrivals, sockets, _ = made()
    greedy, other, third = connections
    sockets.come = [*asked(greedy, 1, 2, 3), *asked(other, 1), *asked(third, 1, 2)]

    assert of(arrivals.served(0)) == [(0, 1), (1, 1), (2, 1), (0, 2), (2, 2), (0, 3)]
    assert len(arrivals) == 0


def test_a_turn_ends_in_time_and_who_comes_then_waits_for_one_request_of_each(
    connections: list[Connection],
) -> None:
    arrivals, sockets, clock = made()
    greedy, other, _ = connections
    sockets.come = asked(greedy, *range(100))
    first = []
    for one in arrivals.served(0):
        first.append(one.command.opaque)
        clock.now_ns += TURN_NS // 2
    sockets.come = asked(other, 7)
    then = []
    for one in arrivals.served(0):
        then.append((one.connection.number, one.command.opaque))
        clock.now_ns += TURN_NS // 2

    assert first == [0, 1]
    assert then == [(0, 2), (1, 7)]


def test_a_request_longer_than_a_turn_is_answered(connections: list[Connection]) -> None:
    arrivals, sockets, clock = made()
    sockets.come = asked(connections[0], 1, 2)
    for expected in (1, 2):
        for one in arrivals.served(0):
            assert one.command.opaque == expected
            clock.now_ns += 10 * TURN_NS
    assert len(arrivals) == 0


def test_what_is_taken_as_it_comes_does_not_overtake_its_own_connection(
    connections: list[Connection],
) -> None:
    arrivals, sockets, clock = made()
    slow, other, _ = connections
    arrivals.put_off(asked(slow, 1)[0])
    sockets.come = [*asked(slow, 2), *asked(other, 1, 2, 3)]
    taken = []
    for one in arrivals.read(0):
        taken.append((one.connection.number, one.command.opaque))
        clock.now_ns += TURN_NS

    assert sockets.unread == {0}
    assert taken == [(1, 1)]
    assert of(arrivals.served(0)) == [(0, 1), (1, 2), (0, 2), (1, 3)]


def test_nothing_is_read_while_too_much_waits(
    connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 100)
    arrivals, sockets, _ = made()
    for one in asked(connections[0], 1, 2, size=60):
        arrivals.put_off(one)
    sockets.come = asked(connections[1], 1)

    assert list(arrivals.read(0)) == []
    assert len(sockets.come) == 1
    assert of(arrivals.served(0)) == [(0, 1), (0, 2)]
    assert of(arrivals.served(0)) == [(1, 1)]
