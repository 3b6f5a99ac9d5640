"""What a pull gets: its status, where to go on, and which of the queue's units are handed out.

The rules are those of RocketMQ's ``DefaultMessageStore.getMessage``. Differences, none of which
makes a consumer lose or repeat a message:

- an offset at the end, or a little behind it while the queue may still grow over it, can be held;
- one answer may have messages of several queue files, and more units are looked at for a tag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.message import SIZE_MIN
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
    may_come = bounds.end <= offset <= bounds.end + bounds.pending_max
    if bounds.end == 0:
        return Verdict(PullStatus.NO_MESSAGE_IN_QUEUE, offset if may_come else 0, may_come)
    if offset < bounds.first:
        return Verdict(PullStatus.OFFSET_TOO_SMALL, bounds.first, False)
    if offset < bounds.end:
        return None
    if may_come:
        return Verdict(PullStatus.OFFSET_OVERFLOW_ONE, offset, True)
    return Verdict(PullStatus.OFFSET_OVERFLOW_BADLY, bounds.end, False)


def pending_messages_max(dispatched_position: int, written_position: int) -> int:
    """Most messages that the written part of the log behind ``dispatched_position`` can hold."""
    return max(0, written_position - dispatched_position) // SIZE_MIN


class Selection(NamedTuple):
    """Which units are handed out.

    Attributes:
        chosen: their numbers, ascending.
        scanned: units to go on behind, at least the last one chosen + 1.
        ends_removed: the last one looked at is a message that the log does not have any more.
        looked_at: position of that one.
    """

    chosen: Integers
    scanned: int
    ends_removed: bool = False
    looked_at: int = 0


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
    disk_below: int,
    limits: TransferLimits,
    fulfilling: npt.NDArray[np.bool_] | None = None,
) -> Selection:
    """The units that one answer hands out.

    As in ``getMessage``, it ends before the first unit, wanted or not, that would make it too
    large; the first message wanted is given however large it is.

    Args:
        positions: ascending.
        tag_hashes: what the consumer wants; empty is everything.
        count_max: most messages, at least 1.
        size_max: most bytes of messages.
        first_position: where the log begins now; messages below are removed, and passed over.
        disk_below: messages below count as on disk.
        fulfilling: which messages an SQL expression wants, of as many units; all when left out.
    """
    assert count_max >= 1, count_max
    total = len(positions)
    if total == 0:
        return Selection(np.zeros(0, np.int64), 0)
    wanted = (positions >= first_position) & (sizes != PREFILL_SIZE)
    if tag_hashes.size:
        wanted &= match_tags(tags, tag_hashes)
    if fulfilling is not None:
        wanted &= fulfilling
    memory = (min(size_max, limits.memory_size), min(count_max, limits.memory_count))
    disk = (min(size_max, limits.disk_size), min(count_max, limits.disk_count))
    is_disk = int(positions[-1]) < disk_below
    if wanted.all() and (is_disk or int(positions[0]) >= disk_below):
        size_limit, count_limit = disk if is_disk else memory
        fitting = int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), size_limit, "right"))
        scanned = min(total, count_limit, max(fitting, 1))
        chosen = np.arange(scanned)
    else:
        on_disk = positions < disk_below
        size_limits = np.where(on_disk, disk[0], memory[0])
        count_limits = np.where(on_disk, disk[1], memory[1])
        given = np.where(wanted, sizes, 0).astype(np.int64)
        counts = np.cumsum(wanted) - wanted
        behind = np.cumsum(given) - given + sizes
        full = (counts > 0) & ((behind > size_limits) | (counts >= count_limits))
        scanned = int(full.argmax()) if full.any() else total
        chosen = np.flatnonzero(wanted[:scanned])
    # The unit that did not fit was looked at, too.
    looked_at = int(positions[min(scanned, total - 1)])
    ends_removed = int(positions[scanned - 1]) < first_position
    return Selection(chosen, scanned, ends_removed, looked_at)
