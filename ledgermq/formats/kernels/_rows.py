# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of rows: records made of columns, and records spread with holes for entry headers.

Cython in pure-Python mode, as ``_stamp`` is. The layout of a record is in ``message.py``. A column
is its values one behind the other, and their bounds, int64: the n-th value is what lies from
``bounds[n]`` to ``bounds[n + 1]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
_NATIVE_CRC32 = cython.declare(cython.size_t, 0)

_OK = cython.declare(cython.int, 0)
_BODY = cython.declare(cython.int, 3)
_PROPERTIES = cython.declare(cython.int, 4)
_SIZE = cython.declare(cython.int, 5)

_DIGITS = cython.declare(cython.Py_ssize_t, 12)

if not cython.compiled:

    def _copy(out: memoryview, to: int, span: memoryview, start: int, size: int) -> None:
        out[to : to + size] = span[start : start + size]


def use_native_crc32(address: int) -> None:
    """From now on sum with the C function ``uint32_t f(uint32_t, const uint8_t *, uint64_t)``.

    Args:
        address: of a function that stays loaded; 0 goes back to the callable. Uncompiled, it is
            not used.
    """
    global _NATIVE_CRC32  # noqa: PLW0603
    _NATIVE_CRC32 = address


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put32(data: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    data[at] = (value >> 24) & 255
    data[at + 1] = (value >> 16) & 255
    data[at + 2] = (value >> 8) & 255
    data[at + 3] = value & 255


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_digits(
    data: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.ulonglong
) -> cython.void:
    """Twelve digits of ``value``, hexadecimal, in capitals."""
    digit: cython.int
    place: cython.Py_ssize_t
    for place in range(_DIGITS):
        digit = cython.cast(cython.int, (value >> (4 * (_DIGITS - 1 - place))) & 15)
        data[at + place] = (48 if digit < 10 else 55) + digit


@cython.cfunc
def _sum(
    octets: cython.const[cython.uchar][::1],
    span: object,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    crc32: object,
) -> cython.uint:
    result: cython.uint
    if cython.compiled and _NATIVE_CRC32 and size:
        return call_crc32(  # noqa: F821  # type: ignore[name-defined]
            _NATIVE_CRC32, 0, cython.address(octets[start]), size
        )
    result = crc32(span[start : start + size], 0)  # type: ignore[operator, index]
    return result


def measure_rows(
    sizes: memoryview,
    body_bounds: memoryview,
    property_bounds: memoryview,
    drawn: bytes,
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    environment: cython.Py_ssize_t,
    id_size: cython.Py_ssize_t,
    body_max: cython.Py_ssize_t,
    properties_max: cython.Py_ssize_t,
    size_max: cython.Py_ssize_t,
) -> tuple[int, int, int]:
    """The sizes of the records that rows become.

    Args:
        sizes: unsigned 32-bit numbers, ``count`` of them; filled in.
        drawn: of each row, whether it gets a unique id behind its properties: 1 or 0.
        first: the first of the ``count`` rows.
        environment: bytes of a record beside its body and its properties.
        id_size: bytes of a unique id.

    Returns:
        bytes of all records; the fault of a row, 0 when none has one, 3 its body, 4 its properties,
        5 its record is too large; and the number of that row.
    """
    out: cython.uint[::1] = sizes
    body_at: cython.const[cython.longlong][::1] = body_bounds
    property_at: cython.const[cython.longlong][::1] = property_bounds
    is_drawn: cython.const[cython.uchar][::1] = drawn
    row: cython.Py_ssize_t
    total: cython.Py_ssize_t = 0
    body: cython.Py_ssize_t
    properties: cython.Py_ssize_t
    for row in range(first, first + count):
        body = body_at[row + 1] - body_at[row]
        properties = property_at[row + 1] - property_at[row]
        if is_drawn[row]:
            properties += id_size
        if body > body_max:
            return total, _BODY, row
        if properties > properties_max:
            return total, _PROPERTIES, row
        if environment + body + properties > size_max:
            return total, _SIZE, row
        out[row - first] = environment + body + properties
        total += environment + body + properties
    return total, _OK, -1


def write_rows(
    out: bytearray,
    sizes: memoryview,
    bodies: memoryview,
    body_bounds: memoryview,
    properties: memoryview,
    property_bounds: memoryview,
    flags: memoryview,
    drawn: bytes,
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    hole: cython.Py_ssize_t,
    head: bytes,
    topic: bytes,
    id_prefix: bytes,
    number: cython.ulonglong,
    crc32: Callable[[memoryview, int], int],
) -> None:
    """Fill ``out``, which has the size that ``measure_rows`` has told, from the same columns.

    Args:
        sizes: as ``measure_rows`` has left them.
        flags: of all rows, signed 32-bit numbers; none: all have that of ``head``.
        hole: bytes before each record, which ``head`` has, too.
        head: a record up to its body; its sizes, CRC and flag are filled in.
        topic: behind its size.
        id_prefix: what a unique id that is drawn begins with; twelve digits follow.
        number: of the first row's unique id; each row counts, also those that have one.
    """
    target: cython.uchar[::1] = out
    table: cython.const[cython.uint][::1] = sizes
    body_octets: cython.const[cython.uchar][::1] = bodies
    body_at: cython.const[cython.longlong][::1] = body_bounds
    property_octets: cython.const[cython.uchar][::1] = properties
    property_at: cython.const[cython.longlong][::1] = property_bounds
    flag_of: cython.const[cython.int][::1] = flags
    is_drawn: cython.const[cython.uchar][::1] = drawn
    front: cython.const[cython.uchar][::1] = head
    name: cython.const[cython.uchar][::1] = topic
    prefix: cython.const[cython.uchar][::1] = id_prefix
    head_size: cython.Py_ssize_t = len(head)
    name_size: cython.Py_ssize_t = len(topic)
    prefix_size: cython.Py_ssize_t = len(id_prefix)
    has_flags: cython.bint = len(flags) > 0
    row: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t
    body: cython.Py_ssize_t
    own: cython.Py_ssize_t
    whole: cython.Py_ssize_t
    for row in range(first, first + count):
        body = body_at[row + 1] - body_at[row]
        own = property_at[row + 1] - property_at[row]
        whole = own + prefix_size + _DIGITS if is_drawn[row] else own
        _copy(target, to, front, 0, head_size)
        _put32(target, to + hole, table[row - first] - hole)
        _put32(
            target,
            to + hole + 8,
            _sum(body_octets, bodies, body_at[row], body, crc32) & _CRC_MASK,
        )
        if has_flags:
            _put32(target, to + hole + 16, flag_of[row] & 0xFFFFFFFF)
        _put32(target, to + head_size - 4, body)
        place = to + head_size
        _copy(target, place, body_octets, body_at[row], body)
        place += body
        _copy(target, place, name, 0, name_size)
        place += name_size
        target[place] = (whole >> 8) & 255
        target[place + 1] = whole & 255
        place += 2
        _copy(target, place, property_octets, property_at[row], own)
        place += own
        if is_drawn[row]:
            _copy(target, place, prefix, 0, prefix_size)
            _put_digits(target, place + prefix_size, number + row - first)
        to += table[row - first]


def spread_records(
    payload: memoryview, sizes: memoryview, hole: cython.Py_ssize_t, out: bytearray
) -> None:
    """Copy records that lie one behind the other, and leave a hole of zeros before each.

    Args:
        sizes: unsigned 32-bit numbers, of each record with its hole.
        out: zeros, as many as all sizes together.
    """
    data: cython.const[cython.uchar][::1] = payload
    target: cython.uchar[::1] = out
    table: cython.const[cython.uint][::1] = sizes
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    to: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    for row in range(len(sizes)):
        size = table[row] - hole
        _copy(target, to + hole, data, at, size)
        at += size
        to += size + hole
