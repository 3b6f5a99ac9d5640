"""Arguments of a call, with checked types and ranges."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.rules.cluster.json_objects import texts_of

TEXT_SIZE_MAX = 255
OFFSET_MAX = 2**63 - 1
WAIT_MS_MAX = 60_000

Arguments = Mapping[str, object]


def text(arguments: Arguments, name: str) -> str:
    """The text called ``name``.

    Raises:
        ProtocolError: it is missing, empty, too long, or no text.
    """
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ProtocolError("argument missing or not a text", argument=name)
    if not 0 < len(value) <= TEXT_SIZE_MAX:
        raise ProtocolError(
            "argument of a wrong length", argument=name, size=len(value), limit=TEXT_SIZE_MAX
        )
    return value


def long_text(arguments: Arguments, name: str, least: int, most: int) -> str:
    """The text called ``name``, of ``least`` to ``most`` letters.

    Raises:
        ProtocolError: it is missing, no text, or of another length.
    """
    value = arguments.get(name)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise ProtocolError("argument missing, not a text, or too long", argument=name, limit=most)
    return value


def integer(arguments: Arguments, name: str, low: int, high: int) -> int:
    """The integer called ``name``, ``low <= integer <= high``.

    Raises:
        ProtocolError: it is missing, out of range, or no integer.
    """
    return _checked(arguments.get(name), name, low, high)


def optional_text(arguments: Arguments, name: str) -> str | None:
    """The text called ``name``, ``None`` when it is left out.

    Raises:
        ProtocolError: it is empty, too long, or no text.
    """
    return None if arguments.get(name) is None else text(arguments, name)


def optional_integer(arguments: Arguments, name: str, low: int, high: int) -> int | None:
    """The integer called ``name``, ``low <= integer <= high``; ``None`` when it is left out.

    Raises:
        ProtocolError: it is out of range, or no integer.
    """
    value = arguments.get(name)
    return None if value is None else _checked(value, name, low, high)


def fields(arguments: Arguments, name: str) -> dict[str, object]:
    """The object called ``name``, empty when it is left out.

    Raises:
        ProtocolError: it is no object.
    """
    value = arguments.get(name, {})
    if not isinstance(value, dict):
        raise ProtocolError("argument not an object", argument=name)
    return value


def texts(arguments: Arguments, name: str, what: str, count_max: int, size_max: int) -> list[str]:
    """The list of texts called ``name``, at most ``count_max`` of 1 to ``size_max`` letters.

    Raises:
        ProtocolError: it is missing, too long, or has something else.
    """
    try:
        return texts_of(arguments, name, count_max=count_max, size_max=size_max)
    except ConfigError as error:
        raise ProtocolError(f"argument not {what}", **error.details) from None


def queue_ids(arguments: Arguments, name: str) -> list[int] | None:
    """The list of queues called ``name``, ``None`` when it is left out.

    Raises:
        ProtocolError: it has something else, or is no list.
    """
    value = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise ProtocolError("argument not a list", argument=name)
    return [_checked(number, name, 0, QUEUE_ID_MAX) for number in value]


def offsets(arguments: Arguments, name: str, least: int, most: int) -> list[int]:
    """The list of offsets called ``name``, ``least`` to ``most``.

    Raises:
        ProtocolError: it is missing, or has something else.
    """
    value = arguments.get(name)
    if not isinstance(value, list) or not all(
        type(one) is int and least <= one <= most for one in value
    ):
        raise ProtocolError("argument missing or not offsets", argument=name)
    return value


def flag(arguments: Arguments, name: str) -> bool:
    """The boolean called ``name``, false when it is left out.

    Raises:
        ProtocolError: it is no boolean.
    """
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise ProtocolError("argument not true or false", argument=name)
    return value


def offsets_by_queue(arguments: Arguments, name: str) -> dict[int, int]:
    """The object called ``name``: queue offsets by the number of their queue.

    Raises:
        ProtocolError: it is missing, or has something else.
    """
    value = arguments.get(name)
    if not isinstance(value, dict):
        raise ProtocolError("argument missing or not an object", argument=name)
    offsets: dict[int, int] = {}
    for key, offset in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 5):
            raise ProtocolError("not the number of a queue", argument=name, key=key[:64])
        queue_id = _checked(int(key), name, 0, QUEUE_ID_MAX)
        offsets[queue_id] = _checked(offset, name, 0, OFFSET_MAX)
    return offsets


def _checked(value: object, name: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError("argument missing or not an integer", argument=name)
    if not low <= value <= high:
        raise ProtocolError(
            "argument out of range", argument=name, value=value, minimum=low, limit=high
        )
    return value
