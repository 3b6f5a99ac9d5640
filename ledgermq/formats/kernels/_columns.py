# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=False
"""Kernel of columns: variable-size parts of many records joined into Arrow buffers.

Plain Python with its C types in ``_columns.pxd``, as ``_scan`` is. A slice is ``[start, end)`` of
``span``; columns of starts and ends are int64. Properties are read by the rules of
``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

import cython

if not cython.compiled:

    def _copy(out: memoryview, to: int, span: memoryview, start: int, size: int) -> None:
        out[to : to + size] = span[start : start + size]

    def _i32(span: memoryview, at: int) -> int:
        return int.from_bytes(span[at : at + 4], "big", signed=True)

    def _i64(span: memoryview, at: int) -> int:
        return int.from_bytes(span[at : at + 8], "big", signed=True)

    def _touch(span: memoryview, at: int, size: int) -> None:
        """Nothing: it is for the processor's cache."""

    def _find(span: memoryview, start: int, end: int, octet: int) -> int:
        found = bytes(span[start:end]).find(octet)
        return end if found < 0 else start + found


_HEAD_SIZE = 88
_ENTRY_SIZE = 48
_MAGIC = -626843481
_MAGIC_V2 = -626843477
_BORN_V6 = 0x10
_STORE_V6 = 0x20
_V6_EXTRA = 12
_AHEAD = 64


def read_heads(
    span: memoryview,
    starts: memoryview,
    sizes: memoryview,
    header_size: int,
    base: int,
    fields: memoryview,
    stride: int,
) -> int:
    """The fixed part of many records, and where their variable parts lie.

    Args:
        starts, sizes: of the records, by ascending place.
        header_size: bytes of an entry's header before each, 48 or 0.
        base: position in the log of the span's first byte; negative where that is not known.
        fields: int64: gets all records' values of one ``HeadField``, and ``stride`` items behind
            the first of them those of the next one.

    Returns:
        The first record that is none; as many as there are when all are. Of such a one the first
        field is why: a ``HeadFault``.
    """
    count = len(starts)
    last = 0
    ahead = 0
    row = 0
    while row < count:
        if row == ahead:
            # Lines of many records are on their way at once; one record after the other would wait
            # for each of them, since the processor cannot guess which ones come next.
            while ahead < count and ahead < row + _AHEAD:
                _touch(span, starts[ahead], sizes[ahead])
                ahead += 1
        at = starts[row]
        fault = _head_fault(span, at, sizes[row], header_size, base, last)
        if fault == 0:
            fault = _read_head(span, at, at + sizes[row], row, stride, fields)
        if fault != 0:
            fields[row] = fault
            return row
        if header_size == _ENTRY_SIZE:
            fields[14 * stride + row] = _i64(span, at - 40)
            fields[15 * stride + row] = _i64(span, at - 32)
        last = at + sizes[row]
        row += 1
    return count


def _head_fault(
    span: memoryview, at: int, size: int, header_size: int, base: int, last: int
) -> int:
    """What is wrong with a record before its variable parts are looked at; 0 for nothing."""
    if size <= _HEAD_SIZE:
        return 1
    if at < header_size or at + size > len(span):
        return 2
    if at < last:
        return 3
    magic = _i32(span, at + 4)
    if magic != _MAGIC and magic != _MAGIC_V2:  # noqa: PLR1714 - compiled to C comparisons
        return 4
    if _i32(span, at) != size:
        return 5
    if base >= 0 and _i64(span, at + 28) != at + base:
        return 6
    return 0


def _read_head(
    span: memoryview, at: int, end: int, row: int, stride: int, fields: memoryview
) -> int:
    sys_flag = _i32(span, at + 36)
    # What stands behind an IPv6 host is moved by what that has more.
    born = at + (_V6_EXTRA if sys_flag & _BORN_V6 else 0)
    both = born + (_V6_EXTRA if sys_flag & _STORE_V6 else 0)
    if end <= both + _HEAD_SIZE:
        return 1
    body = both + _HEAD_SIZE
    size = _i32(span, both + 84)
    if size < 0 or body + size + 3 > end:
        return 7
    body_end = body + size
    topic = body_end + 1
    if _i32(span, at + 4) == _MAGIC_V2:
        # Two octets say its size, the higher one of which is zero.
        if span[topic - 1] != 0:
            return 8
        topic += 1
    topic_end = topic + span[topic - 1]
    if topic_end + 2 > end:
        return 8
    size = span[topic_end] * 256 + span[topic_end + 1]
    # As in Java, a negative length stands for no properties.
    if size > 32767:
        size = 0
    if topic_end + 2 + size != end:
        return 9
    fields[row] = body
    fields[stride + row] = body_end
    fields[2 * stride + row] = topic_end
    fields[3 * stride + row] = _i64(span, at + 20)
    fields[4 * stride + row] = _i64(span, at + 28)
    fields[5 * stride + row] = _i64(span, at + 40)
    fields[6 * stride + row] = _i64(span, born + 56)
    fields[7 * stride + row] = _i64(span, at + 48)
    fields[8 * stride + row] = _i64(span, born + 64)
    fields[9 * stride + row] = _i32(span, at + 12)
    fields[10 * stride + row] = _i32(span, at + 16)
    fields[11 * stride + row] = sys_flag
    fields[12 * stride + row] = _i32(span, at + 8)
    fields[13 * stride + row] = _i32(span, both + 72)
    fields[16 * stride + row] = topic
    return 0


def join_slices(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    first: int,
    end: int,
    bounds: memoryview,
    out: memoryview,
) -> None:
    """Copy the slices ``[first, end)`` one behind the other.

    Args:
        bounds: int32, one item more than there are slices: that of ``first`` says where it goes in
            ``out``; those behind it get where the others begin, and where the last one ends.
        out: has room for all of them, and is not empty.
    """
    to = bounds[first]
    row = first
    while row < end:
        size = ends[row] - starts[row]
        if size > 0:
            _copy(out, to, span, starts[row], size)
            to += size
        row += 1
        bounds[row] = to


def find_other(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    names: memoryview,
    bounds: memoryview,
    numbers: memoryview,
) -> int:
    """The first slice that is not the name it should be; as many as there are when all are.

    Args:
        names: one behind the other; ``bounds``, int32, says where each begins, and the last ends.
        numbers: int64, which of them each slice should be.
    """
    row = 0
    while row < len(starts):
        number = numbers[row]
        if not _is_same(span, starts[row], ends[row], names, bounds[number], bounds[number + 1]):
            return row
        row += 1
    return row


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
            value_end = _find(span, at, end, 2)
            name_end = _find(span, at, value_end, 1)
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
