"""A clock that is set ahead by days makes nothing old."""

from __future__ import annotations

import pytest

from ledgermq.writing.steady_time import SteadyTime

S = 1_000_000_000
HOUR = 3_600 * S
BEGIN = 1_700_000_000 * S


class Machine:
    def __init__(self) -> None:
        self.set_ahead = 0
        self.passed = 5 * HOUR
        self.steady = SteadyTime(lambda: BEGIN + self.set_ahead + self.passed, lambda: self.passed)

    def behind_s(self) -> int:
        """By how much the time is behind that of the clock."""
        return (BEGIN + self.set_ahead + self.passed) // S - self.steady.now_ms() // 1_000


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
