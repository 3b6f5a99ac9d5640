"""Incremental JSON decoder: the objects in a large one, one by one, down to a depth.

Python's decoder takes a document at once, a tenth of a second for ten megabytes. What lies deeper
than the depth is its work here, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from json import JSONDecoder

VALUES_PER_STEP = 64

DecodeSteps = Generator[None, None, object]

_BLANK = re.compile(r"[ \t\n\r]*")
_decode = JSONDecoder().raw_decode
SMALL = 256 * 1024
"""Characters that Python's decoder takes at once: a millisecond or two."""


def decode_in_steps(text: str, depth: int) -> DecodeSteps:
    """What ``json.loads`` gives of ``text``; objects down to ``depth`` are taken key by key, which
    takes four times as long, unless all of it is small.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deep.
    """
    if len(text) <= SMALL:
        return json.loads(text)
    value, end = yield from _value(text, _skip(text, 0), depth)
    end = _skip(text, end)
    if end != len(text):
        raise ValueError(f"something stands behind the value: char {end}")
    return value


def _value(text: str, at: int, depth: int) -> Generator[None, None, tuple[object, int]]:
    """The value at ``at``, and where it ends."""
    if depth == 0 or text[at : at + 1] != "{":
        return _decode(text, at)
    found: dict[str, object] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise ValueError(f"expected a key: char {at}")
        key, at = _decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"expected a colon: char {at}")
        found[key], at = yield from _value(text, _skip(text, at + 1), depth - 1)
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return found, at + 1
        if mark != ",":
            raise ValueError(f"expected a comma: char {at}")
        at = _skip(text, at + 1)
        if len(found) % VALUES_PER_STEP == 0:
            yield


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()
