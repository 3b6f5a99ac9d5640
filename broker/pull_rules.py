"""What a pull gets: its status, where to go on, and which of the queue's units are handed out.

The rules are those of RocketMQ's ``DefaultMessageStore.getMessage``, with the statuses of our own
protocol: an empty queue and an offset at the end both say NO_NEW_MESSAGE, and can be held.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.store.message import SIZE_MIN
from ledgermq.store.queue_end import PREFILL_SIZE
from ledgermq.wire.pull_frame import PullStatus

_HASH_MIN = -(2**31)

Integers = npt.NDArray[np.int64]
"""Host byte order or not, any integer width."""


class QueueBounds(NamedTuple):
    """Half-open range of queue offsets that can be read now.

    ``pending_max`` is the most messages that the queue may still get from the part of the log that
    is written, and not dispatched yet.
    """

    first: int
    end: int
    pending_max: int = 0


class Verdict(NamedTuple):
    """Answer to an offset that there is nothing at; ``may_hold``: waiting can change it."""

    status: PullStatus
    next_offset: int
    may_hold: bool


def judge_offset(offset: int, bounds: QueueBounds) -> Verdict | None:
    """The answer to a pull at ``offset``, or ``None`` when there are units to look at.

    An offset a little behind the end is not corrected while the queue may still grow over it:
    after a restart the end comes back later than the consumers do, and to correct them would be
    to make them consume again.
    """
    if offset < bounds.first or offset < 0:
        return Verdict(PullStatus.OFFSET_TOO_SMALL, max(bounds.first, 0), False)
    if offset < bounds.end:
        return None
    if offset <= bounds.end + bounds.pending_max:
        return Verdict(PullStatus.NO_NEW_MESSAGE, offset, True)
    return Verdict(PullStatus.OFFSET_TOO_LARGE, bounds.end, False)


def pending_messages_max(dispatched_position: int, written_position: int) -> int:
    """Most messages that the written part of the log behind ``dispatched_position`` can hold."""
    return max(0, written_position - dispatched_position) // SIZE_MIN


class Selection(NamedTuple):
    """Which units are handed out.

    Attributes:
        chosen: their numbers, ascending.
        scanned: units to go on behind, at least the last one chosen + 1.
    """

    chosen: Integers
    scanned: int


def match_tags(tags: Integers, tag_hashes: Integers) -> npt.NDArray[np.bool_]:
    """Which units have one of the tags.

    As RocketMQ does, only the low 32 bits are compared. A number below them all is an address in
    ConsumeQueueExt, which tells nothing here: such a message is handed out, and the client, which
    looks at the tag itself in any case, decides.
    """
    wide = tags.astype(np.int64)
    matched: npt.NDArray[np.bool_] = np.isin(wide.astype(np.int32), tag_hashes.astype(np.int32))
    return matched | (wide < _HASH_MIN)


def select(
    positions: Integers,
    sizes: Integers,
    tags: Integers,
    *,
    tag_hashes: Integers,
    count_max: int,
    size_max: int,
    first_position: int,
) -> Selection:
    """The units that one answer hands out.

    Args:
        tag_hashes: what the consumer wants; empty is everything.
        count_max: most messages, at least 1.
        size_max: most bytes of messages; the first message is given however large it is.
        first_position: where the log begins now; messages below are removed, and passed over.
    """
    assert count_max >= 1, count_max
    wanted = (positions >= first_position) & (sizes != PREFILL_SIZE)
    if tag_hashes.size:
        wanted &= match_tags(tags, tag_hashes)
    numbers = np.flatnonzero(wanted)
    fitting = int(np.searchsorted(np.cumsum(sizes[numbers], dtype=np.int64), size_max, "right"))
    count = min(count_max, max(fitting, 1))
    if count >= numbers.size:
        return Selection(numbers, int(wanted.size))
    return Selection(numbers[:count], int(numbers[count]))
