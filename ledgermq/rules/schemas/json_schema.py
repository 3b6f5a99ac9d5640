"""JSON Schema: whether one schema lets through all that another one lets through.

Drafts 4 to 2020-12, keyword by keyword. What is said is sound and not complete: two schemas may let
the same through in ways that are not seen here. A keyword that no draft has is an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

from ledgermq.model.errors import ConfigError
from ledgermq.rules.schemas.comparison import (
    CHARACTERS_PER_STEP,
    NAMES_PER_STEP,
    TYPES_WITHIN_MAX,
    Course,
    StepBudget,
    UnreadableError,
    json_of,
    shown,
    shown_names,
)

ALL_TYPES = frozenset(["null", "boolean", "object", "array", "number", "integer", "string"])
REFERENCE_PARTS_MAX = 2 * TYPES_WITHIN_MAX
"""A keyword and a name lead from a type to one within it."""

_NUMBERS = frozenset(("number", "integer"))

_LOW_BOUNDS: Mapping[str, frozenset[str]] = {
    "minLength": frozenset(("string",)),
    "minItems": frozenset(("array",)),
    "minProperties": frozenset(("object",)),
    "minimum": _NUMBERS,
    "exclusiveMinimum": _NUMBERS,
}
_HIGH_BOUNDS: Mapping[str, frozenset[str]] = {
    "maxLength": frozenset(("string",)),
    "maxItems": frozenset(("array",)),
    "maxProperties": frozenset(("object",)),
    "maximum": _NUMBERS,
    "exclusiveMaximum": _NUMBERS,
}
"""Keywords that bound a number, with the types that they are about."""

_ALIKE: Sequence[tuple[frozenset[str], tuple[str, ...]]] = (
    (frozenset(("string",)), ("pattern",)),
    (frozenset(("string",)), ("contentEncoding", "contentMediaType", "contentSchema")),
    (ALL_TYPES, ("format",)),
    (ALL_TYPES, ("not",)),
    (ALL_TYPES, ("if", "then", "else")),
    (frozenset(("array",)), ("contains", "minContains", "maxContains")),
    (frozenset(("object",)), ("propertyNames",)),
    (frozenset(("object",)), ("dependencies", "dependentRequired", "dependentSchemas")),
    (_NUMBERS, ("multipleOf",)),
)
"""Keywords that are to be the same in both, where the reader has one of them; and their types."""

_NOT_SHOWN = (
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedProperties",
    "unevaluatedItems",
    "extends",
    "disallow",
)
_LISTED_ITEMS = ("prefixItems", "items", "additionalItems")
_NAMED = ("properties", "patternProperties", "additionalProperties")

_COMPARED = (*_LOW_BOUNDS, *_HIGH_BOUNDS, *(key for _, keys in _ALIKE for key in keys))
_READ_ALONE = ("type", "enum", "const", "uniqueItems", "required", "allOf", "anyOf", "oneOf")
_ASSERTING = (*_COMPARED, *_NOT_SHOWN, *_LISTED_ITEMS, *_NAMED, *_READ_ALONE)
"""Keywords that let less through."""

_ANYTHING: Mapping[str, object] = {}
"""One object for all time: schemas are told apart by where they lie in memory."""


class _Of(NamedTuple):
    """A schema in its document, which its references are about."""

    value: object
    document: object

    def at(self, value: object) -> _Of:
        return self._replace(value=value)


def json_schema(text: str) -> object:
    """The schema of a text.

    Raises:
        ConfigError: it is none, as far as its outermost keywords tell.
    """
    found = json_of(text)
    if not isinstance(found, Mapping | bool):
        raise ConfigError("JSON Schema is no object and no boolean", found=shown(found))
    if isinstance(found, Mapping):
        kinds = found.get("type", [])
        listed = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(listed, list) or not all(one in [*ALL_TYPES] for one in listed):
            raise ConfigError("`type` of a JSON Schema is none", found=shown(kinds))
        for key in ("properties", "definitions", "$defs", "patternProperties"):
            if not isinstance(found.get(key, {}), Mapping):
                raise ConfigError(f"`{key}` of a JSON Schema is no object", found=shown(found[key]))
    return found


def check_json_reads(reader: object, writer: object, steps: StepBudget) -> None:
    """Let ``reader`` let through all that ``writer`` lets through.

    Raises:
        UnreadableError: it does not, or that cannot be shown.
        ConfigError: it would take too long.
    """
    if _text(reader, steps) != _text(writer, steps):
        _check(_Of(reader, reader), _Of(writer, writer), Course("", set(), steps, 0))


def _check(reader: _Of, writer: _Of, course: Course) -> None:
    course.steps.take(depth=course.depth)
    read, written = _resolved(reader, course, narrows=True), _resolved(writer, course)
    if read is True or written is False or read == {}:
        return
    if read is False:
        raise course.no("nothing is let through here")
    pair = (id(read), id(written))
    if pair in course.seen:
        return
    course.seen.add(pair)
    wide = _ANYTHING if written is True else _fields(written, course)
    narrow = _fields(read, course)
    course.steps.take(len(narrow) + len(wide))
    inner = writer.at(written)
    if not _any_way(reader, inner, wide, course):
        _check_keywords(reader.at(narrow), writer.at(wide), narrow, wide, course)


def _any_way(reader: _Of, writer: _Of, wide: Mapping[str, object], course: Course) -> bool:
    """Whether the writer's alternatives, or one of what it has to keep, show it already."""
    for key in ("anyOf", "oneOf"):
        branches = _schemas(wide.get(key), course)
        if branches and all(_shows(reader, writer.at(one), course) for one in branches):
            return True
    return any(
        _shows(reader, writer.at(one), course) for one in _schemas(wide.get("allOf"), course)
    )


def _shows(reader: _Of, writer: _Of, course: Course) -> bool:
    try:
        _check(reader, writer, course.tried())
    except UnreadableError:
        return False
    return True


def _check_keywords(
    reader: _Of,
    writer: _Of,
    read: Mapping[str, object],
    written: Mapping[str, object],
    course: Course,
) -> None:
    for key in _NOT_SHOWN:
        if key in read:
            raise course.no(f"`{key}` is not compared")
    types = _types(written, course)
    _check_types(read, written, types, course)
    _check_bounds(read, written, types, course)
    for about, keys in _ALIKE:
        if about & types:
            _check_alike(read, written, keys, course)
    if "array" in types:
        if read.get("uniqueItems") is True and written.get("uniqueItems") is not True:
            raise course.no("items may be equal, and are not to be")
        _check_items(reader, writer, read, written, course)
    if "object" in types:
        _check_object(reader, writer, read, written, course)
    for one in _schemas(read.get("allOf"), course):
        _check(reader.at(one), writer, course.at("allOf"))
    _check_alternatives(reader, writer, read, written, course)


def _check_types(
    read: Mapping[str, object],
    written: Mapping[str, object],
    types: frozenset[str],
    course: Course,
) -> None:
    lost = types - _types(read, course)
    if lost:
        raise course.no(f"a value may be of another type: {', '.join(sorted(lost))}")
    allowed = _values(read)
    if allowed is None:
        return
    given = _values(written)
    if given is None:
        raise course.no("a value may be another one than those of `enum` or `const`")
    course.steps.take(len(allowed) + len(given))
    others = {_text(one, course.steps) for one in given}
    others -= {_text(one, course.steps) for one in allowed}
    if others:
        raise course.no(f"a value may be {shown_names(others)}")


def _check_bounds(
    read: Mapping[str, object],
    written: Mapping[str, object],
    types: frozenset[str],
    course: Course,
) -> None:
    for sign, bounds in ((1, _LOW_BOUNDS), (-1, _HIGH_BOUNDS)):
        for key, about in bounds.items():
            if key not in read or not about & types:
                continue
            wanted, given = read[key], written.get(key)
            if isinstance(wanted, bool) or isinstance(given, bool):
                # Of draft 4, where it says something about the bound beside it.
                _check_alike(read, written, (key, key.replace("exclusiveM", "m")), course)
            elif not (sign > 0 and wanted == 0 and about is not _NUMBERS) and not (
                _is_number(wanted)
                and _is_number(given)
                and (given >= wanted if sign > 0 else given <= wanted)
            ):
                raise course.no(f"`{key}` is narrower: {shown(wanted)}")


def _check_alike(
    read: Mapping[str, object],
    written: Mapping[str, object],
    keys: Sequence[str],
    course: Course,
) -> None:
    if not any(key in read for key in keys):
        return
    one, other = ({key: of[key] for key in keys if key in of} for of in (read, written))
    text = _text(one, course.steps)
    if text != _text(other, course.steps) or '"$ref"' in text:
        raise course.no(f"`{keys[0]}` differs, or is not compared")


def _check_items(
    reader: _Of,
    writer: _Of,
    read: Mapping[str, object],
    written: Mapping[str, object],
    course: Course,
) -> None:
    if not any(key in read for key in _LISTED_ITEMS):
        return
    is_listed = any(
        "prefixItems" in one or isinstance(one.get("items"), list) for one in (read, written)
    )
    if is_listed:
        _check_alike(read, written, _LISTED_ITEMS, course)
    elif "items" in read:
        items = written.get("items", True)
        _check(reader.at(read["items"]), writer.at(items), course.at("items"))


def _check_object(
    reader: _Of,
    writer: _Of,
    read: Mapping[str, object],
    written: Mapping[str, object],
    course: Course,
) -> None:
    wanted, there = (_strings(of.get("required"), course) for of in (read, written))
    if wanted - there:
        raise course.no(f"may be missing, and is required: {shown_names(wanted - there)}")
    if not any(key in read for key in _NAMED):
        return
    if read.get("patternProperties") or written.get("patternProperties"):
        _check_alike(read, written, _NAMED, course)
        return
    known, given = (_fields(of.get("properties", {}), course) for of in (read, written))
    others, rest = (of.get("additionalProperties", True) for of in (read, written))
    course.steps.take((len(known) + len(given)) // NAMES_PER_STEP)
    for name in known:
        of_writer = writer.at(given.get(name, rest))
        _check(reader.at(known[name]), of_writer, course.at(name))
    for name in given.keys() - known.keys():
        _check(reader.at(others), writer.at(given[name]), course.at(name))
    _check(reader.at(others), writer.at(rest), course.at("*"))


def _check_alternatives(
    reader: _Of,
    writer: _Of,
    read: Mapping[str, object],
    written: Mapping[str, object],
    course: Course,
) -> None:
    for key in ("anyOf", "oneOf"):
        branches = _schemas(read.get(key), course)
        if not branches:
            continue
        if key == "oneOf" and not _are_apart(reader, branches, course):
            _check_alike(read, written, (key,), course)
        elif not any(_shows(reader.at(one), writer, course) for one in branches):
            raise course.no(f"is not shown to be one of `{key}`")


def _are_apart(reader: _Of, branches: Sequence[object], course: Course) -> bool:
    """Whether no value can be of two of them, by their types alone."""
    course.steps.take(len(branches))
    taken: set[str] = set()
    for one in branches:
        found = _resolved(reader.at(one), course)
        types = _types(found, course) if isinstance(found, Mapping) else ALL_TYPES
        if taken & types:
            return False
        taken |= types
    return True


def _types(schema: Mapping[str, object], course: Course) -> frozenset[str]:
    """The types that a value may have; an integer is a number, too."""
    given = schema.get("type")
    values = _values(schema)
    if given is None and values is not None:
        course.steps.take(len(values) // NAMES_PER_STEP)
        return frozenset(map(_type_of, values))
    if given is None:
        return ALL_TYPES
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise course.no("`type` is none")
    course.steps.take(len(listed) // NAMES_PER_STEP)
    found = ALL_TYPES.intersection(listed)
    return found | {"integer"} if "number" in found else found


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (str, "string"), (list, "array"), (int, "integer")):
        if isinstance(value, kind):
            return name
    return "number" if isinstance(value, float) else "object"


def _values(schema: Mapping[str, object]) -> list[object] | None:
    """The only values that there may be, where `const` or `enum` says so."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _resolved(schema: _Of, course: Course, *, narrows: bool = False) -> object:
    """What a schema refers to.

    Args:
        narrows: it may not be taken to let more through than it does: what stands beside a
            reference counts since draft 2019-09, and did not before.
    """
    value = schema.value
    for _ in range(16):
        if not isinstance(value, Mapping):
            return value
        if "$id" in value and value is not schema.document:
            raise course.no("a schema with an `$id` of its own is not compared")
        if "$ref" not in value:
            return value
        course.steps.take()
        if narrows and any(key in value for key in _ASSERTING):
            raise course.no("what stands beside a `$ref` is not compared")
        place = value["$ref"]
        if not isinstance(place, str) or not (place == "#" or place.startswith("#/")):
            raise course.no(f"a reference out of the schema: {shown(place)}")
        course.steps.take(len(place) // CHARACTERS_PER_STEP)
        if place.count("/") > REFERENCE_PARTS_MAX:
            raise course.no(f"a reference of too many parts: {shown(place)}")
        value = schema.document
        for part in place.split("/")[1:]:
            course.steps.take()
            key = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
            if not isinstance(value, Mapping) or key not in value:
                raise course.no(f"a reference to nothing: {shown(place)}")
            value = value[key]
            if isinstance(value, Mapping) and "$id" in value:
                raise course.no("a schema with an `$id` of its own is not compared")
    raise course.no("references in a circle")


def _fields(value: object, course: Course) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise course.no("not a schema")
    return value


def _schemas(value: object, course: Course) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise course.no("not a list of schemas")
    return value


def _strings(value: object, course: Course) -> set[str]:
    if not isinstance(value, list):
        return set()
    course.steps.take(len(value) // NAMES_PER_STEP)
    return {one for one in value if isinstance(one, str)}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object, steps: StepBudget) -> str:
    text = json.dumps(value, sort_keys=True)
    steps.take(len(text) // CHARACTERS_PER_STEP)
    return text
