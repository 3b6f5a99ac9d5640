"""Requests that wait: connections take turns, each keeps its order, and a turn ends in time."""

from __future__ import annotations

import socket
from collections.abc import Container, Iterator
from typing import Any

import pytest

from ledgermq.gateway.transport import arrivals as module
from ledgermq.gateway.transport.arrivals import (
    CREDIT_NS,
    DEAR_NS,
    LOOK_NS,
    OTHERS_NS,
    READ_NS,
    TURN_NS,
    Arrivals,
)
from ledgermq.gateway.transport.remoting_sockets import Arrival, Connection
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


def test_a_turn_ends_in_time_and_who_comes_then_is_next(
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
    assert then == [(1, 7), (0, 2)]


def test_who_asks_for_little_waits_for_few_requests_of_however_many_who_ask_for_much() -> None:
    arrivals, sockets, clock = made()
    with socket.socket() as end:
        modest, *greedy = (Connection(end, ("h", 1), number, 1_024, 0) for number in range(20))
        sockets.come = [one for each in greedy for one in asked(each, *range(50))]
        served: list[bool] = []
        came_at: list[int] = []
        for _ in range(3_000):
            clock.now_ns += LOOK_NS // 5
            for one in arrivals.served(0):
                served.append(one.connection is modest)
                clock.now_ns += LOOK_NS // 10 if served[-1] else 3 * LOOK_NS
                # Once the others are at it, it comes within the turn, again and again.
                if len(served) >= 5 * len(greedy) and len(came_at) == sum(served):
                    came_at.append(len(served))
                    sockets.come = asked(modest, 0)

    waits = [served.index(True, at) - at for at in came_at[:-1]]
    assert len(waits) > 80
    assert max(waits) <= 2


@pytest.mark.parametrize("do_others_ask", [True, False])
def test_dear_requests_have_a_share_of_the_time_while_others_ask_and_all_of_it_else(
    connections: list[Connection], do_others_ask: bool
) -> None:
    arrivals, sockets, clock = made()
    dear, too, modest = connections
    clock.now_ns = 10 * OTHERS_NS
    sockets.come = [*asked(dear, *range(500)), *asked(too, *range(500))]
    # Until it is known that they are.
    for _ in range(6):
        for _one in arrivals.served(0):
            clock.now_ns += 3 * DEAR_NS
    begin, spent_ns = clock.now_ns, 0
    while clock.now_ns - begin < 5_000_000_000:
        # It asks each millisecond, and is answered in the turn that comes next.
        if do_others_ask:
            sockets.come = asked(modest, 1)
        is_answered = False
        for one in arrivals.served(0):
            cost_ns = DEAR_NS // 100 if one.connection is modest else 3 * DEAR_NS
            is_answered |= one.connection is modest
            spent_ns += cost_ns if one.connection is not modest else 0
            clock.now_ns += cost_ns
        assert is_answered == do_others_ask
        clock.now_ns += 1_000_000

    share = spent_ns / (clock.now_ns - begin)
    assert (0.2 < share < 0.35) if do_others_ask else share > 0.9


def test_connections_that_are_new_each_time_do_not_keep_out_those_that_are_known(
    connections: list[Connection],
) -> None:
    arrivals, sockets, clock = made()
    known, *_ = connections
    sockets.come = asked(known, *range(200))
    served = []
    with socket.socket() as end:
        for number in range(100, 400):
            # As many as a turn answers.
            fresh = (Connection(end, ("h", 1), number * 10 + one, 1_024, 0) for one in range(2))
            sockets.come += [one for each in fresh for one in asked(each, 1)]
            for one in arrivals.served(0):
                served.append(one.connection is known)
                clock.now_ns += TURN_NS // 2

    assert len(served) == 600
    assert sum(served) > 10


def test_a_connection_cannot_save_up_what_it_does_not_ask_for(
    connections: list[Connection],
) -> None:
    arrivals, sockets, clock = made()
    steady, late, _ = connections
    sockets.come = asked(steady, *range(100))
    for _ in range(10):
        for _one in arrivals.served(0):
            clock.now_ns += TURN_NS
    sockets.come = asked(late, *range(100))
    served = []
    for _ in range(10):
        for one in arrivals.served(0):
            served.append(one.connection.number)
            clock.now_ns += CREDIT_NS

    first = served.index(0)
    # As much as the other one's last request took, and the credit.
    assert first <= (TURN_NS + CREDIT_NS) / CREDIT_NS + 1
    assert served[first:] == ([0, 1] * 50)[: len(served) - first]


def test_what_is_kept_in_mind_of_connections_that_have_gone_is_bounded(
    connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 10)
    arrivals, sockets, clock = made()
    steady, *_ = connections
    sockets.come = asked(steady, *range(1_000))
    with socket.socket() as end:
        for number in range(100, 400):
            sockets.come += asked(Connection(end, ("h", 1), number, 1_024, 0), 1)
            for _one in arrivals.served(0):
                clock.now_ns += TURN_NS

            assert len(arrivals._had) <= 20


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
        clock.now_ns += READ_NS

    assert sockets.unread == {0}
    assert taken == [(1, 1)]
    # Nor does who was dear come before who was not, or at once behind that one.
    assert of(arrivals.served(0))[:2] == [(0, 1), (0, 2)]
    clock.now_ns += OTHERS_NS + 1
    list(arrivals.served(0))
    assert len(arrivals) == 0


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
