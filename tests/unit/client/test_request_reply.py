"""Properties of requests and replies: RocketMQ's names, and who may set them."""

from __future__ import annotations

import time

import pytest

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.sending.request_reply import asks_for_reply, reply_target, request_properties
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import MessageIllegalError

ASKED = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me", "TTL": "3000"}


def received(properties: dict[str, str], *, age_ms: int = 0) -> ReceivedMessage:
    message = Message(
        topic="prices",
        queue_id=0,
        body=b"tea",
        properties=encode_properties(properties),
        born_timestamp=time.time_ns() // 1_000_000 - age_ms,
    )
    return ReceivedMessage.of_record(memoryview(encode_message(message)))


def test_a_request_has_rocketmqs_properties_beside_its_own() -> None:
    found = request_properties({"a": "b"}, correlation_id="c1", client="me", timeout_s=3.0)

    assert found == ASKED | {"a": "b"}


def test_a_reply_repeats_them_and_goes_to_the_reply_topic() -> None:
    target = reply_target(received(ASKED | {"a": "b"}), {"c": "d"}, cluster="C")

    assert target == ("C_REPLY_TOPIC", "me", ASKED | {"MSG_TYPE": "reply", "c": "d"})


def test_the_cluster_of_the_request_counts() -> None:
    assert reply_target(received(ASKED | {"CLUSTER": "D"}), None, cluster="C").topic == (
        "D_REPLY_TOPIC"
    )


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_a_message_that_asks_for_no_reply_gets_none(missing: str) -> None:
    message = received({name: value for name, value in ASKED.items() if name != missing})

    assert not asks_for_reply(message)
    with pytest.raises(MessageIllegalError, match=missing):
        reply_target(message, None, cluster="C")


@pytest.mark.parametrize(
    ("ttl", "age_ms", "asks"),
    [("3000", 0, True), ("3000", 60_000, False), ("none", 60_000, True), ("60000", 3_000, True)],
)
def test_a_request_is_too_old_when_its_time_is_over(ttl: str, age_ms: int, asks: bool) -> None:
    assert asks_for_reply(received(ASKED | {"TTL": ttl}, age_ms=age_ms)) is asks


@pytest.mark.parametrize("name", ["CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"])
def test_an_application_does_not_set_them(name: str) -> None:
    with pytest.raises(MessageIllegalError, match=name):
        request_properties({name: "x"}, correlation_id="c1", client="me", timeout_s=1.0)
    with pytest.raises(MessageIllegalError, match=name):
        reply_target(received(ASKED), {name: "x"}, cluster="C")


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 1e9])
def test_a_request_has_a_time(timeout_s: float) -> None:
    with pytest.raises(MessageIllegalError, match="timeout"):
        request_properties(None, correlation_id="c1", client="me", timeout_s=timeout_s)
