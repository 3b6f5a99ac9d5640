"""Priority of a message: the number of its queue, as RocketMQ 5.5 has it.

A message that has the property, and neither time, message group nor transaction, goes to the queue
of that number, or to the last one. Share groups are given the highest queues of a topic first whose
type is ``PRIORITY``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.formats.records.delayed_message import DELIVER_AT, JAVA_NUMBER
from ledgermq.formats.records.properties import (
    DELAY,
    MESSAGE_GROUP,
    PRIORITY,
    TRANSACTION_PREPARED,
)

PRIORITY_MAX = 2**31 - 1
_OTHERS = (
    DELAY, MESSAGE_GROUP, DELIVER_AT, "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
)  # fmt: skip


def said_priority(properties: Mapping[str, str]) -> int | None:
    """The priority that a message says, of whichever type it is; None: none that counts."""
    text = properties.get(PRIORITY, "")
    number = int(text) if JAVA_NUMBER.fullmatch(text) else -1
    return number if 0 <= number <= PRIORITY_MAX else None


def priority_of(properties: Mapping[str, str]) -> int | None:
    """The priority of a message; None: it says none, or is a message of another type."""
    is_half = properties.get(TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or any(name in properties for name in _OTHERS):
        return None
    return said_priority(properties)


def queue_of(priority: int, queues: int) -> int:
    """The queue of a message, of a topic that has so many that take messages."""
    return min(priority, queues - 1)
