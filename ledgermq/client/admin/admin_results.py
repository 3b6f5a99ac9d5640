"""Results of administration: topics, groups and offsets, with checked types."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.client.core.answers import Fields, integer, rows, text, texts
from ledgermq.model.errors import ProtocolError


class TopicSettings(NamedTuple):
    """A topic as the table has it; ``perm`` are RocketMQ's bits (4 read, 2 write, 1 inherit).

    Attributes:
        order: it is an order topic: clients keep to its queues when a broker is away.
        order_config: what RocketMQ's name server keeps for it, empty when it is none.
        deduplication_window_ms: how long unique ids count; 0: they do not.
        warnings: what an operator should know.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str
    sys_flag: int
    order_config: str
    warnings: tuple[str, ...]
    deduplication_window_ms: int = 0


class QueueState(NamedTuple):
    """What one queue holds: offsets ``begin`` to ``end``, half-open.

    ``last_stored`` is the time of its last message, epoch ms, ``None`` without one.
    """

    queue: int
    begin: int
    end: int
    last_stored: int | None


class TopicState(NamedTuple):
    """A topic, its queues that ever had a message, and the groups that have consumed of it."""

    settings: TopicSettings
    system: bool
    queues: tuple[QueueState, ...]
    groups: tuple[str, ...]

    @property
    def messages(self) -> int:
        """What all its queues hold."""
        return sum(queue.end - queue.begin for queue in self.queues)


class GroupRow(NamedTuple):
    """A subscription group.

    Attributes:
        exists: it is in the table; else only what it has consumed is known.
        system: it is the broker's own.
        fields: RocketMQ's ``SubscriptionGroupConfig``, under its names.
        topics: those of which it has committed offsets.
    """

    group: str
    exists: bool
    system: bool
    fields: dict[str, object]
    topics: tuple[str, ...]


class GroupState(NamedTuple):
    """A subscription group, its lag by topic in messages, and the clients that consume now.

    ``warnings``: in what these differ that all should want the same.
    """

    group: str
    exists: bool
    system: bool
    fields: dict[str, object]
    lag: dict[str, int]
    members: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class QueueLag(NamedTuple):
    """How far a group is in one queue.

    Attributes:
        begin: first queue offset that the queue holds.
        end: queue offset behind its last message.
        offset: of the next message to consume, ``None`` when nothing was committed.
        lag: messages that are not consumed.
        last_consumed: store time of the last one that is, epoch ms, ``None`` when it is not known.
    """

    topic: str
    queue: int
    begin: int
    end: int
    offset: int | None
    lag: int
    last_consumed: int | None


class OffsetMove(NamedTuple):
    """What a reset or a clone does to one queue; ``old`` is ``None`` if nothing was committed."""

    topic: str
    queue: int
    old: int | None
    new: int


def topic_settings(result: Fields) -> TopicSettings:
    """The answer to ``topic_create`` and ``topic_alter``."""
    return TopicSettings(
        text(result, "topic"),
        integer(result, "read_queues"),
        integer(result, "write_queues"),
        integer(result, "perm"),
        bool(result.get("order")),
        text(result, "filter_type"),
        integer(result, "sys_flag"),
        text(result, "order_config"),
        texts(result, "warnings"),
        # A node that is older does not tell.
        integer(result, "deduplication_window_ms") if "deduplication_window_ms" in result else 0,
    )


def topic_state(result: Fields) -> TopicState:
    """The answer to ``topic_show``."""
    queues = rows(result, "queues", _queue_state)
    return TopicState(
        topic_settings(result), bool(result.get("system")), tuple(queues), texts(result, "groups")
    )


def group_row(result: Fields) -> GroupRow:
    """The answer to ``group_create`` and ``group_alter``, and a row of ``group_list``."""
    topics = texts(result, "topics") if "topics" in result else ()
    return GroupRow(*_group_head(result), topics)


def group_state(result: Fields) -> GroupState:
    """The answer to ``group_show``."""
    lag = rows(result, "topics", lambda row: (text(row, "topic"), integer(row, "lag")))
    # Older nodes give none.
    warnings = texts(result, "warnings") if "warnings" in result else ()
    return GroupState(*_group_head(result), dict(lag), texts(result, "members"), warnings)


def queue_lag(row: Fields) -> QueueLag:
    """A row of ``group_lag``."""
    return QueueLag(
        text(row, "topic"),
        integer(row, "queue"),
        integer(row, "min"),
        integer(row, "max"),
        _optional(row, "offset"),
        integer(row, "lag"),
        _time(row, "last_consumed"),
    )


def offset_move(row: Fields) -> OffsetMove:
    """A row of ``offset_reset`` and ``offset_clone``."""
    return OffsetMove(
        text(row, "topic"), integer(row, "queue"), _optional(row, "old"), integer(row, "new")
    )


def _group_head(result: Fields) -> tuple[str, bool, bool, dict[str, object]]:
    fields = result.get("fields")
    if not isinstance(fields, dict):
        raise ProtocolError("field missing or not an object", field="fields", value=fields)
    return text(result, "group"), bool(result.get("exists")), bool(result.get("system")), fields


def _queue_state(row: Fields) -> QueueState:
    return QueueState(
        integer(row, "queue"), integer(row, "min"), integer(row, "max"), _time(row, "last_stored")
    )


def _optional(row: Fields, name: str) -> int | None:
    return None if row.get(name) is None else integer(row, name)


def _time(row: Fields, name: str) -> int | None:
    time = integer(row, name)
    return None if time < 0 else time
