"""Held pulls: each is answered exactly once, whatever ends it."""

from __future__ import annotations

import random

from ledgermq.broker.pulls.pull_answers import Hold, Holds
from ledgermq.model.names.queue_name import QueueName

FIRST = QueueName("t", 0)
OTHER = QueueName("t", 1)


def hold(client: str, queue: QueueName, deadline_ms: int, request: int = 0) -> Hold[str, int]:
    return Hold(client, queue, deadline_ms, request)


def holds_of(*held: Hold[str, int], limit: int = 100) -> Holds[str, int]:
    holds: Holds[str, int] = Holds(limit=limit)
    for one in held:
        holds.add(one)
    return holds


def test_the_holds_of_a_queue_are_given_oldest_first_and_once() -> None:
    first, second, third = hold("a", FIRST, 9), hold("b", OTHER, 1), hold("c", FIRST, 5)
    holds = holds_of(first, second, third)

    assert holds.queues() == [FIRST, OTHER]
    assert holds.take(FIRST) == [first, third]
    assert holds.take(FIRST) == []
    assert holds.queues() == [OTHER]
    assert len(holds) == 1


def test_a_hold_is_due_at_its_deadline_and_not_before() -> None:
    late, early = hold("a", FIRST, 20), hold("b", FIRST, 10)
    holds = holds_of(late, early)

    assert holds.next_deadline_ms() == 10
    assert holds.take_due(9) == []
    assert holds.take_due(10) == [early]
    assert holds.next_deadline_ms() == 20
    assert holds.take_due(1_000) == [late]
    assert holds.next_deadline_ms() is None


def test_a_hold_that_was_taken_is_not_due_any_more() -> None:
    holds = holds_of(hold("a", FIRST, 10))

    holds.take(FIRST)

    assert holds.next_deadline_ms() is None
    assert holds.take_due(99) == []


def test_a_client_that_goes_takes_its_holds_along() -> None:
    stays = hold("b", FIRST, 10)
    holds = holds_of(hold("a", FIRST, 10), stays, hold("a", OTHER, 10))

    assert holds.cancel("a") == 2
    assert holds.cancel("a") == 0
    assert holds.queues() == [FIRST]
    assert holds.take_all() == [stays]


def test_one_hold_more_than_the_limit_ends_the_oldest_of_who_has_most() -> None:
    oldest, honest = hold("a", FIRST, 9), hold("b", FIRST, 9)
    holds = holds_of(honest, oldest, hold("a", FIRST, 1), limit=3)

    assert holds.add(hold("c", OTHER, 3)) == [oldest]
    assert len(holds) == 3
    assert honest in holds.take(FIRST)


def test_who_has_most_is_a_host_with_all_its_connections() -> None:
    holds: Holds[str, int] = Holds(limit=8, host_of=lambda client: client[0])
    honest = [hold("b1", FIRST, 9), hold("b1", FIRST, 9)]
    greedy = [hold(f"a{number}", FIRST, 9) for number in range(6)]
    for one in (*honest, *greedy):
        assert holds.add(one) == []
    ended = [holds.add(hold("c", FIRST, 9, number)) for number in range(3)]

    assert ended == [[one] for one in greedy[:3]]


def test_a_client_that_has_its_share_ends_its_own_oldest() -> None:
    holds: Holds[str, int] = Holds(limit=100, share=2)
    own = [hold("a", FIRST, 9), hold("a", OTHER, 9), hold("a", FIRST, 9)]
    other = hold("b", FIRST, 9)
    assert [holds.add(one) for one in (other, *own)] == [[], [], [], [own[0]]]
    assert holds.take_all() == [other, *own[1:]]


def test_answered_holds_leave_no_deadlines_behind() -> None:
    holds: Holds[str, int] = Holds(limit=4)

    for number in range(10_000):
        holds.add(hold("a", FIRST, 1_000_000 + number))
        holds.take(FIRST)

    assert len(holds._deadlines) <= 66


def test_every_hold_ends_exactly_once_in_any_order_of_events() -> None:
    chance = random.Random(7)
    holds: Holds[str, int] = Holds(limit=50)
    ended: list[int] = []
    cancelled = 0
    added = 0
    for now in range(2_000):
        event = chance.randrange(5)
        if event < 3 and len(holds) < 50:
            queue = QueueName("t", chance.randrange(4))
            holds.add(hold(f"c{chance.randrange(6)}", queue, now + chance.randrange(60), added))
            added += 1
        elif event == 3:
            ended += [one.request for one in holds.take(QueueName("t", chance.randrange(4)))]
        else:
            cancelled += holds.cancel(f"c{chance.randrange(6)}")
        ended += [one.request for one in holds.take_due(now)]
    ended += [one.request for one in holds.take_all()]

    assert len(ended) == len(set(ended))
    assert len(ended) + cancelled == added
    assert added > 500
    assert len(holds) == 0
