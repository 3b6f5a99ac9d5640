"""Avro types: what a schema's text says, as a tree that may lead back into itself."""

from __future__ import annotations

from dataclasses import dataclass, field


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
