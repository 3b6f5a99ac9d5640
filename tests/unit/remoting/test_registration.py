"""Registrations of brokers: RocketMQ 4's and 5's, compressed and not, and what is none."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.registration import (
    REGISTRATION_SIZE_MAX,
    WHOLE_KEY,
    RegisteredBroker,
    Registration,
    TableVersion,
    TopicShape,
    decode_registration,
    decode_version,
    encode_registration,
    encode_version,
    registered_broker,
)

FIELDS = {
    "brokerName": "b",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c",
    "brokerId": "0",
    "haServerAddr": "10.0.0.1:10912",
}
VERSION = TableVersion(3, 1_700_000_000_123)
ORDERS = {
    "order": True,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "orders",
    "topicSysFlag": 1,
    "writeQueueNums": 8,
}
WRAPPER = {
    "dataVersion": {"counter": 3, "timestamp": 1_700_000_000_123},
    "topicConfigTable": {"orders": ORDERS},
}


def body(wrapper: object = WRAPPER) -> bytes:
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def compressed(*topics: str, version: object = WRAPPER["dataVersion"]) -> bytes:
    parts = [sized(json.dumps(version).encode())]
    parts.append(struct.pack(">i", len(topics)))
    parts += [sized(topic.encode()) for topic in topics]
    return zlib.compress(b"".join((*parts, sized(b"[]"))), 9)


def test_a_body_in_json_tells_version_and_topics() -> None:
    told = decode_registration(FIELDS, body())

    assert told == Registration(
        VERSION, {"orders": TopicShape(4, 8, 6, 1, True)}, False, "10.0.0.1:10912"
    )


def test_a_body_of_rocketmq_5_is_read_with_what_it_has_besides() -> None:
    wrapper: dict[str, Any] = {
        "dataVersion": {"counter": 3, "stateVersion": 2, "timestamp": 1_700_000_000_123},
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": {"orders": {**ORDERS, "attributes": {"+message.type": "FIFO"}}},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }

    told = decode_registration({**FIELDS, "heartbeatTimeoutMillis": "1000"}, body(wrapper))

    assert told.version == TableVersion(3, 1_700_000_000_123, 2)
    assert told.topics["orders"].write_queues == 8


def test_a_body_of_rocketmq_3_is_the_table_alone_and_without_one_there_are_no_topics() -> None:
    assert decode_registration(FIELDS, json.dumps(WRAPPER).encode()).version == VERSION
    assert decode_registration(FIELDS, b"") == Registration(
        TableVersion(), {}, ha_address="10.0.0.1:10912"
    )


def test_a_compressed_body_tells_the_same_but_flags_and_orders() -> None:
    fields = {**FIELDS, "compressed": "true"}
    sent = compressed("orders 4 8 6 SINGLE_TAG", 'five 1 1 6 SINGLE_TAG {"+a":"b c"}')

    told = decode_registration(fields, sent)

    assert told.version == VERSION
    assert told.topics == {"orders": TopicShape(4, 8, 6), "five": TopicShape(1, 1, 6)}
    assert told.ha_address == "10.0.0.1:10912"


def test_what_is_encoded_is_read_again_whole() -> None:
    sent, about = encode_registration({"counter": 3, "timestamp": 7}, {"orders": ORDERS})

    told = decode_registration({**FIELDS, **about, WHOLE_KEY: "true"}, sent)

    assert told.is_whole
    assert told.version == TableVersion(3, 7)
    assert decode_version(encode_version(VERSION)) == VERSION


@pytest.mark.parametrize(
    ("fields", "sent", "reason"),
    [
        ({"bodyCrc32": "1"}, body(), "CRC"),
        ({}, b"x" * (REGISTRATION_SIZE_MAX + 1), "too large"),
        ({"compressed": "true"}, zlib.compress(bytes(REGISTRATION_SIZE_MAX + 1)), "too large"),
        ({"compressed": "true"}, compressed("orders 4 8 6 SINGLE_TAG")[:-5], "cut off"),
        ({"compressed": "true"}, body(), "no zlib stream"),
        ({"compressed": "true"}, compressed("orders 4 8 6"), "too few words"),
        ({"compressed": "true"}, compressed("orders 4 x 6 SINGLE_TAG"), "not a number"),
        ({"compressed": "true"}, zlib.compress(sized(b"{}") + b"\0\0\0\1"), "ends too early"),
        ({"compressed": "true"}, compressed("orders -1 8 6 SINGLE_TAG"), "out of its range"),
        ({}, body({**WRAPPER, "topicConfigTable": {"": ORDERS}}), "empty or too long"),
        ({}, body({**WRAPPER, "topicConfigTable": {"x" * 256: ORDERS}}), "empty or too long"),
        ({}, body({**WRAPPER, "topicConfigTable": {"a\nb": ORDERS}}), "characters"),
        ({}, body({**WRAPPER, "topicConfigTable": {"a": []}}), "another type"),
        ({}, body({**WRAPPER, "topicConfigTable": {"a": {**ORDERS, "perm": 16}}}), "range"),
        ({}, body({**WRAPPER, "topicConfigTable": {"a": {**ORDERS, "order": 1}}}), "type"),
        ({}, body({"topicConfigTable": {"a": {**ORDERS, "readQueueNums": 65_537}}}), "range"),
        ({}, body({"dataVersion": {"counter": -1}}), "out of its range"),
        ({}, b"[]", "not a JSON object"),
    ],
)
def test_what_is_no_registration_is_refused(
    fields: dict[str, str], sent: bytes, reason: str
) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_registration({**FIELDS, **fields}, sent)


def test_a_broker_is_known_by_four_fields() -> None:
    assert registered_broker(FIELDS) == RegisteredBroker("c", "b", 0, "10.0.0.1:10911")


@pytest.mark.parametrize(
    "fields",
    [
        {"brokerAddr": "10.0.0.1"},
        {"brokerAddr": "10.0.0.1:0"},
        {"brokerAddr": "10.0.0.1:99999999999"},
        {"brokerAddr": "10.0.0.1:a"},
        {"brokerName": ""},
        {"brokerName": "x" * 256},
        {"clusterName": "a\0b"},
        {"brokerId": "-1"},
        {"brokerId": "one"},
    ],
)
def test_who_is_no_broker_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        registered_broker({**FIELDS, **fields})
