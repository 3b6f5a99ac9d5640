"""What producers send: long names, and letters."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.send_request import decode_send

SHORT = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "4",
    "g": "1700000000000", "h": "9", "i": "TAGS\x01a", "j": "3", "k": "false", "l": "16",
    "m": "false", "n": "broker-a",
}  # fmt: skip
LONG = {
    "producerGroup": "producers", "topic": "orders", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "2", "sysFlag": "4", "bornTimestamp": "1700000000000",
    "flag": "9", "properties": "TAGS\x01a", "reconsumeTimes": "3", "unitMode": "false",
    "maxReconsumeTimes": "16", "batch": "false", "bname": "broker-a",
}  # fmt: skip


def test_letters_mean_what_the_long_names_mean() -> None:
    short = decode_send(Command(RequestCode.SEND_MESSAGE_V2, fields=SHORT))
    long = decode_send(Command(RequestCode.SEND_MESSAGE, fields=LONG))

    assert short == long
    assert (short.topic, short.queue_id, short.max_reconsume_times) == ("orders", 2, 16)
    assert (short.born_timestamp, short.is_batch) == (1_700_000_000_000, False)


@pytest.mark.parametrize(
    ("code", "batch", "is_batch"),
    [
        (RequestCode.SEND_BATCH_MESSAGE, "false", True),
        (RequestCode.SEND_MESSAGE_V2, "true", True),
        (RequestCode.SEND_MESSAGE_V2, "false", False),
    ],
)
def test_a_batch_is_told_by_its_code_or_by_its_field(
    code: RequestCode, batch: str, is_batch: bool
) -> None:
    request = decode_send(Command(code, fields={**SHORT, "m": batch}))

    assert request.is_batch is is_batch


def test_what_clients_leave_out_has_javas_value() -> None:
    fields = {name: SHORT[name] for name in "abeg"}

    request = decode_send(Command(RequestCode.SEND_MESSAGE_V2, fields=fields))

    assert request.max_reconsume_times is None
    assert (request.properties, request.reconsume_times, request.sys_flag) == ("", 0, 0)


@pytest.mark.parametrize("name", "abeg")
def test_a_field_that_must_be_there_is_named(name: str) -> None:
    fields = {key: value for key, value in SHORT.items() if key != name}

    with pytest.raises(ProtocolError) as refused:
        decode_send(Command(RequestCode.SEND_MESSAGE_V2, fields=fields))

    assert refused.value.details["field"] == name
