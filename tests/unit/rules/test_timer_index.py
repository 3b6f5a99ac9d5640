"""The index of timers against a plain list of them, and a node that reads queue and watermark."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ledgermq.rules.messages import timer_index
from ledgermq.rules.messages.timer_index import TimerIndex, Timers, Watermark


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


def test_old_ones_are_found_by_their_place_and_let_go_of() -> None:
    index = TimerIndex()
    index.add(timers([(30, 0), (10, 1), (20, 2)]))
    index.add(timers([(25, 3), (5, 4)]))
    index.cancel(1)

    assert pairs(index.before(301)) == [(30, 0), (20, 2), (25, 3)]
    assert pairs(index.before(0)) == []
    index.forget_below(3)
    assert (index.count, index.lowest_offset(), index.holds(2)) == (2, 3, False)
    assert pairs(index.due(99, 10)) == [(5, 4), (25, 3)]
    index.forget_below(5)
    assert (index.count, index.next_due_ms) == (0, None)


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


class Story:
    """A queue, who leads, and what became of each message, by the offset where it was first."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rows: list[tuple[int, int]] = []
        self.message_at: list[int] = []
        self.cancels: list[int] = []
        self.taken_back: set[int] = set()
        self.delivered: list[int] = []
        self.watermark = Watermark()
        self.begin = 0
        self.index = TimerIndex()
        self.clock = 100

    def append(self, rows: list[tuple[int, int]]) -> None:
        """Times, and which message each is; -1: a new one."""
        fresh = [(due, len(self.rows) + at) for at, (due, _) in enumerate(rows)]
        self.message_at += [
            offset if known < 0 else known
            for (_, known), (_, offset) in zip(rows, fresh, strict=True)
        ]
        self.rows += fresh
        self.index.add(timers(fresh))

    def store(self) -> None:
        count = self.chance.randrange(1, 6)
        self.append([(self.clock + self.chance.randrange(-30, 60), -1) for _ in range(count)])

    def store_again(self) -> None:
        """The oldest, at the end: nothing waits below the next one."""
        self.index.forget_delivered(self.watermark)
        old = self.index.before(self.chance.randrange(100 * len(self.rows) + 1)).take(slice(5))
        if old:
            self.append([(due, self.message_at[offset]) for due, offset in pairs(old)])
            self.begin = int(old.offset[-1]) + 1
            self.index.forget_below(self.begin)

    def take_back(self) -> None:
        offset = self.chance.randrange(len(self.rows) + 1)
        self.index.forget_delivered(self.watermark)
        if self.index.cancel(offset):
            self.cancels.append(offset)
            self.taken_back.add(self.message_at[offset])

    def change_leader(self) -> None:
        """Another node leads, which has read the queue: it has what commands say, and no more."""
        self.index = TimerIndex()
        if self.rows:
            self.index.add(timers(self.rows))
        for offset in self.cancels:
            self.index.cancel(offset)
        self.index.forget_below(self.begin)

    def deliver(self, now: int, most: int) -> bool:
        offsets, after = step(self.index, self.watermark, now, len(self.rows), most)
        if self.chance.random() < 0.8:
            self.delivered += [self.message_at[offset] for offset in offsets]
            self.watermark = after
        return bool(offsets)


@pytest.mark.parametrize("seed", range(30))
def test_each_timer_is_delivered_once_whoever_leads_with_whatever_clock(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_index, "RUN_MAX", 16)
    story = Story(seed)
    acts = (story.store, story.store_again, story.take_back, story.change_leader)
    for _ in range(300):
        story.clock += story.chance.randrange(-20, 30)
        (act,) = story.chance.choices((*acts, None), (40, 5, 10, 10, 40))
        if act is not None:
            act()
        else:
            story.deliver(story.clock, story.chance.randrange(1, 5))
    while story.deliver(10_000, 3):
        pass

    assert sorted(story.delivered) == sorted(set(story.message_at) - story.taken_back)
    assert story.index.count == 0
    assert len(story.message_at) > len(set(story.message_at)) > len(story.delivered) > 0
