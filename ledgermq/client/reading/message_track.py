"""Browsing of a queue, and message tracks: which groups have consumed a message."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import ask, offsets_of
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.pull_pipeline import pull_request, pulled_batch
from ledgermq.model.errors import (
    ConfigError,
    FilterIllegalError,
    GroupUnknownError,
    NoPermissionError,
    ProtocolError,
)
from ledgermq.model.message_filter import ALL_TAGS, SQL_MARK
from ledgermq.verbs.answers import elements
from ledgermq.wire.pull_frame import BYTES_MAX, MESSAGES_MAX, Pull


class TrackState(StrEnum):
    """What a group has done about a message; RocketMQ's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"


class Track(NamedTuple):
    """One group and one message.

    Attributes:
        consumed_to: queue offset up to which the group has consumed the message's queue.
    """

    group: str
    state: TrackState
    consumed_to: int


def browse(
    link: AnyLink,
    topic: str,
    queue_id: int,
    offset: int,
    messages_max: int,
    *,
    bytes_max: int = BYTES_MAX,
) -> Steps[MessageBatch]:
    """Messages of one queue from ``offset`` on, at most so many; no group is asked or told.

    Args:
        bytes_max: of all of them; one is given whatever its size.

    Raises:
        ConfigError: a number is out of range.
    """
    if offset < 0 or not 0 < messages_max <= MESSAGES_MAX:
        raise ConfigError(
            "offset or messages_max out of range",
            offset=offset,
            messages_max=messages_max,
            limit=MESSAGES_MAX,
        )
    pull = Pull(0, topic, queue_id, offset, messages_max, bytes_max, 0)
    request = pull_request(pull, link, deadline=NEVER)
    yield request
    return pulled_batch(topic, queue_id, request)


def track(link: AnyLink, message: ReceivedMessage) -> Steps[list[Track]]:
    """What each group that reads the message's queue has done about it, by name.

    A group has consumed what lies before its offset, as RocketMQ judges it: what it has given back
    counts, too, and is tracked by its copy in the retry topic. Where none of its members wants the
    message by what they subscribe to now, it has passed over it. One that has not consumed it, and
    has no members now, is not online; a ``Consumer`` is no member, and is not known of. What the
    members of a group of somebody else are and want is not told.
    """
    # Nodes that know of no ``topic`` tell of all, which are left out below.
    told = yield from ask("groups", topic=message.stored_topic)
    found = []
    passing: dict[str, bool] = {}
    for one in sorted(_tracks(elements(told, "groups"), message)):
        try:
            told = yield from ask("group_members", group=one.group)
        except (GroupUnknownError, NoPermissionError):
            # It is somebody else's, or was deleted since.
            found.append(one)
            continue
        members = elements(told, "members")
        state = one.state
        if state is not TrackState.CONSUMED:
            state = state if members else TrackState.NOT_ONLINE
        elif wanted := _wanted(members, message.stored_topic):
            for expression in wanted - passing.keys():
                passing[expression] = yield from _passes(link, message, expression)
            if not any(passing[expression] for expression in wanted):
                state = TrackState.CONSUMED_BUT_FILTERED
        found.append(one._replace(state=state))
    return found


def _wanted(members: list[object], topic: str) -> set[str]:
    """What members subscribe to of a topic, those that do."""
    subscriptions = [one.get("subscription") for one in members if isinstance(one, dict)]
    return {str(one[topic]) for one in subscriptions if isinstance(one, dict) and topic in one}


def _passes(link: AnyLink, message: ReceivedMessage, expression: str) -> Steps[bool]:
    """Whether what a member subscribes to has the message in it; the broker knows SQL."""
    if not expression.startswith(SQL_MARK):
        tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
        return not tags or message.tag in tags or ALL_TAGS in tags
    place = message.stored_topic, message.queue_id, message.queue_offset
    pull = Pull(0, *place, 1, BYTES_MAX, 0, expression=expression.removeprefix(SQL_MARK))
    request = pull_request(pull, link, deadline=NEVER)
    yield request
    try:
        batch = pulled_batch(*place[:2], request)
    except FilterIllegalError:
        # Members may tell what they like, and get nothing by it.
        return False
    return any(one.queue_offset == message.queue_offset for one in batch)


def _tracks(rows: list[object], message: ReceivedMessage) -> Iterator[Track]:
    topic = message.stored_topic
    for row in rows:
        if not isinstance(row, dict):
            raise ProtocolError("row of a group is not an object", row=row)
        group, consumed = row.get("group"), offsets_of(row).get(message.queue_id)
        if not isinstance(group, str) or row.get("topic") != topic:
            continue
        is_consumed = consumed is not None and consumed > message.queue_offset
        state = TrackState.CONSUMED if is_consumed else TrackState.NOT_CONSUME_YET
        yield Track(group, state, consumed or 0)
