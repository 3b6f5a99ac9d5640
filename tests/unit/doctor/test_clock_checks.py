"""The kernel's word about the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.doctor import examination as checked
from ledgermq.doctor.examination import clock_checks, kernel_clock
from ledgermq.doctor.finding import Weight
from tests.unit.doctor.subjects import by_check, subject_in


def test_the_kernel_tells_of_its_clock() -> None:
    state, error_ms, _ = kernel_clock()

    assert 0 <= state <= 5
    assert error_ms >= 0


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ((0, 3, False), Weight.OK),
        ((0, 3_000, False), Weight.WARN),
        ((5, 3, False), Weight.WARN),
        ((0, 3, True), Weight.WARN),
    ],
)
def test_a_clock_that_nobody_keeps_right_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: tuple[int, int, bool],
    verdict: Weight,
) -> None:
    monkeypatch.setattr(checked, "kernel_clock", lambda: told)
    findings = by_check(clock_checks, subject_in(tmp_path))

    assert findings["clock.synchronised"].verdict is verdict
