"""Codecs of bodies: what a schema of each type makes of a value, and of bytes."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple, Never

from ledgermq.client.schemas.avro_bounds import (
    check_depth,
    check_items,
    have_bounded_decimals,
    is_recursive,
    plain_reader,
    with_bounded_decimals,
)
from ledgermq.client.schemas.json_bounds import alternatives, check_json_depth, is_explained
from ledgermq.model.errors import BodyUnreadableError, ConfigError, MessageIllegalError
from ledgermq.model.names.schemas import ID_MAX, SchemaType
from ledgermq.verbs.schemas import RegisteredSchema

Encode = Callable[[object], bytes]
Decode = Callable[[bytes], object]

FRAME_SIZE = 5
_MAGIC = 0
_SHOWN = 200

_FIRST_MESSAGE = (b"\x00", b"\x02\x00", b"\x01\x00")
"""Heads as Confluent's serializers write them: newer ones, and older ones whose varints have no
sign."""

_WELL_KNOWN = frozenset(
    (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
        "timestamp", "type", "wrappers",
    )
)  # fmt: skip


class BodyCodec(NamedTuple):
    """Both ways of one schema; each raises whatever its library does.

    Attributes:
        decode_framed: of what stands behind the id in a body of Confluent's serializers.
    """

    encode: Encode
    decode: Decode
    decode_framed: Decode


def codec_of(schema: RegisteredSchema) -> BodyCodec:
    """The codec of a schema: dictionaries and lists for Avro and JSON, messages for Protobuf.

    Raises:
        ConfigError: its library is missing, or does not take the text.
    """
    make = {
        SchemaType.AVRO.value: _avro,
        SchemaType.JSON.value: _json,
        SchemaType.PROTOBUF.value: _protobuf,
    }.get(schema.type)
    if make is None:
        raise ConfigError("type of a schema is not known", id=schema.id, type=schema.type)
    try:
        return make(schema.schema)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "bodies by schemas need a Python package: pip install 'ledgermq[schemas]'",
            missing=error.name or "",
        ) from None
    except Exception as error:
        raise ConfigError(
            "schema is not taken by its library", id=schema.id, reason=_reason(error)
        ) from error


def encoded(codec: BodyCodec, value: object, *, subject: str) -> bytes:
    """The body of ``value``.

    Raises:
        MessageIllegalError: it does not fit the schema.
    """
    try:
        return codec.encode(value)
    except Exception as error:
        raise MessageIllegalError(
            "value does not fit the schema", subject=subject, reason=_reason(error)
        ) from error


def decoded(codec: BodyCodec, body: bytes, *, identity: int, is_framed: bool = False) -> object:
    """The value of ``body``.

    Args:
        is_framed: it has the id before the value (``framed_id``).

    Raises:
        BodyUnreadableError: it is none of the schema.
    """
    try:
        return codec.decode_framed(body[FRAME_SIZE:]) if is_framed else codec.decode(body)
    except Exception as error:
        raise BodyUnreadableError(
            "body does not fit its schema", id=identity, reason=_reason(error)
        ) from error


def framed_id(body: bytes) -> int | None:
    """The id in a body that one of Confluent's serializers has written; None: there is none."""
    if len(body) < FRAME_SIZE or body[0] != _MAGIC:
        return None
    identity = int.from_bytes(body[1:FRAME_SIZE])
    return identity if 0 < identity <= ID_MAX else None


def _reason(error: Exception) -> str:
    """Why, in a line: a validator would show the whole value, too."""
    told = getattr(error, "message", None)
    return (told if isinstance(told, str) else str(error))[:_SHOWN]


def _avro(text: str) -> BodyCodec:
    import fastavro

    fastavro.parse_schema(json.loads(text))  # which looks at the digits of decimals
    have_bounded_decimals()
    names: dict[str, dict[Any, Any]] = {}
    schema = fastavro.parse_schema(with_bounded_decimals(json.loads(text)), names)
    check_items(schema, names)
    is_deep = is_recursive(names)
    reads = plain_reader() if is_deep else fastavro.schemaless_reader

    def encode(value: object) -> bytes:
        if is_deep:
            check_depth(value)
        file = io.BytesIO()
        fastavro.schemaless_writer(file, schema, value, strict_allow_default=True)
        return file.getvalue()

    def decode(body: bytes) -> object:
        file = io.BytesIO(body)
        value: object = reads(file, schema, None)
        if file.tell() != len(body):
            raise ValueError(f"{len(body) - file.tell()} bytes behind the value")
        return value

    return BodyCodec(encode, decode, decode)


def _json(text: str) -> BodyCodec:
    import jsonschema_rs
    import msgspec

    schema = json.loads(text)
    # Patterns are matched in a time that grows with the text, and nothing is fetched.
    validator = jsonschema_rs.validator_for(
        schema, retriever=_not_fetched, pattern_options=jsonschema_rs.RegexOptions()
    )
    ways = alternatives(schema)

    def check(content: bytes, value: object) -> None:
        check_json_depth(content, value)
        if validator.is_valid(value):
            return
        if is_explained(value, alternatives=ways):
            validator.validate(value)
        raise ValueError("it does not fit; of a value so large or deep it is not told why")

    def encode(value: object) -> bytes:
        content = msgspec.json.encode(value)
        check(content, msgspec.to_builtins(value))
        return content

    def decode(body: bytes) -> object:
        value: object = msgspec.json.decode(body)
        check(body, value)
        return value

    return BodyCodec(encode, decode, decode)


def _not_fetched(uri: str) -> Never:
    raise ValueError(f"a reference out of the schema: {uri[:_SHOWN]}")


def message_class(text: str) -> Any:
    """The class of Protobuf's messages that a schema's text describes.

    Raises:
        ImportError: the library is missing.
        ValueError, TypeError: it does not take the text.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    pool = descriptor_pool.DescriptorPool()
    for name in file.dependency:
        for content in _well_known(name):
            pool.AddSerializedFile(content)
    pool.AddSerializedFile(file.SerializeToString())
    first = file.message_type[0].name
    name = f"{file.package}.{first}" if file.package else first
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _protobuf(text: str) -> BodyCodec:
    from google.protobuf import json_format

    kind = message_class(text)
    name = kind.DESCRIPTOR.full_name

    def encode(value: object) -> bytes:
        if isinstance(value, dict):
            value = json_format.ParseDict(value, kind())
        found = getattr(getattr(value, "DESCRIPTOR", None), "full_name", None)
        if found != name:
            raise ValueError(f"a message {name} is wanted, and not {found or type(value).__name__}")
        content: bytes = value.SerializeToString()  # type: ignore[attr-defined]
        return content

    def decode(body: bytes) -> object:
        value: object = kind.FromString(body)
        return value

    def decode_framed(content: bytes) -> object:
        # Places of messages within one another: how many, each a varint; 0 means the first one.
        places = next((one for one in _FIRST_MESSAGE if content.startswith(one)), None)
        if places is None:
            raise ValueError("another message of the file than its first one")
        return decode(content[len(places) :])

    return BodyCodec(encode, decode, decode_framed)


def _well_known(name: str) -> Iterator[bytes]:
    """A file of Protobuf's own library behind those that it imports: no other is imported."""
    folder, _, file = name.rpartition("/")
    if folder != "google/protobuf" or file.removesuffix(".proto") not in _WELL_KNOWN:
        raise ValueError(f"imports another file than those of the library: {name}")
    module = import_module(f"google.protobuf.{file.removesuffix('.proto')}_pb2")
    for one in module.DESCRIPTOR.dependencies:
        yield from _well_known(one.name)
    yield module.DESCRIPTOR.serialized_pb
