"""Rows of answers: a named tuple is the struct of what the broker tells, read by its types.

    class QueueState(NamedTuple):
        queue: int
        begin: Annotated[int, Wire("min")]
        last_stored: Annotated[int | None, BELOW_0_IS_NONE]

A field with a default may be missing: a broker that is older does not tell it. A list of named
tuples is one of objects, which are read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ledgermq.model.errors import ProtocolError
from ledgermq.verbs.answers import Fields, elements, fields_of, integer, integers, rows, text, texts

Row = TypeVar("Row")
_Read = Callable[[Fields, str], object]


class Wire(NamedTuple):
    """The name of a field in the broker's answer."""

    name: str


BELOW_0_IS_NONE: Final = "a number below 0 stands for none"
"""The broker tells a time that is not known as -1."""


def read_row(row: Callable[..., Row], fields: Fields) -> Row:
    """A row of an answer.

    Raises:
        ProtocolError: a field is missing, or is of another type.
    """
    values: dict[str, object] = {}
    for name, wire_name, read, may_be_missing in _readers(row):
        if not (may_be_missing and wire_name not in fields):
            values[name] = read(fields, wire_name)
    return row(**values)


@cache
def shape_of(row: type[object]) -> Mapping[str, str]:
    """The fields of a row with their types in JSON Schema, as ``Verb.SHAPE`` has them."""
    return {name: _json_type(hint) for name, hint in _hints(row).items()}


def wire_names(row: Callable[..., object]) -> dict[str, str]:
    """How the fields of a row are called in an answer, by their names."""
    return {name: wire_name for name, wire_name, _, _ in _readers(row)}


@cache
def _readers(row: Callable[..., object]) -> tuple[tuple[str, str, _Read, bool], ...]:
    defaults: Mapping[str, object] = row._field_defaults  # type: ignore[attr-defined]
    found = []
    for name, hint in _hints(row).items():
        wire_name = next((one.name for one in hint.notes if isinstance(one, Wire)), name)
        found.append((name, wire_name, _reader(hint), name in defaults))
    return tuple(found)


def _hints(row: Any) -> dict[str, Annotation]:
    hints = get_type_hints(row, include_extras=True)
    return {name: read_annotation(hints[name]) for name in row._fields}


class Annotation(NamedTuple):
    """What an annotation says: a type, whether None may be in its place, and the notes beside it.

    The notes of a type that is named stand before those of whoever names it.
    """

    kind: Any
    may_be_none: bool
    notes: tuple[object, ...]


def read_annotation(hint: object) -> Annotation:
    """The parts of an annotation."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        found = read_annotation(inner)
        return found._replace(notes=(*found.notes, *notes))
    if get_origin(hint) in (Union, UnionType):
        (inner,) = (one for one in get_args(hint) if one is not NoneType)
        return read_annotation(inner)._replace(may_be_none=True)
    return Annotation(hint, False, ())


def _reader(hint: Annotation) -> _Read:
    if hint.may_be_none:
        return _time if BELOW_0_IS_NONE in hint.notes else _optional
    kind = get_origin(hint.kind) or hint.kind
    return _list_reader(hint.kind, kind) if kind in (list, tuple) else _READERS[kind]


def _list_reader(hint: object, kind: Callable[[Any], object]) -> _Read:
    one = get_args(hint)[0]
    if one is str:
        return texts
    if get_origin(one) is tuple:
        return _pairs
    found = integers if one is int else partial(rows, read=partial(read_row, one))
    return lambda fields, name: kind(found(fields, name))


def _pairs(fields: Fields, name: str) -> tuple[tuple[int, int], ...]:
    found = elements(fields, name)
    pairs = [(one[0], one[1]) for one in found if isinstance(one, list) and len(one) == 2]
    if len(pairs) < len(found) or not all(type(one) is int for pair in pairs for one in pair):
        raise ProtocolError("field has something else than pairs of integers", field=name)
    return tuple(pairs)


def _optional(fields: Fields, name: str) -> int | None:
    return None if fields.get(name) is None else integer(fields, name)


def _time(fields: Fields, name: str) -> int | None:
    time = integer(fields, name)
    return None if time < 0 else time


def _flag(fields: Fields, name: str) -> bool:
    return fields.get(name) is True


_READERS: Mapping[Any, _Read] = {str: text, int: integer, bool: _flag, dict: fields_of}
_SCALARS = {str: "string", int: "integer", bool: "boolean"}
_JSON_TYPES: Mapping[Any, str] = {**_SCALARS, list: "array", tuple: "array", dict: "object"}


def _json_type(hint: Annotation) -> str:
    return _JSON_TYPES[get_origin(hint.kind) or hint.kind] + "?" * hint.may_be_none
