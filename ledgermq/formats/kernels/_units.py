# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of batches: units of a RocketMQ client's batch become records of the log, in one call.

Cython in pure-Python mode, as ``_stamp`` is. The layout of a unit is in ``message.py``, that
of a record in ``message.py``. First ``measure_units`` looks at every size, then ``write_units``
fills a buffer of the size that it has told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)

_OK = cython.declare(cython.int, 0)
_CUT = cython.declare(cython.int, 1)
_COUNT = cython.declare(cython.int, 2)
_BODY = cython.declare(cython.int, 3)
_PROPERTIES = cython.declare(cython.int, 4)
_SIZE = cython.declare(cython.int, 5)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _be32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return (
        (cython.cast(cython.uint, data[at]) << 24)
        | (cython.cast(cython.uint, data[at + 1]) << 16)
        | (cython.cast(cython.uint, data[at + 2]) << 8)
        | cython.cast(cython.uint, data[at + 3])
    )


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


def measure_units(
    units: memoryview,
    sizes: memoryview,
    environment: cython.Py_ssize_t,
    added: cython.Py_ssize_t,
    body_max: cython.Py_ssize_t,
    properties_max: cython.Py_ssize_t,
    size_max: cython.Py_ssize_t,
) -> tuple[int, int, int]:
    """The sizes of the records that ``units`` become.

    Args:
        sizes: unsigned 32-bit numbers; gets one a unit.
        environment: bytes of a record beside its body and its properties.
        added: bytes that each unit's properties get, behind a separator if they lack one.

    Returns:
        how many units there are, bytes of all records, and the fault of the unit behind the counted
        ones: 0 none, 1 it is cut or its sizes do not fit, 2 no room in ``sizes``, 3 its body, 4 its
        properties, 5 its record is too large.
    """
    data: cython.const[cython.uchar][::1] = units
    out: cython.uint[::1] = sizes
    end: cython.Py_ssize_t = len(units)
    room: cython.Py_ssize_t = len(sizes)
    at: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    body: cython.Py_ssize_t
    properties: cython.Py_ssize_t
    while at < end:
        if end - at < 22:
            return count, total, _CUT
        size = _be32(data, at)
        body = _be32(data, at + 16)
        if size < 22 or size > end - at or body > size - 22:
            return count, total, _CUT
        properties = (cython.cast(cython.uint, data[at + 20 + body]) << 8) | data[at + 21 + body]
        if 22 + body + properties != size:
            return count, total, _CUT
        if count == room:
            return count, total, _COUNT
        if body > body_max:
            return count, total, _BODY
        if properties and data[at + size - 1] != 2:
            properties += 1
        properties += added
        if properties > properties_max:
            return count, total, _PROPERTIES
        if environment + body + properties > size_max:
            return count, total, _SIZE
        out[count] = environment + body + properties
        total += environment + body + properties
        count += 1
        at += size
    return count, total, _OK


def write_units(
    units: memoryview,
    records: bytearray,
    sizes: memoryview,
    count: cython.Py_ssize_t,
    hole: cython.Py_ssize_t,
    head: bytes,
    topic: bytes,
    added: bytes,
    crc32: Callable[[memoryview, int], int],
) -> None:
    """Fill ``records``, which has the size that ``measure_units`` has told, from the same units.

    Args:
        sizes: as ``measure_units`` has left them.
        hole: bytes before each record, which ``head`` has, too.
        head: a record up to its body; its sizes, CRC and flag are filled in.
        topic: behind its size.
        added: behind each unit's own properties.
    """
    data: cython.const[cython.uchar][::1] = units
    out: cython.uchar[::1] = records
    table: cython.const[cython.uint][::1] = sizes
    front: cython.const[cython.uchar][::1] = head
    name: cython.const[cython.uchar][::1] = topic
    more: cython.const[cython.uchar][::1] = added
    head_size: cython.Py_ssize_t = len(head)
    name_size: cython.Py_ssize_t = len(topic)
    more_size: cython.Py_ssize_t = len(added)
    number: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    to: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t
    size: cython.Py_ssize_t
    body: cython.Py_ssize_t
    properties: cython.Py_ssize_t
    separator: cython.Py_ssize_t
    crc: cython.uint
    for number in range(count):
        size = _be32(data, at)
        body = _be32(data, at + 16)
        properties = size - 22 - body
        separator = 1 if properties and data[at + size - 1] != 2 else 0
        crc = crc32(units[at + 20 : at + 20 + body], 0)
        _copy(out, to, front, 0, head_size)
        _put32(out, to + hole, table[number] - hole)
        _put32(out, to + hole + 8, crc & _CRC_MASK)
        _copy(out, to + hole + 16, data, at + 12, 4)
        _put32(out, to + head_size - 4, body)
        place = to + head_size
        _copy(out, place, data, at + 20, body)
        place += body
        _copy(out, place, name, 0, name_size)
        place += name_size
        out[place] = ((properties + separator + more_size) >> 8) & 255
        out[place + 1] = (properties + separator + more_size) & 255
        place += 2
        _copy(out, place, data, at + 22 + body, properties)
        place += properties
        if separator:
            out[place] = 2
            place += 1
        _copy(out, place, more, 0, more_size)
        to += table[number]
        at += size
