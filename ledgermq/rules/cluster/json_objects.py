"""JSON of certificates and documents: one form to write, and fields that are checked when read."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from ledgermq.model.errors import ConfigError

NUMBER_MAX = 2**53 - 1
"""What every reader of JSON keeps exactly."""

Object = Mapping[str, object]


def to_json(value: Object) -> bytes:
    """The one form of ``value``: keys in order, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def object_of(content: bytes, *, size_max: int) -> dict[str, object]:
    """The object that ``content`` is.

    Raises:
        ConfigError: it is too large, or something else.
    """
    if len(content) > size_max:
        raise ConfigError("signed JSON is too large", size=len(content), limit=size_max)
    try:
        found = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError("signed content is no JSON", reason=str(error)[:200]) from None
    if not isinstance(found, dict):
        raise ConfigError("signed JSON is no object", found=type(found).__name__)
    return found


def encoded(content: bytes) -> str:
    """Bytes as JSON has them; ``decoded`` reads it."""
    return base64.b64encode(content).decode()


def decoded(value: object, *, size_max: int) -> bytes:
    """The bytes, 1 to ``size_max``, that a text stands for.

    Raises:
        ConfigError: it is none, or stands for more.
    """
    try:
        found = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        found = b""
    if not 0 < len(found) <= size_max:
        raise ConfigError("not bytes as base64", found=repr(value)[:64], limit=size_max)
    return found


def text_of(fields: Object, key: str, *, size_max: int) -> str:
    """The text at ``key``, of 1 to ``size_max`` characters.

    Raises:
        ConfigError: there is something else.
    """
    value = fields.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= size_max:
        raise ConfigError(
            "not a text of that size", key=key, found=repr(value)[:64], limit=size_max
        )
    return value


def texts_of(fields: Object, key: str, *, count_max: int, size_max: int) -> list[str]:
    """The texts at ``key``, at most ``count_max`` of 1 to ``size_max`` characters.

    Raises:
        ConfigError: there is something else.
    """
    value = fields.get(key)
    if not isinstance(value, list) or len(value) > count_max:
        raise ConfigError(
            "not a list of that length", key=key, found=repr(value)[:64], limit=count_max
        )
    return [text_of({key: one}, key, size_max=size_max) for one in value]


def integer_of(fields: Object, key: str, *, low: int = 0) -> int:
    """The integer at ``key``, from ``low`` to ``NUMBER_MAX``.

    Raises:
        ConfigError: there is something else.
    """
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= NUMBER_MAX:
        raise ConfigError("not a number of that range", key=key, found=repr(value)[:64], low=low)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
