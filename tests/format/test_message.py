from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.formats.records.delayed_message import moved_to
from ledgermq.formats.records.message import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    Message,
    decode_message,
    encode_message,
    message_size,
    properties_in,
    queue_of,
    tried_again,
)
from ledgermq.model.errors import CorruptLogError, MessageIllegalError
from tests.plain_codecs import as_version_2

VECTOR = bytes.fromhex(
    """
    00000075 daa320a7 3610a686 00000002 00000007 0000000000000005 0000000000000030
    00000000 00000174876e8000 0a000001000004d2 00000174876e8001 7f000001000078bf
    00000001 0000000000000009 00000005 68656c6c6f 01 54 0014
    5441475301 54616741 02 4b45595301 6b31206b32
    """
)
MESSAGE = Message(
    topic="T",
    queue_id=2,
    body=b"hello",
    properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2",
    flag=7,
    sys_flag=0,
    queue_offset=5,
    physical_offset=48,
    born_timestamp=1_600_000_000_000,
    born_host=("10.0.0.1", 1234),
    store_timestamp=1_600_000_000_001,
    store_host=("127.0.0.1", 30911),
    reconsume_times=1,
    prepared_transaction_offset=9,
    body_crc=907_060_870,
    size=117,
)
V6_MESSAGE = replace(
    MESSAGE, born_host=("fd00::1", 1), store_host=("fd00::2", 2), sys_flag=TRANSACTION_COMMIT
)

_I32 = st.integers(-(2**31), 2**31 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)
_HOSTS = st.tuples(
    st.sampled_from(["0.0.0.0", "10.255.0.1", "::", "fd00::1", "::ffff:1.2.3.4"]),
    st.integers(0, 65_535),
)
_MESSAGES = st.builds(
    Message,
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=31),
    queue_id=_I32,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    flag=_I32,
    sys_flag=_I32,
    queue_offset=_I64,
    physical_offset=_I64,
    born_timestamp=_I64,
    born_host=_HOSTS,
    store_timestamp=_I64,
    store_host=_HOSTS,
    reconsume_times=_I32,
    prepared_transaction_offset=_I64,
)

_FIELDS_V4 = {
    "total_size": (0, 4),
    "magic": (4, 8),
    "body_crc": (8, 12),
    "queue_id": (12, 16),
    "flag": (16, 20),
    "queue_offset": (20, 28),
    "physical_offset": (28, 36),
    "sys_flag": (36, 40),
    "born_timestamp": (40, 48),
    "born_host": (48, 56),
    "store_timestamp": (56, 64),
    "store_host": (64, 72),
    "reconsume_times": (72, 76),
    "prepared_transaction_offset": (76, 84),
    "body_size": (84, 88),
    "body": (88, 93),
    "topic_size": (93, 94),
    "topic": (94, 95),
    "properties_size": (95, 97),
    "properties": (97, 117),
}
_NOT_PROTECTED_BY_THE_FORMAT = {
    "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp",
    "born_host", "store_timestamp", "store_host", "reconsume_times",
    "prepared_transaction_offset", "topic", "properties",
}  # fmt: skip


def test_the_vector_of_the_real_broker_is_written_and_read() -> None:
    assert encode_message(MESSAGE) == VECTOR
    assert decode_message(memoryview(VECTOR)) == MESSAGE


def test_properties_of_a_message_are_found_by_name() -> None:
    message = replace(MESSAGE, properties=MESSAGE.properties + b"\x02UNIQ_KEY\x01AB")

    assert (message.tags, message.keys, message.unique_id) == ("TagA", ("k1", "k2"), "AB")
    assert replace(MESSAGE, properties=b"").keys == ()


@pytest.mark.slow
@given(_MESSAGES, st.binary(max_size=20), st.binary(max_size=20))
def test_every_message_is_read_as_it_was_written(
    message: Message, before: bytes, after: bytes
) -> None:
    record = encode_message(message)
    view = memoryview(before + record + after)
    found = decode_message(view, len(before), end=len(before) + len(record))

    host_bits = (BORN_HOST_V6 if ":" in message.born_host[0] else 0) | (
        STORE_HOST_V6 if ":" in message.store_host[0] else 0
    )
    sys_flag = message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | host_bits
    expected = replace(
        message, sys_flag=sys_flag, body_crc=found.body_crc, size=len(before + record) - len(before)
    )
    assert found == expected
    assert encode_message(found) == record
    assert found.size == message_size(
        topic_size=len(message.topic.encode()),
        body_size=len(message.body),
        properties_size=len(message.properties),
        sys_flag=sys_flag,
    )


@pytest.mark.parametrize("message", [MESSAGE, V6_MESSAGE, replace(MESSAGE, body=b"")])
def test_every_truncation_is_found(message: Message) -> None:
    record = encode_message(message)
    for size in range(len(record)):
        with pytest.raises(CorruptLogError):
            decode_message(memoryview(record)[:size])
        with pytest.raises(CorruptLogError):
            decode_message(memoryview(record), end=size)


@pytest.mark.parametrize("message", [MESSAGE, V6_MESSAGE, replace(MESSAGE, body=b"")])
def test_no_changed_byte_raises_another_error_or_gives_another_body(message: Message) -> None:
    record = bytearray(encode_message(message))
    for at, original in enumerate(bytes(record)):
        for value in range(256):
            record[at] = value
            try:
                found = decode_message(memoryview(record))
            except CorruptLogError as error:
                assert value != original
                assert error.details["field"]
            else:
                assert bytes(found.body) == message.body
        record[at] = original


def test_only_the_fields_that_the_format_leaves_unprotected_can_change_unseen() -> None:
    unseen = set()
    for field, (begin, end) in _FIELDS_V4.items():
        for at in range(begin, end):
            for mask in (0x01, 0x10, 0x80):
                record = bytearray(VECTOR)
                record[at] ^= mask
                try:
                    decode_message(memoryview(record))
                except CorruptLogError:
                    continue
                unseen.add(field)

    assert unseen == _NOT_PROTECTED_BY_THE_FORMAT


@pytest.mark.parametrize(
    ("at", "data", "field"),
    [
        (0, b"\x7f\xff\xff\xff", "total_size"),
        (0, b"\x80\x00\x00\x00", "total_size"),
        (0, b"\x00\x00\x00\x5a", "total_size"),
        (4, b"\xda\xa3\x20\xa8", "magic"),
        (8, b"\xb6", "body_crc"),
        (52, b"\x00\x01\x00\x00", "born_host"),
        (68, b"\xff\xff\xff\xff", "store_host"),
        (84, b"\x7f\xff\xff\xff", "body_size"),
        (84, b"\xff\xff\xff\xff", "body_size"),
        (88, b"H", "body_crc"),
        (93, b"\x00", "topic_size"),
        (93, b"\xff", "topic_size"),
        (94, b"\xff", "topic"),
        (95, b"\xff\xff", "properties_size"),
        (95, b"\x00\x13", "properties_size"),
    ],
)
def test_an_error_names_file_place_and_field(at: int, data: bytes, field: str) -> None:
    record = bytearray(8) + VECTOR
    record[8 + at : 8 + at + len(data)] = data
    with pytest.raises(CorruptLogError) as caught:
        decode_message(memoryview(record), 8, file="00000000000000000000")

    details = caught.value.details
    begin = _FIELDS_V4[field][0]
    assert (details["file"], details["field"]) == ("00000000000000000000", field)
    assert details["offset"] == 8 + begin


@given(st.binary(max_size=200))
@example(VECTOR[:8] + bytes(200))
def test_any_bytes_are_a_message_or_corrupt(data: bytes) -> None:
    for record in (data, VECTOR[:8] + data, VECTOR[:36] + data, VECTOR[:84] + data):
        try:
            message = decode_message(memoryview(record), check_crc=False)
        except CorruptLogError:
            continue
        assert message.size <= len(record)


def test_a_huge_size_allocates_nothing() -> None:
    records = [bytearray(VECTOR), bytearray(VECTOR)]
    records[0][0:4] = b"\x7f\xff\xff\xff"
    records[1][84:88] = b"\x7f\xff\xff\xff"
    tracemalloc.start()
    try:
        for record in records:
            with pytest.raises(CorruptLogError):
                decode_message(memoryview(record))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def test_the_crc_is_left_alone_when_told_so() -> None:
    record = bytearray(VECTOR)
    record[88:93] = b"HELLO"

    assert bytes(decode_message(memoryview(record), check_crc=False).body) == b"HELLO"


@pytest.mark.parametrize(
    "change",
    [
        {"topic": ""},
        {"topic": "t" * 128},
        {"topic": "ä" * 64},
        {"topic": "\ud800"},
        {"body": bytes(4 * 1024 * 1024 + 1)},
        {"properties": bytes(32_768)},
        {"queue_id": 2**31},
        {"queue_offset": -(2**63) - 1},
        {"born_host": ("localhost", 1)},
        {"store_host": ("127.0.0.1", 65_536)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MessageIllegalError):
        encode_message(replace(MESSAGE, **change))


def test_the_largest_parts_fit() -> None:
    message = replace(
        MESSAGE, topic="t" * 127, body=bytes(4 * 1024 * 1024), properties=bytes(32_767)
    )

    assert decode_message(memoryview(encode_message(message))).topic == message.topic


def _records(log_file: Path) -> list[tuple[bytes, Message]]:
    view = memoryview(log_file.read_bytes())
    records = []
    at = 0
    while view[at + 4 : at + 8] == VECTOR[4:8]:
        message = decode_message(view, at, file=log_file.name)
        records.append((bytes(view[at : at + message.size]), message))
        at += message.size
    return records


def test_messages_of_the_real_broker_are_written_with_the_same_bytes(golden: Any) -> None:
    files = sorted((golden("g6") / "commitlog").iterdir())
    records = [record for file in files for record in _records(file)]

    assert len(records) > 100
    assert any(":" in message.store_host[0] for _, message in records)
    for record, message in records:
        assert encode_message(message) == record


LONG_TOPIC = b"%RETRY%" + b"g" * 60 + b"_" + b"t" * 187


@given(_MESSAGES)
def test_a_record_of_version_2_says_the_same_under_a_longer_topic(message: Message) -> None:
    assert len(LONG_TOPIC) == 255
    record = as_version_2(encode_message(message), topic=LONG_TOPIC)
    found = decode_message(memoryview(record))
    same = decode_message(memoryview(encode_message(message)))

    assert found == replace(same, topic=LONG_TOPIC.decode(), size=len(record))
    assert queue_of(memoryview(record)) == (LONG_TOPIC, message.queue_id)
    assert properties_in(memoryview(record)) == message.properties
    received = ReceivedMessage.of_record(memoryview(record))
    assert received.topic == LONG_TOPIC.decode()
    assert received.properties == message.parsed_properties()


def test_a_record_of_version_2_has_no_topic_that_could_not_be_a_folder() -> None:
    record = encode_message(Message(topic="t", queue_id=0, body=b"b"))
    for topic in (b"", b"t" * 256):
        with pytest.raises(CorruptLogError) as raised:
            decode_message(memoryview(as_version_2(record, topic=topic)))

        assert raised.value.details["field"] == "topic_size"


def test_a_message_of_version_2_is_moved_as_one_of_ours() -> None:
    message = Message(topic="t", queue_id=0, body=b"body", properties=b"a\x01b\x02")
    record = as_version_2(encode_message(message), topic=LONG_TOPIC)
    moved = moved_to(memoryview(record), b"orders", 3)

    assert moved == encode_message(replace(message, topic="orders", queue_id=3))


@given(_MESSAGES, st.integers(0, 2**31 - 1))
def test_a_message_that_is_tried_again_differs_in_that_alone(message: Message, times: int) -> None:
    record = encode_message(message)

    again = decode_message(memoryview(tried_again(record, times)))

    assert again == replace(decode_message(memoryview(record)), reconsume_times=times)
