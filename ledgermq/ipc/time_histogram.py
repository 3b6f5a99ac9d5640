"""Time histograms in the cursor page: how long things took that are done once a frame, put or sync.

One observation is one call, and two cells of the page that one thread alone writes. Bucket 0 has
what took less than 65.5 µs, each next one twice as much; the last one has all that took longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ledgermq.ipc.cursor_page import FIELDS, CursorPage

BUCKETS = 22
_SHIFT = 16
_LAST = BUCKETS - 1
_SUM = BUCKETS
_SLOTS = 3
_FIRST_SLOT = 264

_NUMBERED = 1_024
_NUMBERS = bytes(at.bit_length() for at in range(_NUMBERED))
"""Buckets of what takes up to 67 ms: looked up, with each put, and not asked for."""

BOUNDS_NS = tuple(1 << (_SHIFT + number) for number in range(_LAST))
"""What took longer is not in the bucket of that number; the last bucket has no bound."""

assert _SUM < _SLOTS * FIELDS


class TimeKind(IntEnum):
    """What is measured; the number is the place in the page."""

    SYNC = 0
    PUT_LOCK = 1
    ACKNOWLEDGEMENT = 2


@dataclass(frozen=True, slots=True)
class Times:
    """What was observed: how often, by bucket, and the sum of all."""

    counts: tuple[int, ...]
    sum_ns: int

    @property
    def total(self) -> int:
        """Observations."""
        return sum(self.counts)

    def quantile_ns(self, part: float) -> int:
        """A bound that ``part`` of all did not exceed, 0 without any; that of the last bucket is
        twice the one before.
        """
        left = self.total * part
        for number, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return 1 << (_SHIFT + number)
        return 0


class TimeHistogram:
    """The writer's end of one histogram, which goes on where an earlier process left it."""

    def __init__(self, page: CursorPage, kind: TimeKind) -> None:
        """Take the cells of ``kind``."""
        self._cells = _cells(page, kind)

    def observe(self, ns: int) -> None:
        """Count something that took ``ns``."""
        at = ns >> _SHIFT
        number = _NUMBERS[at] if at < _NUMBERED else min(at.bit_length(), _LAST)
        self._cells[number] += 1
        self._cells[_SUM] += ns


def read_times(page: CursorPage, kind: TimeKind) -> Times:
    """What was observed since the node was started."""
    cells: Sequence[int] = page.read_cells(place_of(kind), BUCKETS + 1)
    return Times(tuple(cells[:BUCKETS]), cells[_SUM])


def _cells(page: CursorPage, kind: TimeKind) -> memoryview:
    return page.lend(place_of(kind), BUCKETS + 1)


def place_of(kind: TimeKind) -> int:
    """First cell of a histogram in the page."""
    return (_FIRST_SLOT + _SLOTS * kind) * FIELDS
