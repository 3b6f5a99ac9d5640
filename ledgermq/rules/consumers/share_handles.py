"""Handles of deliveries: texts that name one message as it was handed out once.

    1:GROUP:TOPIC:QUEUE:OFFSET:DELIVERY:MARK

The mark, hexadecimal, was drawn when the message was handed out; who was not given the handle does
not know it. Nothing in it names who led, or where. ``*COUNT`` behind it: so many messages from that
one on, which were handed out together.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ledgermq.rules.tables.share_changes import MARK_MAX
from ledgermq.verbs.shares import HANDLES_MAX, STRETCH
from ledgermq.verbs.verb import NUMBER_MAX

VERSION = "1"
SEPARATOR = ":"

# One text for one delivery: numbers may be written in many ways, and only one of them is taken.
_NUMBER = f"(0|[1-9][0-9]{{0,{len(str(NUMBER_MAX)) - 1}}})"
_HANDLE = re.compile(
    f"{VERSION}:([^:]+):([^:]+):{_NUMBER}:{_NUMBER}:{_NUMBER}"
    f":([1-9a-f][0-9a-f]{{0,{len(f'{MARK_MAX:x}') - 1}}})"
    f"(?:{re.escape(STRETCH)}([1-9][0-9]{{0,{len(str(HANDLES_MAX)) - 1}}}))?"
)


class ShareHandle(NamedTuple):
    """What a handle says; whether it is one that was handed out, the table tells.

    Attributes:
        length: messages that it names, from ``offset`` on.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    delivery: int
    mark: int
    length: int = 1

    @property
    def end(self) -> int:
        """The offset behind the last message."""
        return self.offset + self.length

    @property
    def text(self) -> str:
        """The handle of the first message."""
        before, behind = handle_ends(
            self.group, self.topic, self.queue_id, self.delivery, self.mark
        )
        return f"{before}{self.offset}{behind}"


def read_handle(handle: str) -> ShareHandle | None:
    """What a handle says; None: it is none."""
    found = _HANDLE.fullmatch(handle)
    if found is None:
        return None
    group, topic, queue_id, offset, delivery, mark, count = found.groups()
    numbers = int(queue_id), int(offset), int(delivery)
    length = int(count or 1)
    if max(numbers) + length > NUMBER_MAX or length > HANDLES_MAX:
        return None
    return ShareHandle(group, topic, *numbers, int(mark, 16), length)


def handle_ends(group: str, topic: str, queue_id: int, delivery: int, mark: int) -> tuple[str, str]:
    """What stands before and behind the offset in handles of messages handed out together."""
    before = SEPARATOR.join((VERSION, group, topic, str(queue_id), ""))
    return before, SEPARATOR.join(("", str(delivery), f"{mark:x}"))
