"""Offsets as they stand in JSON: runs of those that follow one another."""

from __future__ import annotations

from collections.abc import Sequence


def ranges_of(offsets: Sequence[int]) -> list[list[int]]:
    """Offsets in their order, as [first, count] where they follow one another."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and offset == sum(ranges[-1]):
            ranges[-1][1] += 1
        else:
            ranges.append([offset, 1])
    return ranges
