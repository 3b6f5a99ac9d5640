"""The reply to a send, written out, against the codec of all commands."""

from __future__ import annotations

import pytest

from ledgermq.remoting.command import Command, HeaderKind, decode_command
from ledgermq.remoting.send_request import TRACED, encode_send_reply


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_it_is_the_command_that_the_codec_reads(kind: HeaderKind) -> None:
    request = Command(310, opaque=-5, kind=kind)
    data = encode_send_reply(request, message_ids="AB,CD", queue_id=3, queue_offset=2**40)
    reply = decode_command(memoryview(data)[4:])

    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert (reply.code, reply.opaque, reply.is_reply, reply.kind) == (0, -5, True, kind)
    assert reply.fields == {
        **TRACED,
        "msgId": "AB,CD",
        "queueId": "3",
        "queueOffset": str(2**40),
    }
