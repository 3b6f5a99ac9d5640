"""POP's marks: which messages RocketMQ 5 has handed out, and which of them were acknowledged.

POP notes what it hands out of a queue by a *checkpoint*, a message of the tag ``ck``, and what was
acknowledged by others of the tags ``ack`` and ``bAck``. All have JSON bodies, stand in
``rmq_sys_REVIVE_LOG_<cluster>``, and come there through the timer wheel (``formats/timer_wheel``):

    t, c, q     topic, group and queue that were read; of what is read again the topic is POP's own
                retry topic, ``%RETRY%GROUP_TOPIC``, in later versions ``%RETRY%GROUP+TOPIC``
    so, pt      first queue offset, and when it was handed out, epoch ms; with the three above they
                name the checkpoint
    n, d, bm    of a checkpoint: how many messages, their distances from ``so`` (none: one behind
                the other), and a bit for each that was acknowledged
    it          of a checkpoint: for so long nobody else gets them, ms
    ao, aol     of an acknowledgement: the queue offset, or a list of them
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.formats.config_json import decode_document
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.group_topics import RETRY_PREFIX

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Who reads the marks; its offset is that of the last checkpoint that is done with."""

CHECKPOINT = "ck"
MESSAGES_MAX = 127
"""Most messages of a checkpoint: RocketMQ counts them in a signed byte."""

Key = tuple[str, str, int, int, int]


class Checkpoint(NamedTuple):
    """Messages that were handed out: queue offsets of those that its own bits do not say to be
    acknowledged, and when others get them, epoch ms.
    """

    topic: str
    group: str
    queue_id: int
    start: int
    pop_ms: int
    offsets: tuple[int, ...]
    revive_ms: int

    @property
    def key(self) -> Key:
        """What its acknowledgements say, too."""
        return (self.topic, self.group, self.queue_id, self.start, self.pop_ms)

    @property
    def first_topic(self) -> str:
        """The topic that the messages were sent to."""
        return retried_topic(self.topic, self.group) or self.topic


def retried_topic(topic: str, group: str) -> str | None:
    """The topic whose messages POP's retry topic ``topic`` of ``group`` has; None: it is none."""
    rest = topic.removeprefix(RETRY_PREFIX + group)
    return rest[1:] if rest != topic and rest[:1] in ("_", "+") and rest[1:] else None


class PopMarks:
    """Marks of a store, taken in any order."""

    def __init__(self) -> None:
        self._acknowledged: dict[Key, set[int]] = {}

    def take(self, body: bytes) -> Checkpoint | None:
        """Note what a mark's body says; the checkpoint, where it is one."""
        try:
            found = decode_document(body, file="mark of POP")
        except CorruptLogError:
            return None
        numbers = {name: found.get(name) for name in ("q", "so", "pt")}
        topic, group = found.get("t"), found.get("c")
        if not isinstance(topic, str) or not isinstance(group, str):
            return None
        queue_id, start, pop_ms = (_number(value) for value in numbers.values())
        key = (topic, group, queue_id, start, pop_ms)
        if "n" in found:
            offsets = _handed_out(found, start)
            return Checkpoint(*key, offsets, pop_ms + _number(found.get("it")))
        many = found.get("aol", found.get("ackOffsetList"))
        listed = many[:MESSAGES_MAX] if isinstance(many, list) else [found.get("ao")]
        self._acknowledged.setdefault(key, set()).update(map(_number, listed))
        return None

    def open_offsets(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """The messages of a checkpoint that nobody has acknowledged, by queue offset."""
        done = self._acknowledged.get(checkpoint.key, ())
        return tuple(offset for offset in checkpoint.offsets if offset not in done)


def _handed_out(found: Mapping[str, object], start: int) -> tuple[int, ...]:
    count = min(_number(found.get("n")), MESSAGES_MAX)
    distances = found.get("d")
    steps = [_number(one) for one in distances[:count]] if isinstance(distances, list) else []
    # An int of Java: the 32nd message makes it negative.
    bits = bits if type(bits := found.get("bm")) is int else 0
    offsets = [start + step for step in steps or range(count)]
    return tuple(offset for number, offset in enumerate(offsets) if not bits >> number & 1)


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0
