"""Packs in a producer's frame: each row passes the rules of its own topic, or none is stored."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from ledgermq.formats.config_json import encode_document
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.limits import STAGED_TOPIC, SYSTEM_TOPIC, TIMER_TOPIC
from ledgermq.model.names.transactions import HALF_TOPIC
from ledgermq.rules.tables.topics import Topic
from ledgermq.wire.send_frame import SendFrame, SendRun
from ledgermq.wire.staged_pack import encode_pack
from ledgermq.writer.admission.record_rules import RecordRules
from ledgermq.writer.admission.writable_topics import WritableTopics

HOLE = 48
ROW_MAX = 5_000


@pytest.fixture
def rules(tmp_path: Path) -> RecordRules:
    path = tmp_path / "topics.json"
    document = {"topicConfigTable": {"orders": Topic("orders", 4, 4).to_fields()}}
    path.write_bytes(encode_document(document))
    return RecordRules(
        WritableTopics(path),
        levels=18,
        header_size=HOLE,
        store_host_size=8,
        record_max=100_000,
        body_max=ROW_MAX * 4,
    )


def row(topic: str = "orders", queue_id: int = 1, **fields: object) -> bytes:
    message = Message(topic=topic, queue_id=queue_id, body=b"row", **fields)  # type: ignore[arg-type]
    return encode_message(message)


def pack_of(rows: list[bytes], topic: str = "orders", queue_id: int = 1, host: int = 8) -> bytes:
    sizes = array("I", map(len, rows)).tobytes()
    return encode_pack(host, sizes, [SendRun(len(rows), queue_id, topic.encode())], b"".join(rows))


def check(rules: RecordRules, *packs: bytes, label: str = "sink/0/name", queue_id: int = 0) -> None:
    properties = encode_properties({"STAGE": label} if label else {"other": "1"})
    records = [
        bytes(HOLE)
        + encode_message(
            Message(topic=STAGED_TOPIC, queue_id=queue_id, body=body, properties=properties)
        )
        for body in packs
    ]
    sizes = memoryview(array("I", map(len, records)))
    runs = [SendRun(len(records), queue_id, STAGED_TOPIC.encode())]
    payload = b"".join(records)
    frame = SendFrame(1, False, False, sizes, runs, len(payload), 0, HOLE, 8, memoryview(b""))
    rules.check(frame, memoryview(payload), 1_000)


def test_rows_that_their_topic_takes_may_be_staged(rules: RecordRules) -> None:
    check(rules, pack_of([row(), row()]), pack_of([row()]))


@pytest.mark.parametrize(
    ("pack", "error"),
    [
        (pack_of([row("nothing")], "nothing"), TopicUnknownError),
        (pack_of([row(queue_id=4)], queue_id=4), TopicUnknownError),
        (pack_of([row(SYSTEM_TOPIC, 0)], SYSTEM_TOPIC, 0), NoPermissionError),
        (pack_of([row(STAGED_TOPIC, 0)], STAGED_TOPIC, 0), NoPermissionError),
        (pack_of([row(HALF_TOPIC, 0)], HALF_TOPIC, 0), NoPermissionError),
        (pack_of([row(TIMER_TOPIC, 0)], TIMER_TOPIC, 0), NoPermissionError),
        (pack_of([row(), row(queue_id=2)]), MessageIllegalError),
        (pack_of([row(), row("other")]), MessageIllegalError),
        (pack_of([row(), bytearray(row()).replace(b"row", b"rov")]), MessageIllegalError),
        (pack_of([row()], host=20), MessageIllegalError),
        (pack_of([row(properties=encode_properties({"DELAY": "3"}))]), MessageIllegalError),
        (b"no pack", ProtocolError),
    ],
)
def test_a_row_that_its_topic_would_not_take_is_not_staged(
    rules: RecordRules, pack: bytes, error: type[LedgerError]
) -> None:
    with pytest.raises(error) as caught:
        check(rules, pack_of([row()]), pack)

    assert caught.value.details["record"] == 1


def test_the_row_that_is_wrong_is_named(rules: RecordRules) -> None:
    with pytest.raises(MessageIllegalError) as caught:
        check(rules, pack_of([row(), row(), row(queue_id=2)]))

    assert (caught.value.details["record"], caught.value.details["row"]) == (0, 2)


def test_a_pack_without_a_stage_or_in_another_queue_is_refused(rules: RecordRules) -> None:
    with pytest.raises(MessageIllegalError, match="whose"):
        check(rules, pack_of([row()]), label="")
    with pytest.raises(TopicUnknownError):
        check(rules, pack_of([row()]), queue_id=1)
