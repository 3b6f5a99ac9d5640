"""Bounds of JSON's validator: what keeps a small body from taking a reader's time or stack.

Whether a value fits is known at once: what was looked at is remembered. Why it does not fit is not:
each alternative is told of with all that is wrong within it, so that alternatives that are alike
double the account with each level.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

VALUES_WITHIN_MAX = 256
"""One within another; deeper ones take the stack of a validator, which is the process's end."""

EXPLAINED_MAX = 1_000
"""Values, each in all alternatives in which it may be looked at: some 50 ms at the most."""

_ALTERNATIVES = ("oneOf", "anyOf", "allOf")


def check_json_depth(content: bytes, value: object) -> None:
    """Refuse a value of which others stand too deep within one another.

    Args:
        content: the JSON of ``value``.

    Raises:
        ValueError: they do.
    """
    if content.count(b"[") + content.count(b"{") <= VALUES_WITHIN_MAX:
        return
    level = _within([value])
    for _ in range(VALUES_WITHIN_MAX):
        if not level:
            return
        level = _within(level)
    raise ValueError(f"more than {VALUES_WITHIN_MAX} values within one another")


def alternatives(schema: object) -> int:
    """How many alternatives a schema has anywhere; 1 without any."""
    found, waiting = 0, [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found += sum(
                len(one[name]) for name in _ALTERNATIVES if isinstance(one.get(name), list)
            )
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return max(1, found)


def is_explained(value: object, *, alternatives: int) -> bool:
    """Whether it takes no time to say why ``value`` does not fit."""
    count, level, ways = 0, [value], 1
    while level:
        count += ways * sum(len(one) if isinstance(one, dict | list) else 1 for one in level)
        if count > EXPLAINED_MAX:
            return False
        level = _within(level)
        ways *= alternatives
    return True


def _within(values: Iterable[Any]) -> list[Any]:
    """Lists and objects of the values that are within these, if they have something within."""
    return [
        inner
        for one in values
        if isinstance(one, dict | list)
        for inner in (one.values() if isinstance(one, dict) else one)
        if isinstance(inner, dict | list) and inner
    ]
