"""Codecs of bodies: what a schema of each type makes of a value, and of bytes, within bounds.

Bounds keep a few bytes of a body from taking a reader's stack, memory or time. The compiled reader
of fastavro goes as deep as a body tells it to, which ends the process; and it takes items that have
no bytes by the billion. One byte may be a record with all its fields, which takes hundreds of bytes
of memory: the values that are made of a body are counted.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import Any, NamedTuple

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
    [
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    ]
)

Names = Mapping[str, Any]
"""Definitions of an Avro schema by their full name, as fastavro has parsed them."""

DECIMAL_BYTES_MAX = 256
"""Bytes of one decimal: some 600 digits. To make digits of a million bytes takes minutes."""

AVRO_WITHIN_MAX = 100
"""Depth of values of an Avro schema that has a type within itself: its plain reader has the
interpreter's stack."""

DECIMAL, BOUNDED_DECIMAL = "decimal", "ledgermq-decimal"
"""The logical type of an Avro schema, and its name for a reader that looks at its size first."""

JSON_WITHIN_MAX = 256
"""JSON's values, one within another; deeper ones take the stack of a validator, which is the
process's end."""


DECODED_SIZE_MAX = 16 << 20
"""Most bytes of a body, once it is inflated, that are read by a schema: four of the largest
messages."""

VALUES_MAX = 2_000_000
"""Most values that are made of one body, a record's fields among them, each as often as it is made:
some hundred bytes of memory each."""

_COUNTED = "ledgermq-counted"
_MANY = ("record", "error", "array", "map")
"""Types of Avro whose values have others within them; and the logical type by which their reader
counts these."""

_JSON_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)


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
    take_values_made()
    try:
        if len(body) > DECODED_SIZE_MAX:
            raise ValueError(f"{len(body)} bytes: at most {DECODED_SIZE_MAX} are read by a schema")
        return codec.decode_framed(body[FRAME_SIZE:]) if is_framed else codec.decode(body)
    except Exception as error:
        raise BodyUnreadableError(
            "body does not fit its schema", id=identity, reason=_reason(error)
        ) from error


class _Made(threading.local):
    count = 0


_made = _Made()


def count_values(count: int) -> None:
    """Note values that are made of the body that this thread has decoded last.

    Raises:
        ValueError: there are too many.
    """
    _made.count += count
    if _made.count > VALUES_MAX:
        raise ValueError(f"more than {VALUES_MAX} values are made of it")


def take_values_made() -> int:
    """How many values were made of bodies on this thread, which are counted anew from here."""
    count, _made.count = _made.count, 0
    return count


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

    written = fastavro.parse_schema(json.loads(text))  # which looks at the digits of decimals
    _have_bounded_readers()
    names: dict[str, dict[Any, Any]] = {}
    schema = fastavro.parse_schema(_with_bounds(json.loads(text)), names)
    _check_items(schema, names)
    is_deep = _is_recursive(names)
    reads = _plain_reader() if is_deep else fastavro.schemaless_reader

    def encode(value: object) -> bytes:
        if is_deep:
            _check_depth(value)
        file = io.BytesIO()
        fastavro.schemaless_writer(file, written, value, strict_allow_default=True)
        return file.getvalue()

    def decode(body: bytes) -> object:
        file = io.BytesIO(body)
        value: object = reads(file, schema, None)
        if file.tell() != len(body):
            raise ValueError(f"{len(body) - file.tell()} bytes behind the value")
        return value

    return BodyCodec(encode, decode, decode)


def _check_items(schema: Any, names: Names) -> None:
    """Refuse arrays whose items take no bytes: a body may claim to have any number of them.

    Raises:
        ValueError: there is such a one.
    """
    known: dict[str, bool] = {}
    for one in _definitions(schema):
        is_array = isinstance(one, Mapping) and one.get("type") == "array"
        if is_array and not _takes_bytes(one["items"], names, known):
            raise ValueError("items of an array take no bytes")


def _is_recursive(names: Names) -> bool:
    """Whether a value may have others of its own type within it, to any depth."""
    within = {
        name: {one for inner in _inner(names[name]) for one in _named(inner, names)}
        for name in names
    }
    try:
        TopologicalSorter(within).prepare()
    except CycleError:
        return True
    return False


def _plain_reader() -> Callable[..., object]:
    """fastavro's reader that is not compiled: too deep a body is a ``RecursionError``."""
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def _check_depth(value: object) -> None:
    """Refuse values deeper within one another than a reader goes.

    Raises:
        ValueError: they are.
    """
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        inner = one.values() if isinstance(one, Mapping) else one
        if isinstance(inner, str | bytes | bytearray) or not isinstance(inner, Iterable):
            continue
        if depth == AVRO_WITHIN_MAX:
            raise ValueError(f"more than {AVRO_WITHIN_MAX} values within one another")
        waiting += ((each, depth + 1) for each in inner)


def _with_bounds(value: Any) -> Any:
    """A schema's JSON value by which no more is read than there may be."""
    if isinstance(value, list):
        return [_with_bounds(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_bounds(one) for key, one in value.items()}
    if found.get("logicalType") == DECIMAL:
        found["logicalType"] = BOUNDED_DECIMAL
    elif found.get("type") in _MANY:
        found["logicalType"] = _COUNTED
    return found


def _have_bounded_readers() -> None:
    """Let fastavro know ``BOUNDED_DECIMAL``, as its own but for the size, and ``_COUNTED``."""
    from fastavro.read import LOGICAL_READERS

    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{BOUNDED_DECIMAL}"] = _bounded(
            LOGICAL_READERS[f"{kind}-{DECIMAL}"]
        )
    for kind in _MANY:
        LOGICAL_READERS[f"{kind}-{_COUNTED}"] = _counted


def _counted(data: Any, *_schemas: object) -> object:
    count_values(1 + len(data))
    return data


def _bounded(reads: Callable[..., object]) -> Callable[..., object]:
    def bounded_decimal(data: bytes, *schemas: object) -> object:
        if len(data) > DECIMAL_BYTES_MAX:
            raise ValueError(f"decimal of {len(data)} bytes: at most {DECIMAL_BYTES_MAX} are read")
        return reads(data, *schemas)

    return bounded_decimal


def _inner(one: Any) -> list[object]:
    """The types of which a type is made; of a name none."""
    if isinstance(one, list):
        return one
    if not isinstance(one, Mapping):
        return []
    fields = one.get("fields", ())
    found = [field["type"] for field in fields]
    found += [one[key] for key in ("items", "values") if key in one]
    return found if isinstance(one["type"], str) else [*found, one["type"]]


def _definitions(schema: object) -> Iterator[Any]:
    """The type and all that are written within it."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += _inner(one)


def _named(schema: object, names: Names) -> Iterator[str]:
    """Names that stand within a type, written out there or not."""
    for one in _definitions(schema):
        name = one.get("name", one["type"]) if isinstance(one, Mapping) else one
        if isinstance(name, str) and name in names:
            yield name


def _takes_bytes(one: Any, names: Names, known: dict[str, bool]) -> bool:
    """Whether each value takes a byte at least; a record within itself has none for being so."""
    if isinstance(one, str) and one in names:
        one = names[one]
    if not isinstance(one, Mapping):
        return bool(one != "null")
    kind = one["type"]
    if not isinstance(kind, str) or kind in names:
        return _takes_bytes(kind, names, known)
    if kind == "fixed":
        return bool(one["size"])
    if "fields" not in one:
        return kind != "null"
    name = str(one["name"])
    if name not in known:
        known[name] = False
        known[name] = any(_takes_bytes(field["type"], names, known) for field in one["fields"])
    return known[name]


def _json(text: str) -> BodyCodec:
    import msgspec

    # Only schemas of JSON need it, and its library may be missing.
    from ledgermq.client.schemas.json_reasons import JsonReasons, json_validator

    schema = json.loads(text)
    validator, reasons = json_validator(schema), JsonReasons(schema)

    def check(content: bytes, value: object) -> None:
        _check_json_depth(content, value)
        if not validator.is_valid(value):
            raise ValueError(reasons.told(value))

    def encode(value: object) -> bytes:
        content = msgspec.json.encode(value)
        check(content, msgspec.to_builtins(value))
        return content

    def decode(body: bytes) -> object:
        count_values(_values_of_json(body))
        value: object = msgspec.json.decode(body)
        check(body, value)
        return value

    return BodyCodec(encode, decode, decode)


def _values_of_json(content: bytes) -> int:
    """At least as many as there are; what stands in texts is told apart where that matters."""
    count = _signs(content)
    return count if count <= VALUES_MAX else _signs(_JSON_TEXT.sub(b"", content))


def _signs(content: bytes) -> int:
    return 1 + content.count(b",") + content.count(b"[") + content.count(b"{")


def _check_json_depth(content: bytes, value: object) -> None:
    """Refuse a value of which others stand too deep within one another.

    Args:
        content: the JSON of ``value``.

    Raises:
        ValueError: they do.
    """
    if content.count(b"[") + content.count(b"{") <= JSON_WITHIN_MAX:
        return
    level = _within([value])
    for _ in range(JSON_WITHIN_MAX):
        if not level:
            return
        level = _within(level)
    raise ValueError(f"more than {JSON_WITHIN_MAX} values within one another")


def _within(values: Iterable[Any]) -> list[Any]:
    """Lists and objects of the values that are within these, if they have something within."""
    return [
        inner
        for one in values
        if isinstance(one, dict | list)
        for inner in (one.values() if isinstance(one, dict) else one)
        if isinstance(inner, dict | list) and inner
    ]


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
