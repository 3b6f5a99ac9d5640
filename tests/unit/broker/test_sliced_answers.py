"""Long answers: a slice of them each turn, one of each owner at a time, given once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.service import Mailbox
from ledgermq.broker.sliced_answers import (
    BUILT_AT_ONCE_MAX,
    PAUSE_MS,
    SLICE_NS,
    WAITING_MAX,
    Build,
    SlicedAnswers,
    listed,
)
from ledgermq.broker.state.state_requests import Encoded, Reply
from ledgermq.model.errors import BusyError, LedgerError, NotLeaderError, ProtocolError
from ledgermq.sessions.request_faults import let_through

STEPS_PER_SLICE = 10
STEP_NS = SLICE_NS // STEPS_PER_SLICE


class Ticking:
    """A clock that moves with each step of what is built."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


class Node:
    """The answers of a broker, and what was built in which order."""

    def __init__(self) -> None:
        self.clock = Ticking()
        self.steps: list[str] = []
        self.mailbox = Mailbox()
        self.slices = SlicedAnswers(cast("Any", self.clock), let_through, self.mailbox)
        self.now_ms = 0

    def rows(self, name: str, count: int) -> Iterator[dict[str, object]]:
        for number in range(count):
            self.clock.now_ns += STEP_NS
            self.steps.append(name)
            yield {"row": number}

    def ask(self, name: str, count: int, *, owner: str = "") -> None:
        self.slices.begin(caller(name), listed({}, rows=self.rows(name, count)), owner=owner)

    def turn(self, *, others_ask: bool = False) -> list[str]:
        """Who is answered."""
        self.slices.others_ask = others_ask
        return [reply.caller.client.decode() for reply in self.replies(self.now_ms)]

    def replies(self, now_ms: int = 0) -> list[Reply]:
        """What one turn answers."""
        self.slices.turn(now_ms)
        return self.mailbox.take()


def caller(name: str) -> Caller:
    return Caller(name.encode(), 1)


def told(reply: Reply) -> object:
    assert isinstance(reply.outcome, Encoded)
    return json.loads(reply.outcome.body)


@pytest.mark.parametrize("fields", [{}, {"more": False, "group": 'a"b'}])
def test_an_answer_is_the_object_that_it_would_be_at_once(fields: dict[str, object]) -> None:
    node = Node()
    one, two = [{"topic": "t", "lag": 1}, {"topic": "\ud800", "lag": 2}], [{"queue": 3}]

    node.slices.begin(caller("c"), listed(fields, topics=iter(one), queues=iter(two), none=()))

    (reply,) = node.replies()
    assert told(reply) == {**fields, "topics": one, "queues": two, "none": []}


def test_a_turn_builds_for_a_slice_and_others_have_their_turn_between() -> None:
    node = Node()
    node.ask("long", 35)

    answered = [node.turn() for _ in range(4)]

    assert answered == [[], [], [], ["long"]]
    assert len(node.slices) == 0
    assert node.slices.next_deadline_ms() is None


def test_while_others_ask_a_slice_is_followed_by_a_pause() -> None:
    node = Node()
    node.ask("long", 35)
    node.turn(others_ask=True)
    built = len(node.steps)

    node.now_ms = PAUSE_MS - 1
    node.turn()
    assert len(node.steps) == built
    assert node.slices.next_deadline_ms() == PAUSE_MS

    node.now_ms = PAUSE_MS
    node.turn()
    assert len(node.steps) == built + STEPS_PER_SLICE


def test_short_answers_follow_one_another_without_a_pause() -> None:
    node = Node()
    for number in range(3):
        node.ask(f"page-{number}", 5)
        assert node.turn(others_ask=True) == [f"page-{number}"]


def test_who_asks_for_much_does_not_keep_others_waiting() -> None:
    node = Node()
    for number in range(50):
        node.ask(f"greedy-{number}", 1_000, owner="greedy")

    node.ask("modest", 3, owner="modest")

    assert node.turn() == ["modest"]
    assert set(node.steps) == {"greedy-0", "modest"}


def test_owners_take_turns_and_a_bounded_number_of_answers_is_in_memory() -> None:
    node = Node()
    for which in "ab":
        for number in range(BUILT_AT_ONCE_MAX + 3):
            node.ask(f"{which}{number}", 2, owner=f"owner-{number}")
    answered: list[str] = []

    while len(node.slices):
        before = len(set(node.steps)) - len(answered)
        assert before <= BUILT_AT_ONCE_MAX
        answered += node.turn()

    firsts = [name for name in answered if name.startswith("a")]
    assert sorted(answered) == sorted(
        f"{which}{number}" for which in "ab" for number in range(BUILT_AT_ONCE_MAX + 3)
    )
    # Nobody's second answer comes before somebody's first one.
    assert set(answered[: len(firsts)]) == set(firsts)


def test_what_nobody_waits_for_is_not_built() -> None:
    node = Node()
    node.ask("gone", 100)
    node.ask("gone", 100)
    node.turn()
    built = len(node.steps)

    node.slices.cancel(b"gone")

    assert node.turn() == []
    assert len(node.steps) == built
    is_open = True
    node.slices.begin(
        caller("closes"), listed({}, rows=node.rows("closes", 100)), is_wanted=lambda: is_open
    )
    node.turn()
    is_open = False
    (reply,) = node.replies()
    assert isinstance(reply.outcome, NotLeaderError)
    assert len(node.steps) == built + STEPS_PER_SLICE


def test_an_answer_that_meets_an_error_is_refused_and_others_go_on() -> None:
    node = Node()
    met = ProtocolError("no such thing")

    def fails(error: Exception) -> Build:
        yield
        raise error

    contained: list[Exception] = []

    def contain(error: Exception) -> LedgerError:
        contained.append(error)
        return met

    bug = KeyError("bug")
    node.slices = SlicedAnswers(cast("Any", node.clock), contain, node.mailbox)
    node.slices.begin(caller("refused"), fails(met), owner="1")
    node.slices.begin(caller("bug"), fails(bug), owner="2")
    node.ask("fine", 2, owner="3")

    replies = {one.caller.client: one for one in node.replies()}

    assert replies[b"refused"].outcome is met
    assert replies[b"bug"].outcome is met
    assert contained == [bug]
    assert told(replies[b"fine"]) == {"rows": [{"row": 0}, {"row": 1}]}


def test_too_many_that_wait_are_refused_and_all_are_at_the_end() -> None:
    node = Node()
    for number in range(WAITING_MAX):
        node.ask(f"{number}", 1, owner=f"{number % 20}")

    with pytest.raises(BusyError, match=str(WAITING_MAX)):
        node.ask("more", 1)

    node.slices.end_all()
    refused = node.mailbox.take()
    assert {one.caller.client for one in refused} == {b"%d" % one for one in range(WAITING_MAX)}
    assert node.turn() == []
