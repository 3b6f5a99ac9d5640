"""Reasons: why a value does not fit a JSON Schema, found by asking whether it fits parts of it.

jsonschema-rs knows at once whether a value fits, for it remembers what it has looked at. Its
account of errors looks at a value again in each way that leads there, by alternatives, patterns or
what stands beside a reference, so that the ways may double with each level of a body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Never

REASON_CHARACTERS_MAX = 200

PARTS_WITHIN_MAX = 32
"""Parts within parts that are looked at for a reason; behind that only the place is told."""

_DOCUMENT = "urn:ledgermq:schema"

_PLAIN = (
    *("type", "enum", "const", "required", "dependentRequired", "uniqueItems", "multipleOf"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength"),
    *("pattern", "format", "minItems", "maxItems", "minProperties", "maxProperties"),
)
"""Keywords that have no schema within them; the library's own words tell of these."""

_BESIDE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Keywords that draft 4 reads beside others alone."""

_WITH_OTHERS: Mapping[str, tuple[str, ...]] = {
    "oneOf": (),
    "anyOf": (),
    "not": (),
    "if": ("then", "else"),
    "contains": ("minContains", "maxContains"),
    "propertyNames": (),
    "patternProperties": (),
    "additionalProperties": ("properties", "patternProperties"),
    "dependentSchemas": (),
    "dependencies": (),
}
"""Keywords of which it is told that they are not kept, and those that they are read with."""

_TOLD_WITHOUT_VALUE = ("required", "dependentRequired")


class _Part(NamedTuple):
    """A schema within the document, and what in a value has to fit it."""

    schema: object
    value: object
    place: str


def json_validator(schema: Any, known: Mapping[str, Any] | None = None) -> Any:
    """The library's validator: patterns are matched in a time that grows with the text, and nothing
    is fetched.

    Args:
        known: what references may name besides the schema itself.

    Raises:
        ValueError: the library does not take the schema.
    """
    import jsonschema_rs

    def retrieved(uri: str) -> Any:
        return known[uri] if known and uri in known else _not_fetched(uri)

    return jsonschema_rs.validator_for(
        schema, retriever=retrieved, pattern_options=jsonschema_rs.RegexOptions()
    )


class JsonReasons:
    """Tells of values that do not fit one schema why; parts of it are made once, when needed."""

    def __init__(self, document: object) -> None:
        """Tell of ``document``, the schema's JSON."""
        self._document = document
        self._made: dict[tuple[int, str], Any] = {}

    def told(self, value: object) -> str:
        """Why ``value`` does not fit, as far as it is found, in a line."""
        part, why = _Part(self._document, value, ""), "it does not fit"
        for _ in range(PARTS_WITHIN_MAX):
            if not isinstance(part.schema, Mapping):
                break
            try:
                found = self._of_keywords(part) or next(self._wrong_within(part), None)
            except Exception:  # the library's: a part that cannot stand for itself
                break
            if found is None:
                break
            if isinstance(found, str):
                why = found
                break
            part = found
        return f"{why}, at {part.place}" if part.place else why

    def _of_keywords(self, part: _Part) -> str | None:
        """What is wrong with the value by itself."""
        schema: Mapping[str, Any] = part.schema  # type: ignore[assignment]
        for key in _PLAIN:
            if key not in schema or self._fits(schema, key, part.value, (_BESIDE.get(key, ""),)):
                continue
            if key in _TOLD_WITHOUT_VALUE or not isinstance(part.value, Mapping | list):
                try:
                    self._made[id(schema), key].validate(part.value)
                except ValueError as error:
                    return str(getattr(error, "message", error))
            return f"it does not fit `{key}`"
        return None

    def _wrong_within(self, part: _Part) -> Iterator[_Part | str]:
        """What is wrong with values within it, or by other schemas that it has to fit."""
        schema: Mapping[str, Any] = part.schema  # type: ignore[assignment]
        yield from self._wrong_values(schema, part)
        reference = schema.get("$ref")
        beside = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
        if isinstance(reference, str):
            beside.insert(0, referred(reference, self._document))
        for one in beside:
            if one is not None and not self._is_fit(one, part.value):
                yield part._replace(schema=one)
        for key, others in _WITH_OTHERS.items():
            if key in schema and not self._fits(schema, key, part.value, others):
                yield f"it does not fit `{key}`"

    def _wrong_values(self, schema: Mapping[str, Any], part: _Part) -> Iterator[_Part]:
        value, named, items = part.value, schema.get("properties"), schema.get("items")
        if isinstance(value, Mapping) and isinstance(named, Mapping):
            for name, one in named.items():
                if name in value and not self._is_fit(one, value[name]):
                    yield _Part(one, value[name], f"{part.place}/{name}"[:REASON_CHARACTERS_MAX])
        if isinstance(value, list) and isinstance(items, Mapping) and "prefixItems" not in schema:
            for number, one in enumerate(value):
                if not self._is_fit(items, one):
                    yield _Part(items, one, f"{part.place}/{number}"[:REASON_CHARACTERS_MAX])

    def _is_fit(self, schema: object, value: object) -> bool:
        if not isinstance(schema, Mapping):
            return schema is not False
        return self._validator(schema, "", schema).is_valid(value) is True

    def _fits(
        self, schema: Mapping[str, Any], key: str, value: object, others: tuple[str, ...]
    ) -> bool:
        part = {one: schema[one] for one in (key, *others) if one in schema}
        return self._validator(schema, key, part).is_valid(value) is True

    def _validator(self, schema: Mapping[str, Any], key: str, part: object) -> Any:
        """What says whether a value fits ``part`` of a schema that stands in the document."""
        place = id(schema), key
        found = self._made.get(place)
        if found is None:
            alone: Any = _with_whole_references(part)
            document = self._document
            if isinstance(document, Mapping) and "$schema" in document:
                alone["$schema"] = document["$schema"]
            found = self._made[place] = json_validator(alone, {_DOCUMENT: document})
        return found


def _with_whole_references(value: object) -> object:
    """A part of a document whose references into the document name it."""
    if isinstance(value, list):
        return [_with_whole_references(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _with_whole_references(one) for key, one in value.items()}
    place = found.get("$ref")
    if isinstance(place, str) and place.startswith("#"):
        found["$ref"] = _DOCUMENT + place
    return found


def referred(place: str, document: object) -> object:
    """What a reference into a document of JSON Schema names; None: it leads out, or to nothing."""
    if not place.startswith("#"):
        return None
    found = document
    for part in place.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _not_fetched(uri: str) -> Never:
    raise ValueError(f"a reference out of the schema: {uri[:REASON_CHARACTERS_MAX]}")
