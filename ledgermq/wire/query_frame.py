"""QUERY and QUERIED: a request for messages by position or key, outside of any queue.

A QUERY is rare and names things: its part 2 is JSON. A QUERIED is laid out as a PULLED is, with its
records in part 2 (docs/formats/client-protocol.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import TIMESTAMP_MAX
from ledgermq.wire.header import HEADER_SIZE, VERSION, Kind, decode_header, encode_header
from ledgermq.wire.session import decode_body, encode_body

_QUERIED = Struct("<IIqq")
QUERIED_TABLES_AT = HEADER_SIZE + _QUERIED.size
_MORE = 1

assert QUERIED_TABLES_AT == 40

MESSAGES_MAX = 1_024
"""Most messages that one QUERY may ask for; RocketMQ's is 64 (``maxMsgsNumBatch``)."""

MESSAGES_DEFAULT = 32
KEY_SIZE_MAX = 32_767
"""No longer key fits into the properties of a message."""


class PositionQuery(NamedTuple):
    """The message whose record begins at ``position`` of the log."""

    position: int


class KeyQuery(NamedTuple):
    """The newest messages of ``topic`` that have ``key``, or have it as their unique id.

    Attributes:
        messages_max: most messages of the answer.
        begin, end: store times wanted, epoch ms, both included.
    """

    topic: str
    key: str
    messages_max: int = MESSAGES_DEFAULT
    begin: int = 0
    end: int = TIMESTAMP_MAX


AnyQuery = PositionQuery | KeyQuery


class Queried(NamedTuple):
    """The tables of a QUERIED; ``starts`` and ``sizes`` are views of the message they came in.

    Attributes:
        has_more: there are older messages that would fit the question.
        index_timestamp: store time of the newest message that the index knows, epoch ms.
        index_position: position of that one.
        starts: unsigned 32-bit offset in part 2 of each message, in the order of the log.
        sizes: unsigned 32-bit size of each message.
    """

    request_id: int
    has_more: bool
    index_timestamp: int
    index_position: int
    starts: memoryview
    sizes: memoryview


def encode_query(request_id: int, query: AnyQuery) -> list[bytes]:
    """The parts of a QUERY."""
    return [encode_header(Kind.QUERY, request_id, version=VERSION), encode_body(query._asdict())]


def decode_query(body: bytes | memoryview) -> AnyQuery:
    """What a QUERY asks for, from its part 2.

    Raises:
        ProtocolError: it is no question, or a field is missing, wrong, or behind its limit.
    """
    fields = decode_body(body)
    if "position" in fields:
        return PositionQuery(_integer(fields, "position", 0, 2**63 - 1))
    topic, key = fields.get("topic"), fields.get("key")
    if not isinstance(topic, str) or not isinstance(key, str):
        raise ProtocolError("QUERY names neither a position nor a topic and a key")
    if not 0 < len(key.encode(errors="replace")) <= KEY_SIZE_MAX:
        raise ProtocolError("key is empty or too long", size=len(key), limit=KEY_SIZE_MAX)
    return KeyQuery(
        topic,
        key,
        _integer(fields, "messages_max", 1, MESSAGES_MAX),
        _integer(fields, "begin", 0, TIMESTAMP_MAX),
        _integer(fields, "end", 0, TIMESTAMP_MAX),
    )


def encode_queried(
    request_id: int,
    *,
    starts: bytes,
    sizes: bytes,
    has_more: bool = False,
    index_timestamp: int = 0,
    index_position: int = 0,
) -> bytes:
    """Part 1 of a QUERIED.

    Args:
        starts: where each message begins in part 2, as little-endian 32-bit words.
        sizes: size of each message, likewise.
    """
    assert len(starts) == len(sizes) and len(starts) % 4 == 0, (len(starts), len(sizes))
    flags = _MORE * has_more
    fixed = _QUERIED.pack(len(starts) // 4, flags, index_timestamp, index_position)
    header = encode_header(Kind.QUERIED, request_id, version=VERSION)
    return b"".join((header, fixed, starts, sizes))


def decode_queried(message: bytes | memoryview, *, records_size: int) -> Queried:
    """The tables of a QUERIED, from its part 1.

    Args:
        records_size: bytes of part 2; every message is known to lie in it afterwards.

    Raises:
        ProtocolError: it is none, or its tables do not fit its size or part 2.
    """
    header = decode_header(message)
    if header.kind is not Kind.QUERIED:
        raise ProtocolError("not a QUERIED", kind=header.kind.name)
    if len(message) < QUERIED_TABLES_AT:
        raise ProtocolError("QUERIED too short", size=len(message), minimum=QUERIED_TABLES_AT)
    count, flags, timestamp, position = _QUERIED.unpack_from(message, HEADER_SIZE)
    sizes_at = QUERIED_TABLES_AT + 4 * count
    if count > MESSAGES_MAX or len(message) != sizes_at + 4 * count:
        raise ProtocolError(
            "QUERIED of another size than its tables", size=len(message), messages=count
        )
    view = memoryview(message)
    starts = view[QUERIED_TABLES_AT:sizes_at].cast("I")
    sizes = view[sizes_at:].cast("I")
    reached = max(map(int.__add__, starts, sizes), default=0)
    if reached > records_size:
        raise ProtocolError("message behind its part", end=reached, limit=records_size)
    return Queried(header.request_id, bool(flags & _MORE), timestamp, position, starts, sizes)


def _integer(fields: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ProtocolError(
            "field of a QUERY missing or out of range",
            field=name,
            value=value,
            minimum=low,
            maximum=high,
        )
    return value
