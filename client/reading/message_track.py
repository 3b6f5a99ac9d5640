"""Browsing of a queue, and message tracks: which groups have consumed a message."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ledgermq.client.core.answers import elements
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import ask, offsets_of
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.reading.pull_pipeline import pull_request, pulled_batch
from ledgermq.model.errors import ConfigError, NoPermissionError, ProtocolError
from ledgermq.wire.pull_frame import BYTES_MAX, MESSAGES_MAX, Pull


class TrackState(StrEnum):
    """What a group has done about a message; RocketMQ's names."""

    CONSUMED = "CONSUMED"
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


def track(message: ReceivedMessage) -> Steps[list[Track]]:
    """What each group that reads the message's queue has done about it, by name.

    A group has consumed what lies before its offset, as RocketMQ judges it: what it has given back
    counts, too, and is tracked by its copy in the retry topic. One that has not consumed it, and
    has no members now, is not online; a ``Consumer`` is no member, and is not known of. Whether a
    group of somebody else is online is not told.
    """
    # Nodes that know of no ``topic`` tell of all, which are left out below.
    told = yield from ask("groups", topic=message.stored_topic)
    found = []
    for one in sorted(_tracks(elements(told, "groups"), message)):
        if one.state is not TrackState.CONSUMED:
            try:
                told = yield from ask("group_members", group=one.group)
            except NoPermissionError:
                found.append(one)
                continue
            if not told.get("members"):
                found.append(one._replace(state=TrackState.NOT_ONLINE))
                continue
        found.append(one)
    return found


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
