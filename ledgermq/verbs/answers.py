"""Fields of the broker's answers, read with their types checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ledgermq.model.errors import ProtocolError

Row = TypeVar("Row")
Fields = Mapping[str, object]


def integer(fields: Fields, name: str) -> int:
    """The whole number ``name`` of an answer.

    Raises:
        ProtocolError: there is none.
    """
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError("field missing or not an integer", field=name, value=value)
    return value


def text(fields: Fields, name: str) -> str:
    """The text ``name`` of an answer.

    Raises:
        ProtocolError: there is none.
    """
    value = fields.get(name)
    if not isinstance(value, str):
        raise ProtocolError("field missing or not a text", field=name, value=value)
    return value


def elements(fields: Fields, name: str) -> list[object]:
    """The list ``name`` of an answer.

    Raises:
        ProtocolError: there is none.
    """
    value = fields.get(name)
    if not isinstance(value, list):
        raise ProtocolError("field missing or not a list", field=name, value=value)
    return value


def texts(fields: Fields, name: str) -> tuple[str, ...]:
    """The list of texts ``name`` of an answer.

    Raises:
        ProtocolError: there is none, or it has something else.
    """
    found = fields.get(name)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ProtocolError("field missing or not a list of texts", field=name, value=found)
    return tuple(found)


def integers(fields: Fields, name: str) -> list[int]:
    """The list of whole numbers ``name`` of an answer.

    Raises:
        ProtocolError: there is none, or it has something else.
    """
    found = fields.get(name)
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise ProtocolError("field missing or not a list of integers", field=name, value=found)
    return found


def rows(fields: Fields, name: str, read: Callable[[Fields], Row]) -> list[Row]:
    """The list ``name`` of an answer, each of its objects as ``read`` makes of it.

    Raises:
        ProtocolError: there is none, or it has something else than objects.
    """
    found = fields.get(name)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ProtocolError("field missing or not a list of objects", field=name)
    return [read(row) for row in found]


def fields_of(fields: Fields, name: str) -> Fields:
    """The object ``name`` of an answer.

    Raises:
        ProtocolError: there is none.
    """
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ProtocolError("field missing or not an object", field=name, value=value)
    return value
