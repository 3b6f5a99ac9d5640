"""Typed bodies: values as bodies with their schema's id, and back, over a broker's connection."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import asking
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.schemas.body_codecs import (
    BodyCodec,
    codec_of,
    count_values,
    decoded,
    encoded,
    framed_id,
)
from ledgermq.model.errors import BodyUnreadableError, ConfigError
from ledgermq.model.names.schemas import ID_MAX, SCHEMA_PROPERTY
from ledgermq.verbs.schemas import RegisteredSchema, SchemaOfId, ShowSchema

CODECS_MAX = 1_000
"""Schemas that are kept; an id from outside may be any."""

LATEST_S = 60.0
"""How long the last version of a subject is taken to be the last one."""


class TypedBody(NamedTuple):
    """A body, and the properties that its message needs beside the application's own."""

    body: bytes
    properties: dict[str, str]


class _Kept(NamedTuple):
    schema: RegisteredSchema
    codec: BodyCodec


class TypedVerbs:
    """Both ways; a schema is asked for once, the last version of a subject once a minute."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._latest: OrderedDict[str, tuple[int, float]] = OrderedDict()

    @asked
    def write(self, subject: str, value: object) -> Steps[TypedBody]:
        """``value`` by the last version of ``subject``.

        Args:
            value: what the schema describes; of Protobuf a message, or a dictionary as its JSON
                has it.

        Raises:
            ConfigError: the subject has no schema, or a library is missing.
            MessageIllegalError: the value does not fit.
            NoPermissionError: this client may not use the subject's topic.
        """
        known = self._latest.get(subject)
        if known is None or time.monotonic() >= known[1]:
            schema = (yield from asking(ShowSchema(subject)))[1]
            if not schema.version:
                raise ConfigError("subject has no schema", subject=subject)
            known = schema.id, time.monotonic() + LATEST_S
            self._latest[subject] = known
            _bound(self._latest)
            self._keep(schema)
        kept = yield from self._of_id(known[0])
        body = encoded(kept.codec, value, subject=subject)
        return TypedBody(body, {SCHEMA_PROPERTY: str(kept.schema.id)})

    @asked
    def read(self, body: bytes | memoryview, properties: Mapping[str, str]) -> Steps[object]:
        """The value of a message's body, also of one of Confluent's serializers; of Protobuf a
        message.

        Raises:
            BodyUnreadableError: the message names no schema, or its body does not fit.
            ConfigError: no schema has the id, or a library is missing.
            NoPermissionError: this client may use no topic that has the schema.
        """
        content = bytes(body)
        named = schema_id(properties)
        identity = framed_id(content) if named is None else named
        if identity is None:
            raise BodyUnreadableError(
                f"message names no schema in its property {SCHEMA_PROPERTY}",
                found=properties.get(SCHEMA_PROPERTY, "")[:32],
            )
        kept = yield from self._of_id(identity)
        return decoded(kept.codec, content, identity=identity, is_framed=named is None)

    def _of_id(self, identity: int) -> Steps[_Kept]:
        kept = self._kept.get(identity)
        if kept is not None:
            self._kept.move_to_end(identity)
            return kept
        return self._keep((yield from asking(SchemaOfId(identity))))

    def _keep(self, schema: RegisteredSchema) -> _Kept:
        kept = self._kept.get(schema.id)
        if kept is None:
            kept = self._kept[schema.id] = _Kept(schema, codec_of(schema))
            _bound(self._kept)
        return kept


class TypedBodies(TypedVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        return self._broker.run(steps)


def schema_id(properties: Mapping[str, str]) -> int | None:
    """The id that a message says its body was written by; None: it says none."""
    text = properties.get(SCHEMA_PROPERTY, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(ID_MAX))):
        return None
    return int(text) if 0 < int(text) <= ID_MAX else None


def _bound(kept: OrderedDict[int, _Kept] | OrderedDict[str, tuple[int, float]]) -> None:
    if len(kept) > CODECS_MAX:
        kept.popitem(last=False)


_TIMESTAMP = "google.protobuf.Timestamp"


def value_tree(value: object) -> object:
    """A message of Protobuf as a dictionary; all else as it is.

    Its fields have their names; enums are the names of their values, or the number where there is
    none; a ``Timestamp`` is a time. What may be missing, and is, is None.

    Raises:
        OverflowError, ValueError: a time is none of the calendar, or there are too many values.
    """
    descriptor: Any = getattr(value, "DESCRIPTOR", None)
    return value if descriptor is None else _of_message(value, descriptor)


def _of_message(message: Any, descriptor: Any) -> object:
    if descriptor.full_name == _TIMESTAMP:
        whole = datetime.fromtimestamp(message.seconds, UTC)
        return whole + timedelta(microseconds=message.nanos // 1_000)
    count_values(1 + len(descriptor.fields))
    return {field.name: _of_field(message, field) for field in descriptor.fields}


def _of_field(message: Any, field: Any) -> object:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if is_repeated(field):
        count_values(len(value))
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        kind = inner.fields_by_number[2]
        return {key: _of_one(value[key], kind) for key in value}
    if is_repeated(field):
        return [_of_one(one, field) for one in value]
    return _of_one(value, field)


def _of_one(value: Any, field: Any) -> object:
    if field.message_type is not None:
        return _of_message(value, field.message_type)
    if field.enum_type is None:
        return value
    named = field.enum_type.values_by_number.get(value)
    return str(value) if named is None else named.name


def is_repeated(field: Any) -> bool:
    """Whether a field, by its descriptor, has many values: newer libraries say it by a word."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)
