"""Value types: the type in Spark that the bodies of a schema have.

What Spark has no type for is ``string``: unions of several types, types within themselves, objects
without properties. Such a value is given as JSON, a text as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import types as spark

from ledgermq.client.schemas.body_codecs import codec_of, message_class
from ledgermq.client.schemas.json_reasons import referred
from ledgermq.client.schemas.typed_bodies import is_repeated
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.schemas import SchemaType
from ledgermq.verbs.schemas import RegisteredSchema

TYPES_MAX = 5_000
"""Most types of one schema, each as often as it stands somewhere: names make a tree of a short
text."""

WITHIN_MAX = 32
"""Types within types that become columns; what is deeper is text."""

AS_TEXT = spark.StringType()

_AVRO: Mapping[str, spark.DataType] = {
    "boolean": spark.BooleanType(), "int": spark.IntegerType(), "long": spark.LongType(),
    "float": spark.FloatType(), "double": spark.DoubleType(), "bytes": spark.BinaryType(),
    "fixed": spark.BinaryType(), "string": AS_TEXT, "enum": AS_TEXT,
}  # fmt: skip
_AVRO_LOGICAL: Mapping[tuple[str, str], spark.DataType] = {
    ("int", "date"): spark.DateType(),
    ("long", "timestamp-millis"): spark.TimestampType(),
    ("long", "timestamp-micros"): spark.TimestampType(),
    ("string", "uuid"): AS_TEXT,
    # Times of day have no type.
    ("int", "time-millis"): AS_TEXT,
    ("long", "time-micros"): AS_TEXT,
    ("long", "local-timestamp-millis"): spark.TimestampNTZType(),
    ("long", "local-timestamp-micros"): spark.TimestampNTZType(),
}
_AVRO_MIXED: Mapping[frozenset[spark.DataType], spark.DataType] = {
    frozenset((spark.IntegerType(), spark.LongType())): spark.LongType(),
    frozenset((spark.FloatType(), spark.DoubleType())): spark.DoubleType(),
}
_JSON: Mapping[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "integer": spark.LongType(),
    "number": spark.DoubleType(),
    "string": AS_TEXT,
}
_UINT64 = spark.DecimalType(20, 0)
_PROTOBUF: Mapping[int, spark.DataType] = {
    1: spark.DoubleType(), 2: spark.FloatType(), 3: spark.LongType(), 4: _UINT64,
    5: spark.IntegerType(), 6: _UINT64, 7: spark.LongType(), 8: spark.BooleanType(),
    9: AS_TEXT, 12: spark.BinaryType(), 13: spark.LongType(), 14: AS_TEXT,
    15: spark.IntegerType(), 16: spark.LongType(), 17: spark.IntegerType(), 18: spark.LongType(),
}  # fmt: skip
"""Spark's types, by the numbers of types in ``google/protobuf/descriptor.proto``."""

DIGITS_MAX = 38


def spark_type_of(schema: RegisteredSchema) -> spark.DataType:
    """The type of a body.

    Raises:
        ConfigError: the schema is too large for columns, is not taken by its library, or that is
            missing.
    """
    codec_of(schema)
    types = _Types()
    if schema.type == SchemaType.PROTOBUF:
        return types.protobuf(message_class(schema.schema).DESCRIPTOR, ())
    if schema.type == SchemaType.JSON:
        return types.json(json.loads(schema.schema), json.loads(schema.schema), ())
    # Only schemas of Avro need it, and it may be missing.
    import fastavro

    names: dict[str, dict[Any, Any]] = {}
    parsed = fastavro.parse_schema(json.loads(schema.schema), names)
    return types.avro(parsed, names, ())


def notation(kind: spark.DataType) -> str:
    """A type as Spark reads it in a schema's text; names of fields in backticks."""
    if isinstance(kind, spark.StructType):
        fields = (f"`{one.name.replace('`', '``')}`:{notation(one.dataType)}" for one in kind)
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, spark.ArrayType):
        return f"array<{notation(kind.elementType)}>"
    if isinstance(kind, spark.MapType):
        return f"map<{notation(kind.keyType)},{notation(kind.valueType)}>"
    return kind.simpleString()


class _Types:
    """Types of one schema, which are counted; ``around`` has the names that one stands within."""

    def __init__(self) -> None:
        self._left = TYPES_MAX

    def avro(self, one: Any, names: Mapping[str, Any], around: tuple[str, ...]) -> spark.DataType:
        """The type of an Avro type."""
        self._count()
        if isinstance(one, list):
            return self._avro_union(one, names, around)
        if isinstance(one, str):
            return self.avro(names[one], names, around) if one in names else _AVRO.get(one, AS_TEXT)
        kind = one["type"]
        if not isinstance(kind, str) or kind in names:
            return self.avro(kind, names, around)
        return self._avro_written_out(one, kind, names, around)

    def _avro_written_out(
        self, one: Any, kind: str, names: Mapping[str, Any], around: tuple[str, ...]
    ) -> spark.DataType:
        if "fields" in one:
            return self._avro_record(one, names, around)
        if kind == "array":
            return spark.ArrayType(self.avro(one["items"], names, around))
        if kind == "map":
            return spark.MapType(AS_TEXT, self.avro(one["values"], names, around))
        return _avro_logical(one, kind)

    def _avro_record(
        self, one: Any, names: Mapping[str, Any], around: tuple[str, ...]
    ) -> spark.DataType:
        name = str(one["name"])
        if name in around or len(around) >= WITHIN_MAX:
            return AS_TEXT
        inner = (*around, name)
        return _struct((f["name"], self.avro(f["type"], names, inner)) for f in one["fields"])

    def _avro_union(
        self, branches: list[object], names: Mapping[str, Any], around: tuple[str, ...]
    ) -> spark.DataType:
        found = [self.avro(one, names, around) for one in branches if one != "null"]
        if len(found) == 1:
            return found[0]
        return _AVRO_MIXED.get(frozenset(found), AS_TEXT)

    def json(self, one: object, document: object, around: tuple[str, ...]) -> spark.DataType:
        """The type of a JSON Schema, as far as its types and properties tell."""
        self._count()
        if not isinstance(one, Mapping) or len(around) >= WITHIN_MAX:
            return AS_TEXT
        place = one.get("$ref")
        if isinstance(place, str):
            inner = (*around, place)
            return (
                AS_TEXT
                if place in around
                else self.json(referred(place, document), document, inner)
            )
        kinds = _without_null(one)
        if len(kinds) != 1:
            return spark.DoubleType() if kinds == ["integer", "number"] else AS_TEXT
        return self._json_of_kind(kinds[0], one, document, (*around, ""))

    def _json_of_kind(
        self, kind: object, one: Mapping[Any, Any], document: object, around: tuple[str, ...]
    ) -> spark.DataType:
        if isinstance(kind, Mapping):
            return self.json(kind, document, around)
        if kind == "array":
            return spark.ArrayType(self.json(one.get("items"), document, around))
        fields = one.get("properties")
        if kind == "object" and isinstance(fields, Mapping):
            return _struct((name, self.json(fields[name], document, around)) for name in fields)
        return _JSON.get(str(kind), AS_TEXT)

    def protobuf(self, message: Any, around: tuple[str, ...]) -> spark.DataType:
        """The type of a message's descriptor."""
        self._count()
        name = message.full_name
        if name == "google.protobuf.Timestamp":
            return spark.TimestampType()
        if name in around or len(around) >= WITHIN_MAX:
            return AS_TEXT
        return _struct(
            (one.name, self._proto_field(one, (*around, name))) for one in message.fields
        )

    def _proto_field(self, field: Any, around: tuple[str, ...]) -> spark.DataType:
        self._count()
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key, value = (self._proto_field(inner.fields_by_number[n], around) for n in (1, 2))
            return spark.MapType(key, value)
        kind = _PROTOBUF[field.type] if inner is None else self.protobuf(inner, around)
        return spark.ArrayType(kind) if is_repeated(field) else kind

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ConfigError("schema has too many types for columns", limit=TYPES_MAX)


def _avro_logical(one: Mapping[str, Any], kind: str) -> spark.DataType:
    logical = one.get("logicalType")
    if logical != "decimal":
        return _AVRO_LOGICAL.get((kind, str(logical)), _AVRO.get(kind, AS_TEXT))
    precision, scale = one.get("precision"), one.get("scale", 0)
    if type(precision) is int and type(scale) is int and 0 <= scale <= precision <= DIGITS_MAX:
        return spark.DecimalType(precision, scale)
    return AS_TEXT


def _without_null(one: Mapping[str, object]) -> Sequence[object]:
    """The types that a value may have, or the only schema besides null that there is for it."""
    for key in ("anyOf", "oneOf"):
        branches = one.get(key)
        if isinstance(branches, list) and "type" not in one:
            return [each for each in branches if each != {"type": "null"}]
    kinds = one.get("type")
    listed = kinds if isinstance(kinds, list) else [kinds]
    return sorted(str(kind) for kind in listed if kind != "null")


def _struct(fields: Iterable[tuple[object, spark.DataType]]) -> spark.DataType:
    told = [spark.StructField(str(name), kind) for name, kind in fields]
    return spark.StructType(told) if told else AS_TEXT
