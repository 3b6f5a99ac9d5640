# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of plain frames: a SEND as most are, made by a client and read by a writer.

Cython in pure-Python mode, as ``_sends`` is. What is not as most frames are is left to those who
read everything and say what is wrong with it: ``read_plain`` gives ``None`` then. Whether records
are whole is for ``_stamp`` and ``_scan`` to say, as of any other frame. ``write_batch`` writes
what a client's encoder and ``encode_send`` write.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from ledgermq.formats.kernels._scan import first_delayed
from ledgermq.formats.kernels._stamp import check_run

if TYPE_CHECKING:
    from collections.abc import Callable

# ``LMQ`` and version 1, the kind SEND without flags; as little-endian numbers.
_BEGIN = cython.declare(cython.uint, 0x01514D4C)
_SEND = cython.declare(cython.uint, 10)
_STREAM_HEAD = cython.declare(cython.Py_ssize_t, 8)
_TABLES_AT = cython.declare(cython.Py_ssize_t, 40)
_RUN_SIZE = cython.declare(cython.Py_ssize_t, 12)
_TOPIC_MAX = cython.declare(cython.Py_ssize_t, 127)
_QUEUE_MAX = cython.declare(cython.uint, 0x7FFFFFFF)
_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
_DIGITS = cython.declare(cython.Py_ssize_t, 12)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _le16(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return data[at] | (cython.cast(cython.uint, data[at + 1]) << 8)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _le32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return _le16(data, at) | (_le16(data, at + 2) << 16)


def read_plain(
    head: bytes,
    payload: bytes,
    header_size: cython.Py_ssize_t,
    host_size: cython.Py_ssize_t,
    record_max: cython.Py_ssize_t,
    body_max: cython.Py_ssize_t,
    records_max: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> tuple[int, memoryview, list[tuple[int, int, bytes]]] | None:
    """What the two parts of a SEND say, if its records are whole and not delayed.

    That is: of version 1 and without flags, made for a log of these sizes, with a checksum and
    records that are right. Whether its queues may be written to is not looked at.

    Args:
        header_size: of an entry's header before each record.
        host_size: of the store's host in it.
        record_max: largest record, its entry header included.
        body_max: largest body.
        records_max: most records.

    Returns:
        request id; the size of each record, unsigned 32-bit numbers in ``head``; and of each run
        its records, queue id and topic. ``None`` for what others have to look at.
    """
    octets: cython.const[cython.uchar][::1] = head
    payload_size: cython.Py_ssize_t = len(payload)
    head_size: cython.Py_ssize_t = len(head)
    count: cython.Py_ssize_t
    run_count: cython.Py_ssize_t
    run_at: cython.Py_ssize_t
    name_at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    of_run: cython.Py_ssize_t
    first: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    queue_id: cython.uint
    if head_size < _TABLES_AT:
        return None
    count = _le32(octets, 16)
    run_count = _le32(octets, 20)
    if not 1 <= run_count <= count <= records_max:
        return None
    run_at = _TABLES_AT + 4 * count
    name_at = run_at + _RUN_SIZE * run_count
    if (
        name_at + _le32(octets, 36) != head_size
        or not 1 <= payload_size <= record_max * count
        or _le32(octets, 0) != _BEGIN
        or _le16(octets, 4) != _SEND
        or _le32(octets, 24) != payload_size
        or _le16(octets, 32) != header_size
        or _le16(octets, 34) != host_size
    ):
        return None
    view = memoryview(head)
    if crc32(payload, crc32(view[_TABLES_AT:], 0)) != _le32(octets, 28):  # type: ignore[arg-type]
        return None
    sizes = view[_TABLES_AT:run_at].cast("I")
    records = memoryview(payload)
    runs: list[tuple[int, int, bytes]] = []
    while run_count:
        run_count -= 1
        of_run = _le32(octets, run_at)
        queue_id = _le32(octets, run_at + 4)
        size = _le32(octets, run_at + 8)
        run_at += _RUN_SIZE
        if (
            not 1 <= of_run <= count - first
            or not 1 <= size <= _TOPIC_MAX
            or size > head_size - name_at
            or queue_id > _QUEUE_MAX
        ):
            return None
        topic = head[name_at : name_at + size]
        name_at += size
        fault, _, end = check_run(
            records, at, sizes, first, of_run, header_size, host_size, record_max, body_max,
            queue_id, topic, crc32,
        )  # fmt: skip
        if fault or first_delayed(records, at, sizes, first, of_run, header_size) >= 0:
            return None
        runs.append((of_run, queue_id, topic))
        first += of_run
        at = end
    if first != count or at != payload_size or name_at != head_size:
        return None
    request_id: cython.ulonglong = _le32(octets, 12)
    return (request_id << 32) | _le32(octets, 8), sizes, runs


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_le32(data: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    k: cython.Py_ssize_t
    for k in range(4):
        data[at + k] = (value >> (8 * k)) & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_be(
    data: cython.uchar[::1],
    at: cython.Py_ssize_t,
    value: cython.ulonglong,
    size: cython.Py_ssize_t,
) -> cython.void:
    k: cython.Py_ssize_t
    for k in range(size):
        data[at + k] = (value >> (8 * (size - 1 - k))) & 0xFF


@cython.cfunc
def _add_record(
    message: bytearray,
    begin: bytes,
    tail: bytes,
    body: bytes,
    number: cython.ulonglong,
    born_ms: cython.ulonglong,
    hole: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> cython.Py_ssize_t:
    """Put a record behind what ``message`` has; its size."""
    record: cython.Py_ssize_t = len(message)
    k: cython.Py_ssize_t
    digit: cython.uint
    message += begin
    behind: cython.Py_ssize_t = len(message)
    message += body
    message += tail
    end: cython.Py_ssize_t = len(message)
    message += bytes(_DIGITS)
    size: cython.Py_ssize_t = end + _DIGITS - record
    octets: cython.uchar[::1] = message
    for k in range(_DIGITS):
        digit = (number >> (4 * (_DIGITS - 1 - k))) & 15
        octets[end + k] = digit + (48 if digit < 10 else 55)
    _put_be(octets, record + hole, size - hole, 4)
    _put_be(octets, record + hole + 8, crc32(body, 0) & _CRC_MASK, 4)  # type: ignore[arg-type]
    _put_be(octets, record + hole + 40, born_ms, 8)
    _put_be(octets, behind - 4, len(body), 4)
    return size


def write_batch(
    frame: bytes,
    begin: bytes,
    tail: bytes,
    bodies: list[bytes],
    request_id: cython.ulonglong,
    number: cython.ulonglong,
    born_ms: cython.ulonglong,
    hole: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> tuple[bytearray, array[int]]:
    """The SEND of messages of one queue as it is on a stream, from what they have in common.

    Args:
        frame: part 1 of a SEND of one, without request id, sizes and checksum.
        begin: what stands before a body, without sizes, the body's CRC, and when it was born.
        tail: what stands behind a body, but for the digits of its unique id.
        number: of the first unique id, below 2 ** 48; the others follow.
        hole: bytes of ``begin`` before the record.

    Returns:
        both parts, behind what tells their sizes; the size of each record.
    """
    count: cython.Py_ssize_t = len(bodies)
    tables: cython.Py_ssize_t = _STREAM_HEAD + _TABLES_AT
    name: cython.Py_ssize_t = len(frame) + 4 * (count - 1)
    total: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    k: cython.Py_ssize_t
    message = bytearray(_STREAM_HEAD)
    message += frame[:_TABLES_AT]
    message += bytes(4 * count)
    message += frame[_TABLES_AT + 4 :]
    sizes = array("I", bytes(4 * count))
    table: cython.uint[::1] = sizes
    for k in range(count):
        size = _add_record(message, begin, tail, bodies[k], number + k, born_ms, hole, crc32)
        table[k] = size
        total += size
    octets: cython.uchar[::1] = message
    _put_le32(octets, 0, name)
    _put_le32(octets, 4, total + 1)
    _put_le32(octets, _STREAM_HEAD + 8, request_id & 0xFFFFFFFF)
    _put_le32(octets, _STREAM_HEAD + 12, request_id >> 32)
    _put_le32(octets, _STREAM_HEAD + 16, count)
    _put_le32(octets, _STREAM_HEAD + 24, total)
    for k in range(count):
        _put_le32(octets, tables + 4 * k, table[k])
    _put_le32(octets, tables + 4 * count, count)
    _put_le32(octets, _STREAM_HEAD + 28, crc32(memoryview(message)[tables:], 0))
    return message, sizes


def write_record(
    begin: bytes,
    tail: bytes,
    body: bytes,
    number: cython.ulonglong,
    born_ms: cython.ulonglong,
    hole: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> bytes:
    """The record of one message, as ``write_batch`` has it in its frame."""
    record = bytearray()
    _add_record(record, begin, tail, body, number, born_ms, hole, crc32)
    return bytes(record)
