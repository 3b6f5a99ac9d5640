"""Replay marks: which dead letters were replayed, in the table of moves.

The marks of a source queue are numbers by name (``moves``). Here they are

    FIRST   END    the dead letters from offset FIRST up to END were replayed
    token   N      what the client called the last replay, so that it may ask again
    origin  0 | 1  whether the last replay went to the topics that the messages were first sent to
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

TOKEN = "token"  # noqa: S105 - a property's name
ORIGIN = "origin"


class Replayed(NamedTuple):
    """The marks of one queue.

    Attributes:
        ranges: offsets that were replayed, half-open, ascending, apart from one another.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    token: int = 0
    is_origin: bool = False

    @classmethod
    def read(cls, marks: Mapping[str, int]) -> Replayed:
        """What the marks of the table say."""
        ranges = ((int(name), end) for name, end in marks.items() if name.isdecimal())
        return cls(tuple(sorted(ranges)), marks.get(TOKEN, 0), bool(marks.get(ORIGIN, 0)))

    def to_marks(self) -> dict[str, int]:
        """The marks for the table."""
        marks = {str(first): end for first, end in self.ranges}
        return {**marks, TOKEN: self.token, ORIGIN: int(self.is_origin)}

    def has(self, offset: int) -> bool:
        """Whether the dead letter at ``offset`` was replayed."""
        return any(first <= offset < end for first, end in self.ranges)

    def with_offsets(self, offsets: Iterable[int], *, first: int) -> Replayed:
        """The same, with ``offsets`` replayed, too.

        Args:
            first: the first offset that the queue holds; what is before it is forgotten.
        """
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self.ranges, *((offset, offset + 1) for offset in offsets)]):
            if end <= first:
                continue
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return self._replace(ranges=tuple(merged))
