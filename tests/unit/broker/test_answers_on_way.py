"""Consumers that do not read: what they may hold, and that nobody else is refused for them."""

from __future__ import annotations

import pytest

from ledgermq.broker.pulls.consume_service import AnswersOnWay
from ledgermq.model.errors import BusyError


class Tracker:
    """A message in a socket."""

    def __init__(self) -> None:
        self.done = False


def given(on_way: AnswersOnWay, client: bytes, size: int) -> Tracker:
    tracker = Tracker()
    on_way.add(client, tracker, size)
    return tracker


def test_a_client_that_does_not_read_is_refused_until_it_does() -> None:
    on_way = AnswersOnWay(client_max=100, total_max=1_000)
    first, second = (given(on_way, b"slow", 60) for _ in range(2))
    with pytest.raises(BusyError, match=r"limits\.client_window_bytes"):
        on_way.check(b"slow")
    on_way.check(b"other")
    first.done = True
    on_way.check(b"slow")

    assert on_way.size == 60
    second.done = True
    on_way.sweep()
    assert on_way.size == 0


def test_when_all_hold_too_much_those_who_have_read_are_served() -> None:
    on_way = AnswersOnWay(client_max=100, total_max=150)
    trackers = [given(on_way, client, 80) for client in (b"a", b"b")]
    with pytest.raises(BusyError, match=r"limits\.total_answers_bytes"):
        on_way.check(b"a")
    on_way.check(b"reads")
    trackers[1].done = True
    on_way.check(b"a")

    assert on_way.size == 80


def test_what_a_client_leaves_behind_counts_until_the_socket_gives_it_up() -> None:
    on_way = AnswersOnWay(client_max=100, total_max=150)
    left = given(on_way, b"gone", 90)
    given(on_way, b"here", 90)
    with pytest.raises(BusyError):
        on_way.check(b"here")
    left.done = True
    on_way.check(b"here")

    assert on_way.size == 90
