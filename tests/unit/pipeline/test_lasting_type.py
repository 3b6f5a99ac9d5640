"""The type of bodies in files only gets fields, and numbers are wide from the beginning."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as spark

from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.typed.lasting_type import lasting_type, type_document, type_of_document


def struct(**fields: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in fields.items()])


def test_numbers_are_wide_from_the_beginning() -> None:
    inner = struct(a=spark.IntegerType(), b=spark.FloatType(), c=spark.DecimalType(9, 2))
    wide = struct(a=spark.LongType(), b=spark.DoubleType(), c=spark.DecimalType(38, 2))
    found = lasting_type(
        struct(x=inner, y=spark.ArrayType(inner), z=spark.MapType(spark.StringType(), inner))
    )

    assert found == struct(
        x=wide, y=spark.ArrayType(wide), z=spark.MapType(spark.StringType(), wide)
    )
    assert lasting_type(found) == found


def test_what_is_there_stays_and_what_is_new_comes_behind_it() -> None:
    text, number = spark.StringType(), spark.LongType()
    first = lasting_type(struct(a=number, b=spark.ArrayType(struct(c=number)), gone=text))
    second = struct(new=number, b=spark.ArrayType(struct(c=text, d=text)), a=text, A=number)
    third = struct(b=text, a=struct(x=text))

    found = lasting_type(second, first)
    assert found == struct(
        a=number, b=spark.ArrayType(struct(c=number, d=text)), gone=text, new=number
    )
    assert lasting_type(third, found) == found


def test_a_struct_without_a_usable_field_is_text() -> None:
    assert lasting_type(struct(**{"": spark.LongType()})) == spark.StringType()


@pytest.mark.parametrize(
    "kind",
    [spark.LongType(), struct(a=spark.DecimalType(38, 2), b=spark.ArrayType(spark.DateType()))],
)
def test_a_document_has_the_type(kind: spark.DataType) -> None:
    document = json.loads(json.dumps(type_document(kind)))

    assert type_of_document(document, file="1.json") == kind


@pytest.mark.parametrize("document", [None, 7, "strange", {"type": "struct"}, {"fields": []}])
def test_a_document_of_no_type_is_told(document: object) -> None:
    with pytest.raises(CorruptLogError):
        type_of_document(document, file="1.json")
