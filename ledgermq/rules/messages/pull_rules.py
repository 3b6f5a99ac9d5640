"""Pull rules: status, next offset, and selection of the units that an answer has.

The rules are those of RocketMQ's ``DefaultMessageStore.getMessage``. Differences, none of which
makes a consumer lose or repeat a message:

- an offset at the end, or a little behind it while the queue may still grow over it, can be held;
- one answer may have messages of several queue files, and more units are looked at for a tag.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.kernels.kernel import choose_units
from ledgermq.formats.records.message import SIZE_MIN
from ledgermq.wire.pull_frame import PullStatus

TAG_TABLES_MAX = 10_000
_ALL = memoryview(b"")

Integers = npt.NDArray[np.int64]
"""Integers of 64 bits in host byte order."""


class ReadableRange(NamedTuple):
    """Half-open range of queue offsets that can be read now.

    ``pending_max`` is the most messages that the queue may still get from the part of the log that
    is written, and not dispatched yet.
    """

    first: int
    end: int
    pending_max: int = 0


class TransferLimits(NamedTuple):
    """Most bytes and messages of one answer, by where the messages are.

    Attributes:
        memory_size, memory_count: of messages that are near the end of the log.
        disk_size, disk_count: of older ones, that the page cache may have lost.
        memory_share: messages so many bytes before the end of the log count as on disk.
    """

    memory_size: int
    memory_count: int
    disk_size: int
    disk_count: int
    memory_share: int


class OffsetVerdict(NamedTuple):
    """Answer to an offset that there is nothing at; ``may_hold``: waiting can change it."""

    status: PullStatus
    next_offset: int
    may_hold: bool


def judge_offset(offset: int, bounds: ReadableRange) -> OffsetVerdict | None:
    """The answer to a pull at ``offset``, or ``None`` when there are units to look at.

    An offset a little behind the end is not corrected while the queue may still grow over it:
    after a restart the end comes back later than the consumers do, and to correct them would be
    to make them consume again.
    """
    may_come = bounds.end <= offset <= bounds.end + bounds.pending_max
    if bounds.end == 0:
        return OffsetVerdict(PullStatus.NO_MESSAGE_IN_QUEUE, offset if may_come else 0, may_come)
    if offset < bounds.first:
        return OffsetVerdict(PullStatus.OFFSET_TOO_SMALL, bounds.first, False)
    if offset < bounds.end:
        return None
    if may_come:
        return OffsetVerdict(PullStatus.OFFSET_OVERFLOW_ONE, offset, True)
    return OffsetVerdict(PullStatus.OFFSET_OVERFLOW_BADLY, bounds.end, False)


def pending_messages_max(dispatched_position: int, written_position: int) -> int:
    """Most messages that the written part of the log behind ``dispatched_position`` can hold."""
    return max(0, written_position - dispatched_position) // SIZE_MIN


class Selection(NamedTuple):
    """Which units are handed out.

    Attributes:
        positions, sizes: of their messages.
        size: of all of these.
        scanned: units to go on behind, at least the last one handed out + 1.
        ends_removed: the last one looked at is a message that the log does not have any more.
        looked_at: position of that one.
    """

    positions: Integers
    sizes: Integers
    size: int
    scanned: int
    ends_removed: bool = False
    looked_at: int = 0


@lru_cache(TAG_TABLES_MAX)
def tag_table(hashes: tuple[int, ...]) -> memoryview:
    """Hashes of tags as ``select`` wants them; none stands for all messages."""
    words = {(hash_ + 2**31) % 2**32 - 2**31 for hash_ in hashes}
    return memoryview(array("i", sorted(words)))


def select(
    units: Units,
    *,
    tags: memoryview,
    count_max: int,
    size_max: int,
    first_position: int,
    disk_below: int,
    limits: TransferLimits,
    fulfilling: npt.NDArray[np.bool_] | None = None,
) -> Selection:
    """The units that one answer hands out.

    As in ``getMessage``, it ends before the first unit, wanted or not, that would make it too
    large; the first message wanted is given however large it is. Of tags, as in RocketMQ, only the
    low 32 bits are compared. A number below them all is an address in ConsumeQueueExt, which tells
    nothing here: such a message is handed out, and the client, which looks at the tag itself in any
    case, decides.

    Args:
        units: by ascending position.
        tags: what the consumer wants, from ``tag_table``.
        count_max: most messages, at least 1.
        size_max: most bytes of messages.
        first_position: where the log begins now; messages below are removed, and passed over.
        disk_below: messages below count as on disk.
        fulfilling: which messages an SQL expression wants, of as many units; all when left out.
    """
    assert count_max >= 1, count_max
    assert units.dtype == UNIT, units.dtype
    memory_count = max(1, min(count_max, limits.memory_count))
    disk_count = max(1, min(count_max, limits.disk_count))
    total = len(units)
    columns = np.empty((2, min(total, max(memory_count, disk_count))), np.int64)
    positions, sizes = columns[0], columns[1]
    if total == 0:
        return Selection(positions, sizes, 0, 0)
    count, size, scanned, last, looked_at = choose_units(
        units.view(np.uint8).data,
        tags,
        _ALL if fulfilling is None else fulfilling.view(np.uint8).data,
        first_position,
        disk_below,
        min(size_max, limits.memory_size),
        memory_count,
        min(size_max, limits.disk_size),
        disk_count,
        positions.data,
        sizes.data,
    )
    ends_removed = last < first_position
    # The unit that did not fit was looked at, too.
    return Selection(positions[:count], sizes[:count], size, scanned, ends_removed, looked_at)
