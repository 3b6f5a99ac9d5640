"""When a message is delivered, as an application asks for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from ledgermq.client.sending.delivery import (
    AT_ONCE,
    Delivery,
    delayed,
    delivery_of,
    level_of,
    waiting_place,
)
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.formats.records.delayed_message import RealQueue
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import DELAY_TOPIC, DELIVERY_AHEAD_MS_MAX, TIMER_TOPIC

REAL = RealQueue("orders", 3)


def test_a_time_may_be_given_in_several_ways() -> None:
    now = time.time_ns() // 1_000_000
    at = datetime(2020, 1, 2, tzinfo=UTC)
    soon = delivery_of(0, delay=timedelta(minutes=1), deliver_at=None)
    later = delivery_of(0, delay=5_000, deliver_at=None)

    assert delivery_of(0, delay=None, deliver_at=None) is AT_ONCE
    assert delivery_of(4, delay=None, deliver_at=None) == Delivery(4)
    assert delivery_of(0, delay=None, deliver_at=at) == Delivery(0, 1_577_923_200_000)
    assert delivery_of(0, delay=None, deliver_at=17) == Delivery(0, 17)
    assert soon.at_ms is not None and soon.at_ms >= now + 60_000
    assert later.at_ms is not None and later.at_ms >= now + 5_000


@pytest.mark.parametrize(
    ("level", "delay", "deliver_at", "text"),
    [
        (1, 1, None, "give one"),
        (0, 1, 1, "give one"),
        (-1, None, None, "negative"),
        (0, -1, None, "negative"),
        (0, DELIVERY_AHEAD_MS_MAX + 60_000, None, "too far ahead"),
        (0, timedelta(days=367), None, "limit"),
        (0, None, 10**15, "too far ahead"),
        (0, None, datetime(2020, 1, 1), "no zone"),
    ],
)
def test_what_makes_no_sense_is_refused(
    level: int, delay: int | None, deliver_at: int | None, text: str
) -> None:
    with pytest.raises(MessageIllegalError, match=text):
        delivery_of(level, delay=delay, deliver_at=deliver_at)


def test_a_level_is_bounded_as_java_does_it() -> None:
    place = waiting_place(Delivery(25), REAL, 18)

    assert place is not None
    assert (place.topic, place.queue_id) == (DELAY_TOPIC.encode(), 17)
    assert place.properties == {"DELAY": "18", "REAL_TOPIC": "orders", "REAL_QID": "3"}
    assert waiting_place(AT_ONCE, REAL, 18) is None
    assert waiting_place(Delivery(3), REAL, 0) is None


def test_a_timer_says_first_when_it_is_due() -> None:
    place = waiting_place(Delivery(0, 5), REAL, 18)
    assert place is not None
    own = {"a": "b", "REAL_TOPIC": "forged", "DELIVER_AT": "1", "DELAY": "2"}
    message = delayed(OutgoingMessage(b"", properties=own), place)

    assert (place.topic, place.queue_id) == (TIMER_TOPIC.encode(), 0)
    assert list((message.properties or {}).items()) == [
        ("DELIVER_AT", "0000000000005"),
        ("REAL_TOPIC", "orders"),
        ("REAL_QID", "3"),
        ("a", "b"),
    ]


def test_the_property_of_rocketmq_is_a_level_too() -> None:
    assert level_of({"DELAY": "3"}) == 3
    assert level_of({"DELAY": "-1"}) == level_of({}) == level_of(None) == 0
    with pytest.raises(MessageIllegalError, match="no number"):
        level_of({"DELAY": "soon"})
