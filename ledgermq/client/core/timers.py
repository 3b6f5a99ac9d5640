"""Pending timers, as the broker tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError


class TimerRow(NamedTuple):
    """One message that waits.

    Attributes:
        unique_id: what its producer was told, and what it is cancelled by.
        due_ms: when it is delivered, epoch milliseconds.
        topic: where it belongs, with ``queue_id``.
        size: bytes of its body, as stored.
        stored_ms: since when it lies where it does; old ones are stored once more (retention).
    """

    unique_id: str
    due_ms: int
    topic: str
    queue_id: int
    size: int
    stored_ms: int


class TimerList(NamedTuple):
    """The first timers that are due, and how many wait in all."""

    waiting: int
    timers: list[TimerRow]


def timer_list(result: Mapping[str, object]) -> TimerList:
    """What ``timers`` answers.

    Raises:
        ProtocolError: it is not that.
    """
    waiting, rows = result.get("waiting"), result.get("timers")
    if type(waiting) is not int or not isinstance(rows, list):
        raise ProtocolError("field missing or not a list", field="timers")
    return TimerList(waiting, [_timer_row(row) for row in rows])


def _timer_row(row: object) -> TimerRow:
    match row:
        case {
            "id": str(identity),
            "due": int(due),
            "topic": str(topic),
            "queue": int(queue),
            "size": int(size),
            "stored": int(stored),
        }:
            return TimerRow(identity, due, topic, queue, size, stored)
    raise ProtocolError("row of a timer missing something", row=str(row)[:200])
