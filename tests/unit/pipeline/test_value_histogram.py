"""Bins cover all values without a gap, and quantiles are near those of the values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.pipeline.jobs.stats_counts import ValueHistogram, bins_of, end_of, first_of


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=50))
def test_each_value_lies_in_its_bin(values: list[int]) -> None:
    for value, number in zip(values, bins_of(np.array(values)).tolist(), strict=True):
        assert first_of(number) <= value < end_of(number)
        assert end_of(number) - first_of(number) <= max(1, value / 64)


def test_bins_join() -> None:
    assert all(end_of(number) == first_of(number + 1) for number in range(2_000))
    assert [first_of(number) for number in (0, 63, 64, 127, 128)] == [0, 63, 64, 127, 128]


@given(st.lists(st.integers(0, 1_000_000), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_quantiles_are_near_those_of_the_values(values: list[int], share: float) -> None:
    histogram = ValueHistogram()
    histogram.add(np.array(values))
    exact = sorted(values)[max(int(np.ceil(share * len(values))), 1) - 1]

    assert exact <= histogram.quantiles([share])[0] <= exact * (1 + 1 / 64) + 1
    assert histogram.quantiles([1.0]) == [max(values)]
    assert histogram.count == len(values)
    assert histogram.total == sum(values)


@given(st.lists(st.integers(-5, 10_000)), st.lists(st.integers(-5, 10_000)))
def test_two_that_are_merged_are_one_of_all_values(left: list[int], right: list[int]) -> None:
    merged, other, whole = ValueHistogram(), ValueHistogram(), ValueHistogram()
    merged.add(np.array(left, np.int64))
    other.add(np.array(right, np.int64))
    merged.merge(other)
    whole.add(np.array(left + right, np.int64))

    assert merged.steps() == whole.steps()
    assert (merged.least, merged.largest) == (whole.least, whole.largest)


def test_without_values_there_are_no_quantiles() -> None:
    assert ValueHistogram().quantiles([0.5, 1.0]) == [0, 0]
