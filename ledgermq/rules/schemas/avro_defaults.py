"""Avro defaults: whether a field's default is a value of the field's type, as a text has it.

As Avro's specification (1.11) has it: bytes are a text of characters up to U+00FF, a union's
default is one of its first branch, and a record's may leave fields out that have defaults of their
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.rules.schemas.avro_types import AvroType
from ledgermq.rules.schemas.comparison import (
    CHARACTERS_PER_STEP,
    StepBudget,
    inner_place,
    shown,
)

_WRITTEN_AS: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), (str,)),
}
"""What JSON has a value of each type as."""

_BITS = {"int": 31, "long": 63}
_BYTE_MAX = "\xff"


class AvroDefault(NamedTuple):
    """A value that has to be one of ``type``; ``place`` it stands at, as ``/field/field``."""

    type: AvroType
    value: object
    place: str

    def at(self, kind: AvroType, value: object, name: str) -> AvroDefault:
        """A value within this one."""
        return AvroDefault(kind, value, inner_place(self.place, name))


def check_default(default: AvroDefault, steps: StepBudget, *, depth: int = 0) -> None:
    """Let the value be one of its type.

    Raises:
        ConfigError: it is none, and names its place; or that takes too long.
    """
    steps.take(depth=depth)
    kind, value, _ = default
    if kind.kind == "union":
        check_default(default._replace(type=kind.branches[0]), steps, depth=depth + 1)
    elif kind.kind == "record" and isinstance(value, Mapping):
        # Of those that the value leaves out, too.
        steps.take(len(kind.fields))
        for field in kind.fields:
            if field.name in value:
                inner = default.at(field.type, value[field.name], field.name)
                check_default(inner, steps, depth=depth + 1)
            elif not field.has_default:
                raise _wrong(
                    default.at(field.type, None, field.name),
                    "a default lacks a field that has no default of its own",
                )
    elif kind.kind == "array" and isinstance(value, list):
        for number, item in enumerate(value):
            inner = default.at(kind.branches[0], item, str(number))
            check_default(inner, steps, depth=depth + 1)
    elif kind.kind == "map" and isinstance(value, Mapping):
        for key, item in value.items():
            check_default(default.at(kind.branches[0], item, key), steps, depth=depth + 1)
    elif not _is_plain_value(kind, value, steps):
        raise _wrong(default, "a default is none of its field's type")


def _is_plain_value(kind: AvroType, value: object, steps: StepBudget) -> bool:
    """Whether it is a value of a type that has no other types in it."""
    # By the very type, for what is true is an integer to Python, too.
    if type(value) not in _WRITTEN_AS.get(kind.kind, ()):
        return False
    if isinstance(value, str):
        return _is_text_of(kind, value, steps)
    if kind.kind in _BITS:
        assert isinstance(value, int)
        limit = 1 << _BITS[kind.kind]
        return -limit <= value < limit
    return True


def _is_text_of(kind: AvroType, value: str, steps: StepBudget) -> bool:
    if kind.kind == "enum":
        return value in kind.symbols
    if kind.kind == "string":
        return True
    steps.take(len(value) // CHARACTERS_PER_STEP)
    has_size = kind.kind == "bytes" or len(value) == kind.size
    return has_size and max(value, default="") <= _BYTE_MAX


def _wrong(default: AvroDefault, what: str) -> ConfigError:
    kind = default.type.branches[0] if default.type.kind == "union" else default.type
    return ConfigError(
        f"not an Avro schema: {what}",
        field=default.place,
        value=shown(default.value),
        type=kind.name or kind.kind,
    )
