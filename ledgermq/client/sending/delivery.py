"""Time of delivery of a message: at once, after one of RocketMQ's delay levels, or at a time.

A delayed message is sent to the topic where it waits; the properties say where it belongs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ledgermq.client.core.wrong_calls import check_one_of, is_in_seconds
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.formats.records.delayed_message import RealQueue, level_properties, timer_properties
from ledgermq.formats.records.properties import DELAY
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import DELAY_TOPIC, DELIVERY_AHEAD_MS_MAX, TIMER_TOPIC

Properties = Mapping[str, str] | None

_MS = timedelta(milliseconds=1)


class Delivery(NamedTuple):
    """One of both, or neither: at once.

    Attributes:
        level: RocketMQ's delay level, from 1; above the node's highest it is that.
        at_ms: epoch milliseconds.
    """

    level: int = 0
    at_ms: int | None = None


AT_ONCE = Delivery()


class Waiting(NamedTuple):
    """The queue where messages wait, and the properties that they have there."""

    topic: bytes
    queue_id: int
    properties: Mapping[str, str]


def delivery_of(
    delay_level: int,
    *,
    delay: int | timedelta | None,
    deliver_at: int | datetime | None,
) -> Delivery:
    """What a caller asks for.

    Args:
        delay: milliseconds from now.
        deliver_at: epoch milliseconds; a ``datetime`` knows its zone.

    Raises:
        MessageIllegalError: more than one is given, a number is negative, or the time is more than
            a year ahead; or what is given is no number, nor a time.
    """
    if not delay_level and delay is None and deliver_at is None:
        return AT_ONCE
    now_ms = time.time_ns() // 1_000_000
    check_one_of(
        MessageIllegalError, delay_level=delay_level or None, delay=delay, deliver_at=deliver_at
    )
    if _is_no_number(delay_level):
        raise MessageIllegalError("delay_level is no whole number", delay_level=delay_level)
    if delay_level < 0:
        raise MessageIllegalError("delay level is negative", delay_level=delay_level)
    at_ms = _time_ms(delay, deliver_at, now_ms)
    if at_ms is not None:
        at_ms = max(at_ms, 0)
        if at_ms > now_ms + DELIVERY_AHEAD_MS_MAX:
            raise MessageIllegalError(
                "delivery is too far ahead",
                ahead_ms=at_ms - now_ms,
                limit=DELIVERY_AHEAD_MS_MAX,
                setting="none: it is a year",
            )
    return Delivery(delay_level, at_ms)


def _time_ms(
    delay: int | timedelta | None, deliver_at: int | datetime | None, now_ms: int
) -> int | None:
    """The time that is asked for, in epoch milliseconds."""
    if delay is not None:
        if not isinstance(delay, timedelta) and _is_no_number(delay):
            raise MessageIllegalError(
                "delay is no whole number of milliseconds, nor a timedelta", delay=delay
            )
        delay_ms = delay if isinstance(delay, int) else delay // _MS
        if delay_ms < 0:
            raise MessageIllegalError("delay is negative", delay_ms=delay_ms)
        return now_ms + delay_ms
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise MessageIllegalError("deliver_at has no zone", deliver_at=str(deliver_at))
        return (deliver_at - datetime(1970, 1, 1, tzinfo=UTC)) // _MS
    if deliver_at is not None and _is_no_number(deliver_at):
        raise MessageIllegalError(
            "deliver_at is no whole number of epoch milliseconds, nor a datetime",
            deliver_at=deliver_at,
        )
    if is_in_seconds(deliver_at):
        raise MessageIllegalError(
            "deliver_at is in seconds, not in epoch milliseconds", deliver_at=deliver_at
        )
    return deliver_at


def _is_no_number(value: object) -> bool:
    return isinstance(value, bool) or not isinstance(value, int)


def level_of(properties: Properties) -> int:
    """The delay level that an application gives as RocketMQ's property; 0: none."""
    text = (properties or {}).get(DELAY, "0")
    try:
        return max(int(text), 0)
    except ValueError as error:
        raise MessageIllegalError("delay level is no number", property=DELAY, value=text) from error


def waiting_place(delivery: Delivery, real: RealQueue, levels: int) -> Waiting | None:
    """Where a message waits; None when it is delivered at once.

    Args:
        levels: how many delay levels the node has.
    """
    if delivery.at_ms is not None:
        return Waiting(TIMER_TOPIC.encode(), 0, timer_properties(delivery.at_ms, real))
    if delivery.level > 0 and levels > 0:
        # As Java does it: above the highest level is the highest.
        level = min(delivery.level, levels)
        return Waiting(DELAY_TOPIC.encode(), level - 1, level_properties(level, real))
    return None


def delayed(message: OutgoingMessage, waiting: Waiting | None) -> OutgoingMessage:
    """The message with the properties that it has while it waits; its own come behind them."""
    own = {name: value for name, value in (message.properties or {}).items() if name != DELAY}
    if waiting is None:
        return replace(message, properties=own)
    return replace(message, properties={**waiting.properties, **own, **waiting.properties})
