"""Value fields: types of bodies as Iceberg has them, and how a column follows a schema.

A column only grows: it gets fields, and wider numbers. A field that a schema has no more stays, for
older messages; one that has another type now keeps its own, and what does not fit it is unparsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.typed.lasting_type import usable_fields

_PLAIN: tuple[tuple[spark.DataType, IcebergType], ...] = (
    (spark.BooleanType(), BooleanType()),
    (spark.IntegerType(), IntegerType()),
    (spark.LongType(), LongType()),
    (spark.FloatType(), FloatType()),
    (spark.DoubleType(), DoubleType()),
    (spark.StringType(), StringType()),
    (spark.BinaryType(), BinaryType()),
    (spark.DateType(), DateType()),
    (spark.TimestampType(), TimestamptzType()),
    (spark.TimestampNTZType(), TimestampType()),
)
_OF_SPARK, _OF_ICEBERG = dict(_PLAIN), {iceberg: one for one, iceberg in _PLAIN}

_WIDER = {(IntegerType(), LongType()), (FloatType(), DoubleType())}
"""What Iceberg lets a column become."""


class ColumnChange(NamedTuple):
    """A column, or a field within one, that a table is to get, or that is to be wider.

    Attributes:
        path: names from the column on; ``element`` and ``value`` within lists and maps.
    """

    path: tuple[str, ...]
    type: IcebergType
    is_new: bool


def iceberg_type(kind: spark.DataType) -> IcebergType:
    """The type of a column for bodies of that type.

    A field without a usable name is left out of its struct, and a struct without fields is text.
    """
    # A table numbers them anew; here they only have to differ.
    return _iceberg_type(kind, count(10_001))


def _iceberg_type(kind: spark.DataType, numbers: Iterator[int]) -> IcebergType:
    if isinstance(kind, spark.StructType):
        fields = [
            NestedField(next(numbers), one.name, _iceberg_type(one.dataType, numbers))
            for one in usable_fields(kind, ())
        ]
        return StructType(*fields) if fields else StringType()
    if isinstance(kind, spark.ArrayType):
        items = _iceberg_type(kind.elementType, numbers)
        return ListType(next(numbers), items, element_required=False)
    if isinstance(kind, spark.MapType):
        keys, values = (_iceberg_type(one, numbers) for one in (kind.keyType, kind.valueType))
        return MapType(next(numbers), keys, next(numbers), values, value_required=False)
    if isinstance(kind, spark.DecimalType):
        return DecimalType(kind.precision, kind.scale)
    return _OF_SPARK[kind]


def spark_type_of_column(kind: IcebergType, *, table: str, column: str) -> spark.DataType:
    """The type of bodies that a column of a table takes.

    Args:
        table, column: named in errors.

    Raises:
        ConfigError: its owner has made it one that no schema's bodies have, or wants a value in
            each row.
    """
    if isinstance(kind, StructType):
        fields = []
        for one in kind.fields:
            inner = f"{column}.{one.name}"
            if one.required:
                raise _refused(kind, table, inner)
            fields.append(
                spark.StructField(
                    one.name, spark_type_of_column(one.field_type, table=table, column=inner)
                )
            )
        return spark.StructType(fields)
    if isinstance(kind, ListType) and not kind.element_required:
        inner = f"{column}.element"
        return spark.ArrayType(spark_type_of_column(kind.element_type, table=table, column=inner))
    if isinstance(kind, MapType) and not kind.value_required:
        keys, values = (
            spark_type_of_column(one, table=table, column=f"{column}.{name}")
            for one, name in ((kind.key_type, "key"), (kind.value_type, "value"))
        )
        return spark.MapType(keys, values)
    if isinstance(kind, DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    found = _OF_ICEBERG.get(kind)
    if found is None:
        raise _refused(kind, table, column)
    return found


def changes_for(
    found: IcebergType, wanted: spark.DataType, path: tuple[str, ...]
) -> Iterator[ColumnChange]:
    """What the column at ``path`` lacks for bodies of the type ``wanted``."""
    if isinstance(found, StructType) and isinstance(wanted, spark.StructType):
        known = {one.name: one for one in found.fields}
        for field in usable_fields(wanted, known):
            inner = (*path, field.name)
            if field.name in known:
                yield from changes_for(known[field.name].field_type, field.dataType, inner)
            else:
                yield ColumnChange(inner, iceberg_type(field.dataType), is_new=True)
    elif isinstance(found, ListType) and isinstance(wanted, spark.ArrayType):
        yield from changes_for(found.element_type, wanted.elementType, (*path, "element"))
    elif isinstance(found, MapType) and isinstance(wanted, spark.MapType):
        yield from changes_for(found.value_type, wanted.valueType, (*path, "value"))
    elif isinstance(wanted, spark.DecimalType) or wanted in _OF_SPARK:
        wider = iceberg_type(wanted)
        if _is_wider(wider, found):
            yield ColumnChange(path, wider, is_new=False)


def leaves_of(kind: IcebergType, path: str) -> Iterator[str]:
    """Names of all columns within one that have values of their own."""
    if isinstance(kind, StructType):
        for one in kind.fields:
            yield from leaves_of(one.field_type, f"{path}.{one.name}")
    elif isinstance(kind, ListType):
        yield from leaves_of(kind.element_type, f"{path}.element")
    elif isinstance(kind, MapType):
        yield from leaves_of(kind.key_type, f"{path}.key")
        yield from leaves_of(kind.value_type, f"{path}.value")
    else:
        yield path


def _is_wider(wider: IcebergType, found: IcebergType) -> bool:
    if isinstance(wider, DecimalType) and isinstance(found, DecimalType):
        return wider.scale == found.scale and wider.precision > found.precision
    return (found, wider) in _WIDER


def _refused(kind: IcebergType, table: str, column: str) -> ConfigError:
    return ConfigError(
        "column of the table is of a type that bodies do not have",
        table=table,
        column=column,
        found=str(kind),
    )
