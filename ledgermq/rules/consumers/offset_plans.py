"""Plans for consumed offsets: resets and clones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from ledgermq.model.errors import GroupActiveError, MessageIllegalError, TopicUnknownError
from ledgermq.rules.messages.pull_rules import ReadableRange

MEMBERS_NAMED_MAX = 5


class ResetTarget(StrEnum):
    """Where a reset leads to; ``time`` and ``number`` come with a value."""

    FIRST = "first"
    LAST = "last"
    TIME = "time"
    NUMBER = "number"


class OffsetChange(NamedTuple):
    """What a reset or a clone does to one queue; ``old`` is ``None`` when nothing was committed."""

    queue_id: int
    old: int | None
    new: int


def reset_offset(
    target: ResetTarget, value: int, bounds: ReadableRange, *, since: int, queue_id: int
) -> int:
    """The offset to go on at.

    Args:
        value: the queue offset that ``NUMBER`` asks for.
        since: of the first message of the time that ``TIME`` asks for.
        queue_id: to be named in a refusal.

    Raises:
        MessageIllegalError: the queue does not have that offset.
    """
    if target is ResetTarget.FIRST:
        return bounds.first
    if target is ResetTarget.LAST:
        return bounds.end
    if target is ResetTarget.TIME:
        return since
    if not bounds.first <= value <= bounds.end:
        raise MessageIllegalError(
            "offset outside of the queue",
            queue=queue_id,
            offset=value,
            minimum=bounds.first,
            limit=bounds.end,
        )
    return value


def chosen_queues(topic: str, wanted: Iterable[int] | None, read_queues: int) -> list[int]:
    """The queues to reset, ascending: those wanted, or all that are read.

    Raises:
        TopicUnknownError: the topic has no such queue.
    """
    if wanted is None:
        return list(range(read_queues))
    chosen = sorted(set(wanted))
    for queue_id in chosen:
        if not 0 <= queue_id < read_queues:
            raise TopicUnknownError(
                "topic has no such queue", topic=topic, queue=queue_id, queues=read_queues
            )
    return chosen


def moves_of(old: Mapping[int, int], new: Mapping[int, int]) -> list[OffsetChange]:
    """What changes, queue by queue, also where nothing does."""
    return [
        OffsetChange(queue_id, old.get(queue_id), offset)
        for queue_id, offset in sorted(new.items())
    ]


def check_nobody_consumes(group: str, members: Iterable[str], *, force: bool) -> None:
    """Refuse to set offsets under members who would commit their own over them.

    Raises:
        GroupActiveError: the group has members now, and nothing is forced.
    """
    named = sorted(members)
    if named and not force:
        raise GroupActiveError(
            "group consumes now and would go on where it is: stop its members, or force it",
            group=group,
            members=len(named),
            some=named[:MEMBERS_NAMED_MAX],
        )
