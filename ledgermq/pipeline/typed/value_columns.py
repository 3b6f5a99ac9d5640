"""Value columns: decoded values as a column of a type of Spark's, as far as they fit it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark

from ledgermq.client.schemas.body_codecs import count_values
from ledgermq.model.errors import ConfigError

Convert = Callable[[object], object]
"""What a column of the type has for a value; raises any exception where it does not fit."""


class ValueColumn(NamedTuple):
    """A type as Arrow has it, and how values come into it."""

    type: pa.DataType
    convert: Convert


def value_column(kind: spark.DataType) -> ValueColumn:
    """The column of a type of Spark's.

    Raises:
        ConfigError: no schema's bodies have that type.
    """
    if isinstance(kind, spark.StructType):
        return _struct(kind)
    if isinstance(kind, spark.ArrayType):
        items = value_column(kind.elementType)
        return ValueColumn(pa.list_(items.type), lambda value: _listed(value, items.convert))
    if isinstance(kind, spark.MapType):
        keys, values = value_column(kind.keyType), value_column(kind.valueType)
        return ValueColumn(
            pa.map_(keys.type, values.type),
            lambda value: _mapped(value, keys.convert, values.convert),
        )
    if isinstance(kind, spark.DecimalType):
        precision, scale = kind.precision, kind.scale
        return ValueColumn(
            pa.decimal128(precision, scale), lambda value: _decimal(value, precision, scale)
        )
    found = _PLAIN.get(kind.simpleString())
    if found is None:
        raise ConfigError("type of a body's column is not known", type=kind.simpleString())
    return ValueColumn(found.type, lambda value: None if value is None else found.convert(value))


def arrow_values(values: Sequence[object], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """The values as Arrow has them; null, with the reason, where one is none after all."""
    try:
        return pa.array(values, kind), {}
    except Exception:  # which one it is shows below
        refused: dict[int, str] = {}
        left = list(values)
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except Exception as error:
                left[row], refused[row] = None, str(error)
        return pa.array(left, kind), refused


def _struct(kind: spark.StructType) -> ValueColumn:
    fields = [(field.name, value_column(field.dataType)) for field in kind.fields]
    converts = [(name, column.convert) for name, column in fields]

    def convert(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} is no object with fields")
        count_values(1 + len(converts))
        return {name: one(value.get(name)) for name, one in converts}

    return ValueColumn(pa.struct([(name, column.type) for name, column in fields]), convert)


def _listed(value: object, convert: Convert) -> object:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise TypeError(f"{type(value).__name__} is no list")
    count_values(len(value))
    return [convert(one) for one in value]


def _mapped(value: object, key: Convert, convert: Convert) -> object:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is no object")
    count_values(len(value))
    return [(key(name), convert(one)) for name, one in value.items()]


def _decimal(value: object, precision: int, scale: int) -> object:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError(f"{type(value).__name__} is no decimal")
    found = Decimal(value)
    if found.adjusted() >= precision - scale:
        raise ValueError(f"decimal of more than {precision} digits")
    return found


def _of(*kinds: type) -> Convert:
    """What takes values of these types, and no boolean for a number."""

    def convert(value: object) -> object:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{type(value).__name__} is none of this column")
        return value

    return convert


def _float(value: object) -> object:
    return float(_of(int, float)(value))  # type: ignore[arg-type]


def _bytes(value: object) -> object:
    return bytes(_of(bytes, bytearray)(value))  # type: ignore[call-overload]


def _text(value: object) -> object:
    """A text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping | list | tuple | bool | int | float):
        return json.dumps(value, default=_shown, ensure_ascii=False)
    return _shown(value)


def _shown(value: Any) -> str:
    """What JSON has no type for: bytes in hexadecimal digits, all else as people write it."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _day(value: object) -> object:
    found = _of(date)(value)
    if isinstance(found, datetime):
        raise TypeError("a time is no day")
    return found


_PLAIN: Mapping[str, ValueColumn] = {
    "boolean": ValueColumn(pa.bool_(), _of(bool)),
    "int": ValueColumn(pa.int32(), _of(int)),
    "bigint": ValueColumn(pa.int64(), _of(int)),
    "float": ValueColumn(pa.float32(), _float),
    "double": ValueColumn(pa.float64(), _float),
    "string": ValueColumn(pa.string(), _text),
    "binary": ValueColumn(pa.binary(), _bytes),
    "date": ValueColumn(pa.date32(), _day),
    "timestamp": ValueColumn(pa.timestamp("us", tz="UTC"), _of(datetime)),
    "timestamp_ntz": ValueColumn(pa.timestamp("us"), _of(datetime)),
}
"""Columns of plain values, by Spark's names of their types."""
