"""Received messages: every field of the record, tolerant of nothing that is damaged."""

from __future__ import annotations

import contextlib
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.formats.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    Message,
    encode_message,
)
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import (
    BodyUnreadableError,
    CorruptLogError,
    MessageIllegalError,
    ProtocolError,
)
from ledgermq.wire.pull_frame import PullStatus, decode_pulled, encode_pulled

_HOSTS = st.sampled_from([("10.0.0.1", 10911), ("fe80::1", 65535)])
_MESSAGES = st.builds(
    Message,
    topic=st.text("abcXYZ", min_size=1, max_size=20),
    queue_id=st.integers(0, 2**31 - 1),
    body=st.binary(max_size=60),
    properties=st.just(encode_properties({"TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "U"})),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    physical_offset=st.integers(0, 2**63 - 1),
    born_timestamp=st.integers(0, 2**62),
    born_host=_HOSTS,
    store_timestamp=st.integers(0, 2**62),
    store_host=_HOSTS,
    reconsume_times=st.integers(0, 100),
)


def received(record: bytes, topic: str = "T") -> ReceivedMessage:
    return ReceivedMessage(topic, memoryview(b"hole" + record), 4, len(record))


@given(_MESSAGES)
def test_every_field_comes_back(message: Message) -> None:
    record = encode_message(message)

    found = received(record, message.topic)

    for name in (
        "topic", "queue_id", "flag", "queue_offset", "physical_offset", "born_timestamp",
        "born_host", "store_timestamp", "store_host", "reconsume_times",
    ):  # fmt: skip
        assert getattr(found, name) == getattr(message, name), name
    assert found.body == message.body
    assert (found.tag, found.keys, found.unique_id) == ("t", ("a", "b"), "U")
    assert found.record == record


@given(_MESSAGES, st.data())
def test_a_changed_byte_is_told_or_harmless(message: Message, data: st.DataObject) -> None:
    record = bytearray(encode_message(message))
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))

    with contextlib.suppress(CorruptLogError, ProtocolError):
        found = received(bytes(record))
        found.properties  # noqa: B018

        assert found.body == message.body


@given(_MESSAGES)
def test_a_cut_record_is_refused(message: Message) -> None:
    record = encode_message(message)

    for size in range(len(record)):
        with pytest.raises(CorruptLogError):
            ReceivedMessage("T", memoryview(record), 0, size)


def body_of(body: bytes) -> ReceivedMessage:
    return received(encode_message(Message(topic="T", queue_id=3, body=body, queue_offset=7)))


def test_a_body_is_bytes_a_view_a_text_and_json() -> None:
    found = body_of('{"pieces": 3, "of": "Äpfel"}'.encode())

    assert type(found.body) is bytes
    assert (type(found.body_view), found.body_view) == (memoryview, found.body)
    assert found.text() == '{"pieces": 3, "of": "Äpfel"}'
    assert found.json() == {"pieces": 3, "of": "Äpfel"}
    assert body_of("Ä".encode("latin-1")).text("latin-1") == "Ä"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_a_body_that_is_no_json_is_told_with_its_message(body: bytes) -> None:
    with pytest.raises(MessageIllegalError, match=r"body is no JSON .*queue_id=3, queue_offset=7"):
        body_of(body).json()


def test_a_body_that_is_no_text_is_told_with_its_message() -> None:
    with pytest.raises(MessageIllegalError, match=r"no text in utf-8 .*queue_offset=7, at=2"):
        body_of(b"ab\xff").text()


@pytest.mark.parametrize("kind", [0, COMPRESSION_ZLIB])
def test_a_compressed_body_comes_as_it_was(kind: int) -> None:
    stored = zlib.compress(b"x" * 1_000)
    message = Message(topic="T", queue_id=0, body=stored, sys_flag=COMPRESSED | kind)

    found = received(encode_message(message))

    assert found.body == b"x" * 1_000
    assert found.is_compressed
    assert found.body_fault is None
    assert found.stored_body == stored


@pytest.mark.parametrize("kind", [0x400, COMPRESSION_LZ4])
def test_a_body_that_cannot_be_decompressed_is_told_and_its_stored_bytes_are_there(
    kind: int,
) -> None:
    message = Message(topic="T", queue_id=0, body=b"lz", sys_flag=COMPRESSED | kind)

    found = received(encode_message(message))

    assert bytes(found.stored_body) == b"lz"
    assert found.is_compressed
    assert isinstance(found.body_fault, BodyUnreadableError)
    with pytest.raises(BodyUnreadableError, match="queue_offset=0"):
        _ = found.body


def test_a_batch_is_a_sequence_that_decodes_what_is_asked_for() -> None:
    records = [
        encode_message(Message(topic="T", queue_id=5, body=b"%d" % number, queue_offset=number))
        for number in range(6)
    ]
    starts = [sum(map(len, records[:number])) for number in range(6)]
    tables = encode_pulled(
        1, PullStatus.FOUND, next_offset=6, begin=0, end=9,
        starts=array("I", starts).tobytes(), sizes=array("I", map(len, records)).tobytes(),
    )  # fmt: skip
    payload = memoryview(b"".join(records))
    batch = MessageBatch("T", 5, decode_pulled(tables, records_size=len(payload)), payload)

    assert len(batch) == 6
    assert [bytes(message.body) for message in batch] == [b"%d" % number for number in range(6)]
    assert batch[-1].queue_offset == 5
    assert [message.queue_offset for message in batch[1:5:2]] == [1, 3]
    assert [bytes(record) for record in batch.raw()] == records
    assert batch.size == len(payload)
    with pytest.raises(IndexError):
        _ = batch[6]
