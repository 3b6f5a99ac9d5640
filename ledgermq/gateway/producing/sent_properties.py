"""Properties of a send by a RocketMQ client: those that the broker reads, and the stored bytes.

The text is stored as it came, but for ``WAIT``, which tells the broker alone something, and with
the cluster's name behind it, by which a reply finds its way back. A message that is to wait, for
its time or for the end of its transaction, says besides where it belongs.
"""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.formats.records.delayed_message import (
    JAVA_NUMBER,
    RealQueue,
    level_properties,
    timer_properties,
)
from ledgermq.formats.records.priority import priority_of, said_priority
from ledgermq.formats.records.properties import (
    CLUSTER,
    DELAY,
    PRIORITY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
    WAIT,
    decode_properties,
    encode_properties,
)
from ledgermq.formats.timer_wheel import TIMER_OUT, TIMER_RELATIVE
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import (
    DELAY_TOPIC,
    DELIVERY_AHEAD_MS_MAX,
    PROPERTIES_SIZE_MAX,
    TIMER_TOPIC,
)
from ledgermq.model.names.transactions import HALF_TOPIC

TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
START_DELIVER_TIME = "__STARTDELIVERTIME"

_LOOKED_AT = (DELAY, TRANSACTION_PREPARED, CLUSTER, "TIMER_DE", START_DELIVER_TIME, PRIORITY)
"""What makes it necessary to read the properties one by one; a text within a value does no harm."""

_WAIT_TRUE = f"{WAIT}\x01true\x02"
_WAITS = (f"\x02{WAIT}\x01true", f"\x02{WAIT}\x01false")


class Destination(NamedTuple):
    """Where a message is to be stored at first, with which properties.

    Attributes:
        is_half: it waits for the end of its transaction there.
    """

    topic: bytes
    queue_id: int
    properties: bytes
    is_half: bool = False


class SentProperties:
    """The rules of one node.

    Attributes:
        for_kernel: what ``kernel.send_record`` has to know of them.
    """

    def __init__(self, cluster: str) -> None:
        """Properties of messages of ``cluster``."""
        self._cluster = cluster
        self._added = f"{CLUSTER}\x01{cluster}"
        words = b"".join(b"\0" + name.encode() for name in _LOOKED_AT)
        added = self._added.encode(errors="replace")
        self.for_kernel = words, f"{WAIT}\x01".encode(), added, PROPERTIES_SIZE_MAX

    def plain(self, text: str) -> bytes | None:
        """The bytes to store; None when the properties have to be read, for ``destination``.

        Raises:
            MessageIllegalError: they are too long.
        """
        for name in _LOOKED_AT:
            if name in text:
                return None
        if WAIT in text:
            text = _without_wait(text)
        if text and text[-1] != "\x02":
            text += "\x02"
        return checked((text + self._added).encode(errors="replace"))

    def destination(
        self, text: str, real: RealQueue, *, now_ms: int, levels: int, is_retried: bool
    ) -> Destination:
        """Where a message for ``real`` goes.

        Args:
            now_ms: epoch.
            levels: how many delay levels the node has.
            is_retried: it was consumed before, and is no half message whatever it says.

        Raises:
            MessageIllegalError: a time or a level is none, or the properties are too long.
        """
        found = decode_properties(text.encode(errors="replace"))
        found.pop(WAIT, None)
        # A message that was consumed, and is sent again, has those of its first way.
        found.pop(REAL_TOPIC, None)
        found.pop(REAL_QUEUE_ID, None)
        found[CLUSTER] = self._cluster
        if said_priority(found) != priority_of(found):
            # A message of another type has none, as at RocketMQ.
            found.pop(PRIORITY, None)
        asked = _level(found)
        level = min(asked, levels)
        if level == 0 < asked:
            found.pop(DELAY)
        is_half = found.get(TRANSACTION_PREPARED, "").lower() == "true"
        if is_half and not (is_retried and level > 0):
            for name in (DELAY, TRANSACTION_CHECK_TIMES):
                found.pop(name, None)
            found |= {
                TRANSACTION_PREPARED: "true",
                REAL_TOPIC: real.topic,
                REAL_QUEUE_ID: str(real.queue_id),
            }
            data = checked(encode_properties(found))
            return Destination(HALF_TOPIC.encode(), 0, data, is_half=True)
        if level > 0:
            waits = level_properties(level, real)
            if level == asked:
                # As it was written: ``+1`` is a level, too.
                del waits[DELAY]
            data = checked(encode_properties(found | waits))
            return Destination(DELAY_TOPIC.encode(), level - 1, data)
        due_ms = _due_ms(found, now_ms)
        if due_ms is not None and due_ms > now_ms:
            if TIMER_RELATIVE & found.keys():
                # Else RocketMQ 5, should it deliver the message, has it wait once more.
                found[TIMER_OUT] = str(due_ms)
            data = checked(encode_properties(timer_properties(due_ms, real) | found))
            return Destination(TIMER_TOPIC.encode(), 0, data)
        return Destination(real.topic.encode(), real.queue_id, checked(encode_properties(found)))

    def of_batch(self, text: str) -> bytes:
        """What is added to the properties of each message of a batch.

        Args:
            text: the batch's own.

        Raises:
            MessageIllegalError: the batch is to wait, which only single messages do.
        """
        data = self.plain(text)
        if data is not None:
            return data
        found = decode_properties(text.encode(errors="replace"))
        is_half = found.pop(TRANSACTION_PREPARED, "false").lower() not in ("0", "false")
        if is_half or _level(found) > 0:
            raise MessageIllegalError(
                "batch cannot be delayed, nor part of a transaction",
                property=TRANSACTION_PREPARED if is_half else DELAY,
            )
        found.pop(WAIT, None)
        found[CLUSTER] = self._cluster
        return checked(encode_properties(found))


def checked(data: bytes) -> bytes:
    """Properties that the format can hold.

    Raises:
        MessageIllegalError: they are too long.
    """
    if len(data) > PROPERTIES_SIZE_MAX:
        raise MessageIllegalError(
            "properties are too large", size=len(data), limit=PROPERTIES_SIZE_MAX
        )
    return data


def _without_wait(text: str) -> str:
    if text.startswith(_WAIT_TRUE):
        return text[len(_WAIT_TRUE) :]
    for wait in _WAITS:
        at = text.find(wait)
        # Followed by another property or by nothing, else it is a value that begins like it.
        if at >= 0 and text[at + len(wait) : at + len(wait) + 1] in ("", "\x02"):
            return text[:at] + text[at + len(wait) :]
    left = [part for part in text.split("\x02") if not part.startswith(f"{WAIT}\x01")]
    return "\x02".join(left)


def _due_ms(found: dict[str, str], now_ms: int) -> int | None:
    """When the message is to be delivered, as clients of RocketMQ 5 and of ONS say it; epoch ms."""
    due_ms = _number(found, TIMER_DELIVER_MS)
    if due_ms is None and JAVA_NUMBER.fullmatch(found.get(START_DELIVER_TIME, "")):
        # To RocketMQ it means nothing, so that it may be anything.
        due_ms = int(found[START_DELIVER_TIME])
    if due_ms is None:
        delay_ms = _number(found, TIMER_DELAY_MS)
        seconds = _number(found, TIMER_DELAY_SEC)
        if delay_ms is None and seconds is not None:
            delay_ms = seconds * 1_000
        if delay_ms is None:
            return None
        due_ms = now_ms + delay_ms
    if due_ms > now_ms + DELIVERY_AHEAD_MS_MAX:
        raise MessageIllegalError(
            "delivery is too far ahead", ahead_ms=due_ms - now_ms, limit=DELIVERY_AHEAD_MS_MAX
        )
    return due_ms


def _level(found: dict[str, str]) -> int:
    """The delay level, as Java reads it; 0 and below: there is none.

    Raises:
        MessageIllegalError: it is no number, or none that an ``int`` of Java holds.
    """
    level = _number(found, DELAY) or 0
    if not -(2**31) <= level < 2**31:
        raise MessageIllegalError("delay level out of range", value=level)
    return level


def _number(found: dict[str, str], name: str) -> int | None:
    """A number; None when there is none.

    Raises:
        MessageIllegalError: it is something else.
    """
    text = found.get(name)
    if text is None:
        return None
    if not JAVA_NUMBER.fullmatch(text):
        raise MessageIllegalError("property is no number", property=name, value=text[:64])
    return int(text)
