"""Ranges of queue offsets in JSON: runs of consecutive ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ledgermq.model.errors import LedgerError


def ranges_of(offsets: Sequence[int]) -> list[list[int]]:
    """Offsets in their order, as [first, count] where they follow one another."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and offset == sum(ranges[-1]):
            ranges[-1][1] += 1
        else:
            ranges.append([offset, 1])
    return ranges


def offsets_in(
    value: object, *, limit: int, refuse: Callable[[object], LedgerError]
) -> Iterator[int]:
    """The offsets that ``ranges_of`` has made ``value`` of, or anybody else.

    Args:
        limit: most offsets.
        refuse: makes the error of what was found instead; it is raised.
    """
    if not isinstance(value, list):
        raise refuse(value)
    left = limit
    for pair in value:
        match pair:
            case [int(first), int(count)] if first >= 0 and 0 < count <= left:
                left -= count
                yield from range(first, first + count)
            case _:
                raise refuse(pair)
