# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=False
"""Kernel of request headers: the JSON header of a RocketMQ command, as its clients write it.

Plain Python with its C types in ``_headers.pxd``, as ``_scan`` is. It reads what is regular, and
gives up where anything else comes: another decoder reads that, and says what is wrong with it.
"""

from __future__ import annotations

import cython

if not cython.compiled:

    def _ascii(span: memoryview, start: int, stop: int) -> str:
        return bytes(span[start:stop]).decode("ascii")


_QUOTE = 0x22
_BACKSLASH = 0x5C
_OPEN = 0x7B
_CLOSE = 0x7D
_COMMA = 0x2C
_COLON = 0x3A
_MINUS = 0x2D
_ZERO = 0x30

_INT32_MAX = 0x7FFF_FFFF

# Behind what was read last; -1 after something irregular.
_behind = -1


def scan_header(  # noqa: PLR0912
    span: memoryview, start: int, end: int
) -> tuple[int, int, dict[str, str], int, str | None, str | None, int] | None:
    """What the header ``[start, end)`` of ``span`` says, if it is a regular one.

    That is: an object without blanks, of the fields that a command has, each once; numbers of 32
    bits; ``extFields`` an object of texts; all texts ASCII, also where they are escaped.

    Returns:
        code, opaque, the fields, flag, remark, language, version; numbers that are missing are 0.
        ``None`` for what is not regular, be it a header or not.
    """
    seen = 0
    code = 0
    opaque = 0
    flag = 0
    version = 0
    fields: dict[str, str] = {}
    remark = None
    language = None
    at = start
    if at >= end or span[at] != _OPEN:
        return None
    while True:
        # Behind the brace, or a comma.
        key = _text(span, at + 1, end)
        at = _behind
        if at < 0 or at + 1 >= end or span[at] != _COLON:
            return None
        at += 1
        if key == "extFields":
            bit = 1
            _read_fields(span, at, end, fields)
        elif key == "language":
            bit = 2
            language = _text(span, at, end)
        elif key == "serializeTypeCurrentRPC":
            bit = 4
            _text(span, at, end)
        elif key == "remark":
            bit = 8
            remark = _text(span, at, end)
        else:
            number = _number(span, at, end)
            if key == "code":
                bit = 16
                code = number
            elif key == "opaque":
                bit = 32
                opaque = number
            elif key == "flag":
                bit = 64
                flag = number
            elif key == "version":
                bit = 128
                version = number
            else:
                return None
        at = _behind
        if at < 0 or at >= end or seen & bit:
            return None
        seen |= bit
        if span[at] != _COMMA:
            break
    if span[at] != _CLOSE or at + 1 != end:
        return None
    return code, opaque, fields, flag, remark, language, version


def _read_fields(span: memoryview, at: int, end: int, fields: dict[str, str]) -> None:
    """Put the texts of the object at ``at`` into ``fields``."""
    global _behind  # noqa: PLW0603
    _behind = -1
    if at + 1 >= end or span[at] != _OPEN:
        return
    if span[at + 1] == _CLOSE:
        _behind = at + 2
        return
    while True:
        name = _text(span, at + 1, end)
        at = _behind
        if at < 0:
            return
        if at >= end or span[at] != _COLON:
            break
        value = _text(span, at + 1, end)
        at = _behind
        if at < 0:
            return
        fields[name] = value
        if at < end and span[at] == _COMMA:
            continue
        if at < end and span[at] == _CLOSE:
            _behind = at + 1
            return
        break
    _behind = -1


def _number(span: memoryview, at: int, end: int) -> int:
    """The number of 32 bits at ``at``."""
    global _behind  # noqa: PLW0603
    _behind = -1
    is_negative = at < end and span[at] == _MINUS
    if is_negative:
        at += 1
    first = at
    value = 0
    while at < end and at - first < 11 and 0 <= span[at] - _ZERO <= 9:
        value = value * 10 + (span[at] - _ZERO)
        at += 1
    if at == first or (span[first] == _ZERO and at - first > 1):
        return 0
    if is_negative:
        value = -value
    if value > _INT32_MAX or value < -_INT32_MAX - 1:
        return 0
    _behind = at
    return value


def _text(span: memoryview, at: int, end: int) -> str:
    """The text whose first quote is at ``at``; any, if it is not regular."""
    global _behind  # noqa: PLW0603
    _behind = -1
    if at >= end or span[at] != _QUOTE:
        return ""
    at += 1
    start = at
    while at < end:
        octet = span[at]
        if octet == _QUOTE:
            _behind = at + 1
            return _ascii(span, start, at)
        if octet == _BACKSLASH:
            return _unescaped(span, start, end)
        if octet < 0x20 or octet >= 0x80:
            return ""
        at += 1
    return ""


def _unescaped(span: memoryview, at: int, end: int) -> str:
    """The text from ``at`` on, which has escapes, up to its second quote."""
    global _behind  # noqa: PLW0603
    out = bytearray(end - at)
    size = 0
    while at < end:
        octet = span[at]
        if octet == _QUOTE:
            _behind = at + 1
            return out[:size].decode("ascii")
        if octet < 0x20 or octet >= 0x80:
            return ""
        at += 1
        if octet == _BACKSLASH:
            octet = _escape(span, at, end)
            if octet < 0:
                return ""
            at = _behind
            _behind = -1
        out[size] = octet
        size += 1
    return ""


def _escape(span: memoryview, at: int, end: int) -> int:
    """The character whose escape goes on at ``at``, behind the backslash; -1: no ASCII."""
    global _behind  # noqa: PLW0603
    if at >= end:
        return -1
    mark = span[at]
    _behind = at + 1
    if mark in (_QUOTE, _BACKSLASH, 0x2F):
        return mark
    if mark == 0x6E:
        return 0x0A
    if mark == 0x74:
        return 0x09
    if mark == 0x72:
        return 0x0D
    if mark == 0x62:
        return 0x08
    if mark == 0x66:
        return 0x0C
    if mark == 0x75 and at + 4 < end:
        value = _nibble(span[at + 1]) << 12
        value |= _nibble(span[at + 2]) << 8
        value |= _nibble(span[at + 3]) << 4
        value |= _nibble(span[at + 4])
        if 0 <= value < 0x80:
            _behind = at + 5
            return value
    _behind = -1
    return -1


def _nibble(digit: int) -> int:
    """The value of a hexadecimal digit; -1 for another character."""
    if 0x30 <= digit <= 0x39:
        return digit - 0x30
    if 0x41 <= digit <= 0x46:
        return digit - 0x41 + 10
    if 0x61 <= digit <= 0x66:
        return digit - 0x61 + 10
    return -1
