"""Protobuf schemas: the messages of a ``FileDescriptorProto``, and who reads whose bytes.

The text is the base64 of the descriptor, as ``protoc --descriptor_set_out`` and confluent-kafka
write it (field numbers: ``google/protobuf/descriptor.proto``). Bodies are the file's first message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.rules.schemas.comparison import (
    CHARACTERS_PER_STEP,
    StepBudget,
    UnreadableError,
    inner_place,
    shown,
)

WELL_KNOWN = "google/protobuf/"
"""Files of the library itself, which a schema may import."""

_REQUIRED, _REPEATED = 2, 3
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_ALIKE = (
    frozenset((3, 4, 5, 8, 13, _ENUM)),  # int64 uint64 int32 bool uint32 enum: plain varints
    frozenset((17, 18)),  # sint32 sint64
    frozenset((7, 15)),  # fixed32 sfixed32
    frozenset((6, 16)),  # fixed64 sfixed64
)
"""Types of a field that are read as one another; a larger number loses its upper bits."""

_FROM_STRING = (9, 12)
"""What was written as ``string`` is read as ``bytes``."""


class ProtoField(NamedTuple):
    """A field of a message; ``type_name`` is that of a message or an enum, with a first dot."""

    name: str
    number: int
    label: int
    type: int
    type_name: str
    oneof: int | None

    @property
    def is_repeated(self) -> bool:
        """Whether there may be many."""
        return self.label == _REPEATED


@dataclass(slots=True)
class ProtoFile:
    """Messages by full name, each with its fields by number; ``first`` is what bodies are."""

    first: str = ""
    messages: dict[str, dict[int, ProtoField]] = field(default_factory=dict)


def proto_file(text: str, steps: StepBudget) -> ProtoFile:
    """The messages of a schema's text.

    Raises:
        ConfigError: it is no descriptor, has no message, or imports what is not in it.
    """
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("text is no base64: protoc --descriptor_set_out writes it") from None
    file = ProtoFile()
    package = ""
    bodies: list[bytes] = []
    for number, value in _values(content, steps):
        if number == 2:
            package = _text(value)
        elif number == 3 and not _text(value).startswith(WELL_KNOWN):
            raise _wrong("it imports another file: put all into one", file=_text(value))
        elif number == 4:
            bodies.append(_bytes(value))
    prefix = f".{package}" if package else ""
    for body in bodies:
        name = _read_message(body, prefix, file, steps, 0)
        file.first = file.first or name
    if not file.first:
        raise _wrong("it has no message")
    return file


def check_proto_reads(reader: ProtoFile, writer: ProtoFile, steps: StepBudget) -> None:
    """Let ``reader`` read the bytes that ``writer`` writes.

    Raises:
        UnreadableError: it does not.
        ConfigError: that would take too long.
    """
    if reader.first != writer.first:
        raise UnreadableError(
            "", f"the first message is {reader.first[1:]}, and not {writer.first[1:]}"
        )
    waiting = [(reader.first, writer.first, "")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        read, written, place = waiting.pop()
        if (read, written) in seen:
            continue
        seen.add((read, written))
        ours, theirs = reader.messages.get(read), writer.messages.get(written)
        if ours is None or theirs is None:
            if read != written:
                raise UnreadableError(place, f"{written[1:]} is not read as {read[1:]}")
            continue
        for number, wanted in ours.items():
            steps.take()
            at = inner_place(place, wanted.name)
            found = theirs.get(number)
            _check_field(wanted, found, at)
            if found is not None and wanted.type in (_GROUP, _MESSAGE):
                waiting.append((wanted.type_name, found.type_name, at))
        _check_oneofs(ours, theirs, place)


def _check_field(wanted: ProtoField, found: ProtoField | None, place: str) -> None:
    if wanted.label == _REQUIRED and (found is None or found.label != _REQUIRED):
        raise UnreadableError(place, "required, and may be missing")
    if found is None:
        return
    if wanted.is_repeated != found.is_repeated:
        raise UnreadableError(place, "repeated in one of them alone")
    alike = any({wanted.type, found.type} <= group for group in _ALIKE)
    if not (wanted.type == found.type or alike or (found.type, wanted.type) == _FROM_STRING):
        raise UnreadableError(
            place, f"field {wanted.number} has a type of another form on the wire"
        )


def _check_oneofs(ours: dict[int, ProtoField], theirs: dict[int, ProtoField], place: str) -> None:
    """Refuse a ``oneof`` of fields that the writer may have written side by side: it keeps the last
    one alone.
    """
    together: dict[int, set[int | str]] = {}
    for number, wanted in ours.items():
        found = theirs.get(number)
        if wanted.oneof is not None and found is not None:
            group = found.oneof if found.oneof is not None else found.name
            together.setdefault(wanted.oneof, set()).add(group)
    for members in together.values():
        if len(members) > 1:
            raise UnreadableError(place, "a `oneof` has fields that were written side by side")


def _read_message(body: bytes, prefix: str, file: ProtoFile, steps: StepBudget, depth: int) -> str:
    steps.take(depth=depth)
    name = ""
    fields: dict[int, ProtoField] = {}
    nested: list[bytes] = []
    for number, value in _values(body, steps):
        if number == 1:
            name = _text(value)
        elif number == 2:
            found = _read_field(_bytes(value), steps)
            if found.number in fields:
                raise _wrong("a number is given twice", owner=name, field=found.name)
            fields[found.number] = found
        elif number == 3:
            nested.append(_bytes(value))
    full = f"{prefix}.{name}"
    steps.take(len(full) // CHARACTERS_PER_STEP)
    if not name or full in file.messages:
        raise _wrong("a message without a name, or one twice", found=full)
    file.messages[full] = fields
    for one in nested:
        _read_message(one, full, file, steps, depth + 1)
    return full


def _read_field(body: bytes, steps: StepBudget) -> ProtoField:
    texts: dict[int, str] = {}
    numbers: dict[int, int] = {}
    for number, value in _values(body, steps):
        if number in (1, 6):
            texts[number] = _text(value)
        elif isinstance(value, int):
            numbers[number] = value
    # An ``optional`` of proto3 stands in a oneof of its own, which says nothing.
    oneof = None if numbers.get(17) else numbers.get(9)
    found = ProtoField(
        texts.get(1, ""),
        numbers.get(3, 0),
        numbers.get(4, 1),
        numbers.get(5, 0),
        texts.get(6, ""),
        oneof,
    )
    if not found.name or not 0 < found.number < 1 << 29 or not 0 < found.type <= 18:
        raise _wrong("a field without name, number or type", field=found.name)
    return found


def _values(content: bytes, steps: StepBudget) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a message, in the order in which they stand."""
    at = 0
    while at < len(content):
        steps.take()
        tag, at = _varint(content, at)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(form, -1)
        if form == 2:
            size, at = _varint(content, at)
        if size < 0 or at + size > len(content):
            raise _wrong("it is no FileDescriptorProto")
        yield number, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            break
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _wrong("it is no FileDescriptorProto")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _wrong("it is no FileDescriptorProto")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise _wrong("it is no FileDescriptorProto") from None


def _wrong(what: str, **details: str) -> ConfigError:
    return ConfigError(
        f"not a Protobuf schema: {what}", **{name: shown(value) for name, value in details.items()}
    )
