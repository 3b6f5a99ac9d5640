# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of the write path: check what clients encoded, stamp what only the leader knows, verify.

Cython in pure-Python mode: the same file runs uncompiled. All functions work on whole runs of
records; buffers are bytes-like objects that the caller owns, offsets are relative to their start.

``crc32`` is always the same callable, ``(bytes-like, start value) -> int``; spans below
``_SMALL`` bytes are summed here, because a Python call costs more than they do. Compiled, longer
ones go to the C function of ``use_native_crc32``, if there is one, and nothing runs in Python.

Field offsets are those of RocketMQ's message (``CommitLog.MessageExtEncoder``) and of DLedger's
entry (``DLedgerEntryCoder``); the errors are numbered by ``RecordFault`` in ``formats.records``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

_SMALL = cython.declare(cython.Py_ssize_t, 192)
_TINY = cython.declare(cython.Py_ssize_t, 48)
_NATIVE_CRC32 = cython.declare(cython.size_t, 0)
_MESSAGE_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
_MESSAGE_MAGIC_V2 = cython.declare(cython.uint, 0xDAA320AB)
_BLANK_MAGIC = cython.declare(cython.uint, 0xCBD43194)
_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
# A literal above 2**31 would be a Python number in the compiled loops.
_ONES = cython.declare(cython.uint, 0xFFFFFFFF)
_SYS_FLAGS_ALLOWED = cython.declare(cython.uint, 0x733)
_BORN_V6 = cython.declare(cython.uint, 0x10)
_STORE_V6 = cython.declare(cython.uint, 0x20)
# Disks of today write 4,096 bytes or more at once; no disk has smaller sectors than these.
_SECTOR = cython.declare(cython.Py_ssize_t, 512)

_OK = cython.declare(cython.int, 0)
_SIZE = cython.declare(cython.int, 1)
_MAGIC = cython.declare(cython.int, 2)
_QUEUE_ID = cython.declare(cython.int, 3)
_SYS_FLAG = cython.declare(cython.int, 4)
_BODY_SIZE = cython.declare(cython.int, 5)
_TOPIC = cython.declare(cython.int, 6)
_PROPERTIES = cython.declare(cython.int, 7)
_BODY_CRC = cython.declare(cython.int, 8)
_PREPARED = cython.declare(cython.int, 9)
_ENTRY_MAGIC = cython.declare(cython.int, 10)
_ENTRY_INDEX = cython.declare(cython.int, 11)
_ENTRY_TERM = cython.declare(cython.int, 12)
_ENTRY_POSITION = cython.declare(cython.int, 13)
_ENTRY_BODY_CRC = cython.declare(cython.int, 14)
_ENTRY_CHAIN_CRC = cython.declare(cython.int, 15)
_PHYSICAL_OFFSET = cython.declare(cython.int, 16)
_END = cython.declare(cython.int, 17)
_ENTRY_CHANNEL = cython.declare(cython.int, 18)
_BLANK = cython.declare(cython.int, 19)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _pointer(octets: cython.const[cython.uchar][::1]) -> cython.p_uchar:
    """Where the octets are: stores through a pointer are merged by the C compiler."""
    return cython.cast(cython.p_uchar, cython.address(octets[0]))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _words(words: cython.const[cython.uint][::1]) -> cython.p_uint:
    return cython.cast(cython.p_uint, cython.address(words[0]))


if not cython.compiled:
    # Uncompiled, a buffer is its own pointer: both are indexed the same way.
    globals().update(_pointer=lambda octets: octets, _words=lambda words: words)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _be32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.uint:
    return (
        (cython.cast(cython.uint, data[at]) << 24)
        | (cython.cast(cython.uint, data[at + 1]) << 16)
        | (cython.cast(cython.uint, data[at + 2]) << 8)
        | cython.cast(cython.uint, data[at + 3])
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _be64(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    return (cython.cast(cython.ulonglong, _be32(data, at)) << 32) | _be32(data, at + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put32(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    data[at] = (value >> 24) & 255
    data[at + 1] = (value >> 16) & 255
    data[at + 2] = (value >> 8) & 255
    data[at + 3] = value & 255


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put64(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong) -> cython.void:
    _put32(data, at, value >> 32)
    _put32(data, at + 4, value & _ONES)


def _crc_tables() -> bytearray:
    """Eight tables of 256 little-endian words for CRC-32, eight bytes a step."""
    first = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        first.append(value)
    tables = [first]
    for _ in range(7):
        last = tables[len(tables) - 1]  # wraparound is off in this module
        tables.append([(value >> 8) ^ first[value & 255] for value in last])
    return bytearray(b"".join(value.to_bytes(4, "little") for table in tables for value in table))


# Declared, not annotated: as Python objects they would be converted with every call.
_WORDS = cython.declare(cython.uint[::1], memoryview(_crc_tables()).cast("I"))


@cython.cfunc
@cython.exceptval(check=False)
def _crc(
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    value: cython.uint,
) -> cython.uint:
    table: cython.p_uint
    table = _words(_WORDS)
    at: cython.Py_ssize_t = start
    low: cython.uint
    high: cython.uint
    value = value ^ _ONES
    while at + 8 <= end:
        low = value ^ (
            cython.cast(cython.uint, data[at])
            | (cython.cast(cython.uint, data[at + 1]) << 8)
            | (cython.cast(cython.uint, data[at + 2]) << 16)
            | (cython.cast(cython.uint, data[at + 3]) << 24)
        )
        high = (
            cython.cast(cython.uint, data[at + 4])
            | (cython.cast(cython.uint, data[at + 5]) << 8)
            | (cython.cast(cython.uint, data[at + 6]) << 16)
            | (cython.cast(cython.uint, data[at + 7]) << 24)
        )
        value = (
            table[7 * 256 + (low & 255)]
            ^ table[6 * 256 + ((low >> 8) & 255)]
            ^ table[5 * 256 + ((low >> 16) & 255)]
            ^ table[4 * 256 + (low >> 24)]
            ^ table[3 * 256 + (high & 255)]
            ^ table[2 * 256 + ((high >> 8) & 255)]
            ^ table[256 + ((high >> 16) & 255)]
            ^ table[high >> 24]
        )
        at += 8
    while at < end:
        value = (value >> 8) ^ table[(value ^ data[at]) & 255]
        at += 1
    return value ^ _ONES


@cython.cfunc
@cython.exceptval(check=False)
def _sum_of_no_chain(value: cython.uint) -> cython.uint:
    """``value`` after the four zeros that stand for an entry's chainCrc while it is summed."""
    table: cython.p_uint
    table = _words(_WORDS)
    value = value ^ _ONES
    for _ in range(4):
        value = (value >> 8) ^ table[value & 255]
    return value ^ _ONES


@cython.cfunc
def _sum(
    data: cython.p_uchar,
    view: object,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    value: cython.uint,
    crc32: object,
) -> cython.uint:
    result: cython.uint
    if cython.compiled and end - start < (_SMALL if not _NATIVE_CRC32 else _TINY):
        return _crc(data, start, end, value)
    if cython.compiled and _NATIVE_CRC32:
        return call_crc32(_NATIVE_CRC32, value, data + start, end - start)  # noqa: F821  # type: ignore[name-defined]
    result = crc32(view[start:end], value)  # type: ignore[operator, index]
    return result


def use_native_crc32(address: int) -> None:
    """From now on sum with the C function ``uint32_t f(uint32_t, const uint8_t *, uint64_t)``.

    Args:
        address: of a function that stays loaded; 0 goes back to the callable. Uncompiled, it is
            not used.
    """
    global _NATIVE_CRC32  # noqa: PLW0603
    _NATIVE_CRC32 = address


def crc_of(data: memoryview, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> int:
    """CRC-32 of ``data[start:end]`` by the kernel's own loop; for its test."""
    octets: cython.const[cython.uchar][::1] = data
    return _crc(_pointer(octets), start, end, 0)


@cython.cfunc
def _message_fault(
    data: cython.p_uchar,
    view: object,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    crc32: object,
    sums_body: cython.bint,
) -> cython.int:
    """Fault of the message of ``size`` bytes at ``at``: structure and, if asked, body CRC."""
    flags: cython.uint
    base: cython.Py_ssize_t
    body: cython.uint
    topic: cython.uint
    properties: cython.uint
    # Octets of the topic's size beyond the first: one in a record of RocketMQ 5's version 2. The
    # higher one is zero, for a longer name could not be that of a folder.
    wide: cython.Py_ssize_t = 0
    if size < 91 or _be32(data, at) != size:
        return _SIZE
    if _be32(data, at + 4) == _MESSAGE_MAGIC_V2:
        wide = 1
    elif _be32(data, at + 4) != _MESSAGE_MAGIC:
        return _MAGIC
    flags = _be32(data, at + 36)
    base = 84 + (12 if flags & _BORN_V6 else 0) + (12 if flags & _STORE_V6 else 0)
    if size < base + 7 + wide:
        return _SIZE
    body = _be32(data, at + base)
    if body > size - base - 7 - wide:
        return _BODY_SIZE
    topic = data[at + base + 4 + wide + body]
    if topic == 0 or base + 7 + wide + body + topic > size:
        return _TOPIC
    if data[at + base + 4 + body] if wide else topic > 127:
        return _TOPIC
    properties = (cython.cast(cython.uint, data[at + base + 5 + wide + body + topic]) << 8) | data[
        at + base + 6 + wide + body + topic
    ]
    if properties > 32767 or base + 7 + wide + body + topic + properties != size:
        return _PROPERTIES
    base += 4
    if sums_body and (_sum(data, view, at + base, at + base + body, 0, crc32) & _CRC_MASK) != _be32(
        data, at + 8
    ):
        return _BODY_CRC
    return _OK


def check_run(
    payload: memoryview,
    at: cython.Py_ssize_t,
    sizes: memoryview,
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    header_size: cython.Py_ssize_t,
    store_host_size: cython.Py_ssize_t,
    size_max: cython.Py_ssize_t,
    body_max: cython.Py_ssize_t,
    queue_id: cython.uint,
    topic: bytes,
    crc32: Callable[[memoryview, int], int],
) -> tuple[int, int, int]:
    """Check the ``count`` records of one run in a client's frame; nothing is written.

    Args:
        payload: the frame's payload; the run begins at ``at``.
        sizes: unsigned 32-bit sizes of the frame's records, entry headers included.
        first: number of the run's first record in ``sizes``.
        size_max: largest record, its entry header included.
        body_max: largest body.

    Returns:
        fault (0 = none, see ``RecordFault``), number of the record with the fault, and the offset
        behind the run when there is none.
    """
    octets: cython.const[cython.uchar][::1] = payload
    table: cython.const[cython.uint][::1] = sizes
    name: cython.const[cython.uchar][::1] = topic
    data: cython.p_uchar
    name_size: cython.Py_ssize_t = len(topic)
    end: cython.Py_ssize_t = len(payload)
    number: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    k: cython.Py_ssize_t
    base: cython.Py_ssize_t
    flags: cython.uint
    fault: cython.int
    wants_v6: cython.bint = store_host_size == 20
    data = _pointer(octets)
    for number in range(first, first + count):
        size = table[number]
        if size > size_max or size < header_size + 91 or at + size > end:
            return _SIZE, number, at
        start = at + header_size
        fault = _message_fault(data, payload, start, size - header_size, crc32, True)
        if fault:
            return fault, number, at
        if _be32(data, start + 4) != _MESSAGE_MAGIC:
            # What is stored may be of version 2; no client of ours writes it.
            return _MAGIC, number, at
        if _be32(data, start + 12) != queue_id:
            return _QUEUE_ID, number, at
        flags = _be32(data, start + 36)
        if flags & ~_SYS_FLAGS_ALLOWED or ((flags & _STORE_V6) != 0) != wants_v6:
            return _SYS_FLAG, number, at
        base = 84 + (12 if flags & _BORN_V6 else 0) + (12 if wants_v6 else 0)
        if _be64(data, start + base - 8) != 0:
            return _PREPARED, number, at
        if _be32(data, start + base) > body_max:
            return _BODY_SIZE, number, at
        base += 4 + _be32(data, start + base)
        if data[start + base] != name_size:
            return _TOPIC, number, at
        for k in range(name_size):
            if data[start + base + 1 + k] != name[k]:
                return _TOPIC, number, at
        at += size
    return _OK, -1, at


def stamp_run(
    buffer: bytearray,
    at: cython.Py_ssize_t,
    sizes: memoryview,
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    header_size: cython.Py_ssize_t,
    position: cython.longlong,
    index: cython.longlong,
    term: cython.longlong,
    queue_offset: cython.longlong,
    store_timestamp: cython.longlong,
    store_host: bytes,
    chain: cython.uint,
    items: bytearray,
    items_at: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> int:
    """Fill in what only the leader knows, in records that ``check_run`` has passed.

    With entry headers (``header_size`` 48) the DLedger header is written whole, with bodyCrc and
    chainCrc, and a 32-byte index item a record into ``items`` from ``items_at`` on.

    Args:
        buffer: the records, to be changed in place; the run begins at ``at``.
        position: position of the run's first entry in the log.
        index: Raft index of the first entry.
        queue_offset: queue offset of the first message.
        store_host: address and port as on disk, 8 or 20 bytes.
        chain: stored chainCrc of the entry before.

    Returns:
        chainCrc of the last entry.
    """
    octets: cython.uchar[::1] = buffer
    item_octets: cython.uchar[::1] = items
    data: cython.p_uchar
    out: cython.p_uchar
    table: cython.const[cython.uint][::1] = sizes
    host: cython.const[cython.uchar][::1] = store_host
    host_size: cython.Py_ssize_t = len(store_host)
    number: cython.Py_ssize_t
    size: cython.Py_ssize_t
    start: cython.Py_ssize_t
    base: cython.Py_ssize_t
    k: cython.Py_ssize_t
    view = memoryview(buffer)
    data = _pointer(octets)
    out = _pointer(item_octets)
    for number in range(first, first + count):
        size = table[number]
        start = at + header_size
        _put64(data, start + 20, queue_offset)
        _put64(data, start + 28, position + header_size)
        base = start + 48 + (20 if _be32(data, start + 36) & _BORN_V6 else 8)
        _put64(data, base, store_timestamp)
        for k in range(host_size):
            data[base + 8 + k] = host[k]
        if header_size:
            _put32(data, at, 1)
            _put32(data, at + 4, size)
            _put64(data, at + 8, index)
            _put64(data, at + 16, term)
            _put64(data, at + 24, position)
            _put32(data, at + 32, 0)
            _put32(data, at + 36, 0)
            _put32(data, at + 40, _sum(data, view, start, at + size, 0, crc32))
            _put32(data, at + 44, size - header_size)
            chain = _sum(data, view, at, start, chain, crc32)
            _put32(data, at + 36, chain)
            _put32(out, items_at, 1)
            _put64(out, items_at + 4, position)
            _put32(out, items_at + 12, size)
            _put64(out, items_at + 16, index)
            _put64(out, items_at + 24, term)
            items_at += 32
        index += 1
        queue_offset += 1
        position += size
        at += size
    return chain


@cython.cfunc
def _entry_fault(
    data: cython.p_uchar,
    view: object,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    position: cython.longlong,
    index: cython.longlong,
    term: cython.longlong,
    chain: cython.uint,
    crc32: object,
) -> cython.int:
    """Fault of the DLedger entry at ``at`` that must follow (``index`` - 1, ``term``)."""
    size: cython.Py_ssize_t
    body_crc: cython.uint
    chain_crc: cython.uint
    if end - at < 48:
        return _END
    if _be32(data, at) != 1:
        return _ENTRY_MAGIC
    size = _be32(data, at + 4)
    if size < 48 + 91 or size > end - at or _be32(data, at + 44) + 48 != size:
        return _SIZE
    if index >= 0 and _be64(data, at + 8) != cython.cast(cython.ulonglong, index):
        return _ENTRY_INDEX
    if cython.cast(cython.longlong, _be64(data, at + 16)) < term:
        return _ENTRY_TERM
    if _be64(data, at + 24) != cython.cast(cython.ulonglong, position):
        return _ENTRY_POSITION
    if _be32(data, at + 32) != 0:
        return _ENTRY_CHANNEL
    chain_crc = _be32(data, at + 36)
    body_crc = _be32(data, at + 40)
    if body_crc or chain_crc:
        if _sum(data, view, at + 48, at + size, 0, crc32) != body_crc:
            return _ENTRY_BODY_CRC
        chain = _sum(data, view, at, at + 36, chain, crc32)
        chain = _sum_of_no_chain(chain)
        if _sum(data, view, at + 40, at + 48, chain, crc32) != chain_crc:
            return _ENTRY_CHAIN_CRC
    return _OK


def verify_span(
    span: memoryview,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    header_size: cython.Py_ssize_t,
    position: cython.longlong,
    index: cython.longlong,
    term: cython.longlong,
    chain: cython.uint,
    items: bytearray,
    crc32: Callable[[memoryview, int], int],
    sums_bodies: cython.bint = False,
    heads_alone: cython.bint = False,
) -> tuple[int, int, int, int, int, int]:
    """Verify records one behind the other until the first that is not one, or ``end``.

    All fields are checked, and the CRCs that cover every byte: those of the entry; entries that
    Java wrote carry none (both zero), there the body's CRC counts, as with a plain CommitLog.

    Args:
        span: bytes of the log; ``at`` is where ``position`` lies in it.
        index: index that the next entry must have; -1 takes the first as it comes.
        term: the next entry's term must not be below.
        chain: stored chainCrc of the entry before.
        sums_bodies: compare the CRC of each body, too, where that of its entry says already that
            the bytes are those that the leader wrote: finds a leader that wrote a wrong one.
        heads_alone: compare no CRC of a body where no entry's CRC covers it: such a one says
            nothing of the record's other fields, and bodies need not be read.
        items: index items (32 bytes an entry) are appended to it; none without entry headers.

    Returns:
        offset behind the last good record, how many there were, the next index, the last term,
        the last chainCrc, and the fault of the first record that is not good (``_END`` at ``end``).
    """
    octets: cython.const[cython.uchar][::1] = span
    data: cython.p_uchar
    count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    start: cython.Py_ssize_t
    is_summed: cython.bint
    fault: cython.int = _END
    # As many as fit in, and one: a buffer without octets has no address.
    found = bytearray(32 * ((end - at) // (48 + 91) + 1 if header_size else 1))
    item_octets: cython.uchar[::1] = found
    out: cython.p_uchar
    data = _pointer(octets)
    out = _pointer(item_octets)
    while at < end:
        if end - at >= 8 and _is_blank(data, at, header_size):
            fault = _BLANK
            break
        if header_size:
            fault = _entry_fault(data, span, at, end, position, index, term, chain, crc32)
            if fault:
                break
            size = _be32(data, at + 4)
        else:
            if end - at < 91:
                fault = _END
                break
            size = _be32(data, at)
            if size < 91 or size > end - at:
                fault = _SIZE
                break
        start = at + header_size
        is_summed = header_size and (_be32(data, at + 36) or _be32(data, at + 40))
        fault = _message_fault(
            data,
            span,
            start,
            size - header_size,
            crc32,
            sums_bodies or not (is_summed or heads_alone),
        )
        if fault:
            break
        if _be64(data, start + 28) != cython.cast(cython.ulonglong, position + header_size):
            fault = _PHYSICAL_OFFSET
            break
        if header_size:
            index = cython.cast(cython.longlong, _be64(data, at + 8)) + 1
            term = cython.cast(cython.longlong, _be64(data, at + 16))
            chain = _be32(data, at + 36)
            _put_item(out, 32 * count, data, at)
        position += size
        at += size
        count += 1
        fault = _END
    if header_size:
        items += memoryview(found)[: 32 * count]
    return at, count, index, term, chain, fault


def walk_records(
    span: memoryview,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    header_size: cython.Py_ssize_t,
    tearable_from: cython.Py_ssize_t,
    certain_ms: cython.longlong,
) -> tuple[int, int, int]:
    """Look for a torn one among records that ``verify_span`` has passed.

    Torn is one without a store time, for nobody stores at 1970; or with a sector, or what one has
    of its topic or properties, that is zeros: names and values are text. Entries with CRCs of their
    own need none of this.

    Args:
        span: bytes of one file of the log, from its first one on: sectors begin with it.
        end: where a record ends.
        tearable_from: those that begin before it are known to be durable.
        certain_ms: store time up to which records are, epoch ms.

    Returns:
        Offset of the first that is torn, -1 when none is; the latest store time, epoch ms, of
        those before it, 0 without one; and offset of the first of them that is younger than
        ``certain_ms``, -1 when none is.
    """
    octets: cython.const[cython.uchar][::1] = span
    data: cython.p_uchar = _pointer(octets)
    size: cython.Py_ssize_t
    start: cython.Py_ssize_t
    base: cython.Py_ssize_t
    topic: cython.Py_ssize_t
    properties: cython.Py_ssize_t
    flags: cython.uint
    stored_ms: cython.longlong
    latest: cython.longlong = 0
    young: cython.Py_ssize_t = -1
    while at < end:
        start = at + header_size
        size = header_size + _be32(data, start)
        flags = _be32(data, start + 36)
        base = start + 56 + (12 if flags & _BORN_V6 else 0)
        stored_ms = _be64(data, base)
        if at >= tearable_from and not (
            header_size and (_be32(data, at + 36) or _be32(data, at + 40))
        ):
            base += 28 + (12 if flags & _STORE_V6 else 0)
            topic = base + 5 + _be32(data, base)
            if _be32(data, start + 4) == _MESSAGE_MAGIC_V2:
                topic += 1
            properties = topic + data[topic - 1]
            if (
                stored_ms == 0
                or _lacks_sector(data, topic, properties)
                or _lacks_sector(data, properties + 2, at + size)
            ):
                return at, latest, young
        if young < 0 and stored_ms > certain_ms:
            young = at
        latest = max(latest, stored_ms)
        at += size
    return -1, latest, young


@cython.cfunc
@cython.exceptval(check=False)
def _lacks_sector(
    data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Whether a part of ``at`` to ``end`` that one sector holds is all zeros."""
    border: cython.Py_ssize_t
    while at < end:
        border = at - at % _SECTOR + _SECTOR
        border = min(border, end)
        while at < border and data[at] == 0:
            at += 1
        if at == border:
            return True
        at = border
    return False


def whole_records(
    span: memoryview,
    starts: memoryview,
    sizes: memoryview,
    header_size: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> int:
    """How many records, from the first on, are as they were written.

    Their entry's CRC covers them; Java's entries and a plain log's records have their body's alone.
    ``starts`` and ``sizes`` are int64; each record lies in ``span``, as does its entry's header.
    """
    octets: cython.const[cython.uchar][::1] = span
    begins: cython.const[cython.longlong][::1] = starts
    lengths: cython.const[cython.longlong][::1] = sizes
    data: cython.p_uchar = _pointer(octets)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    for row in range(len(starts)):
        at = begins[row]
        end = at + lengths[row]
        if header_size and (_be32(data, at - 12) or _be32(data, at - 8)):
            if _sum(data, span, at, end, 0, crc32) != _be32(data, at - 8):
                return row
        elif _message_fault(data, span, at, end - at, crc32, True):
            return row
    return len(starts)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_item(
    out: cython.p_uchar, place: cython.Py_ssize_t, data: cython.p_uchar, at: cython.Py_ssize_t
) -> cython.void:
    """The index item of the entry at ``at``: magic, position, size, index, term."""
    _put32(out, place, _be32(data, at))
    _put64(out, place + 4, _be64(data, at + 24))
    _put32(out, place + 12, _be32(data, at + 4))
    _put64(out, place + 16, _be64(data, at + 8))
    _put64(out, place + 24, _be64(data, at + 16))


@cython.cfunc
@cython.exceptval(check=False)
def _is_blank(
    data: cython.p_uchar, at: cython.Py_ssize_t, header_size: cython.Py_ssize_t
) -> cython.bint:
    if header_size:
        return _be32(data, at) == _ONES
    return _be32(data, at + 4) == _BLANK_MAGIC
