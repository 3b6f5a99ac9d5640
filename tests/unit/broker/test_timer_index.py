"""The index of timers against a plain list of them, and a node that reads queue and watermark."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ledgermq.broker import timer_index
from ledgermq.broker.timer_index import TimerIndex, Timers, Watermark


def timers(rows: list[tuple[int, int]]) -> Timers:
    """Rows of time and queue offset; the record of offset n lies at 100 n."""
    due, offset = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Timers(due, offset, offset * 100, np.full(len(rows), 90, np.int32))


def pairs(found: Timers) -> list[tuple[int, int]]:
    return list(zip(found.due.tolist(), found.offset.tolist(), strict=True))


def test_what_is_due_comes_in_the_order_of_time_and_queue() -> None:
    index = TimerIndex()
    index.add(timers([(30, 0), (10, 1), (20, 2)]))
    index.add(timers([(10, 3), (40, 4)]))

    assert index.next_due_ms == 10
    assert pairs(index.due(30, 10)) == [(10, 1), (10, 3), (20, 2), (30, 0)]
    assert pairs(index.due(30, 2)) == [(10, 1), (10, 3)]
    assert pairs(index.due(9, 10)) == []
    assert index.due(30, 1).position.tolist() == [100]
    assert (index.count, index.lowest_offset(), index.lowest_position()) == (5, 0, 0)


def test_what_is_taken_back_is_never_due() -> None:
    index = TimerIndex()
    index.add(timers([(10, 0), (20, 1)]))

    assert index.holds(0) and index.cancel(0)
    assert not index.holds(0) and not index.cancel(0) and not index.cancel(7)
    assert pairs(index.due(99, 10)) == [(20, 1)]
    assert (index.count, index.next_due_ms, index.lowest_offset()) == (1, 20, 1)
    assert index.cancel(1)
    assert (index.count, index.next_due_ms, index.lowest_position()) == (0, None, None)


def test_a_timer_that_comes_late_waits_though_the_watermark_is_behind_its_time() -> None:
    index = TimerIndex()
    index.add(timers([(10, 0), (20, 1), (30, 2)]))
    watermark = Watermark(20, 1, 3)
    index.add(timers([(5, 3), (20, 4)]))
    index.forget_delivered(watermark)

    assert pairs(index.late(watermark)) == [(5, 3)]
    assert pairs(index.due(20, 10)) == [(5, 3), (20, 4)]
    index.forget_delivered(watermark._replace(end=4))
    assert pairs(index.late(watermark)) == []
    assert pairs(index.due(30, 10)) == [(20, 4), (30, 2)]


def step(
    index: TimerIndex, watermark: Watermark, now: int, end: int, most: int
) -> tuple[list[int], Watermark]:
    """What a leader moves next, by the rules of the module; and the watermark of its command."""
    index.forget_delivered(watermark)
    if late := index.late(watermark):
        offsets = late.offset[:most].tolist()
        return offsets, watermark._replace(end=offsets[-1] + 1 if len(late.due) > most else end)
    if due := index.due(now, most):
        return due.offset.tolist(), Watermark(int(due.due[-1]), int(due.offset[-1]), end)
    return [], watermark


@pytest.mark.parametrize("seed", range(30))
def test_each_timer_is_delivered_once_whoever_leads_with_whatever_clock(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_index, "RUN_MAX", 16)
    chance = random.Random(seed)
    stored: list[tuple[int, int]] = []
    delivered: list[int] = []
    cancelled: set[int] = set()
    watermark = Watermark()
    index = TimerIndex()
    clock = 100
    for _ in range(300):
        clock += chance.randrange(-20, 30)
        action = chance.random()
        if action < 0.4:
            fresh = [
                (clock + chance.randrange(-30, 60), len(stored) + number)
                for number in range(chance.randrange(1, 6))
            ]
            stored += fresh
            index.add(timers(fresh))
        elif action < 0.5 and stored:
            offset = chance.randrange(len(stored))
            index.forget_delivered(watermark)
            if index.holds(offset):
                index.cancel(offset)
                cancelled.add(offset)
        elif action < 0.6:
            # Another node leads, which has read the queue: it has the watermark, and no more.
            index = TimerIndex()
            if stored:
                index.add(timers(stored))
            for offset in cancelled:
                index.cancel(offset)
        else:
            offsets, after = step(index, watermark, clock, len(stored), chance.randrange(1, 5))
            if chance.random() < 0.8:
                delivered += offsets
                watermark = after
    while True:
        offsets, watermark = step(index, watermark, 10_000, len(stored), 3)
        if not offsets:
            break
        delivered += offsets

    assert sorted(delivered) == sorted(set(range(len(stored))) - cancelled)
    assert index.count == 0
