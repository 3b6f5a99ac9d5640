"""RocketMQ 5's timers: the messages of their queue, the wheel's checkpoint and its log.

A message with a time of its own stands in ``rmq_sys_wheel_timer``, queue 0, with its real topic and
queue, and the time in ``TIMER_OUT_MS``. Who takes one back stores another one there that names it
(``TIMER_DEL_UNIQKEY``); one that waits for longer than the wheel turns is stored again, with the
same unique id and ``TIMER_ROLL_TIMES``.

``config/timercheck`` (``TimerCheckpoint``), big-endian, 4,096 bytes:

    offset  size  field               unit
    0       8     delivered_before    epoch ms: what is due before is delivered (lastReadTimeMs)
    8       8     log_position        of the timer log
    16      8     enqueued            queue offset: messages before it are in the wheel
    24      8     master_enqueued     the same of the master
    32      24    version of the three: state, epoch ms, counter

``timerlog/`` (``TimerLog``), files named by the position of their first byte, of units of 52 bytes;
behind the last unit of a file that fits stand 16 bytes of a blank:

    offset  size  field
    0       4     52
    4       8     position of the slot's unit before, -1: none
    12      4     magic: 1, and 2 where the message is stored again then, and 4 where it takes back
    16      8     when it was written, epoch ms
    24      4     how much later it is due, ms
    28      8     position of the message in the commit log
    36      4     its size
    40      4     Java's hash of the real topic
    44      8     0

``timerwheel`` has for each second of 14 days the first and the last unit. RocketMQ makes it of the
timer log where it is missing (``TimerMessageStore.recoverAndRevise``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.properties import REAL_TOPIC, UNIQ_KEY
from ledgermq.model.names.queue_name import QueueName

WHEEL_TOPIC = "rmq_sys_wheel_timer"
WHEEL_QUEUE = QueueName(WHEEL_TOPIC, 0)
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Topics of POP's checkpoints and acknowledgements, which come through the wheel."""

TIMER_OUT = "TIMER_OUT_MS"
TIMER_RELATIVE = {"TIMER_DELAY_MS", "TIMER_DELAY_SEC"}
"""What says how long a message waits, from when it is stored, unless ``TIMER_OUT`` is there."""

TIMER_DELETED = "TIMER_DEL_UNIQKEY"
TIMER_ROLLED = "TIMER_ROLL_TIMES"
TIMER_DELIVERED = "TIMER_DEQUEUE_MS"
"""What a message has that the wheel has given back, to its topic or to its own."""

WHEEL_MS = 7 * 86_400_000
"""Time ahead for which a message may stand in the wheel without being stored again."""

SLOT_MS = 1_000
TIMER_LOG_SIZE = 100 * 1024 * 1024
"""RocketMQ's ``mappedFileSizeTimerLog`` unless it is told another one."""

_DUE_DIGITS = 13
"""Digits of a time that a timer of ours can have; what waits for a later one waits for ever."""

_CHECK = Struct(">qqqq")
_VERSION_SIZE = 24
_UNIT = Struct(">iqiqiqiiq")
_BLANK = Struct(">iqi")
_BLANK_MAGIC = (0xBBCCDDEE ^ (1_880_681_586 + 8)) - (1 << 32)
_NOWHERE = 1 << 62
"""No position of a commit log: RocketMQ goes by the checkpoint where the last unit points there."""


class TimerCheck(NamedTuple):
    """What the wheel's checkpoint says; see the module."""

    delivered_before: int
    log_position: int
    enqueued: int
    master_enqueued: int

    @classmethod
    def read(cls, content: bytes) -> TimerCheck | None:
        """The checkpoint at the beginning of its file; None where that is too short."""
        return cls(*_CHECK.unpack_from(content)) if len(content) >= _CHECK.size else None

    def told(self) -> bytes:
        """What a slave is told: the numbers, and a version that changes with none of them."""
        return _CHECK.pack(*self) + bytes(_VERSION_SIZE)

    def written_to(self, content: bytes) -> bytes:
        """The file's content with these numbers, and the rest as it was."""
        return _CHECK.pack(*self) + content[_CHECK.size :].ljust(4_096 - _CHECK.size, b"\0")


def wheel_due_ms(properties: Mapping[str, str]) -> int | None:
    """When a message of the wheel's queue is due, epoch ms; None: it does not say."""
    text = properties.get(TIMER_OUT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DUE_DIGITS else None


class WheelMessage(NamedTuple):
    """A message that waits: when it is due (epoch ms, 0 where it does not say), its unique id,
    whether it is one of POP's, and its size in the log.
    """

    due_ms: int
    name: str
    of_pop: bool
    size: int


class WheelQueue:
    """What waits of the wheel's queue, found by taking its messages in their order.

    Attributes:
        waiting: the messages by their queue offsets, but for those that are taken back.
    """

    def __init__(self, check: TimerCheck) -> None:
        self._check = check
        self._waiting: dict[int, WheelMessage] = {}
        self._offsets: dict[str, int] = {}
        self._deleted: set[str] = set()

    def take(self, properties: Mapping[str, str], offset: int, size: int) -> None:
        """Note the message at a queue offset, unless it was delivered."""
        real = properties.get(REAL_TOPIC, "")
        deleted = properties.get(TIMER_DELETED)
        if deleted is not None:
            # As it was given, or behind its topic.
            self._deleted |= {deleted, deleted.removeprefix(f"{real}+")} - {""}
            return
        due_ms = wheel_due_ms(properties)
        check = self._check
        if due_ms is not None and offset < check.enqueued and due_ms < check.delivered_before:
            return
        name = properties.get(UNIQ_KEY, "")
        if name and TIMER_ROLLED in properties and (before := self._offsets.get(name)) is not None:
            self._waiting.pop(before, None)
        if name:
            self._offsets[name] = offset
        of_pop = real.startswith(REVIVE_PREFIX)
        self._waiting[offset] = WheelMessage(due_ms or 0, name, of_pop, size)

    @property
    def waiting(self) -> dict[int, WheelMessage]:
        return {
            offset: message
            for offset, message in self._waiting.items()
            if message.name not in self._deleted
        }


class WheelEntry(NamedTuple):
    """A message for the wheel: when it is due (epoch ms), where it lies in the commit log, and its
    real topic.
    """

    due_ms: int
    position: int
    size: int
    topic: str


def timer_log(entries: list[WheelEntry], *, now_ms: int, file_size: int) -> Iterator[bytes]:
    """The files of a timer log that has these messages, each up to its last byte that is used.

    The last unit points nowhere: RocketMQ would conclude from it which of its queue it has read.

    Args:
        entries: due up to ``WHEEL_MS`` after ``now_ms``; those that are overdue come at once.
        now_ms: what the checkpoint says of what is delivered, a whole second.
        file_size: ``mappedFileSizeTimerLog``, bytes.
    """
    assert file_size >= _UNIT.size + _BLANK.size, file_size
    slots: dict[int, int] = {}
    units = [
        (max(one.due_ms // SLOT_MS * SLOT_MS, now_ms + SLOT_MS), one)
        for one in sorted(entries, key=lambda one: one.due_ms)
    ]
    nowhere = (now_ms - SLOT_MS, WheelEntry(0, _NOWHERE, 1, ""))
    start, file = 0, bytearray()
    for slot_ms, entry in (*units, nowhere):
        room = file_size - len(file)
        if room < _UNIT.size + _BLANK.size:
            yield bytes(file) + _BLANK.pack(room, 0, _BLANK_MAGIC)
            start, file = start + file_size, bytearray()
        before = slots.get(slot_ms, -1)
        slots[slot_ms] = start + len(file)
        hash_ = java_hash(entry.topic)
        file += _UNIT.pack(
            _UNIT.size, before, 1, now_ms, slot_ms - now_ms, entry.position, entry.size, hash_, 0
        )
    yield bytes(file)
