"""What of a producer's delayed messages is stored, and what is refused with the record's number."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest

from ledgermq.formats.kernels import kernel as compiled_kernel
from ledgermq.formats.kernels.kernel import load_plain
from ledgermq.formats.records.delayed_message import (
    RealQueue,
    delivered,
    level_properties,
    timer_properties,
)
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import LedgerError, TopicUnknownError
from ledgermq.model.limits import DELAY_TOPIC, DELIVERY_AHEAD_MS_MAX, TIMER_TOPIC
from ledgermq.wire.send_frame import SendRun
from ledgermq.writer.admission.delayed_frames import DelayRules

HOLE = 48
NOW = 1_700_000_000_000
REAL = RealQueue("orders", 2)


def record(topic: str, queue_id: int, properties: dict[str, str]) -> bytes:
    message = Message(
        topic=topic, queue_id=queue_id, body=b"body", properties=encode_properties(properties)
    )
    return bytes(HOLE) + encode_message(message)


def check(topic: str, queue_id: int, *properties: dict[str, str]) -> None:
    def check_queue(name: bytes, number: int) -> object | None:
        if name == b"half":
            return "only half messages"
        if (name, number) != (b"orders", 2):
            raise TopicUnknownError("topic does not exist", topic=name.decode())
        return None

    rules = DelayRules(check_queue, levels=3, header_size=HOLE, record_max=1_000)
    records = [record(topic, queue_id, one) for one in properties]
    run = SendRun(len(records), queue_id, topic.encode())
    if topic in (DELAY_TOPIC, TIMER_TOPIC):
        rules.check_place(run)
    # The run is not the first of its frame.
    sizes = memoryview(array("I", [7, *map(len, records)]))
    rules.check_run(run, memoryview(b"".join(records)), sizes, first=1, now_ms=NOW)


def level(number: int, real: RealQueue = REAL) -> dict[str, str]:
    return {"TAGS": "a", **level_properties(number, real)}


def timer(at_ms: int, real: RealQueue = REAL) -> dict[str, str]:
    return {**timer_properties(at_ms, real), "TAGS": "a"}


def test_messages_that_say_where_they_belong_may_wait() -> None:
    check(DELAY_TOPIC, 1, level(2), level(2))
    check(TIMER_TOPIC, 0, timer(NOW - 5), timer(NOW + DELIVERY_AHEAD_MS_MAX))
    check(DELAY_TOPIC, 1, {**level(2), "DELAY": "+2"})
    check("orders", 2, {"TAGS": "DELAY"}, {"DELAYS": "1"}, {"XDELAY": "1"}, {})


def test_a_level_of_zero_or_below_waits_for_nothing_and_those_behind_it_are_looked_at() -> None:
    none = [{"DELAY": "0"}, {"TAGS": "a"}, {"DELAY": "-1", "TAGS": "a"}, {"TAGS": "longer"}]
    check("orders", 2, *none)
    with pytest.raises(LedgerError, match="where it waits") as refusal:
        check("orders", 2, *none, {"TAGS": "a", "DELAY": "+1"})

    assert refusal.value.details["record"] == 5


@pytest.mark.parametrize(
    ("topic", "queue_id", "wrong", "text"),
    [
        (DELAY_TOPIC, 1, level(1), "not that of the queue"),
        (DELAY_TOPIC, 1, {"DELAY": "2"}, "where it belongs"),
        (DELAY_TOPIC, 1, level(2, RealQueue("orders", 3)), "does not exist"),
        (DELAY_TOPIC, 1, level(2, RealQueue("half", 0)), "no delayed messages"),
        (TIMER_TOPIC, 0, {"TAGS": "a", **timer_properties(NOW, REAL)}, "when it is due"),
        (TIMER_TOPIC, 0, {**timer(NOW), "DELIVER_AT": "12"}, "when it is due"),
        (TIMER_TOPIC, 0, timer(NOW + 2 * DELIVERY_AHEAD_MS_MAX), "too far ahead"),
        ("orders", 2, {"TAGS": "a", "DELAY": "1"}, "where it waits"),
        ("orders", 2, {"DELAY": "1"}, "where it waits"),
        ("orders", 2, {"DELAY": "soon"}, "where it waits"),
    ],
)
def test_others_are_refused_with_their_number(
    topic: str, queue_id: int, wrong: dict[str, str], text: str
) -> None:
    right = {DELAY_TOPIC: level(2), TIMER_TOPIC: timer(NOW), "orders": {"TAGS": "a"}}[topic]
    with pytest.raises(LedgerError, match=text) as refusal:
        check(topic, queue_id, right, wrong)

    assert refusal.value.details["record"] == 2


@pytest.mark.parametrize(
    ("topic", "queue_id"), [(DELAY_TOPIC, 3), (DELAY_TOPIC, -1), (TIMER_TOPIC, 1)]
)
def test_nothing_waits_in_a_queue_that_nobody_delivers(topic: str, queue_id: int) -> None:
    with pytest.raises(TopicUnknownError, match="message_delay_level"):
        check(topic, queue_id, level(1))


@pytest.mark.parametrize("kernel", [compiled_kernel, load_plain("ledgermq.formats.kernels._scan")])
def test_the_first_delayed_record_is_found_whatever_the_hosts(kernel: ModuleType) -> None:
    records = []
    for host in (("1.2.3.4", 1), ("::1", 2)):
        for properties in (b"", b"TAGS\x01a", b"KEYS\x01DELAY", b"TAGS\x01a\x02DELAY\x011"):
            message = Message(
                topic="t", queue_id=0, body=b"DELAY\x01", properties=properties, born_host=host
            )
            records.append(encode_message(message))
    sizes = memoryview(array("I", map(len, records)))
    payload = memoryview(b"".join(records))
    half = sum(sizes[:4])

    assert kernel.first_delayed(payload, 0, sizes, 0, 8, 0) == 3
    assert kernel.first_delayed(payload, half, sizes, 4, 4, 0) == 7
    assert kernel.first_delayed(payload, 0, sizes, 0, 3, 0) == -1


def test_what_is_delivered_is_the_same_message_where_it_belongs() -> None:
    waits = record(DELAY_TOPIC, 1, level(2))[HOLE:]
    (made,) = delivered(memoryview(waits))
    before, after = decode_message(memoryview(waits)), decode_message(memoryview(made))

    assert (after.topic, after.queue_id) == ("orders", 2)
    assert bytes(after.body) == bytes(before.body)
    assert after.properties == before.properties
    assert delivered(memoryview(record(DELAY_TOPIC, 1, {"DELAY": "1"}))[HOLE:]) == []
    half = level(1, RealQueue("RMQ_SYS_TRANS_HALF_TOPIC", 0))
    assert delivered(memoryview(record(DELAY_TOPIC, 0, half))[HOLE:]) == []
