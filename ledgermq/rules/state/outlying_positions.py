"""Positions of the broker's tables that lie outside of their queues, and where they belong.

Consumed offsets, how far a queue is moved (delay levels, half messages, timers), and how far it is
handed out message by message. RocketMQ writes them every few seconds, whether its log is durable or
not, and keeps them over a topic that is deleted and made anew: after a crash some are beyond the
end of their queue. Whoever only clamped such a position where it is read would pass over each
message that comes later, until the queue has grown so far. So it is put right once, where tables
come to this node or become those of all (docs/decisions/0044). A position below the first message
of its queue is none of these: retention does that, and who reads there is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.tables.documents import ROWS_PER_STEP, Steps
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.moves import MoveTable, Source
from ledgermq.rules.tables.shares import ShareTable

EndOf = Callable[[QueueName], int | None]
"""Queue offset behind the last message; None where it is not known, which leaves all as it is."""


NOTHING_KNOWN: Mapping[tuple[bytes, int], int] = MappingProxyType({})


class Outlier(NamedTuple):
    """A position outside of its queue.

    Attributes:
        file: of the table that has it.
        group: whose offset it is; empty for how far the broker itself has moved the queue.
        position: where it belongs: the queue's end, or 0 where it was negative; a share group
            begins again at the first message that is not settled.
    """

    file: str
    group: str
    queue: QueueName
    was: int
    position: int


def find_outliers(
    offsets: GroupOffsets,
    moved: Sequence[MoveTable],
    end_of: EndOf,
    *,
    shares: ShareTable | None = None,
    at_least: Mapping[tuple[bytes, int], int] = NOTHING_KNOWN,
) -> Steps[list[Outlier]]:
    """All of these tables, which stay as they are.

    Args:
        at_least: ends that queues have reached, so that not each of them is looked at.
    """
    found: list[Outlier] = []
    for number, (file, group, queue, was, low) in enumerate(_positions(offsets, moved, shares), 1):
        if number % ROWS_PER_STEP == 0:
            yield
        name = queue.topic.encode(errors="surrogatepass")
        if 0 <= was <= at_least.get((name, queue.queue_id), 0):
            continue
        end = 0 if was < 0 else end_of(queue)
        if end is not None and not 0 <= was <= end:
            found.append(Outlier(file, group, queue, was, end if low is None else min(low, end)))
    return found


def put_right(
    outliers: Sequence[Outlier],
    offsets: GroupOffsets,
    moved: Sequence[MoveTable],
    shares: ShareTable | None = None,
) -> None:
    """Have each position where it belongs."""
    by_file = {table.file: table for table in moved}
    for one in outliers:
        if one.file == offsets.file:
            offsets.set(one.group, one.queue.topic, {one.queue.queue_id: one.position})
        elif shares is not None and one.file == shares.file:
            shares.begin_again(one.group, one.queue, one.position)
        else:
            # Without its marks: they are of messages that are not there.
            by_file[one.file].put(one.queue, Source(one.position))


def _positions(
    offsets: GroupOffsets, moved: Sequence[MoveTable], shares: ShareTable | None
) -> Iterator[tuple[str, str, QueueName, int, int | None]]:
    """File, group, queue and position; of a share group also the lowest one not settled."""
    for owner, queues in list(offsets):
        for queue_id, offset in queues.items():
            yield offsets.file, owner.group, QueueName(owner.topic, queue_id), offset, None
    for table in moved:
        for queue, source in list(table):
            # A move that a crash has cut is finished first, and says anew how far the queue is.
            if source.open_at is None:
                yield table.file, "", queue, source.next_offset, None
    for owner, shared in [] if shares is None else list(shares):
        for queue_id, one in list(shared.items()):
            name = QueueName(owner.topic, queue_id)
            yield ShareTable.file, owner.group, name, one.next, one.low
