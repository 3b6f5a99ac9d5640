"""Histograms of times in the page: every time in its bucket, and bounds that hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.ipc.cursor_page import COUNTERS_MAX, CursorPage, Role
from ledgermq.ipc.time_histogram import (
    BOUNDS_NS,
    BUCKETS,
    TimeHistogram,
    TimeKind,
    Times,
    read_times,
)

NOTHING = Times((0,) * BUCKETS, 0)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    made = CursorPage.create(tmp_path / "page")
    yield made
    made.close()


@pytest.mark.parametrize("number", range(len(BOUNDS_NS)))
def test_a_bound_belongs_to_the_next_bucket(page: CursorPage, number: int) -> None:
    times = TimeHistogram(page, TimeKind.SYNC)
    times.observe(BOUNDS_NS[number] - 1)
    times.observe(BOUNDS_NS[number])
    found = read_times(page, TimeKind.SYNC)

    assert [at for at, count in enumerate(found.counts) if count] == [number, number + 1]
    assert (found.total, found.sum_ns) == (2, 2 * BOUNDS_NS[number] - 1)


def test_what_takes_for_ever_is_in_the_last_bucket(page: CursorPage) -> None:
    TimeHistogram(page, TimeKind.PUT_LOCK).observe(10**15)

    assert read_times(page, TimeKind.PUT_LOCK).counts[-1] == 1
    assert read_times(page, TimeKind.SYNC) == NOTHING


def test_a_later_process_goes_on_with_what_was_counted(page: CursorPage) -> None:
    for _ in range(2):
        TimeHistogram(page, TimeKind.SYNC).observe(1)

    assert read_times(page, TimeKind.SYNC).total == 2


def test_they_touch_nobodys_counters(page: CursorPage) -> None:
    for kind in TimeKind:
        times = TimeHistogram(page, kind)
        for bound_ns in (0, *BOUNDS_NS):
            times.observe(bound_ns)

    assert all(page.read_counters(role) == [0] * COUNTERS_MAX for role in Role)
    assert all(read_times(page, kind).counts == (1,) * BUCKETS for kind in TimeKind)


@given(
    st.lists(st.integers(0, BOUNDS_NS[-1] - 1), min_size=1, max_size=50),
    st.sampled_from([0.5, 0.99, 0.999, 1.0]),
)
def test_a_quantile_is_a_bound_that_so_many_did_not_exceed(
    observed: list[int], part: float
) -> None:
    counts = [0] * BUCKETS
    for ns in observed:
        counts[next(at for at, bound in enumerate(BOUNDS_NS) if ns < bound)] += 1
    bound_ns = Times(tuple(counts), sum(observed)).quantile_ns(part)

    assert sum(ns < bound_ns for ns in observed) >= part * len(observed)
    assert bound_ns <= 2 * max(*observed, BOUNDS_NS[0] // 2)


def test_without_any_there_is_no_bound() -> None:
    assert NOTHING.quantile_ns(0.99) == 0
