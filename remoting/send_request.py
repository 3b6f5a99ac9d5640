"""Requests that store messages: the three forms of their fields, and the units of a batch.

A batch's body is its units one behind the other, big-endian (``MessageDecoder.encodeMessage``):

    size  field
    4     bytes of the unit, these included
    4     magic, which clients leave 0
    4     CRC of the body, which clients leave 0
    4     flag
    4+n   body, behind its size
    2+n   properties, behind their size
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import MessageIllegalError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import Fields, flag, int32, int64, text

_UNIT = Struct(">iiiii")
_PROPERTIES_SIZE = Struct(">h")
_UNIT_MIN = _UNIT.size + _PROPERTIES_SIZE.size

_LONG_CODES = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))
SEND_CODES = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
)


class SendRequest(NamedTuple):
    """What a producer says of a message or of a batch, beside the body.

    Attributes:
        default_topic: whose settings a topic gets that is created for the message.
        default_queues: how many queues the producer would like it to have.
        queue_id: negative when the broker may choose.
        properties: as text on disk has them, the batch's own not included.
        max_reconsume_times: None when the producer does not say.
        is_batch: the body is units; all go to one queue.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    is_batch: bool


class BatchUnit(NamedTuple):
    """One message of a batch; both parts are views of the request's body."""

    flag: int
    body: memoryview
    properties: memoryview


_LONG = {
    "producer_group": "producerGroup",
    "topic": "topic",
    "default_topic": "defaultTopic",
    "default_queues": "defaultTopicQueueNums",
    "queue_id": "queueId",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "flag": "flag",
    "properties": "properties",
    "reconsume_times": "reconsumeTimes",
    "unit_mode": "unitMode",
    "max_reconsume_times": "maxReconsumeTimes",
    "batch": "batch",
}
_SHORT = dict(zip(_LONG, "abcdefghijklm", strict=True))
"""``SendMessageRequestHeaderV2``: the same fields in the same order, by one letter each."""


def decode_send(command: Command) -> SendRequest:
    """What a request of ``SEND_CODES`` asks for.

    Raises:
        ProtocolError: a field is missing, or is no number.
    """
    names = _LONG if command.code in _LONG_CODES else _SHORT
    fields = command.fields
    is_batch = command.code == RequestCode.SEND_BATCH_MESSAGE or flag(fields, names["batch"])
    return SendRequest(
        text(fields, names["producer_group"]),
        text(fields, names["topic"]),
        fields.get(names["default_topic"], ""),
        int32(fields, names["default_queues"], 0),
        int32(fields, names["queue_id"]),
        int32(fields, names["sys_flag"], 0),
        int64(fields, names["born_timestamp"]),
        int32(fields, names["flag"], 0),
        fields.get(names["properties"], ""),
        int32(fields, names["reconsume_times"], 0),
        flag(fields, names["unit_mode"]),
        _optional_int32(fields, names["max_reconsume_times"]),
        is_batch,
    )


def decode_batch(body: memoryview, *, limit: int) -> list[BatchUnit]:
    """The messages of a batch's body.

    Args:
        limit: most messages.

    Raises:
        MessageIllegalError: it is empty, cut, has too many messages, or sizes that do not fit one
            another.
    """
    units: list[BatchUnit] = []
    at = 0
    while at < len(body):
        if len(units) == limit:
            raise MessageIllegalError("batch has too many messages", limit=limit)
        unit = _unit_at(body, at)
        if unit is None:
            raise MessageIllegalError(
                "batch has a unit that does not fit it", record=len(units), at=at, size=len(body)
            )
        units.append(unit)
        at += _UNIT_MIN + len(unit.body) + len(unit.properties)
    if not units:
        raise MessageIllegalError("batch is empty")
    return units


def _unit_at(body: memoryview, at: int) -> BatchUnit | None:
    if len(body) - at < _UNIT_MIN:
        return None
    size, _, _, user_flag, body_size = _UNIT.unpack_from(body, at)
    end = at + size
    body_at = at + _UNIT.size
    properties_at = body_at + body_size + _PROPERTIES_SIZE.size
    if body_size < 0 or not properties_at <= end <= len(body):
        return None
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(body, body_at + body_size)
    if properties_at + properties_size != end:
        return None
    return BatchUnit(user_flag, body[body_at : body_at + body_size], body[properties_at:end])


def _optional_int32(fields: Fields, name: str) -> int | None:
    return int32(fields, name) if name in fields else None
