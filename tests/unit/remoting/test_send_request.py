"""What producers send: long names, letters, and batches in Java's own bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.properties import decode_properties
from ledgermq.model.errors import MessageIllegalError, ProtocolError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.send_request import decode_batch, decode_send

JAVA_UNIT = bytes.fromhex(
    "00000035 00000000 00000000 00000000 00000005 68656c6c6f 001a 4b455953016b02"
    "57414954 01 74727565 02 54414753 01 54616741"
)
"""Written by RocketMQ 4.9.4: "hello", the key k, the tag TagA."""

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


def test_a_batch_of_java_is_read() -> None:
    units = decode_batch(memoryview(JAVA_UNIT * 2), limit=2)

    assert [bytes(unit.body) for unit in units] == [b"hello", b"hello"]
    assert decode_properties(units[1].properties) == {"KEYS": "k", "WAIT": "true", "TAGS": "TagA"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (JAVA_UNIT * 3, "too many"),
        (JAVA_UNIT[:-1], "does not fit"),
        (JAVA_UNIT + b"\0", "does not fit"),
        (b"\0\0\0\x34" + JAVA_UNIT[4:], "does not fit"),
        (JAVA_UNIT[:16] + b"\xff\xff\xff\xff" + JAVA_UNIT[20:], "does not fit"),
        (b"\x80\0\0\0" + JAVA_UNIT[4:], "does not fit"),
    ],
)
def test_a_batch_that_is_none_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(MessageIllegalError, match=words):
        decode_batch(memoryview(body), limit=2)


@given(st.integers(0, len(JAVA_UNIT) - 1), st.integers(0, 255), st.binary(max_size=8))
def test_a_changed_batch_is_read_within_its_bytes_or_refused(
    at: int, byte: int, behind: bytes
) -> None:
    body = bytearray(JAVA_UNIT * 2 + behind)
    body[at] = byte
    try:
        units = decode_batch(memoryview(body), limit=10)
    except MessageIllegalError:
        return
    assert sum(22 + len(unit.body) + len(unit.properties) for unit in units) == len(body)
