"""Batch payload codec: the messages of one batch as RocketMQ's clients send them.

Layout, big-endian (RocketMQ ``MessageDecoder.encodeMessage``), one item behind the other:

    offset  size  field        unit
    0       4     item_size    bytes, this field included
    4       4     magic        0, not looked at
    8       4     body_crc     0, not looked at: the broker computes it
    12      4     flag         the application's
    16      4+n   body         size, bytes
    20+n    2+n   properties   size, ``properties``

Topic, queue, hosts and time are those of the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.records.message import PROPERTIES_SIZE
from ledgermq.model.errors import MessageIllegalError, ProtocolError
from ledgermq.model.limits import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX

_HEAD = Struct(">iiiii")

ITEM_SIZE_MIN = _HEAD.size + PROPERTIES_SIZE.size


class BatchItem(NamedTuple):
    """One message of a batch; ``body`` may be a part of the buffer it was decoded from."""

    flag: int
    body: memoryview | bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The payload of ``items``.

    Raises:
        MessageIllegalError: a body or properties are too large.
    """
    parts: list[bytes | memoryview] = []
    for flag, body, properties in items:
        if len(body) > BODY_SIZE_MAX:
            raise MessageIllegalError("body is too large", size=len(body), limit=BODY_SIZE_MAX)
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise MessageIllegalError(
                "properties are too large", size=len(properties), limit=PROPERTIES_SIZE_MAX
            )
        assert -0x8000_0000 <= flag <= 0x7FFF_FFFF, flag
        size = ITEM_SIZE_MIN + len(body) + len(properties)
        head = _HEAD.pack(size, 0, 0, flag, len(body))
        parts += (head, body, PROPERTIES_SIZE.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(payload: memoryview) -> list[BatchItem]:
    """The items of ``payload``; their bodies are parts of it.

    Raises:
        ProtocolError: it is not a whole number of well-formed items.
    """
    items: list[BatchItem] = []
    at = 0
    while at < len(payload):
        if at + ITEM_SIZE_MIN > len(payload):
            raise _illegal("batch item is cut off", at, "item_size", len(payload) - at)
        size, _, _, flag, body_size = _HEAD.unpack_from(payload, at)
        end = at + size
        if size < ITEM_SIZE_MIN or end > len(payload):
            raise _illegal("batch item has an impossible size", at, "item_size", size)
        body_at = at + _HEAD.size
        properties_at = body_at + body_size + PROPERTIES_SIZE.size
        if body_size < 0 or properties_at > end:
            raise _illegal("body does not fit in its batch item", at, "body_size", body_size)
        (properties_size,) = PROPERTIES_SIZE.unpack_from(payload, body_at + body_size)
        if properties_size < 0 or properties_at + properties_size != end:
            raise _illegal(
                "properties do not end their batch item", at, "properties_size", properties_size
            )
        body = payload[body_at : body_at + body_size]
        items.append(BatchItem(flag, body, bytes(payload[properties_at:end])))
        at = end
    return items


def _illegal(text: str, item_at: int, field: str, value: int) -> ProtocolError:
    return ProtocolError(text, item_at=item_at, field=field, value=value)
