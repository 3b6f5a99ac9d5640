"""Delayed messages: their stored form while they wait, and the record that they become.

A message of a delay level stands in queue ``level - 1`` of RocketMQ's ``SCHEDULE_TOPIC_XXXX`` with
the properties DELAY (the level), REAL_TOPIC and REAL_QID. One with a time of its own, a *timer*,
stands in queue 0 of a topic of ours, and its properties begin with one of a fixed size:

    DELIVER_AT 0x01 <13 digits: epoch ms> 0x02 ...           with REAL_TOPIC and REAL_QID
    CANCELS_AT 0x01 <13 digits: queue offset> 0x02 ...       takes the timer at that offset back

What is delivered is the same message with its real topic and queue: RocketMQ leaves the properties
as they were, too (``ScheduleMessageService.messageTimeup``).
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.records.message import (
    MAGIC,
    MAGIC_AT,
    QUEUE_ID_AT,
    TOTAL_SIZE_AT,
    WORD,
    is_version_2,
    properties_in,
    queue_of,
)
from ledgermq.formats.records.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    decode_properties,
    encode_properties,
)
from ledgermq.formats.timer_wheel import TIMER_OUT, wheel_due_ms
from ledgermq.model.limits import (
    FORBIDDEN_TOPICS,
    PROPERTIES_SIZE_MAX,
    TIMER_TOPIC,
    TOPIC_CHARACTERS,
    TOPIC_SIZE_MAX,
)

DELIVER_AT = "DELIVER_AT"
CANCELS_AT = "CANCELS_AT"
TIME_DIGITS = 13
TIME_MAX = 10**TIME_DIGITS - 1

assert len(DELIVER_AT) == len(CANCELS_AT)
NUMBER_AT = len(DELIVER_AT) + 1
"""Where the digits stand in the properties."""

_INT = Struct(">i")
_SHORT = Struct(">h")
JAVA_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
"""A number in a property, as Java reads it."""

_TOPIC_NAME = re.compile(TOPIC_CHARACTERS)


class RealQueue(NamedTuple):
    """Where a message belongs."""

    topic: str
    queue_id: int


def level_properties(level: int, real: RealQueue) -> dict[str, str]:
    """What a message of a delay level has beside its own properties."""
    return {DELAY: str(level), REAL_TOPIC: real.topic, REAL_QUEUE_ID: str(real.queue_id)}


def timer_properties(deliver_at_ms: int, real: RealQueue) -> dict[str, str]:
    """What a timer has; they come before its own properties."""
    assert 0 <= deliver_at_ms <= TIME_MAX, deliver_at_ms
    return {
        DELIVER_AT: f"{deliver_at_ms:0{TIME_DIGITS}}",
        REAL_TOPIC: real.topic,
        REAL_QUEUE_ID: str(real.queue_id),
    }


def real_queue(properties: memoryview | bytes) -> RealQueue | None:
    """Where a message with these properties belongs; None when they do not say it."""
    found = decode_properties(properties)
    queue = found.get(REAL_QUEUE_ID, "")
    topic = found.get(REAL_TOPIC, "")
    if not topic or not queue.isascii() or not queue.isdecimal() or len(queue) > 9:
        return None
    return RealQueue(topic, int(queue))


def delay_level(properties: memoryview | bytes) -> int:
    """The delay level in these properties; 0 when they have none."""
    text = decode_properties(properties).get(DELAY, "")
    return max(0, int(text)) if JAVA_NUMBER.fullmatch(text) else 0


def has_delay(properties: memoryview | bytes) -> bool:
    """Whether these properties ask for a delay, or for what is no level at all."""
    text = decode_properties(properties).get(DELAY, "0")
    return not JAVA_NUMBER.fullmatch(text) or int(text) > 0


def timer_ms(properties: memoryview | bytes) -> int | None:
    """When a timer with these properties is due; None when they do not begin as those of one."""
    head = bytes(properties[: NUMBER_AT + TIME_DIGITS + 1])
    digits = head[NUMBER_AT : NUMBER_AT + TIME_DIGITS]
    if (
        head[:NUMBER_AT] != DELIVER_AT.encode() + b"\x01"
        or head[NUMBER_AT + TIME_DIGITS :] != b"\2"
    ):
        return None
    return int(digits) if digits.isdigit() else None


def delivered(record: memoryview) -> list[bytes]:
    """What a delayed message becomes when its time has come: one record, or none.

    As with RocketMQ nothing comes of a message that does not say where it belongs. Nor does
    anything of one that belongs into no topic, or into one of the broker's own: our writer takes
    none of these from clients, but a log may have been written by others.
    """
    real = real_queue(properties_in(record))
    if real is None or not may_reach(real.topic):
        return []
    return [moved_to(record, real.topic.encode(), real.queue_id)]


def timer_of_wheel(record: memoryview) -> list[bytes]:
    """What a message of RocketMQ 5's wheel (``formats/timer_wheel``) waits as here: a timer, or
    nothing where it does not say when, or where it belongs.
    """
    properties = properties_in(record)
    due_ms = wheel_due_ms(found := decode_properties(properties))
    real = real_queue(properties)
    if due_ms is None or real is None or not may_reach(real.topic):
        return []
    head = f"{DELIVER_AT}\x01{due_ms:0{TIME_DIGITS}}\x02".encode()
    if len(head) + len(properties) > PROPERTIES_SIZE_MAX:
        # The same time is told once.
        del found[TIMER_OUT]
        properties = memoryview(encode_properties(found))
    return [moved_to(record, TIMER_TOPIC.encode(), 0, head + bytes(properties))]


def may_reach(topic: str) -> bool:
    """Whether a message that has waited may come to a topic of that name."""
    is_name = len(topic) <= TOPIC_SIZE_MAX and _TOPIC_NAME.fullmatch(topic) is not None
    return is_name and topic not in FORBIDDEN_TOPICS


def moved_to(
    record: memoryview, topic: bytes, queue_id: int, properties: bytes | None = None
) -> bytes:
    """The same message in another queue; what the writer stamps is as it was.

    Args:
        record: whole and well-formed, without an entry header.
        properties: which it has from now on; None: as before.
    """
    old_topic, _ = queue_of(record)
    before = properties_in(record)
    properties_at = len(record) - len(before) - 2
    after = bytes(before) if properties is None else properties
    topic_at = properties_at - len(old_topic) - (2 if is_version_2(record) else 1)
    head = bytearray(record[:topic_at])
    size = topic_at + 1 + len(topic) + 2 + len(after)
    # What was of version 2 becomes what we write.
    WORD.pack_into(head, MAGIC_AT, MAGIC)
    _INT.pack_into(head, TOTAL_SIZE_AT, size)
    _INT.pack_into(head, QUEUE_ID_AT, queue_id)
    made = b"".join((head, bytes((len(topic),)), topic, _SHORT.pack(len(after)), after))
    assert len(made) == size
    return made
