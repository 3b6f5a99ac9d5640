"""A clock that is set ahead by days makes nothing old."""

from __future__ import annotations

import time

import pytest

from ledgermq.store.steady_time import DOUBT_MS, SteadyTime, confirmed_ms

S = 1_000_000_000
HOUR = 3_600 * S
DAY = 24 * HOUR
BEGIN = 1_700_000_000 * S


class Machine:
    def __init__(self, set_ahead: int = 0) -> None:
        self.set_ahead = set_ahead
        self.passed = 5 * HOUR
        self.steady = SteadyTime(lambda: BEGIN + self.set_ahead + self.passed, lambda: self.passed)

    def behind_s(self, newest: int = 0) -> int:
        """By how much the time is behind that of the clock, when the newest message is of then."""
        now_ms = self.steady.now_ms(newest // 1_000_000)
        return (BEGIN + self.set_ahead + self.passed) // S - now_ms // 1_000

    def true_time(self) -> int:
        return BEGIN + self.passed


def test_time_goes_as_the_clock_goes() -> None:
    machine = Machine()
    for _ in range(3):
        machine.passed += 100 * HOUR
        assert machine.behind_s() == 0


@pytest.mark.parametrize("days", [1, 10_000])
def test_what_the_clock_jumps_ahead_does_not_pass(
    days: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    machine.set_ahead = days * 24 * HOUR
    machine.passed += 2 * HOUR

    assert machine.behind_s() == machine.behind_s() == days * 86_400
    assert [record.args for record in caplog.records] == [(days * 86_400,)]


def test_a_clock_that_is_put_right_is_believed_again() -> None:
    machine = Machine()
    machine.set_ahead = 30 * HOUR
    machine.steady.now_ms()
    machine.set_ahead = -50 * HOUR

    assert machine.behind_s() == 0


def test_small_steps_are_believed() -> None:
    machine = Machine()
    machine.set_ahead = HOUR - S

    assert machine.behind_s() == 0


def test_a_clock_that_is_days_ahead_at_the_start_makes_nothing_old_for_a_day() -> None:
    machine = Machine(10 * DAY)
    newest = machine.true_time()
    begin = machine.behind_s(newest)
    machine.passed += 23 * HOUR
    after_hours = machine.behind_s(newest)
    machine.passed += 2 * HOUR
    after_a_day = machine.behind_s(newest)

    assert (begin, after_hours, after_a_day) == (10 * DAY // S, 10 * DAY // S, 0)


def test_what_the_node_itself_stores_by_such_a_clock_does_not_speak_for_it() -> None:
    machine = Machine(10 * DAY)
    machine.behind_s(machine.true_time())
    machine.passed += 2 * HOUR

    assert machine.behind_s(machine.true_time() + machine.set_ahead) == 10 * DAY // S


def test_messages_that_another_member_stamps_keep_such_a_clock_in_doubt() -> None:
    machine = Machine(10 * DAY)
    for _ in range(100):
        machine.passed += HOUR
        assert machine.behind_s(machine.true_time()) == 10 * DAY // S


def test_such_a_clock_that_is_put_right_is_believed() -> None:
    machine = Machine(10 * DAY)
    machine.behind_s(machine.true_time())
    machine.set_ahead = 0

    assert machine.behind_s(machine.true_time()) == 0


@pytest.mark.parametrize("idle", [0, HOUR, 23 * HOUR])
def test_a_store_that_was_idle_for_less_than_a_day_is_old_at_once(idle: int) -> None:
    machine = Machine()

    assert machine.behind_s(machine.true_time() - idle) == 0


def test_a_clock_that_was_right_at_the_start_is_not_doubted_for_a_quiet_time() -> None:
    machine = Machine()
    newest = machine.true_time()
    machine.behind_s(newest)
    machine.passed += 9 * DAY

    assert machine.behind_s(newest + 1_000_000) == 0


def test_who_runs_once_believes_the_clock_as_far_as_the_newest_record_does() -> None:
    now_ms = time.time_ns() // 1_000_000
    old_ms = now_ms - DOUBT_MS

    assert confirmed_ms(old_ms) == old_ms
    assert confirmed_ms(0) == 0
    assert confirmed_ms(now_ms) >= now_ms
    assert confirmed_ms(now_ms + 7) < now_ms + DOUBT_MS
