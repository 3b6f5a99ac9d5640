"""Typed columns: types by schemas, values that fit them, and rows of bodies that do not."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from ledgermq.client.schemas import body_codecs
from ledgermq.client.schemas.body_codecs import codec_of, decoded
from ledgermq.client.schemas.typed_bodies import value_tree
from ledgermq.formats.records.body_compression import Compression, compress_body
from ledgermq.formats.records.message import COMPRESSED, Message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import BodyUnreadableError, ConfigError
from ledgermq.model.names.schemas import SCHEMA_PROPERTY
from ledgermq.pipeline import chosen_columns
from ledgermq.pipeline.chosen_columns import TypedColumns
from ledgermq.pipeline.columns.message_schema import TYPED_COLUMNS
from ledgermq.pipeline.columns.record_columns import RecordColumns
from ledgermq.pipeline.source_options import columns_of, parse_options, subjects_of
from ledgermq.pipeline.typed import schema_source
from ledgermq.pipeline.typed.schema_source import StoreSchemas
from ledgermq.pipeline.typed.value_columns import arrow_values, value_column
from ledgermq.pipeline.typed.value_types import notation, spark_type_of
from ledgermq.verbs.schemas import RegisteredSchema
from tests.unit.pipeline.test_record_columns import PLAIN, records_of


def schema(kind: str, text: object) -> RegisteredSchema:
    told = text if isinstance(text, str) else json.dumps(text)
    return RegisteredSchema("s", 1, 1, kind, told)


def fields(*rows: tuple[str, object], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in rows]}


def protobuf() -> str:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    rows: list[tuple[str, Any, Any, str]] = [
        ("id", F.TYPE_UINT64, F.LABEL_OPTIONAL, ""),
        ("tags", F.TYPE_STRING, F.LABEL_REPEATED, ""),
        ("at", F.TYPE_MESSAGE, F.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
        ("next", F.TYPE_MESSAGE, F.LABEL_OPTIONAL, ".shop.Order"),
    ]
    for number, (name, kind, label, of) in enumerate(rows, 1):
        message.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    return base64.b64encode(file.SerializeToString()).decode()


def protobuf_list() -> str:
    file = FileDescriptorProto(name="list.proto", package="shop", syntax="proto3")
    file.message_type.add(name="List").field.add(
        name="rows", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".shop.Row"
    )
    row = file.message_type.add(name="Row")
    row.field.add(name="a", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    return base64.b64encode(file.SerializeToString()).decode()


def avro_count(count: int) -> bytes:
    """The head of a block of ``count`` items."""
    left, found = count << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


TREE = fields(("v", "int"), ("next", ["null", "r"]))
LOCAL = {"$ref": "#/$defs/o", "$defs": {"o": {"type": "object", "properties": {"a": {}}}}}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("AVRO", '"int"', "int"),
        ("AVRO", ["null", "long", "int"], "bigint"),
        ("AVRO", ["string", "int"], "string"),
        ("AVRO", {"type": "map", "values": {"type": "array", "items": "float"}},
         "map<string,array<float>>"),
        ("AVRO", {"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ("AVRO", {"type": "int", "logicalType": "date"}, "date"),
        ("AVRO", {"type": "bytes", "logicalType": "decimal", "precision": 50}, "string"),
        ("AVRO", fields(("a b", "bytes"), ("e", fields(name="empty"))),
         "struct<`a b`:binary,`e`:string>"),
        ("AVRO", TREE, "struct<`v`:int,`next`:string>"),
        ("JSON", {"type": "object", "properties": {"a": {"type": ["null", "integer"]}}},
         "struct<`a`:bigint>"),
        ("JSON", {"type": "array", "items": {"type": "number"}}, "array<double>"),
        ("JSON", {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "boolean"),
        ("JSON", {"type": ["integer", "number"]}, "double"),
        ("JSON", {"type": ["string", "integer"]}, "string"),
        ("JSON", LOCAL, "struct<`a`:string>"),
        ("JSON", {"type": "array", "items": {"$ref": "#"}}, "array<array<string>>"),
        ("JSON", True, "string"),
        ("PROTOBUF", protobuf(),
         "struct<`id`:decimal(20,0),`tags`:array<string>,`at`:timestamp,`next`:string>"),
    ],
)  # fmt: skip
def test_a_schema_gives_the_type_of_a_column(kind: str, text: object, expected: str) -> None:
    assert notation(spark_type_of(schema(kind, text))) == expected


def test_a_short_text_of_a_great_tree_is_refused() -> None:
    inner: object = "int"
    for number in range(16):
        inner = fields(
            ("a", inner), ("b", f"r{number - 1}" if number else "int"), name=f"r{number}"
        )
    with pytest.raises(ConfigError, match="too many types"):
        spark_type_of(schema("AVRO", inner))


ORDER = spark.StructType(
    [
        spark.StructField("id", spark.DecimalType(20, 0)),
        spark.StructField("tags", spark.ArrayType(spark.StringType())),
        spark.StructField("at", spark.TimestampType()),
        spark.StructField("next", spark.StringType()),
    ]
)


def test_a_message_of_protobuf_is_a_row_of_its_fields() -> None:
    codec = codec_of(schema("PROTOBUF", protobuf()))
    body = codec.encode({"id": 2**64 - 1, "tags": ["a"], "at": "2026-01-02T00:00:00Z", "next": {}})
    column = value_column(ORDER)

    values, refused = arrow_values([column.convert(value_tree(codec.decode(body)))], column.type)
    assert (values.to_pylist(), refused) == ([{
        "id": Decimal(2**64 - 1), "tags": ["a"], "at": datetime(2026, 1, 2, tzinfo=UTC),
        "next": '{"id": 0, "tags": [], "at": null, "next": null}',
    }], {})  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (spark.IntegerType(), True),
        (spark.IntegerType(), 2**31),
        (spark.LongType(), "7"),
        (spark.BooleanType(), 1),
        (spark.BinaryType(), "text"),
        (spark.DateType(), datetime(2026, 1, 1, tzinfo=UTC)),
        (spark.DecimalType(4, 2), Decimal("123.4")),
        (spark.DecimalType(4, 2), Decimal("1.234")),
        (spark.StringType(), "\ud800"),
        (spark.ArrayType(spark.LongType()), {"a": 1}),
        (spark.MapType(spark.StringType(), spark.LongType()), [1]),
        (ORDER, [1]),
        (ORDER, {"id": "x"}),
    ],
)
def test_a_value_that_is_none_of_its_column_is_refused(kind: spark.DataType, value: object) -> None:
    column = value_column(kind)
    try:
        values = [column.convert(None), column.convert(value)]
    except (TypeError, ValueError):
        return
    assert [*arrow_values(values, column.type)[1]] == [1]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.dates() | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "tags", "at"]), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(_VALUES)
def test_whatever_a_value_is_it_is_a_row_or_refused(value: object) -> None:
    column = value_column(ORDER)
    try:
        converted = column.convert(value)
    except Exception:
        return
    assert len(arrow_values([converted], column.type)[0]) == 1


def stored(root: Path, *texts: tuple[str, str]) -> StoreSchemas:
    """A store's table, in which each text has the number of its place as its id."""
    versions = {
        str(number): {"id": number, "type": kind, "schema": text}
        for number, (kind, text) in enumerate(texts, 1)
    }
    (root / "ledgermq").mkdir(exist_ok=True)
    (root / "ledgermq" / "schemas.json").write_text(
        json.dumps({"lastId": len(versions), "subjects": {"orders": {"versions": versions}}})
    )
    return StoreSchemas([root])


def test_a_store_s_table_is_read_again_when_it_is_another_one(tmp_path: Path) -> None:
    assert StoreSchemas([tmp_path]).latest("orders") is None
    schemas = stored(tmp_path, ("AVRO", '"int"'))
    assert schemas.of_id(1) == RegisteredSchema("orders", 1, 1, "AVRO", '"int"')
    assert schemas.of_id(2) is None

    stored(tmp_path, ("AVRO", '"int"'), ("AVRO", '"long"'))
    assert (schemas.of_id(2), schemas.latest("orders")) == (schemas.latest("orders"),) * 2


def test_an_id_that_is_newer_than_the_table_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = stored(tmp_path, ("AVRO", '"int"'))
    slept: list[float] = []

    def written_meanwhile(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            stored(tmp_path, ("AVRO", '"int"'), ("AVRO", '"long"'))

    monkeypatch.setattr(schema_source.time, "sleep", written_meanwhile)
    found = schemas.of_id(2)
    assert (found is not None, len(slept)) == (True, 2)
    assert schemas.of_id(9) is schemas.of_id(10) is None
    assert sum(slept) < schema_source.PATIENCE_S + 2 * schema_source.TABLE_AGAIN_S


@pytest.mark.parametrize("text", ["", "[]", "{", '{"subjects": {"s": []}}', "[" * 100_000])
def test_a_table_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    schemas = stored(tmp_path)
    (tmp_path / "ledgermq" / "schemas.json").write_text(text)
    with pytest.raises(ConfigError, match="table of schemas"):
        schemas.of_id(1)


def test_typed_columns_are_those_of_one_subject() -> None:
    def subjects(**options: str) -> tuple[str, ...]:
        return subjects_of(parse_options({"path": "/s", **options}, streaming=False))

    assert subjects(subscribe="orders") == ("orders", "orders-value")
    assert subjects(assign='{"orders": [0]}') == ("orders", "orders-value")
    assert subjects(subject="x", subscribe="a,b") == ("x",)
    for wrong in ({}, {"subscribe": "a,b"}, {"subscribePattern": ".*"}):
        with pytest.raises(ConfigError, match="one topic"):
            subjects(**wrong)
    assert columns_of({"columns": "topic,typed"}) == ("topic", *TYPED_COLUMNS)
    with pytest.raises(ConfigError, match="have the body"):
        columns_of({"columns": "typed,body"})


def message(body: bytes, identity: str | None = "1", *, sys_flag: int = 0) -> Message:
    told = {} if identity is None else {SCHEMA_PROPERTY: identity}
    properties = encode_properties(told)
    return dataclasses.replace(PLAIN, body=body, properties=properties, sys_flag=sys_flag)


def test_each_message_is_a_row_whatever_its_body_is(tmp_path: Path) -> None:
    schemas = stored(tmp_path, ("AVRO", '"int"'), ("AVRO", '["nothing"]'), ("JSON", "true"))
    packed, flag = compress_body(b"\x0e", Compression.ZLIB, 5), COMPRESSED
    messages = [
        message(b"\x0e"),
        message(packed, sys_flag=flag),
        message(b"\0\0\0\0\1\x0e", None),
        message(b"no zlib", sys_flag=flag),
        message(b"\x0e\x0e"),
        message(b"\x0e", "2"),
        message(b'{"a": 1}', "3"),
        message(b"\x0e", "9"),
        message(b"\x0e", "-1"),
        message(b"\x0e", None),
    ]
    rows = RecordColumns(records_of(messages), inflate=False)
    columns = TypedColumns(("queueId", *TYPED_COLUMNS), spark.IntegerType(), schemas)
    made = [row for batch in columns.batches(rows) for row in batch.to_pylist()]

    assert [row["value"] for row in made] == [7, 7, 7, *[None] * 7]
    assert [row["schemaId"] for row in made] == [1, 1, 1, 1, 1, 2, 3, 9, None, None]
    assert [row["unparsed"] for row in made[3:]] == [one.body for one in messages[3:]]
    assert all(bool(row["unparsedWhy"]) == (row["value"] is None) for row in made)


MANY: Mapping[str, tuple[RegisteredSchema, Callable[[int], bytes]]] = {
    "records of Avro": (
        schema("AVRO", {"type": "array", "items": fields(("a", "boolean"))}),
        lambda count: avro_count(count) + bytes(count) + b"\0",
    ),
    "maps of Avro within records that have one within them": (
        schema("AVRO", fields(("a", {"type": "array", "items": ["null", "r"]}))),
        lambda count: avro_count(count) + b"\2\0" * count + b"\0",
    ),
    "objects of JSON": (
        schema("JSON", {"type": "array", "items": {"type": "object", "properties": {"a": {}}}}),
        lambda count: b"[" + b"{}," * (count - 1) + b"{}]",
    ),
    "columns of JSON": (
        schema(
            "JSON",
            {"type": "array", "items": {"properties": {f"c{n}": {} for n in range(99)},
                                        "type": "object"}},
        ),
        lambda count: b"[" + b"{}," * (count // 50) + b"{}]",
    ),
    "numbers of JSON that nobody reads": (
        schema("JSON", {"type": "object", "properties": {"a": {"type": "string"}}}),
        lambda count: b'{"b":[' + b"0," * (count - 1) + b"0]}",
    ),
    "messages of Protobuf": (
        schema("PROTOBUF", protobuf_list()),
        lambda count: b"\x0a\0" * count,
    ),
}  # fmt: skip
"""Bodies of few bytes for each of their values, which take a hundred times as many in memory."""


@pytest.mark.parametrize("name", MANY)
def test_a_body_of_too_many_values_is_a_row_as_any_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered, body = MANY[name]
    monkeypatch.setattr(body_codecs, "VALUES_MAX", 50_000)
    monkeypatch.setattr(chosen_columns, "VALUES_MAX", 50_000)

    class Known:
        def of_id(self, identity: int) -> RegisteredSchema:
            return registered

    made = TypedColumns(TYPED_COLUMNS, spark_type_of(registered), Known())
    bodies = [body(10), body(60_000), body(5_000), body(5_000), body(5_000), body(10)]
    batches = list(made.batches(RecordColumns(records_of([message(one) for one in bodies]))))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["unparsed"] is not None for row in rows] == [False, True, *[False] * 4]
    assert "more than 50000 values" in rows[1]["unparsedWhy"]
    assert len(batches) > 1 and batches[0].num_rows == 2, "a batch ends by its values"


def test_texts_of_json_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_codecs, "VALUES_MAX", 100)
    codec = codec_of(schema("JSON", True))
    for text in (",[{" * 999, '\\",' * 999, "\\"):
        body = json.dumps({"a": text, "b": [text]}).encode()
        assert decoded(codec, body, identity=1) == {"a": text, "b": [text]}
    for wrong in (b'"' + b'\\"' * 99_999, b'[",' * 50, b'"\\'):
        with pytest.raises(BodyUnreadableError):
            decoded(codec, wrong, identity=1)


def test_a_body_of_too_many_bytes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_codecs, "DECODED_SIZE_MAX", 100)
    codec = codec_of(schema("JSON", True))
    assert decoded(codec, b'"' + b"a" * 98 + b'"', identity=1)
    with pytest.raises(BodyUnreadableError, match="at most 100 are read"):
        decoded(codec, b'"' + b"a" * 99 + b'"', identity=1)
