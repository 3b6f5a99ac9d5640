"""Histograms whose bins grow with the values: quantiles to 1.6 %, a few hundred numbers each.

Values below 64 have a bin each; each doubling beyond has 64. Two of them are merged by adding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ledgermq.pipeline.columns.arrow_slices import Integers

_SUB_BITS = 6
_EXACT = 1 << _SUB_BITS
BINS = _EXACT * (63 - _SUB_BITS + 1)
"""Enough for all values that are not negative."""


class ValueHistogram:
    """How often values were seen; negative ones count as 0.

    Invariant: ``sum(counts) == count``, and ``least <= largest`` once something was seen.
    """

    __slots__ = ("counts", "largest", "least", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.least = 0
        self.largest = 0
        self.total = 0

    @property
    def count(self) -> int:
        """How many values it has."""
        return sum(self.counts.values())

    def add(self, values: Integers) -> None:
        """Count more values."""
        if not len(values):
            return
        values = np.maximum(values, 0)
        least, largest = int(values.min()), int(values.max())
        is_first = not self.counts
        self.least = least if is_first else min(self.least, least)
        self.largest = max(self.largest, largest)
        self.total += int(values.sum())
        bins, counts = np.unique(bins_of(values), return_counts=True)
        for number, count in zip(bins.tolist(), counts.tolist(), strict=True):
            self.counts[number] = self.counts.get(number, 0) + count

    def merge(self, other: ValueHistogram) -> None:
        """Count what ``other`` has seen, too."""
        if not other.counts:
            return
        self.least = min(self.least, other.least) if self.counts else other.least
        self.largest = max(self.largest, other.largest)
        self.total += other.total
        for number, count in other.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count

    def quantiles(self, shares: Sequence[float]) -> list[int]:
        """Values that shares of the numbers are at most, one for each of ``shares`` (ascending, 0
        to 1); 0 without any number.
        """
        if not self.counts:
            return [0] * len(shares)
        numbers = sorted(self.counts)
        reached = np.cumsum([self.counts[number] for number in numbers])
        wanted = np.maximum(np.ceil(np.array(shares) * reached[-1]), 1)
        places = np.searchsorted(reached, wanted)
        return [
            max(self.least, min(self.largest, end_of(numbers[place]) - 1))
            for place in places.tolist()
        ]

    def steps(self) -> list[tuple[int, int, int]]:
        """Least value, end and count of each bin that has something, ascending."""
        return [
            (first_of(number), end_of(number), self.counts[number])
            for number in sorted(self.counts)
        ]


def bins_of(values: Integers) -> Integers:
    """The bin of each value, none of them negative."""
    # Doubles are exact up to 2**53, which is far beyond what is measured here.
    exponents = np.frexp(np.maximum(values, 1).astype(np.float64))[1].astype(np.int64) - 1
    shifts = np.maximum(exponents - _SUB_BITS, 0)
    bins: Integers = np.where(values < _EXACT, values, _EXACT * shifts + (values >> shifts))
    return bins


def first_of(number: int) -> int:
    """Least value of a bin."""
    if number < 2 * _EXACT:
        return number
    shift = number // _EXACT - 1
    return (number - _EXACT * shift) << shift


def end_of(number: int) -> int:
    """The value behind the largest one of a bin."""
    return first_of(number + 1)
