# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernel of single sends: header of a RocketMQ client's message, and the record that it becomes.

Cython in pure-Python mode, as ``_units`` is. What is not as most messages are is left to those who
read everything and say what is wrong with it: ``scan_send`` and ``send_record`` give ``None`` then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_DIGITS = cython.declare(cython.Py_ssize_t, 9)
_LONG_DIGITS = cython.declare(cython.Py_ssize_t, 18)

# Behind what was read last; -1 after something irregular.
_behind = cython.declare(cython.Py_ssize_t, -1)
# Whether the text that was read last has escapes.
_is_escaped = cython.declare(cython.bint, False)

# What the fields say that were read last, and where their texts are.
_queue_id = cython.declare(cython.longlong, 0)
_flags = cython.declare(cython.longlong, 0)
_born = cython.declare(cython.longlong, 0)
_flag = cython.declare(cython.longlong, 0)
_times = cython.declare(cython.longlong, 0)
_topic_at = cython.declare(cython.Py_ssize_t, 0)
_topic_end = cython.declare(cython.Py_ssize_t, 0)
_properties_at = cython.declare(cython.Py_ssize_t, 0)
_properties_end = cython.declare(cython.Py_ssize_t, 0)
_has_escapes = cython.declare(cython.bint, False)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _text_end(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Where the second quote is of the text whose first one is at ``at``; -1 for no such text."""
    global _is_escaped  # noqa: PLW0603
    octet: cython.uchar
    _is_escaped = False
    if at >= end or data[at] != 0x22:
        return -1
    at += 1
    while at < end:
        octet = data[at]
        if octet == 0x22:
            return at
        if octet < 0x20 or octet >= 0x80:
            return -1
        if octet == 0x5C:
            _is_escaped = True
            at += 1
        at += 1
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_word(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    word: bytes,
) -> cython.bint:
    """Whether ``[at, end)`` is ``word``."""
    k: cython.Py_ssize_t
    if end - at != len(word):
        return False
    for k in range(end - at):  # noqa: SIM110 - the kernel has no generators
        if data[at + k] != word[k]:
            return False
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _digits(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.Py_ssize_t,
) -> cython.longlong:
    """The number that begins at ``at``, of at most so many digits; ``_behind`` tells its end."""
    global _behind  # noqa: PLW0603
    is_negative: cython.bint = False
    first: cython.Py_ssize_t
    value: cython.longlong = 0
    if at < end and data[at] == 0x2D:
        is_negative = True
        at += 1
    first = at
    while at < end and 0x30 <= data[at] <= 0x39 and at - first <= most:
        value = value * 10 + (data[at] - 0x30)
        at += 1
    _behind = at if first < at <= first + most else -1
    return -value if is_negative else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _whole(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.Py_ssize_t,
) -> cython.longlong:
    """The number that ``[at, end)`` is; ``_behind`` is -1 when it is none."""
    global _behind  # noqa: PLW0603
    value: cython.longlong = _digits(data, at, end, most)
    if _behind != end:
        _behind = -1
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _nibble(digit: cython.int) -> cython.int:
    if 0x30 <= digit <= 0x39:
        return digit - 0x30
    if 0x41 <= digit <= 0x46:
        return digit - 0x41 + 10
    if 0x61 <= digit <= 0x66:
        return digit - 0x61 + 10
    # No three other digits make it positive again.
    return -100_000


@cython.cfunc
@cython.exceptval(check=False)
def _unescape(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> cython.Py_ssize_t:
    """Put the text ``[at, end)`` into ``out``; its size, -1 where an escape is not of ASCII."""
    size: cython.Py_ssize_t = 0
    octet: cython.uchar
    mark: cython.int
    while at < end:
        octet = data[at]
        at += 1
        if octet == 0x5C:
            mark = data[at]
            at += 1
            if mark == 0x75 and at + 4 <= end:
                mark = (
                    4096 * _nibble(data[at])
                    + 256 * _nibble(data[at + 1])
                    + 16 * _nibble(data[at + 2])
                    + _nibble(data[at + 3])
                )
                if mark < 0 or mark >= 0x80:
                    return -1
                at += 4
            elif mark == 0x6E:
                mark = 0x0A
            elif mark == 0x74:
                mark = 0x09
            elif mark == 0x72:
                mark = 0x0D
            elif mark == 0x62:
                mark = 0x08
            elif mark == 0x66:
                mark = 0x0C
            elif mark not in (0x22, 0x5C, 0x2F):
                return -1
            octet = cython.cast(cython.uchar, mark)
        out[size] = octet
        size += 1
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _take_field(
    data: cython.const[cython.uchar][::1],
    letter: cython.int,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.bint:
    """Keep what the field of that name says, if that is regular."""
    global _queue_id, _flags, _born, _flag, _times  # noqa: PLW0603
    global _topic_at, _topic_end, _properties_at, _properties_end, _has_escapes
    if letter == 0x69:
        _properties_at, _properties_end, _has_escapes = at, end, _is_escaped
        return True
    if _is_escaped:
        return False
    if letter in (0x61, 0x63, 0x6B):
        return True
    if letter == 0x62:
        _topic_at, _topic_end = at, end
        return True
    if letter == 0x67:
        _born = _whole(data, at, end, _LONG_DIGITS)
        return _behind >= 0
    if letter == 0x6D:
        return _is_word(data, at, end, b"false")
    number: cython.longlong = _whole(data, at, end, _DIGITS)
    if letter == 0x65:
        _queue_id = number
    elif letter == 0x66:
        _flags = number
    elif letter == 0x68:
        _flag = number
    elif letter == 0x6A:
        _times = number
    return _behind >= 0


@cython.cfunc
@cython.exceptval(check=False)
def _take_fields(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Keep what the object at ``at`` says of a message; where it ends, or -1."""
    global _flags, _flag, _times, _properties_at, _properties_end, _has_escapes  # noqa: PLW0603
    seen: cython.int = 0
    letter: cython.int
    stop: cython.Py_ssize_t
    _flags = _flag = _times = 0
    _properties_at = _properties_end = 0
    _has_escapes = False
    if data[at] != 0x7B:
        return -1
    while True:
        # One letter in quotes, a colon, and a text.
        if at + 5 >= end or data[at + 1] != 0x22 or data[at + 3] != 0x22 or data[at + 4] != 0x3A:
            return -1
        letter = data[at + 2]
        if not 0x61 <= letter <= 0x6D or seen >> (letter - 0x61) & 1:
            return -1
        seen |= 1 << (letter - 0x61)
        stop = _text_end(data, at + 5, end)
        if stop < 0 or stop + 1 >= end or not _take_field(data, letter, at + 6, stop):
            return -1
        at = stop + 1
        if data[at] == 0x7D:
            # Java requires a, b, e and g.
            return at + 1 if seen & 0x53 == 0x53 else -1
        if data[at] != 0x2C:
            return -1


@cython.cfunc
@cython.exceptval(check=False)
def _number(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """The 32-bit number at ``at``, as JSON writes it."""
    global _behind  # noqa: PLW0603
    number: cython.longlong = _digits(data, at, end, 10)
    first: cython.Py_ssize_t = at + 1 if _behind > 0 and data[at] == 0x2D else at
    is_padded: cython.bint = data[first] == 0x30 and (first > at or _behind != first + 1)
    if is_padded or number > _INT32_MAX or number < -_INT32_MAX:
        _behind = -1
    return number


def scan_send(  # noqa: PLR0912, PLR0915
    span: memoryview, start: cython.Py_ssize_t, end: cython.Py_ssize_t, wanted: cython.int
) -> tuple[int, int, int, str, str, int, int, int, int, int, bytes] | None:
    """What the header ``[start, end)`` of ``span`` says, if it is that of a message in short form.

    That is: a JSON object without blanks, of the fields that a request has, each once; its
    ``extFields`` texts of ASCII with names ``a`` to ``m``, those there that Java requires; escapes
    in the properties alone; numbers of few digits; no batch.

    Args:
        wanted: its code must be this one.

    Returns:
        opaque, flag, version, language; topic, queue id, flags, born timestamp, flag and
        reconsume times of the message; its properties. ``None`` for anything else.
    """
    data: cython.const[cython.uchar][::1] = span
    at: cython.Py_ssize_t = start
    key: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    number: cython.longlong
    seen: cython.int = 0
    bit: cython.int
    opaque: cython.longlong = 0
    flag: cython.longlong = 0
    version: cython.longlong = 0
    language_at: cython.Py_ssize_t = 0
    language_end: cython.Py_ssize_t = 0
    if at >= end or data[at] != 0x7B:
        return None
    while True:
        # Behind the brace, or a comma.
        key = at + 2
        stop = _text_end(data, at + 1, end)
        if stop < 0 or _is_escaped or stop + 2 >= end or data[stop + 1] != 0x3A:
            return None
        at = stop + 2
        if _is_word(data, key, stop, b"extFields"):
            bit = 1
            at = _take_fields(data, at, end)
        elif _is_word(data, key, stop, b"language"):
            bit = 2
            language_at = at + 1
            language_end = _text_end(data, at, end)
            at = -1 if _is_escaped or language_end < 0 else language_end + 1
        elif _is_word(data, key, stop, b"serializeTypeCurrentRPC"):
            bit = 4
            stop = _text_end(data, at, end)
            at = -1 if _is_escaped or stop < 0 else stop + 1
        else:
            number = _number(data, at, end)
            at = _behind
            if _is_word(data, key, stop, b"code"):
                bit = 8
                if number != wanted:
                    return None
            elif _is_word(data, key, stop, b"opaque"):
                bit = 16
                opaque = number
            elif _is_word(data, key, stop, b"flag"):
                bit = 32
                flag = number
            elif _is_word(data, key, stop, b"version"):
                bit = 64
                version = number
            else:
                return None
        if at < 0 or at >= end or seen & bit:
            return None
        seen |= bit
        if data[at] != 0x2C:
            break
    if data[at] != 0x7D or at + 1 != end or seen & 11 != 11:
        return None
    properties = _properties(span)
    if properties is None:
        return None
    language = bytes(span[language_at:language_end]).decode("ascii")
    topic = bytes(span[_topic_at:_topic_end]).decode("ascii")
    return (
        opaque, flag, version, language, topic, _queue_id, _flags, _born, _flag, _times, properties
    )  # fmt: skip


@cython.cfunc
def _properties(span: memoryview) -> bytes | None:
    """Those of the fields that were read last; None where they have escapes of more than ASCII."""
    size: cython.Py_ssize_t
    if not _has_escapes:
        return bytes(span[_properties_at:_properties_end])
    out = bytearray(_properties_end - _properties_at)
    size = _unescape(span, _properties_at, _properties_end, out)
    return bytes(out[:size]) if size >= 0 else None


@cython.cfunc
@cython.exceptval(check=False)
def _names(properties: bytes, words: bytes) -> cython.bint:
    """Whether one of ``words``, each behind a zero, stands anywhere in ``properties``."""
    at: cython.Py_ssize_t
    k: cython.Py_ssize_t
    word: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(properties)
    while word < len(words):
        word += 1
        end = word
        while end < len(words) and words[end] != 0:
            end += 1
        for at in range(size - (end - word) + 1):
            if properties[at] == words[word]:
                k = 1
                while k < end - word and properties[at + k] == words[word + k]:
                    k += 1
                if k == end - word:
                    return True
        word = end
    return False


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put32(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    out[at] = (value >> 24) & 255
    out[at + 1] = (value >> 16) & 255
    out[at + 2] = (value >> 8) & 255
    out[at + 3] = value & 255
    return at + 4


# Of the properties that are not stored: where they begin and end.
_gap = cython.declare(cython.Py_ssize_t, 0)
_gap_end = cython.declare(cython.Py_ssize_t, 0)


@cython.cfunc
@cython.exceptval(check=False)
def _find_gap(properties: bytes, dropped: bytes) -> cython.bint:
    """Find the property that begins with ``dropped``; false when some are empty, or several do."""
    global _gap, _gap_end  # noqa: PLW0603
    at: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t
    k: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(properties)
    _gap = _gap_end = 0
    while at < size:
        first = at
        k = 0
        while k < len(dropped) and at + k < size and properties[at + k] == dropped[k]:
            k += 1
        while at < size and properties[at] != 2:
            at += 1
        if at == first:
            return False
        if at < size:
            at += 1
        if k == len(dropped):
            if _gap_end:
                return False
            _gap, _gap_end = first, at
    return True


def send_record(
    head: bytes,
    hole: cython.Py_ssize_t,
    queue_id: cython.longlong,
    flag: cython.longlong,
    flags: cython.longlong,
    born: cython.longlong,
    times: cython.longlong,
    body: memoryview,
    topic: bytes,
    properties: bytes,
    words: bytes,
    dropped: bytes,
    added: bytes,
    properties_max: cython.Py_ssize_t,
    crc32: Callable[[memoryview, int], int],
) -> bytearray | None:
    """The record of a message, in one piece.

    Args:
        head: a record up to its body, a hole before it; all that the other arguments say is filled
            in, and the sizes and the CRC of the body.
        topic: behind its size.
        properties: as the client has sent them, each behind the separator of the one before.
        words: none of them, each behind a zero, may stand in the properties: others read those.
        dropped: a property that begins with that is not stored.
        added: behind the other properties.
        properties_max: what is stored of them is no longer.

    Returns:
        ``None`` for properties that have to be looked at one by one.
    """
    head_size: cython.Py_ssize_t = len(head)
    name_size: cython.Py_ssize_t = len(topic)
    own: cython.Py_ssize_t = len(properties)
    more: cython.Py_ssize_t = len(added)
    body_size: cython.Py_ssize_t = len(body)
    k: cython.Py_ssize_t
    at: cython.Py_ssize_t
    kept: cython.Py_ssize_t
    separator: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t
    if _names(properties, words) or not _find_gap(properties, dropped):
        return None
    kept = own - (_gap_end - _gap)
    if kept:
        # The last one that is kept ends where the gap begins, if that reaches to the end.
        at = (_gap if _gap_end == own else own) - 1
        separator = 0 if properties[at] == 2 else 1
    if kept + separator + more > properties_max:
        return None
    total = head_size + body_size + name_size + 2 + kept + separator + more
    record = bytearray(total)
    record[:head_size] = head
    at = head_size + body_size
    record[head_size:at] = body
    record[at : at + name_size] = topic
    at += name_size
    out: cython.uchar[::1] = record
    _put32(out, hole, total - hole)
    _put32(out, hole + 8, crc32(body, 0) & _CRC_MASK)
    _put32(out, hole + 12, queue_id)
    _put32(out, hole + 16, flag)
    _put32(out, hole + 36, flags)
    _put32(out, hole + 40, born >> 32)
    _put32(out, hole + 44, born)
    _put32(out, head_size - 16, times)
    _put32(out, head_size - 4, body_size)
    out[at] = ((kept + separator + more) >> 8) & 255
    out[at + 1] = (kept + separator + more) & 255
    at += 2
    for k in range(own):
        if not _gap <= k < _gap_end:
            out[at] = properties[k]
            at += 1
    if separator:
        out[at] = 2
        at += 1
    for k in range(more):
        out[at + k] = added[k]
    return record
