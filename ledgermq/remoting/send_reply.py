"""Reply to a send, encoded without the general codec: there are many."""

from __future__ import annotations

from struct import Struct

from ledgermq.formats.records.trace_record import REGION
from ledgermq.remoting.command import (
    VERSION,
    Command,
    HeaderKind,
    encode_command,
)

TRACED = {"MSG_REGION": REGION, "TRACE_ON": "true"}
"""Fields of every reply to a send, whatever came of it: Java's client reads them unasked."""

_LENGTHS = Struct(">II")

_HEAD = (
    f'{{"code":0,"extFields":{{"MSG_REGION":"{REGION}","TRACE_ON":"true","msgId":"%s",'
    f'"queueId":"%d","queueOffset":"%d"}},"flag":1,"language":"JAVA","opaque":%d,'
    f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
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
