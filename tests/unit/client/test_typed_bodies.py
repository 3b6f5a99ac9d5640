"""Bodies by schemas: what is written is read, and what does not fit is refused."""

from __future__ import annotations

import base64
import json
import socket

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from ledgermq.client.admin.schema_admin import RegisteredSchema
from ledgermq.client.schemas.body_codecs import codec_of, decoded, encoded
from ledgermq.client.schemas.typed_bodies import schema_id
from ledgermq.model.errors import BodyUnreadableError, ConfigError, MessageIllegalError
from ledgermq.model.names.schemas import SCHEMA_PROPERTY

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


def test_a_message_of_another_type_is_refused() -> None:
    with pytest.raises(MessageIllegalError, match=r"shop\.Order"):
        encoded(codec_of(SCHEMAS["protobuf"]), timestamp_pb2.Timestamp(), subject="s")


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "٣", "9" * 40, str(2**31)])
def test_what_is_no_id_names_no_schema(text: str) -> None:
    assert schema_id({SCHEMA_PROPERTY: text}) is None


def test_a_schema_of_no_known_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="type of a schema"):
        codec_of(RegisteredSchema("s", 1, 1, "XML", "<a/>"))


def test_a_reference_out_of_a_schema_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/s.json"
        codec = codec_of(RegisteredSchema("s", 1, 1, "JSON", json.dumps({"$ref": url})))
        with pytest.raises(BodyUnreadableError):
            decoded(codec, b"7", identity=1)
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
