"""What a sync is for is what was published when it began, and nothing is said beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.writer.log.flusher import FlushPlan, FlushRule

AT_ONCE = FlushPlan(at_once=True, interval_s=0.5, checkpoint_interval_s=3)
LATER = FlushPlan(at_once=False, interval_s=0.5, checkpoint_interval_s=3)
S = 1_000_000_000


def end(index: int) -> LogEnd:
    return LogEnd(Position(index * 100), Index(index), Term(1), 0)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "cursors") as page:
        yield page


def durable(page: CursorPage) -> int:
    return page.read_durable()[0].index


def test_what_recovery_has_synced_is_durable(page: CursorPage) -> None:
    rule = FlushRule(page, AT_ONCE, end(4), 7)

    assert page.read_durable() == (LogCursor(Position(400), Index(4), Term(1)), 7)
    assert not rule.has_unsynced
    assert not rule.begin_sync()


def test_a_sync_says_nothing_of_what_came_while_it_ran(page: CursorPage) -> None:
    rule = FlushRule(page, AT_ONCE, end(4), 0)
    rule.grow(end(5))
    begun = rule.begin_sync()
    rule.grow(end(6))
    before = durable(page)
    rule.end_sync(1)

    assert (begun, before, durable(page)) == (True, 4, 5)
    assert rule.has_unsynced
    assert rule.wait_ns(1) == 0


def test_a_cut_takes_back_what_was_durable(page: CursorPage) -> None:
    rule = FlushRule(page, AT_ONCE, end(9), 0)
    rule.cut(end(6), 1)
    after = durable(page)
    rule.grow(end(8))

    assert (after, durable(page)) == (6, 6)
    assert rule.has_unsynced


def test_a_cut_behind_what_is_durable_leaves_it(page: CursorPage) -> None:
    rule = FlushRule(page, AT_ONCE, end(4), 0)
    rule.grow(end(9))
    rule.cut(end(6), 1)

    assert durable(page) == 4
    assert rule.begin_sync()


def test_checkpoints_are_of_what_is_durable_and_not_too_often(page: CursorPage) -> None:
    rule = FlushRule(page, AT_ONCE, end(4), 0)
    rule.grow(end(5))
    first = rule.begin_checkpoint(S)
    is_busy = rule.is_busy
    rule.end_checkpoint(S)
    idle = (rule.begin_checkpoint(2 * S), rule.is_busy)
    rule.begin_sync()
    rule.end_sync(2 * S)
    wait_ns = rule.wait_ns(2 * S)

    assert (first, is_busy, idle) == (end(4), True, (None, False))
    assert wait_ns == 2 * S
    assert rule.begin_checkpoint(4 * S) == end(5)


def test_after_a_cut_there_is_a_checkpoint_of_its_own(page: CursorPage) -> None:
    rule = FlushRule(page, AT_ONCE, end(4), 0)
    rule.begin_checkpoint(S)
    rule.end_checkpoint(S)
    unchanged = rule.wait_ns(9 * S)
    rule.cut(end(4), 9 * S)

    assert unchanged is None
    assert rule.begin_checkpoint(9 * S) == end(4)


@pytest.mark.parametrize(("plan", "told"), [(AT_ONCE, [True, True]), (LATER, [True, False])])
def test_who_waits_is_told_of_the_first_or_of_all(
    page: CursorPage, plan: FlushPlan, told: list[bool]
) -> None:
    rule = FlushRule(page, plan, end(4), 0)

    assert [rule.grow(end(5)), rule.grow(end(6))] == told
