"""Starting offsets of a consumer's queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from ledgermq.client.core.questions import group_offset, offset_since, queue, route
from ledgermq.client.core.requests import Steps
from ledgermq.client.core.wrong_calls import check_whole, is_in_seconds
from ledgermq.model.errors import ConfigError, TopicUnknownError
from ledgermq.model.limits import (
    GROUP_SIZE_MAX,
    QUEUE_ID_MAX,
    QUEUE_OFFSET_MAX,
    TOPIC_CHARACTERS,
    TOPIC_NAME,
)

Start = Literal["stored", "first", "last"] | int | Mapping[int, int]
"""Where to begin: the group's committed offsets (``first`` for a queue without one), the first or
behind the last message of each queue, the first message that was stored at a time (epoch ms) or
later, or queue offsets by queue id."""


def starting_offsets(
    topic: str,
    group: str | None,
    queues: Iterable[int] | None,
    start: Start,
    *,
    otherwise: Start = "first",
) -> Steps[dict[int, int]]:
    """Queue offset to begin at, for each queue to read.

    Args:
        queues: those to read; all when left out.
        otherwise: where to begin with a queue of which ``start`` says nothing.

    Raises:
        TopicUnknownError: there is no such topic, or no such queue.
    """
    wanted = wanted_queues((yield from route(topic, create=False)).read_queues, queues, topic)
    stored: Mapping[int, int] = {}
    if start == "stored" and group is not None:
        stored = yield from group_offset(group, topic)
    elif isinstance(start, Mapping):
        stored = start
    offsets: dict[int, int] = {}
    for queue_id in wanted:
        begin = start if start in ("first", "last") or isinstance(start, int) else otherwise
        if queue_id in stored:
            offsets[queue_id] = stored[queue_id]
        elif isinstance(begin, int):
            offsets[queue_id] = yield from offset_since(topic, queue_id, begin)
        else:
            held = yield from queue(topic, queue_id)
            offsets[queue_id] = held.end if begin == "last" else held.begin
    return offsets


def ending_offsets(topic: str, queues: Iterable[int]) -> Steps[dict[int, int]]:
    """Queue offset behind the last message of each queue."""
    offsets: dict[int, int] = {}
    for queue_id in queues:
        offsets[queue_id] = (yield from queue(topic, queue_id)).end
    return offsets


def wanted_queues(count: int, queues: Iterable[int] | None, topic: str) -> list[int]:
    """The queues to read of a topic that has ``count``.

    Raises:
        TopicUnknownError: it does not have all that are asked for.
    """
    if queues is None:
        return list(range(count))
    wanted = sorted(set(queues))
    strange = [queue for queue in wanted if not 0 <= queue < count]
    if strange:
        raise TopicUnknownError(
            "topic has no such queue", topic=topic, queue_id=strange[0], limit=count - 1
        )
    return wanted


def checked_group(group: str | None) -> str:
    """The group of a consumer.

    Raises:
        ConfigError: it has none, or one that nobody can have.
    """
    if not group:
        raise ConfigError("consumer has no group: give group=… to keep offsets in the broker")
    if not isinstance(group, str):
        raise ConfigError("group is not a text", group=group)
    if len(group) > GROUP_SIZE_MAX:
        raise ConfigError("group is too long", group=group, limit=GROUP_SIZE_MAX)
    if TOPIC_NAME.fullmatch(group) is None:
        raise ConfigError(
            "group has a character that is not allowed", group=group, allowed=TOPIC_CHARACTERS
        )
    return group


def checked_topic(topic: str) -> str:
    """The topic of a consumer.

    Raises:
        ConfigError: it is no text.
    """
    if not isinstance(topic, str):
        raise ConfigError("topic is not a text", topic=topic)
    return topic


def checked_queues(queues: Iterable[int] | None) -> list[int] | None:
    """The queues that a consumer was told to read; None: all.

    Raises:
        ConfigError: there is none, or one is no number.
    """
    if queues is None:
        return None
    found = list(queues) if isinstance(queues, Iterable) else [queues]
    if not found or not all(type(one) is int for one in found):
        raise ConfigError("queues are no numbers of queues; all are read without", queues=queues)
    return found


def is_time(start: object) -> bool:
    """Whether a place to begin is a time in epoch milliseconds.

    Raises:
        ConfigError: it is one in seconds.
    """
    if is_in_seconds(start):
        raise ConfigError("start is a time in seconds, not in epoch milliseconds", start=start)
    return type(start) is int and start >= 0


def check_start(start: Start) -> Start:
    """``start``, which was given by the application.

    Raises:
        ConfigError: it is not one of the values that ``Start`` names.
    """
    if isinstance(start, Mapping):
        for queue, offset in start.items():
            check_whole("queue id", queue, 0, QUEUE_ID_MAX)
            check_whole("queue offset", offset, 0, QUEUE_OFFSET_MAX)
        return start
    if start in ("stored", "first", "last") or is_time(start):
        return start
    raise ConfigError(
        "start is not a place to begin",
        start=start,
        allowed="stored, first, last, a time in epoch ms, or {queue: offset}",
    )
