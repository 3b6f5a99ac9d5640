"""Dead letters that a replay of all takes: those that were not replayed yet, as many as one may."""

from __future__ import annotations

import random

from ledgermq.observer.inquiries.message_inquiries import REPLAYED_MAX, _left
from ledgermq.verbs.dead_letters import DeadLetterQueue


def test_those_are_left_that_were_not_replayed() -> None:
    chance = random.Random(1)
    for _ in range(200):
        marks = sorted(chance.sample(range(60), 2 * chance.randrange(6)))
        replayed = tuple(zip(marks[::2], marks[1::2], strict=True))
        begin, end = sorted(chance.sample(range(60), 2))
        queue = DeadLetterQueue(1, begin, end, replayed)
        wanted = [offset for offset in range(begin, end) if not queue.was_replayed(offset)]

        assert _left([DeadLetterQueue(0, 0, 9, ()), queue], 1, again=False) == wanted
        assert _left([queue], 1, again=True) == list(range(begin, end))


def test_of_millions_the_first_ones_are_found_without_a_look_at_each() -> None:
    queue = DeadLetterQueue(0, 0, 10**15, ((1, 10**14), (10**14 + 2, 10**14 + 5)))
    left = _left([queue], 0, again=False)

    assert left[:4] == [0, 10**14, 10**14 + 1, 10**14 + 5]
    assert len(left) == REPLAYED_MAX
