"""Value trees: decoded bodies as dictionaries, lists and plain values, those of Protobuf, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

_TIMESTAMP = "google.protobuf.Timestamp"


def value_tree(value: object) -> object:
    """A message of Protobuf as a dictionary; all else as it is.

    Its fields have their names; enums are the names of their values, or the number where there is
    none; a ``Timestamp`` is a time. What may be missing, and is, is None.

    Raises:
        OverflowError, ValueError: a time is none of the calendar.
    """
    descriptor: Any = getattr(value, "DESCRIPTOR", None)
    return value if descriptor is None else _of_message(value, descriptor)


def _of_message(message: Any, descriptor: Any) -> object:
    if descriptor.full_name == _TIMESTAMP:
        whole = datetime.fromtimestamp(message.seconds, UTC)
        return whole + timedelta(microseconds=message.nanos // 1_000)
    return {field.name: _of_field(message, field) for field in descriptor.fields}


def _of_field(message: Any, field: Any) -> object:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
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
