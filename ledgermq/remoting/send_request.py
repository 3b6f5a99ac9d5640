"""Send requests in the three forms of their fields, and replies without the general codec.

A batch's body is its units one behind the other (``formats/records/message.py``).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ledgermq.formats.records.trace_record import REGION
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import (
    VERSION,
    Command,
    HeaderKind,
    encode_command,
)
from ledgermq.remoting.fields import flag, int32, int64, text

_LONG_CODES = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))

TRACED = {"MSG_REGION": REGION, "TRACE_ON": "true"}
"""Fields of every reply to a send, whatever came of it: Java's client reads them unasked."""

_LENGTHS = Struct(">II")

_HEAD = (
    f'{{"code":0,"extFields":{{"MSG_REGION":"{REGION}","TRACE_ON":"true","msgId":"%s",'
    f'"queueId":"%d","queueOffset":"%d"}},"flag":1,"language":"JAVA","opaque":%d,'
    f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
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


_LONG = (
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
)
_SHORT = tuple("abcdefghijklm")
"""``SendMessageRequestHeaderV2``: the same fields in the same order, by one letter each."""


def decode_send(command: Command) -> SendRequest:
    """What a request with one of the codes of sends asks for.

    Raises:
        ProtocolError: a field is missing, or is no number.
    """
    names = _LONG if command.code in _LONG_CODES else _SHORT
    group, topic, template, queues, queue, sys_flag, born = names[:7]
    user_flag, properties, times, unit, times_max, batch = names[7:]
    fields = command.fields
    return SendRequest(
        text(fields, group),
        text(fields, topic),
        fields.get(template, ""),
        int32(fields, queues, 0),
        int32(fields, queue),
        int32(fields, sys_flag, 0),
        int64(fields, born),
        int32(fields, user_flag, 0),
        fields.get(properties, ""),
        int32(fields, times, 0),
        flag(fields, unit),
        int32(fields, times_max) if times_max in fields else None,
        command.code == RequestCode.SEND_BATCH_MESSAGE or flag(fields, batch),
    )


def encode_send_reply(
    request: Command, *, message_ids: str, queue_id: int, queue_offset: int
) -> bytes:
    """The frame that tells where the messages of ``request`` are.

    Args:
        message_ids: their offset ids, with commas between them.
        queue_offset: of the first one.
    """
    if request.kind is not HeaderKind.JSON:
        fields = {
            **TRACED,
            "msgId": message_ids,
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
        }
        return b"".join(encode_command(request.reply(fields=fields)))
    return encode_json_reply(message_ids, queue_id, queue_offset, request.opaque)


def encode_json_reply(message_ids: str, queue_id: int, queue_offset: int, opaque: int) -> bytes:
    """The same for a request whose header is of JSON, and whose number is ``opaque``."""
    header = (_HEAD % (message_ids, queue_id, queue_offset, opaque)).encode("ascii")
    # The high byte of the second number is the kind of header: 0, JSON.
    return _LENGTHS.pack(4 + len(header), len(header)) + header
