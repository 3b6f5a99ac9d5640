"""Timer records in their queue: due times parsed in bulk, and cancellations encoded.

``formats/delayed_message`` has the layout.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.records.delayed_message import CANCELS_AT, DELIVER_AT, NUMBER_AT, TIME_DIGITS
from ledgermq.formats.records.host_address import Host
from ledgermq.formats.records.message import (
    BODY_SIZE_AT,
    BORN_HOST_V6,
    STORE_HOST_V6,
    SYS_FLAG_AT,
    Message,
    encode_message,
)
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.limits import TIMER_TOPIC
from ledgermq.store.record_parts import RecordParts

Integers = npt.NDArray[np.int64]


_POWERS = 10 ** np.arange(TIME_DIGITS - 1, -1, -1, dtype=np.int64)
_FOUR = np.arange(4)
_PLACES = np.array([2**24, 2**16, 2**8, 1], np.int64)


class Parsed(NamedTuple):
    """Columns of records: the number that the properties of each begin with, and whether it is a
    timer's time (True) or the queue offset of one that is taken back; ``is_whole``: it is one of
    both.
    """

    number: Integers
    is_timer: npt.NDArray[np.bool_]
    is_whole: npt.NDArray[np.bool_]


def parse_timers(parts: RecordParts) -> Parsed:
    """What the records of the timers' queue say."""
    octets = np.frombuffer(parts.payload, np.uint8)
    starts, ends = parts.starts.astype(np.int64), parts.starts.astype(np.int64) + parts.sizes
    flags = octets[starts + SYS_FLAG_AT + 3].astype(np.int64)
    at = starts + BODY_SIZE_AT
    at += 12 * ((flags & BORN_HOST_V6) != 0) + 12 * ((flags & STORE_HOST_V6) != 0)
    # Each place is looked at only where it is within its record: a log may be of others.
    has_body = at + 4 <= ends
    at = np.where(has_body, at, starts)
    body = octets[at[:, None] + _FOUR].astype(np.int64) @ _PLACES
    topic = at + 4 + body
    has_topic = has_body & (topic < ends)
    topic = np.where(has_topic, topic, starts)
    properties = topic + 1 + octets[topic] + 2
    fits = has_topic & (properties + NUMBER_AT + TIME_DIGITS <= ends)
    properties = np.where(fits, properties, starts)
    names = octets[properties[:, None] + np.arange(NUMBER_AT)]
    digits = octets[properties[:, None] + NUMBER_AT + np.arange(TIME_DIGITS)].astype(np.int64) - 48
    is_timer = _is(names, DELIVER_AT)
    has_number = ((digits >= 0) & (digits <= 9)).all(axis=1)
    is_whole = fits & has_number & (is_timer | _is(names, CANCELS_AT))
    return Parsed(digits @ _POWERS, is_timer, is_whole)


def cancel_record(offset: int, address: Host, *, now_ms: int) -> bytes:
    """The record that takes back the timer at a queue offset, without an entry header's hole."""
    properties = {CANCELS_AT: f"{offset:0{TIME_DIGITS}}"}
    return encode_message(
        Message(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=b"",
            properties=encode_properties(properties),
            born_timestamp=now_ms,
            born_host=address,
            store_host=address,
        )
    )


def _is(names: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.bool_]:
    wanted = np.frombuffer(name.encode() + b"\x01", np.uint8)
    same: npt.NDArray[np.bool_] = (names == wanted).all(axis=1)
    return same
