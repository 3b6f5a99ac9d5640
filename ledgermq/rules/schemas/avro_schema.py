"""Avro schemas: types of a text, and whether one type reads what another one has written.

The rules are those of schema resolution in Avro's specification (1.11), with names compared without
their namespace, as Avro's own libraries do it. Defaults have to be values of their field's type:
bytes are a text of characters up to U+00FF, a union's default is one of its first branch, and a
record's may leave fields out that have defaults of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.rules.schemas.comparison import (
    CHARACTERS_PER_STEP,
    NAMES_PER_STEP,
    Course,
    StepBudget,
    UnreadableError,
    inner_place,
    json_of,
    shown,
    shown_names,
)

PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])

_READ_AS: Mapping[str, frozenset[str]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
"""Primitive types that a writer's may be read as, besides itself."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")

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


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    aliases: frozenset[str]
    type: AvroType
    has_default: bool


@dataclass(eq=False, slots=True)
class AvroType:
    """One type; what a kind does not have is empty.

    Attributes:
        kind: a primitive's name, or ``record``, ``enum``, ``fixed``, ``array``, ``map``, ``union``.
        branches: of a union; of an array or a map, the one that it has many of.
        size: of ``fixed``, bytes.
        decimal: precision and scale, where it is one.
    """

    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: list[AvroField] = field(default_factory=list)
    branches: list[AvroType] = field(default_factory=list)
    symbols: frozenset[str] = frozenset()
    has_default: bool = False
    size: int = 0
    decimal: tuple[object, object] | None = None


class _Around(NamedTuple):
    """What a type of a text stands in: a namespace, the names before it, other types.

    Attributes:
        place: of the field that it is the type of, as ``/field/field``.
        defaults: of all fields before it; they are looked at when all types are known.
    """

    space: str
    names: dict[str, AvroType]
    steps: StepBudget
    depth: int
    place: str
    defaults: list[AvroDefault]

    def within(self, space: str | None = None) -> _Around:
        return self._replace(space=self.space if space is None else space, depth=self.depth + 1)

    def at(self, name: str) -> _Around:
        return self._replace(place=inner_place(self.place, name))

    def full(self, name: str) -> str:
        found = name if "." in name or not self.space else f"{self.space}.{name}"
        # A text has a long namespace once, and each name within it is as long again.
        self.steps.take(len(found) // CHARACTERS_PER_STEP)
        return found


def avro_type(text: str, steps: StepBudget, *, has_defaults_checked: bool = False) -> AvroType:
    """The type of a schema's text.

    Args:
        has_defaults_checked: whether each default has to be a value of its field's type. Of a
            version that was taken before this was asked, it need not be.

    Raises:
        ConfigError: it is none; says what and where.
    """
    defaults: list[AvroDefault] = []
    found = _read(json_of(text), _Around("", {}, steps, 0, "", defaults))
    if has_defaults_checked:
        for default in defaults:
            check_default(default, steps)
    return found


def check_avro_reads(reader: AvroType, writer: AvroType, steps: StepBudget) -> None:
    """Let ``reader`` read all that ``writer`` writes.

    Raises:
        UnreadableError: it does not.
        ConfigError: that would take too long.
    """
    _check(reader, writer, Course("", set(), steps, 0))


def _wrong(what: str, **details: object) -> ConfigError:
    return ConfigError(
        f"not an Avro schema: {what}", **{name: shown(value) for name, value in details.items()}
    )


def _read(value: object, around: _Around) -> AvroType:
    around.steps.take(depth=around.depth)
    if isinstance(value, str):
        return _named(value, around)
    if isinstance(value, list):
        return _union(value, around)
    if not isinstance(value, Mapping):
        raise _wrong("a type is a text, a list or an object", found=value)
    kind = value.get("type")
    if not isinstance(kind, str):
        if "type" not in value:
            raise _wrong("a type without `type`", found=value)
        return _read(kind, around.within())
    if kind in ("record", "error", "enum", "fixed"):
        return _definition(kind, value, around)
    if kind in ("array", "map"):
        key = "items" if kind == "array" else "values"
        if key not in value:
            raise _wrong(f"{kind} without `{key}`", found=value)
        return AvroType(kind, branches=[_read(value[key], around.within().at("*"))])
    found = _named(kind, around)
    return _with_logical(found, value) if kind == "bytes" else found


def _named(name: str, around: _Around) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(name)
    found = around.names.get(around.full(name)) or around.names.get(name)
    if found is None:
        raise _wrong("a type of no known name", name=name)
    return found


def _union(value: list[object], around: _Around) -> AvroType:
    branches = [_read(one, around.within()) for one in value]
    if any(one.kind == "union" for one in branches):
        raise _wrong("a union in a union")
    told = [one.name or one.kind for one in branches]
    if not branches or len(set(told)) < len(told):
        raise _wrong("a union without types, or with one twice", found=shown_names(told))
    return AvroType("union", branches=branches)


def _definition(kind: str, value: Mapping[str, object], around: _Around) -> AvroType:
    name = value.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise _wrong(f"{kind} without a name", name=name)
    own = value.get("namespace")
    if "." in name:
        around = around.within(name.rpartition(".")[0])
    else:
        around = around.within(own if isinstance(own, str) else None)
    full = around.full(name)
    if full in around.names or name in PRIMITIVES:
        raise _wrong("a name is defined twice", name=full)
    found = AvroType("record" if kind == "error" else kind, full)
    found.aliases = frozenset(map(around.full, _texts(value, "aliases")))
    around.names[full] = found
    if found.kind == "record":
        _read_fields(found, value, around)
    elif kind == "enum":
        symbols = _texts(value, "symbols")
        if "symbols" not in value or len(set(symbols)) < len(symbols):
            raise _wrong("enum without symbols, or with one twice", name=full)
        found.symbols, found.has_default = frozenset(symbols), "default" in value
        if found.has_default and value["default"] not in symbols:
            raise _wrong("default of an enum is none of its symbols", name=full)
    else:
        size = value.get("size")
        if type(size) is not int or size < 0:
            raise _wrong("fixed without a size", name=full, size=size)
        found.size = size
        found.decimal = _decimal(value)
    return found


def _read_fields(record: AvroType, value: Mapping[str, object], around: _Around) -> None:
    rows = value.get("fields")
    if not isinstance(rows, list):
        raise _wrong("record without `fields`", name=record.name)
    known: set[str] = set()
    for row in rows:
        name = row.get("name") if isinstance(row, Mapping) else None
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or "." in name:
            raise _wrong("field without a name", record=record.name, found=row)
        if name in known or "type" not in row:
            raise _wrong("field twice or without `type`", record=record.name, field=name)
        known.add(name)
        inner = around.at(name)
        found = _read(row["type"], inner)
        if "default" in row:
            around.defaults.append(AvroDefault(found, row["default"], inner.place))
        aliases = frozenset(_texts(row, "aliases"))
        record.fields.append(AvroField(name, aliases, found, "default" in row))


def _texts(value: Mapping[str, object], key: str) -> list[str]:
    found = value.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _wrong(f"`{key}` is no list of texts", found=found)
    return found


def _decimal(value: Mapping[str, object]) -> tuple[object, object] | None:
    if value.get("logicalType") != "decimal":
        return None
    return value.get("precision"), value.get("scale", 0)


def _with_logical(found: AvroType, value: Mapping[str, object]) -> AvroType:
    found.decimal = _decimal(value)
    return found


def _check(reader: AvroType, writer: AvroType, course: Course) -> None:
    course.steps.take(depth=course.depth)
    pair = (id(reader), id(writer))
    if pair in course.seen:
        return
    if writer.kind == "union":
        for number, branch in enumerate(writer.branches):
            _check(reader, branch, course.at(str(number)))
    elif reader.kind == "union":
        _check_one_of(reader, writer, course)
    elif reader.kind != writer.kind:
        if reader.kind not in _READ_AS.get(writer.kind, ()):
            raise course.no(f"{writer.kind} is not read as {reader.kind}")
    else:
        course.seen.add(pair)
        _check_alike(reader, writer, course)


def _check_alike(reader: AvroType, writer: AvroType, course: Course) -> None:
    course.steps.take((len(reader.name) + len(writer.name)) // CHARACTERS_PER_STEP)
    if reader.name and not _same_name(reader, writer):
        raise course.no(f"{writer.name} is not read as {reader.name}: another name")
    if reader.decimal and writer.decimal and reader.decimal != writer.decimal:
        raise course.no("decimals of another precision or scale")
    if reader.size != writer.size:
        raise course.no(f"{writer.size} bytes are not read as {reader.size}")
    course.steps.take(len(writer.symbols) // NAMES_PER_STEP)
    lost = writer.symbols - reader.symbols
    if lost and not reader.has_default:
        raise course.no(f"symbols without a default: {shown_names(lost)}")
    if reader.kind in ("array", "map"):
        _check(reader.branches[0], writer.branches[0], course.at("*"))
    elif reader.kind == "record":
        _check_fields(reader, writer, course)


def _check_one_of(reader: AvroType, writer: AvroType, course: Course) -> None:
    for branch in reader.branches:
        tried = course.tried()
        try:
            _check(branch, writer, tried)
        except UnreadableError:
            continue
        course.seen.update(tried.seen)
        return
    allowed = shown_names(one.name or one.kind for one in reader.branches)
    raise course.no(f"{writer.name or writer.kind} is not read as one of {allowed}")


def _check_fields(reader: AvroType, writer: AvroType, course: Course) -> None:
    written = {one.name: one for one in writer.fields}
    for wanted in reader.fields:
        course.steps.take(len(wanted.aliases) + 1)
        names = (wanted.name, *sorted(wanted.aliases))
        found = next((written[name] for name in names if name in written), None)
        if found is not None:
            _check(wanted.type, found.type, course.at(wanted.name))
        elif not wanted.has_default:
            raise course.at(wanted.name).no("the field is not written, and has no default")


def _same_name(reader: AvroType, writer: AvroType) -> bool:
    simple = reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2]
    return simple or writer.name in reader.aliases


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
                raise _wrong_default(
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
        raise _wrong_default(default, "a default is none of its field's type")


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


def _wrong_default(default: AvroDefault, what: str) -> ConfigError:
    kind = default.type.branches[0] if default.type.kind == "union" else default.type
    return ConfigError(
        f"not an Avro schema: {what}",
        field=default.place,
        value=shown(default.value),
        type=kind.name or kind.kind,
    )
