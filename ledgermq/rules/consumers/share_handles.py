"""Handles of deliveries: texts that name one message as it was handed out once.

    1:GROUP:TOPIC:QUEUE:OFFSET:DELIVERY:MARK

The mark, hexadecimal, was drawn when the message was handed out; who was not given the handle does
not know it. Nothing in it names who led, or where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ledgermq.rules.tables.share_changes import MARK_MAX
from ledgermq.verbs.verb import NUMBER_MAX

VERSION = "1"
SEPARATOR = ":"

# One text for one delivery: numbers may be written in many ways, and only one of them is taken.
_NUMBER = f"(0|[1-9][0-9]{{0,{len(str(NUMBER_MAX)) - 1}}})"
_HANDLE = re.compile(
    f"{VERSION}:([^:]+):([^:]+):{_NUMBER}:{_NUMBER}:{_NUMBER}"
    f":([1-9a-f][0-9a-f]{{0,{len(f'{MARK_MAX:x}') - 1}}})"
)


class ShareHandle(NamedTuple):
    """What a handle says; whether it is one that was handed out, the table tells."""

    group: str
    topic: str
    queue_id: int
    offset: int
    delivery: int
    mark: int

    @property
    def text(self) -> str:
        """The handle."""
        text = handle_texts(self.group, self.topic, self.queue_id, self.mark)
        return text(self.offset, self.delivery)


def read_handle(handle: str) -> ShareHandle | None:
    """What a handle says; None: it is none."""
    found = _HANDLE.fullmatch(handle)
    if found is None:
        return None
    group, topic, queue_id, offset, delivery, mark = found.groups()
    numbers = int(queue_id), int(offset), int(delivery)
    if max(numbers) > NUMBER_MAX:
        return None
    return ShareHandle(group, topic, *numbers, int(mark, 16))


def handle_texts(group: str, topic: str, queue_id: int, mark: int) -> Callable[[int, int], str]:
    """Makes the handles of one queue's messages that were handed out together, by their offset and
    delivery.
    """
    before, behind = SEPARATOR.join((VERSION, group, topic, str(queue_id))), f"{mark:x}"
    return lambda offset, delivery: f"{before}:{offset}:{delivery}:{behind}"
