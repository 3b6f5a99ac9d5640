"""Lasting type: that of bodies in files which nobody writes anew, while their schema gets versions.

It only gets fields. A number has the widest type of its kind from the beginning, for readers of
many files unite fields, but not all of them types. A field that a schema has no more stays, for
older messages; one that has another type now keeps its own, and what does not fit it is unparsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import types as spark

from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.typed.value_types import DIGITS_MAX

_WIDEST: dict[spark.DataType, spark.DataType] = {
    spark.IntegerType(): spark.LongType(),
    spark.FloatType(): spark.DoubleType(),
}


def lasting_type(wanted: spark.DataType, found: spark.DataType | None = None) -> spark.DataType:
    """The type that files are to have for bodies of the type ``wanted``.

    Args:
        found: what earlier files have; all of it stays.
    """
    if found is None:
        return _first(wanted)
    if isinstance(found, spark.StructType) and isinstance(wanted, spark.StructType):
        fields = {one.name: one.dataType for one in found}
        for field in usable_fields(wanted, tuple(fields)):
            fields[field.name] = lasting_type(field.dataType, fields.get(field.name))
        return _struct(fields)
    if isinstance(found, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return spark.ArrayType(lasting_type(wanted.elementType, found.elementType))
    if isinstance(found, spark.MapType) and isinstance(wanted, spark.MapType):
        return spark.MapType(found.keyType, lasting_type(wanted.valueType, found.valueType))
    return found


def type_document(kind: spark.DataType) -> object:
    """A type as JSON, as Spark writes it."""
    return _struct({"value": kind}).jsonValue()["fields"][0]["type"]


def type_of_document(document: object, *, file: str) -> spark.DataType:
    """What ``type_document`` has made a document of.

    Args:
        file: named in errors.

    Raises:
        CorruptLogError: it is none.
    """
    field = {"name": "value", "type": document, "nullable": True, "metadata": {}}
    try:
        return spark.StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType
    except Exception as error:  # whatever Spark says of it
        raise CorruptLogError("type of bodies not read", file=file, reason=repr(error)) from error


def usable_fields(kind: spark.StructType, known: Iterable[str]) -> Iterator[spark.StructField]:
    """Fields whose names can stand beside one another, and beside ``known``, for all readers.

    Some engines do not tell ``a`` from ``A``, and a path ``a.b`` may be a field of ``a`` or one of
    that name.
    """
    own = set(known)
    names = {name.casefold() for name in own}
    heads = {head for name in names for head in _heads(name)}
    for field in kind.fields:
        name = field.name.casefold()
        if field.name in own:
            yield field
        elif name and name not in names and name not in heads and names.isdisjoint(_heads(name)):
            own.add(field.name)
            names.add(name)
            heads.update(_heads(name))
            yield field


def _first(kind: spark.DataType) -> spark.DataType:
    """The widest type; a struct without a usable field is text."""
    if isinstance(kind, spark.StructType):
        fields = {one.name: _first(one.dataType) for one in usable_fields(kind, ())}
        return _struct(fields) if fields else spark.StringType()
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_first(kind.elementType))
    if isinstance(kind, spark.MapType):
        return spark.MapType(_first(kind.keyType), _first(kind.valueType))
    if isinstance(kind, spark.DecimalType):
        return spark.DecimalType(DIGITS_MAX, kind.scale)
    return _WIDEST.get(kind, kind)


def _struct(fields: dict[str, spark.DataType]) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in fields.items()])


def _heads(name: str) -> list[str]:
    """What stands before each dot."""
    return [name[:at] for at, letter in enumerate(name) if letter == "."]
