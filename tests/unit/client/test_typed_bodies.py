"""Bodies by schemas: what is written is read, and what does not fit is refused."""

from __future__ import annotations

import base64
import json
import socket
import time
from decimal import Decimal

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from ledgermq.client.schemas.body_codecs import BodyCodec, codec_of, decoded, encoded, framed_id
from ledgermq.client.schemas.typed_bodies import schema_id
from ledgermq.model.errors import BodyUnreadableError, ConfigError, MessageIllegalError
from ledgermq.model.names.schemas import SCHEMA_PROPERTY
from ledgermq.verbs.schemas import RegisteredSchema

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
JSON = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})


def protobuf() -> str:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    kinds = FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(
        name="at",
        number=2,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=kinds.LABEL_OPTIONAL,
    )
    return base64.b64encode(file.SerializeToString()).decode()


SCHEMAS = {
    "avro": RegisteredSchema("avro", 1, 1, "AVRO", AVRO),
    "json": RegisteredSchema("json", 1, 2, "JSON", JSON),
    "protobuf": RegisteredSchema("protobuf", 1, 3, "PROTOBUF", protobuf()),
}


@pytest.mark.parametrize("subject", SCHEMAS)
def test_what_is_encoded_by_a_schema_is_decoded_by_it(subject: str) -> None:
    codec = codec_of(SCHEMAS[subject])
    value = codec.decode(codec.encode({"id": 7}))

    assert (value["id"] if isinstance(value, dict) else getattr(value, "id", None)) == 7


@pytest.mark.parametrize("subject", SCHEMAS)
@pytest.mark.parametrize("value", [{"id": "seven"}, {}, 7, None, object()])
def test_a_value_that_does_not_fit_is_refused(subject: str, value: object) -> None:
    if subject == "protobuf" and value == {}:
        return  # All its fields may be missing.
    with pytest.raises(MessageIllegalError, match="does not fit"):
        encoded(codec_of(SCHEMAS[subject]), value, subject=subject)


@pytest.mark.parametrize("subject", SCHEMAS)
@pytest.mark.parametrize("body", [b"\xff" * 40, b"\x08"])
def test_a_body_that_does_not_fit_is_unreadable(subject: str, body: bytes) -> None:
    with pytest.raises(BodyUnreadableError):
        decoded(codec_of(SCHEMAS[subject]), body + b"\x80", identity=1)


DECIMAL = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2})


def _avro(text: str) -> BodyCodec:
    return codec_of(RegisteredSchema("s", 1, 1, "AVRO", text))


def test_a_tree_as_deep_as_a_body_can_be_is_refused_and_the_reader_lives() -> None:
    fields = [{"name": "next", "type": ["null", "t"]}]
    codec = _avro(json.dumps({"type": "record", "name": "t", "fields": fields}))
    value: dict[str, object] = {"next": None}
    for _ in range(99):
        value = {"next": value}
    assert codec.decode(codec.encode(value)) == value

    with pytest.raises(BodyUnreadableError):
        decoded(codec, b"\x02" * 1_000_000 + b"\x00", identity=1)
    for _ in range(100_000):
        value = {"next": value}
    with pytest.raises(MessageIllegalError):
        encoded(codec, value, subject="s")


@pytest.mark.parametrize("items", ['"null"', '{"type": "record", "name": "r", "fields": []}'])
def test_items_that_take_no_bytes_are_not_counted_out(items: str) -> None:
    with pytest.raises(ConfigError, match="take no bytes"):
        _avro(f'{{"type": "array", "items": {items}}}')
    assert _avro('{"type": "array", "items": ["null", "int"]}').decode(b"\x02\x00\x00") == [None]


def test_a_decimal_is_read_as_it_was_written_and_one_of_a_body_s_size_is_not() -> None:
    codec = _avro(DECIMAL)
    assert codec.decode(codec.encode(Decimal("-12345678901234567890.12"))) == Decimal(
        "-12345678901234567890.12"
    )

    size = 1_000_000
    length = bytes([size * 2 & 127 | 128, size * 2 >> 7 & 127 | 128, size * 2 >> 14 & 127])
    begun = time.process_time()
    with pytest.raises(BodyUnreadableError, match="decimal of 1000000 bytes"):
        decoded(codec, length + b"\x7f" * size, identity=1)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$"])
def test_a_pattern_that_others_never_end_is_matched_at_once(pattern: str) -> None:
    codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps({"pattern": pattern})))
    begun = time.process_time()
    with pytest.raises(BodyUnreadableError):
        decoded(codec, b'"' + b"a" * 100_000 + b'!"', identity=1)
    assert time.process_time() - begun < 2


def test_a_json_body_as_deep_as_it_can_be_is_refused_and_the_reader_lives() -> None:
    text = json.dumps({"items": {"$ref": "#"}, "uniqueItems": True})
    codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", text))
    with pytest.raises(BodyUnreadableError):
        decoded(codec, b"[" * 500_000 + b"]" * 500_000, identity=1)


def test_a_message_of_another_type_is_refused() -> None:
    with pytest.raises(MessageIllegalError, match=r"shop\.Order"):
        encoded(codec_of(SCHEMAS["protobuf"]), timestamp_pb2.Timestamp(), subject="s")


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "٣", "9" * 40, str(2**31)])
def test_what_is_no_id_names_no_schema(text: str) -> None:
    assert schema_id({SCHEMA_PROPERTY: text}) is None


@pytest.mark.parametrize(
    ("body", "identity"),
    [
        (b"\0\0\0\1\2", 258),
        (b"\0\0\0\0\7value", 7),
        (b"\0\0\0\0\0value", None),
        (b"\0\xff\xff\xff\xff", None),
        (b"\1\0\0\0\7value", None),
        (b"\0\0\0\7", None),
        (b"", None),
    ],
)
def test_the_id_before_a_value_is_that_of_confluents_serializers(
    body: bytes, identity: int | None
) -> None:
    assert framed_id(body) == identity


@pytest.mark.parametrize(("places", "is_first"), [(b"\0", True), (b"\2\0", True), (b"\2\2", False)])
def test_a_framed_message_of_protobuf_is_the_first_one_of_its_file(
    places: bytes, is_first: bool
) -> None:
    codec = codec_of(SCHEMAS["protobuf"])
    body = b"\0\0\0\0\3" + places + codec.encode({"id": 7})
    if is_first:
        assert getattr(decoded(codec, body, identity=3, is_framed=True), "id", None) == 7
    else:
        with pytest.raises(BodyUnreadableError, match="another message"):
            decoded(codec, body, identity=3, is_framed=True)


def test_a_schema_of_no_known_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="type of a schema"):
        codec_of(RegisteredSchema("s", 1, 1, "XML", "<a/>"))


def test_a_reference_out_of_a_schema_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/s.json"
        with pytest.raises(ConfigError, match="not taken"):
            codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps({"$ref": url})))
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


@pytest.mark.parametrize("name", ["mine.proto", "google/protobuf/../x.proto"])
def test_a_descriptor_imports_the_librarys_own_files_alone(name: str) -> None:
    file = FileDescriptorProto(name="order.proto", dependency=[name])
    file.message_type.add(name="Order")
    text = base64.b64encode(file.SerializeToString()).decode()

    with pytest.raises(ConfigError, match="imports another file"):
        codec_of(RegisteredSchema("s", 1, 1, "PROTOBUF", text))


def alike(kind: str) -> dict[str, object]:
    """A node of a tree: all but its kind is as in the other one."""
    return {
        "type": "object",
        "properties": {"kind": {"const": kind}, "child": {"$ref": "#/definitions/node"}},
        "required": ["kind"],
    }


ALIKE = {
    words: RegisteredSchema(
        "s", 1, 1, "JSON",
        json.dumps(
            {
                "$ref": "#/definitions/node",
                "definitions": {"node": {words: [alike("a"), alike("b")]}},
            }
        ),
    )
    for words in ("oneOf", "anyOf", "allOf")
}  # fmt: skip


def nested(depth: int, leaf: str = "{}") -> bytes:
    return b'{"child":' * depth + leaf.encode() + b"}" * depth


@pytest.mark.parametrize("words", ALIKE)
@pytest.mark.parametrize("leaf", ["{}", "7", '{"kind":"c"}'])
def test_a_body_in_alternatives_that_are_alike_is_refused_at_once(words: str, leaf: str) -> None:
    """jsonschema-rs's own account of errors takes twice as long with each level: of 24 levels a
    quarter of an hour.
    """
    codec = codec_of(ALIKE[words])
    begun = time.process_time()
    for depth in (*range(30), 100, 200):
        with pytest.raises(BodyUnreadableError):
            decoded(codec, nested(depth, leaf), identity=1)
    value = json.loads(nested(30, leaf))
    with pytest.raises(MessageIllegalError, match="does not fit"):
        encoded(codec, value, subject="s")
    wide = b'{"kind":"a","children":[' + b",".join([nested(5, leaf)] * 2_000) + b"]}"
    with pytest.raises(BodyUnreadableError, match="does not fit"):
        decoded(codec, b'{"child":' + wide + b"}", identity=1)
    assert time.process_time() - begun < 2


TWO_WAYS: dict[str, dict[str, object]] = {
    "patterns": {"patternProperties": {"^c": {"$ref": "#/definitions/a"}}},
    "dependencies": {
        "dependencies": {"child": {"properties": {"child": {"$ref": "#/definitions/a"}}}}
    },
    "beside a reference": {"$ref": "#/definitions/b"},
    "condition": {
        "if": {"properties": {"child": {"$ref": "#/definitions/a"}}},
        "then": {"properties": {"child": {"$ref": "#/definitions/a"}}},
    },
    "list": {"allOf": [{"$ref": "#/definitions/b"}]},
}


@pytest.mark.parametrize("ways", TWO_WAYS)
def test_a_body_whose_parts_are_reached_in_two_ways_is_refused_at_once(ways: str) -> None:
    """No alternative is in most of these, and each level doubles an account of errors all the same:
    what comes before the part that is wrong is looked at in all its ways.
    """
    child = {"properties": {"child": {"$ref": "#/definitions/a"}}}
    document = {
        "definitions": {"a": {**child, **TWO_WAYS[ways]}, "b": child},
        "properties": {"first": {"$ref": "#/definitions/a"}, "second": {"required": ["id"]}},
    }
    codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps(document)))
    begun = time.process_time()
    for depth in (2, 40, 200):
        body = b'{"first":' + nested(depth) + b',"second":{}}'
        with pytest.raises(BodyUnreadableError, match='"id" is a required property, at /second'):
            decoded(codec, body, identity=1)
    assert time.process_time() - begun < 2


def test_of_alternatives_within_one_another_it_is_told_at_once_that_none_fits() -> None:
    names = {f"n{at}": {"anyOf": [{"$ref": f"#/$defs/n{at + 1}"}] * 2} for at in range(16)}
    document = {"$ref": "#/$defs/n0", "$defs": {**names, "n16": {"required": ["id"]}}}
    codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps(document)))
    begun = time.process_time()
    with pytest.raises(BodyUnreadableError, match="does not fit `anyOf`"):
        decoded(codec, b"{}", identity=1)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ({"required": ["id"]}, {}, '"id" is a required property'),
        ({"type": "string"}, 7, '7 is not of type "string"'),
        ({"type": "string"}, [7], "it does not fit `type`"),
        (
            {"properties": {"a": {"items": {"properties": {"b": {"enum": [1]}}}}}},
            {"a": [{"b": 1}, {"b": 2}]},
            "2 is not one of 1, at /a/1/b",
        ),
        ({"additionalProperties": False}, {"a": 1}, "it does not fit `additionalProperties`"),
        ({"oneOf": [{"type": "string"}, True]}, "", "it does not fit `oneOf`"),
        ({"allOf": [True, {"minimum": 5}]}, 4, "4 is less than the minimum of 5"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"maxLength": 1}}}, "ab", '"ab" is longer than'),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "minimum": 4,
                "exclusiveMinimum": True,
            },
            4,
            "4 is less than or equal to the minimum of 4",
        ),
        ({"not": {}}, 1, "it does not fit `not`"),
        (False, 1, "it does not fit"),
    ],
)
def test_it_is_told_why_a_body_does_not_fit(schema: object, value: object, why: str) -> None:
    codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps(schema)))
    with pytest.raises(BodyUnreadableError) as told:
        decoded(codec, json.dumps(value).encode(), identity=1)
    assert str(told.value.details["reason"]).startswith(why)


@pytest.mark.parametrize("inner", ["[]", '{"x":1}', '"[{[{"'])
def test_json_within_json_is_read_up_to_a_depth(inner: str) -> None:
    """A reader's stack is bounded by us, and not by where it ends."""
    codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps({"items": {"$ref": "#"}})))
    wide = b"[" + b",".join([inner.encode()] * 10_000) + b"]"
    assert codec.decode(b"[" * 250 + wide + b"]" * 250)

    with pytest.raises(BodyUnreadableError, match="256 values within one another"):
        decoded(codec, b"[" * 400 + wide + b"]" * 400, identity=1)
