"""Properties of RocketMQ's clients: what the broker stores, and what it reads of them."""

from __future__ import annotations

import pytest

from ledgermq.formats.records.delayed_message import RealQueue
from ledgermq.formats.records.properties import decode_properties
from ledgermq.gateway.producing.sent_properties import Destination, SentProperties
from ledgermq.model.errors import MessageIllegalError

REAL = RealQueue("orders", 3)
NOW_MS = 1_700_000_000_000
RULES = SentProperties("c1")


def destination(text: str, *, levels: int = 18, is_retried: bool = False) -> Destination:
    return RULES.destination(text, REAL, now_ms=NOW_MS, levels=levels, is_retried=is_retried)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", b"CLUSTER\x01c1"),
        ("A\x01b", b"A\x01b\x02CLUSTER\x01c1"),
        ("A\x01b\x02", b"A\x01b\x02CLUSTER\x01c1"),
        ("WAIT\x01true", b"CLUSTER\x01c1"),
        ("WAIT\x01true\x02A\x01b", b"A\x01b\x02CLUSTER\x01c1"),
        ("A\x01b\x02WAIT\x01false\x02B\x01c", b"A\x01b\x02B\x01c\x02CLUSTER\x01c1"),
        ("A\x01b\x02WAIT\x01true", b"A\x01b\x02CLUSTER\x01c1"),
        ("MYWAIT\x01true\x02B\x01WAIT", b"MYWAIT\x01true\x02B\x01WAIT\x02CLUSTER\x01c1"),
        ("A\x01b\x02WAIT\x01truely", b"A\x01b\x02CLUSTER\x01c1"),
    ],
)
def test_the_text_is_stored_as_it_came_without_what_is_for_the_broker_alone(
    text: str, stored: bytes
) -> None:
    assert RULES.plain(text) == stored


def test_a_delayed_message_waits_at_its_level_and_says_where_it_belongs() -> None:
    place = destination("TAGS\x01a\x02DELAY\x0199\x02WAIT\x01true")

    assert (place.topic, place.queue_id, place.is_half) == (b"SCHEDULE_TOPIC_XXXX", 17, False)
    assert decode_properties(place.properties) == {
        "TAGS": "a",
        "CLUSTER": "c1",
        "DELAY": "18",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize("level", ["0", "-1", "+0", "-2147483648"])
def test_no_level_is_no_delay_and_is_stored_as_it_came(level: str) -> None:
    place = destination(f"DELAY\x01{level}\x02A\x01b")

    assert (place.topic, place.queue_id) == (b"orders", 3)
    assert decode_properties(place.properties) == {"A": "b", "CLUSTER": "c1", "DELAY": level}


def test_a_level_with_a_sign_is_one() -> None:
    place = destination("DELAY\x01+1\x02")

    assert (place.topic, place.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 0)
    assert decode_properties(place.properties)["DELAY"] == "+1"


def test_where_there_are_no_levels_a_delay_leaves_no_trace() -> None:
    place = destination("A\x01b\x02DELAY\x013", levels=0)

    assert (place.topic, place.queue_id) == (b"orders", 3)
    assert decode_properties(place.properties) == {"A": "b", "CLUSTER": "c1"}


def test_a_half_message_waits_for_its_end() -> None:
    place = destination("UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02DELAY\x013")

    assert (place.topic, place.queue_id, place.is_half) == (b"RMQ_SYS_TRANS_HALF_TOPIC", 0, True)
    assert decode_properties(place.properties) == {
        "UNIQ_KEY": "u",
        "TRAN_MSG": "true",
        "PGROUP": "g",
        "CLUSTER": "c1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


def test_a_retry_of_what_was_once_a_half_message_is_none() -> None:
    place = destination(
        "TRAN_MSG\x01true\x02REAL_TOPIC\x01old\x02REAL_QID\x019\x02DELAY\x013", is_retried=True
    )

    assert (place.topic, place.queue_id, place.is_half) == (b"SCHEDULE_TOPIC_XXXX", 2, False)
    assert decode_properties(place.properties)["REAL_TOPIC"] == "orders"


@pytest.mark.parametrize(
    ("text", "due_ms"),
    [
        (f"TIMER_DELIVER_MS\x01{NOW_MS + 5_000}", NOW_MS + 5_000),
        (f"__STARTDELIVERTIME\x01{NOW_MS + 7_000}", NOW_MS + 7_000),
        ("TIMER_DELAY_MS\x01300", NOW_MS + 300),
        ("TIMER_DELAY_SEC\x012", NOW_MS + 2_000),
    ],
)
def test_a_time_of_delivery_counts_as_newer_clients_say_it(text: str, due_ms: int) -> None:
    place = destination(text)

    assert (place.topic, place.queue_id) == (b"LEDGERMQ_TIMER", 0)
    assert place.properties.startswith(b"DELIVER_AT\x01%d\x02" % due_ms)
    # Whoever delivers it does not have it wait for as long again.
    time = decode_properties(place.properties).get("TIMER_OUT_MS")
    assert time == (str(due_ms) if "TIMER_DELAY" in text else None)


@pytest.mark.parametrize(
    "text",
    [
        f"TIMER_DELIVER_MS\x01{NOW_MS}",
        "TIMER_DELAY_SEC\x01-1",
        "__STARTDELIVERTIME\x01-1",
        "__STARTDELIVERTIME\x01tomorrow",
    ],
)
def test_a_time_that_is_over_or_means_nothing_to_rocketmq_is_now(text: str) -> None:
    place = destination(text)

    assert place.topic == b"orders"
    assert place.properties == text.encode() + b"\x02CLUSTER\x01c1"


@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x01soon",
        "DELAY\x012147483648",
        "DELAY\x01+",
        "TIMER_DELAY_SEC\x01soon",
        "TIMER_DELAY_SEC\x0199999999999",
        "A\x01" + "b" * 33_000,
    ],
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegalError):
        if RULES.plain(text) is None:
            destination(text)


@pytest.mark.parametrize("text", ["DELAY\x013", "TRAN_MSG\x01true"])
def test_a_batch_cannot_wait(text: str) -> None:
    with pytest.raises(MessageIllegalError):
        RULES.of_batch(text)


def test_what_a_batch_says_goes_to_each_message() -> None:
    assert RULES.of_batch("WAIT\x01true") == b"CLUSTER\x01c1"
    assert RULES.of_batch("DELAY\x01-1\x02A\x01b") == b"DELAY\x01-1\x02A\x01b\x02CLUSTER\x01c1"


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("_SYS_MSG_PRIORITY_\x013", "3"),
        ("_SYS_MSG_PRIORITY_\x013\x02__SHARDINGKEY\x01k", None),
        ("_SYS_MSG_PRIORITY_\x013\x02TRAN_MSG\x01true", None),
        ("_SYS_MSG_PRIORITY_\x013\x02DELAY\x012", None),
        (f"_SYS_MSG_PRIORITY_\x013\x02TIMER_DELIVER_MS\x01{NOW_MS + 5_000}", None),
        ("_SYS_MSG_PRIORITY_\x01-1", "-1"),
        ("_SYS_MSG_PRIORITY_\x01" + "9" * 400, "9" * 400),
    ],
)
def test_a_message_of_another_type_has_no_priority(text: str, priority: str | None) -> None:
    found = decode_properties(destination(text).properties)

    assert RULES.plain(text) is None
    assert found.get("_SYS_MSG_PRIORITY_") == priority
