"""Heartbeats of a client: its groups and their subscriptions, told every half minute."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fastjson import decode_body
from ledgermq.remoting.fields import INT32_MAX, INT64_MAX
from ledgermq.remoting.pull_request import TAG

GROUPS_MAX = 4_096
SUBSCRIPTIONS_MAX = 4_096
TAGS_MAX = 16_384
CLIENT_ID_SIZE_MAX = 1_024
"""What one heartbeat may say; settings allow a client fewer groups (``limits.groups_per_client``).
Groups are kept by all members. Of tags and their hashes it is the number of all subscriptions
together."""


class ConsumeType(IntEnum):
    """Whether the client's library pulls by itself, or takes messages singly."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1
    CONSUME_POP = 2


class MessageModel(IntEnum):
    """Whether members share the messages."""

    BROADCASTING = 0
    CLUSTERING = 1


class ConsumeFrom(IntEnum):
    """Where a group begins that has consumed nothing; three more were given up by RocketMQ."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


class Subscription(NamedTuple):
    """What a group wants of a topic.

    Attributes:
        version: when it was made, epoch ms; a later one replaces an earlier one.
        codes: hashes of the tags, as the client reckons them; none for all tags.
    """

    topic: str
    expression: str
    expression_type: str
    version: int
    tags: frozenset[str]
    codes: frozenset[int]


class ConsumerGroup(NamedTuple):
    """One consumer of a client."""

    name: str
    consume_type: ConsumeType
    model: MessageModel
    begin: ConsumeFrom
    subscriptions: tuple[Subscription, ...]


class Heartbeat(NamedTuple):
    """A client, and the groups that it belongs to."""

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[ConsumerGroup, ...]


def decode_heartbeat(body: bytes | memoryview) -> Heartbeat:
    """What a heartbeat's body says; numbers may be texts, enumerations their ordinals.

    Raises:
        ProtocolError: it is not one.
    """
    data = decode_body(body)
    producers, consumers = _list(data, "producerDataSet"), _objects(data, "consumerDataSet")
    wanted = [one for group in consumers for one in _list(group, "subscriptionDataSet")]
    # Counted before anything is looked at: what is refused has cost next to nothing.
    _check_count("groups", len(producers) + len(consumers), GROUPS_MAX)
    _check_count("subscriptions", len(wanted), SUBSCRIPTIONS_MAX)
    _check_count("tags", sum(map(_tag_count, wanted)), TAGS_MAX)
    heartbeat = Heartbeat(
        _name(data, "clientID"),
        tuple(_name(one, "groupName") for one in _objects(data, "producerDataSet")),
        tuple(map(_consumer, consumers)),
    )
    if len(heartbeat.client_id) > CLIENT_ID_SIZE_MAX:
        raise ProtocolError(
            "heartbeat's client id is too long",
            size=len(heartbeat.client_id),
            limit=CLIENT_ID_SIZE_MAX,
        )
    return heartbeat


def _check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise ProtocolError(f"heartbeat has too many {what}", count=count, limit=limit)


def _tag_count(subscription: object) -> int:
    if not isinstance(subscription, dict):
        return 0
    return sum(len(_list(subscription, field)) for field in ("tagsSet", "codeSet"))


def _consumer(data: Mapping[str, object]) -> ConsumerGroup:
    return ConsumerGroup(
        _name(data, "groupName"),
        ConsumeType(_choice(data, "consumeType", ConsumeType)),
        MessageModel(_choice(data, "messageModel", MessageModel)),
        ConsumeFrom(_choice(data, "consumeFromWhere", ConsumeFrom)),
        tuple(_subscription(one) for one in _objects(data, "subscriptionDataSet")),
    )


def _subscription(data: Mapping[str, object]) -> Subscription:
    return Subscription(
        _name(data, "topic"),
        _text(data, "subString"),
        _text(data, "expressionType") or TAG,
        _integer(data.get("subVersion", 0), "subVersion"),
        frozenset(map(str, _list(data, "tagsSet"))),
        frozenset(_integer(one, "codeSet", INT32_MAX) for one in _list(data, "codeSet")),
    )


def _name(data: Mapping[str, object], field: str) -> str:
    value = data.get(field)
    if not isinstance(value, str) or not value:
        raise ProtocolError("heartbeat lacks a name", field=field)
    return value


def _text(data: Mapping[str, object], field: str) -> str:
    value = data.get(field)
    return value if isinstance(value, str) else ""


def _integer(value: object, field: str, limit: int = INT64_MAX) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProtocolError("heartbeat has no number there", field=field, value=str(value)[:64])
    if not -limit - 1 <= value <= limit:
        raise ProtocolError("heartbeat's number is too large", field=field, limit=limit)
    return value


def _list(data: Mapping[str, object], field: str) -> list[object]:
    value = data.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolError("heartbeat has no list there", field=field)
    return value


def _objects(data: Mapping[str, object], field: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for one in _list(data, field):
        if not isinstance(one, dict):
            raise ProtocolError("heartbeat has no object there", field=field)
        found.append(one)
    return found


def _choice(data: Mapping[str, object], field: str, kinds: type[IntEnum]) -> int:
    """A member by its name or its ordinal; the first one when nothing is said."""
    value = data.get(field, 0)
    if isinstance(value, str) and value in kinds.__members__:
        return int(kinds[value])
    number = _integer(value, field)
    if number not in {int(kind) for kind in kinds}:
        raise ProtocolError("heartbeat names no such kind", field=field, value=number)
    return number
