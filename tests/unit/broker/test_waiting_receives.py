"""Receives of a share group that wait: what is counted is what a look at each would find."""

from __future__ import annotations

import random

from ledgermq.broker.callers import Caller
from ledgermq.broker.consumers.share_gather import UNTILS_SLACK, Receive, WaitingReceives
from ledgermq.verbs.shares import ReceiveShared


def receive(chance: random.Random, number: int) -> Receive:
    return Receive(
        Caller(b"c", number),
        ReceiveShared("g", "t", queue=chance.choice((None, None, 0, 1, 2))),
        chance.choice((None, None, lambda _properties: True)),
        lambda _topic, _right: None,
        chance.randrange(1_000),
        takes=chance.random() < 0.7,
    )


def test_what_waits_is_counted_as_it_comes_and_goes() -> None:
    chance = random.Random(7)
    waiting, model = WaitingReceives(), list[Receive]()
    for number in range(3_000):
        # By turns more and fewer wait.
        if chance.random() < (0.7 if number // 500 % 2 else 0.3) or not model:
            one = receive(chance, number)
            waiting.add(one)
            model.append(one)
            assert len(waiting._untils) <= 2 * len(waiting) + UNTILS_SLACK
        else:
            gone = model.pop(chance.randrange(len(model)))
            assert waiting.remove(gone)
            assert not waiting.remove(gone)
        takers = [one for one in model if one.takes]
        named = {one.asked.queue for one in takers}
        now_ms = chance.randrange(1_000)

        assert list(waiting) == model
        assert waiting.has_looks == (len(takers) < len(model))
        assert waiting.has_choosy == any(one.is_choosy for one in takers)
        assert list(waiting.queues_wanted([0, 1, 2, 3])) == [
            queue for queue in range(4) if None in named or queue in named
        ]
        assert waiting.late(now_ms) == [one for one in model if one.until_ms <= now_ms]
        assert waiting.first_until_ms(5_000) == min((one.until_ms for one in model), default=5_000)
