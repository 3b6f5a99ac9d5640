# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=False
"""Kernel of columns: variable parts of many records, one behind the other as Arrow has them.

Plain Python with its C types in ``_columns.pxd``, as ``_scan`` is. A slice is ``[start, end)`` of
``span``; columns of starts and ends are int64. Properties are read by the rules of
``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

import cython

if not cython.compiled:

    def _copy(out: memoryview, to: int, span: memoryview, start: int, size: int) -> None:
        out[to : to + size] = span[start : start + size]


def join_slices(
    span: memoryview, starts: memoryview, ends: memoryview, bounds: memoryview, out: memoryview
) -> None:
    """Copy slices one behind the other.

    Args:
        bounds: int32, one item more than there are slices: gets where each begins in ``out``.
        out: has room for all of them, and is not empty.
    """
    to = 0
    row = 0
    while row < len(starts):
        bounds[row] = to
        size = ends[row] - starts[row]
        if size > 0:
            _copy(out, to, span, starts[row], size)
            to += size
        row += 1
    bounds[row] = to


def split_properties(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    first: int,
    bounds: memoryview,
    name_starts: memoryview,
    name_ends: memoryview,
    value_ends: memoryview,
) -> int:
    """Where names and values lie in the properties of many messages; a value stands 1 behind.

    Of a name that comes twice in a message the last one counts, and the others are left out.

    Args:
        starts, ends: the properties of each message.
        first: row to begin with: what is before it stays as it is.
        bounds: int32, one item more than there are rows: gets the number of each row's first pair.
        name_starts, name_ends, value_ends: one item a pair.

    Returns:
        The first row that found no room; as many as there are when all did.
    """
    room = len(name_starts)
    row = first
    while row < len(starts):
        begin = bounds[row]
        pair = begin
        at = starts[row]
        end = ends[row]
        while at < end:
            name_end = at
            while name_end < end and span[name_end] != 1 and span[name_end] != 2:
                name_end += 1
            value_end = name_end
            while value_end < end and span[value_end] != 2:
                value_end += 1
            if name_end > at and value_end > name_end + 1:
                pair = _without(span, begin, pair, at, name_end, name_starts, name_ends, value_ends)
                if pair == room:
                    return row
                name_starts[pair] = at
                name_ends[pair] = name_end
                value_ends[pair] = value_end
                pair += 1
            at = value_end + 1
        row += 1
        bounds[row] = pair
    return row


def _without(
    span: memoryview,
    begin: int,
    end: int,
    start: int,
    name_end: int,
    name_starts: memoryview,
    name_ends: memoryview,
    value_ends: memoryview,
) -> int:
    """How many pairs there are once the one of the same name is taken out of ``[begin, end)``."""
    pair = begin
    while pair < end:
        if _is_same(span, name_starts[pair], name_ends[pair], span, start, name_end):
            while pair + 1 < end:
                name_starts[pair] = name_starts[pair + 1]
                name_ends[pair] = name_ends[pair + 1]
                value_ends[pair] = value_ends[pair + 1]
                pair += 1
            return end - 1
        pair += 1
    return end


def _is_same(
    span: memoryview, start: int, end: int, other: memoryview, other_start: int, other_end: int
) -> bool:
    if end - start != other_end - other_start:
        return False
    at = 0
    while start + at < end:
        if span[start + at] != other[other_start + at]:
            return False
        at += 1
    return True


def find_property(
    span: memoryview,
    bounds: memoryview,
    name_starts: memoryview,
    name_ends: memoryview,
    wanted: memoryview,
    found: memoryview,
) -> int:
    """Which pair of each row has the name ``wanted``, as ``split_properties`` gave them.

    Args:
        found: int64, one item a row: gets the number of the pair, -1 of a row without one.

    Returns:
        How many rows have one.
    """
    count = 0
    row = 0
    while row < len(found):
        found[row] = -1
        pair = bounds[row]
        while pair < bounds[row + 1]:
            if _is_same(span, name_starts[pair], name_ends[pair], wanted, 0, len(wanted)):
                found[row] = pair
                count += 1
                break
            pair += 1
        row += 1
    return count
