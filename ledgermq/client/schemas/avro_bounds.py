"""Bounds of Avro: what keeps a few bytes of a body from taking a reader's stack, memory or time.

The compiled reader of fastavro goes as deep as a body tells it to, which ends the process; and it
takes items that have no bytes by the billion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

Names = Mapping[str, Any]
"""Definitions of a schema by their full name, as fastavro has parsed them."""

DECIMAL_BYTES_MAX = 256
"""Bytes of one decimal: some 600 digits. To make digits of a million bytes takes minutes."""

VALUES_WITHIN_MAX = 100
"""Depth of values of a schema that has a type within itself: its plain reader has the
interpreter's stack."""

DECIMAL, BOUNDED_DECIMAL = "decimal", "ledgermq-decimal"
"""The logical type of a schema, and its name for a reader that looks at its size first."""


def check_items(schema: Any, names: Names) -> None:
    """Refuse arrays whose items take no bytes: a body may claim to have any number of them.

    Raises:
        ValueError: there is such a one.
    """
    known: dict[str, bool] = {}
    for one in _definitions(schema):
        is_array = isinstance(one, Mapping) and one.get("type") == "array"
        if is_array and not _takes_bytes(one["items"], names, known):
            raise ValueError("items of an array take no bytes")


def is_recursive(names: Names) -> bool:
    """Whether a value may have others of its own type within it, to any depth."""
    within = {
        name: {one for inner in _inner(names[name]) for one in _named(inner, names)}
        for name in names
    }
    try:
        TopologicalSorter(within).prepare()
    except CycleError:
        return True
    return False


def plain_reader() -> Callable[..., object]:
    """fastavro's reader that is not compiled: too deep a body is a ``RecursionError``."""
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def check_depth(value: object) -> None:
    """Refuse values deeper within one another than a reader goes.

    Raises:
        ValueError: they are.
    """
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        inner = one.values() if isinstance(one, Mapping) else one
        if isinstance(inner, str | bytes | bytearray) or not isinstance(inner, Iterable):
            continue
        if depth == VALUES_WITHIN_MAX:
            raise ValueError(f"more than {VALUES_WITHIN_MAX} values within one another")
        waiting += ((each, depth + 1) for each in inner)


def with_bounded_decimals(value: Any) -> Any:
    """A schema's JSON value whose decimals are ``BOUNDED_DECIMAL``."""
    if isinstance(value, list):
        return [with_bounded_decimals(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: with_bounded_decimals(one) for key, one in value.items()}
    if found.get("logicalType") == DECIMAL:
        found["logicalType"] = BOUNDED_DECIMAL
    return found


def have_bounded_decimals() -> None:
    """Let fastavro know ``BOUNDED_DECIMAL``: as its own, but for the size."""
    from fastavro.read import LOGICAL_READERS
    from fastavro.write import LOGICAL_WRITERS

    for kind in ("bytes", "fixed"):
        known, bounded = f"{kind}-{DECIMAL}", f"{kind}-{BOUNDED_DECIMAL}"
        LOGICAL_READERS[bounded] = _bounded(LOGICAL_READERS[known])
        LOGICAL_WRITERS[bounded] = LOGICAL_WRITERS[known]


def _bounded(reads: Callable[..., object]) -> Callable[..., object]:
    def bounded_decimal(data: bytes, *schemas: object) -> object:
        if len(data) > DECIMAL_BYTES_MAX:
            raise ValueError(f"decimal of {len(data)} bytes: at most {DECIMAL_BYTES_MAX} are read")
        return reads(data, *schemas)

    return bounded_decimal


def _inner(one: Any) -> list[object]:
    """The types of which a type is made; of a name none."""
    if isinstance(one, list):
        return one
    if not isinstance(one, Mapping):
        return []
    fields = one.get("fields", ())
    found = [field["type"] for field in fields]
    found += [one[key] for key in ("items", "values") if key in one]
    return found if isinstance(one["type"], str) else [*found, one["type"]]


def _definitions(schema: object) -> Iterator[Any]:
    """The type and all that are written within it."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += _inner(one)


def _named(schema: object, names: Names) -> Iterator[str]:
    """Names that stand within a type, written out there or not."""
    for one in _definitions(schema):
        name = one.get("name", one["type"]) if isinstance(one, Mapping) else one
        if isinstance(name, str) and name in names:
            yield name


def _takes_bytes(one: Any, names: Names, known: dict[str, bool]) -> bool:
    """Whether each value takes a byte at least; a record within itself has none for being so."""
    if isinstance(one, str) and one in names:
        one = names[one]
    if not isinstance(one, Mapping):
        return bool(one != "null")
    kind = one["type"]
    if not isinstance(kind, str) or kind in names:
        return _takes_bytes(kind, names, known)
    if kind == "fixed":
        return bool(one["size"])
    if "fields" not in one:
        return kind != "null"
    name = str(one["name"])
    if name not in known:
        known[name] = False
        known[name] = any(_takes_bytes(field["type"], names, known) for field in one["fields"])
    return known[name]
