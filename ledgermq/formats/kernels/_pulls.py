# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of pulls: selection of a queue's units for one answer, and their records in one piece.

Cython in pure-Python mode, as ``_stamp`` is. A unit is that of ``queue_unit.py``.
"""

from __future__ import annotations

import cython

_UNIT_SIZE = cython.declare(cython.Py_ssize_t, 20)
_PREFILL_SIZE = cython.declare(cython.longlong, 0x7FFFFFFF)
_MAGIC = cython.declare(cython.longlong, -626843481)
_MAGIC_V2 = cython.declare(cython.longlong, -626843477)
_HASH_MIN = cython.declare(cython.longlong, -0x80000000)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _be32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = (
        (cython.cast(cython.longlong, data[at]) << 24)
        | (cython.cast(cython.longlong, data[at + 1]) << 16)
        | (cython.cast(cython.longlong, data[at + 2]) << 8)
        | cython.cast(cython.longlong, data[at + 3])
    )
    return value - 0x100000000 if value >= 0x80000000 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _be64(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return (_be32(data, at) << 32) | (_be32(data, at + 4) & 0xFFFFFFFF)


@cython.cfunc
@cython.exceptval(check=False)
def _has(hashes: cython.const[cython.int][::1], hash_: cython.longlong) -> cython.bint:
    """Whether it is one of the ascending ``hashes``."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(hashes)
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < hash_:
            low = middle + 1
        else:
            high = middle
    return low < len(hashes) and hashes[low] == hash_


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _low32(value: cython.longlong) -> cython.longlong:
    """The low 32 bits as a signed number."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def choose_units(
    units: memoryview,
    hashes: memoryview,
    fulfilling: memoryview,
    first_position: cython.longlong,
    disk_below: cython.longlong,
    memory_size: cython.longlong,
    memory_count: cython.Py_ssize_t,
    disk_size: cython.longlong,
    disk_count: cython.Py_ssize_t,
    positions: memoryview,
    sizes: memoryview,
) -> tuple[int, int, int, int, int]:
    """The units that are handed out, by the rules of ``pull_rules.select``.

    Args:
        units: as they stand in the queue's file; at least one.
        hashes: of the tags that are wanted, int32, ascending; none for all messages.
        fulfilling: an octet a unit, 0 where it is not wanted; none for all.
        memory_count, disk_count: at least 1.
        positions, sizes: int64, of as many items as messages may be handed out; they get what is.

    Returns:
        how many are handed out and their bytes, units to go on behind, the position of the last one
        of these, and of the one looked at last.
    """
    data: cython.const[cython.uchar][::1] = units
    wanted: cython.const[cython.int][::1] = hashes
    told: cython.const[cython.uchar][::1] = fulfilling
    found: cython.longlong[::1] = positions
    lengths: cython.longlong[::1] = sizes
    total: cython.Py_ssize_t = len(units) // _UNIT_SIZE
    by_tag: cython.bint = len(hashes) > 0
    by_told: cython.bint = len(fulfilling) > 0
    count: cython.Py_ssize_t = 0
    given: cython.longlong = 0
    row: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    position: cython.longlong = 0
    last: cython.longlong = 0
    size: cython.longlong
    tag: cython.longlong
    while row < total:
        at = row * _UNIT_SIZE
        position = _be64(data, at)
        size = _be32(data, at + 8)
        if count:
            if position < disk_below:
                if given + size > disk_size or count >= disk_count:
                    break
            elif given + size > memory_size or count >= memory_count:
                break
        row += 1
        last = position
        if position < first_position or size == _PREFILL_SIZE:
            continue
        if by_told and not told[row - 1]:
            continue
        if by_tag:
            tag = _be64(data, at + 12)
            if tag >= _HASH_MIN and not _has(wanted, _low32(tag)):
                continue
        found[count] = position
        lengths[count] = size
        given += size
        count += 1
    return count, given, row, last, position


def match_heads(
    span: memoryview,
    positions: memoryview,
    sizes: memoryview,
    base: cython.longlong,
    header_size: cython.Py_ssize_t,
    starts: memoryview,
) -> int:
    """How many records, from the first on, are those of their units: by size, magic and position.

    Args:
        span: begins at position ``base`` of the log.
        positions, sizes: int64, as the units say; may be anything.
        header_size: bytes before each record that its entry's header has.
        starts: int64, as many; gets where the records begin in ``span``.
    """
    data: cython.const[cython.uchar][::1] = span
    begins: cython.const[cython.longlong][::1] = positions
    lengths: cython.const[cython.longlong][::1] = sizes
    out: cython.longlong[::1] = starts
    room: cython.longlong = len(span)
    magic: cython.longlong
    row: cython.Py_ssize_t
    at: cython.longlong
    for row in range(len(positions)):
        at = begins[row] - base
        if at < header_size or lengths[row] < 36 or at > room - lengths[row]:
            return row
        if _be32(data, at) != lengths[row]:
            return row
        magic = _be32(data, at + 4)
        if magic != _MAGIC and magic != _MAGIC_V2:  # noqa: PLR1714 - compiled to C comparisons
            return row
        if _be64(data, at + 28) != begins[row]:
            return row
        out[row] = at
    return len(positions)


def join_records(span: memoryview, starts: memoryview, sizes: memoryview) -> bytearray:
    """The records at ``starts`` (uint32), one directly behind the other."""
    data: cython.const[cython.uchar][::1] = span
    begins: cython.const[cython.uint][::1] = starts
    lengths: cython.const[cython.uint][::1] = sizes
    count: cython.Py_ssize_t = len(starts)
    row: cython.Py_ssize_t
    total: cython.Py_ssize_t = 0
    to: cython.Py_ssize_t = 0
    for row in range(count):
        total += lengths[row]
    joined = bytearray(total)
    out: cython.uchar[::1] = joined
    for row in range(count):
        _copy(out, to, data, begins[row], lengths[row])
        to += lengths[row]
    return joined


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    out: cython.uchar[::1],
    to: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    k: cython.Py_ssize_t
    if cython.compiled:
        for k in range(size):
            out[to + k] = data[start + k]
    else:
        out[to : to + size] = data[start : start + size]
