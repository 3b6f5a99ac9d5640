"""Split plan: tasks of about the same size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from ledgermq.pipeline.queue_ranges import MessageRange

_Item = TypeVar("_Item")


class RangeExtent(NamedTuple):
    """Where a range lies in the log, and how many bytes it has, about."""

    first: int
    end: int
    size: int


def split_count(size: int, *, split_bytes: int, splits_min: int, messages: int) -> int:
    """Number of parts into which so many bytes are divided; never more than there are messages."""
    return max(1, min(messages, max(splits_min, -(-size // split_bytes))))


def split_ranges(
    ranges: Sequence[MessageRange],
    extents: Sequence[RangeExtent],
    offset_at: Callable[[MessageRange, int], int],
    *,
    split_bytes: int,
    splits_min: int,
) -> list[tuple[MessageRange, ...]]:
    """``ranges`` divided at positions of the log, so that each part reads one stretch of it.

    Args:
        extents: of the ranges, in the same order.
        offset_at: queue offset of the first message of a range at or behind a position.
    """
    if not ranges:
        return []
    count = split_count(
        sum(extent.size for extent in extents),
        split_bytes=split_bytes,
        splits_min=splits_min,
        messages=sum(range_.end - range_.first for range_ in ranges),
    )
    if count == 1:
        return [tuple(ranges)]
    cuts = _cuts(extents, count)
    parts: list[list[MessageRange]] = [[] for _ in range(count)]
    for range_, extent in zip(ranges, extents, strict=True):
        # Of all parts only those between the range's own ends can have something of it.
        low, high = bisect_right(cuts, extent.first), bisect_left(cuts, extent.end)
        offsets = [range_.first, *(offset_at(range_, cut) for cut in cuts[low:high]), range_.end]
        for number, (first, end) in enumerate(pairwise(offsets), low):
            if first < end:
                parts[number].append(range_._replace(first=first, end=end))
    return [tuple(part) for part in parts if part]


def split_by_count(ranges: Sequence[MessageRange], count: int) -> list[tuple[MessageRange, ...]]:
    """``ranges`` divided into ``count`` parts of as many messages, give or take one."""
    total = sum(range_.end - range_.first for range_ in ranges)
    parts: list[list[MessageRange]] = [[] for _ in range(count)]
    done = 0
    for range_ in ranges:
        first = range_.first
        while first < range_.end:
            number = done * count // total
            room = -(-(number + 1) * total // count) - done
            end = min(range_.end, first + room)
            parts[number].append(range_._replace(first=first, end=end))
            done += end - first
            first = end
    return [tuple(part) for part in parts if part]


def packed(
    items: Iterable[_Item],
    size_of: Callable[[_Item], int],
    *,
    size_max: int,
    count_max: int = 1 << 62,
) -> Iterator[list[_Item]]:
    """``items``, in their order, in packs; a larger one comes alone.

    Args:
        size_max: of a pack's items together, which has at most ``count_max`` of them.
    """
    pack: list[_Item] = []
    total = 0
    for item in items:
        size = size_of(item)
        if pack and (len(pack) == count_max or total + size > size_max):
            yield pack
            pack, total = [], 0
        pack.append(item)
        total += size
    if pack:
        yield pack


def _cuts(extents: Sequence[RangeExtent], count: int) -> list[int]:
    """Positions that divide the bytes of ``extents`` into ``count`` equal parts."""
    # A queue's messages are taken to lie evenly in its stretch: so many bytes a position.
    firsts = np.array([extent.first for extent in extents], np.float64)
    ends = np.array([max(extent.end, extent.first + 1) for extent in extents], np.float64)
    density = np.array([extent.size for extent in extents]) / (ends - firsts)
    edges, places = np.unique(np.concatenate((firsts, ends)), return_inverse=True)
    steps = np.bincount(places, np.concatenate((density, -density)))
    before = np.concatenate(([0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(edges))))
    wanted = before[-1] * np.arange(1, count) / count
    return [int(cut) for cut in np.interp(wanted, before, edges)]
