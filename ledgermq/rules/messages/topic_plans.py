"""Plans for a topic: what its creation, alteration or deletion changes, and refusals.

The fields are those of RocketMQ 4.9.4's ``TopicConfig``. Messages live in the queues that a topic
has for reading: whoever takes queues away does it in two steps, as RocketMQ's operators do. First
fewer queues take messages (``write_queues``); when all groups have consumed what the others still
hold, fewer are read (``read_queues``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ledgermq.formats.batch_unit import QUEUE_TYPE
from ledgermq.model.errors import (
    ConfigError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.limits import (
    DEDUPLICATION_WINDOW_MS_MAX,
    DEDUPLICATION_WINDOW_MS_MIN,
    KEEP_BYTES_MAX,
    KEEP_MS_MAX,
    QUEUE_ID_MAX,
)
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.topic_rows import ClusterTopic, SharePhase, TopicShare, topic_row
from ledgermq.rules.tables.topics import (
    FLAGS,
    NUMBERS,
    READ_WRITE,
    Permission,
    Topic,
    TopicTable,
    check_topic_name,
)
from ledgermq.verbs.topics import MESSAGE_TYPES, PERMISSION_MAX, SYS_FLAG_MAX, TopicFields


def plan_followed(
    topics: TopicTable, cluster: ClusterTable, name: str, *, first_offsets: Mapping[int, int]
) -> Topic | None:
    """The topic as the cluster's rows want it in this group; None: as it is.

    What follows no row any more is as it was, and the group's own.

    Args:
        first_offsets: where its queues begin, if there was a topic of that name before.

    Raises:
        ConfigError: the group has a topic of that name of its own, or the row cannot be read.
        MessageIllegalError: the name breaks a rule, or it would get fewer queues.
        NoPermissionError: the name is reserved for the broker.
    """
    existing = topics.get(name)
    row = topic_row(cluster, name)
    share = None if row is None else row.shares.get(cluster.group)
    if row is not None and share is not None:
        wanted = _with_share(topics, cluster, name, row, share, first_offsets=first_offsets)
    elif existing is None or not existing.cluster or not _is_confirmed(cluster):
        return None
    else:
        wanted = replace(existing, cluster="")
    return None if wanted == existing else wanted


def _is_confirmed(cluster: ClusterTable) -> bool:
    """Whether a row that is not there is none: not in a group that waits for its first document."""
    return cluster.chain is None or cluster.rows_rank > 0


def _with_share(
    topics: TopicTable,
    cluster: ClusterTable,
    name: str,
    row: ClusterTopic,
    share: TopicShare,
    *,
    first_offsets: Mapping[int, int],
) -> Topic:
    existing = topics.get(name)
    assert cluster.chain is not None, "who has rows belongs to a cluster"
    own = cluster.chain.cluster
    if existing is not None and existing.cluster != own and not row.adopts:
        raise ConfigError(
            "group has a topic of that name of its own: `ledgermq topic create --over … --adopt` at"
            " the home takes it up",
            topic=name,
            group=cluster.group,
        )
    planned = topics.plan(name, share.queues)
    if existing is None and first_offsets:
        planned = planned.beginning_at(first_offsets)
    may = planned.permission | Permission.READ
    may = may | Permission.WRITE if share.phase is SharePhase.OPEN else may & ~Permission.WRITE
    is_ordered = planned.is_ordered or row.order
    return replace(planned, permission=may, is_ordered=is_ordered, cluster=own)


FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
QUEUES_DEFAULT = 8


class UnreadQueue(NamedTuple):
    """A queue with messages that ``group`` has not consumed; it is empty when no group ever did."""

    queue_id: int
    messages: int
    group: str


def plan_create(
    table: TopicTable, name: str, wish: TopicFields, *, first_offsets: Mapping[int, int]
) -> Topic:
    """A new topic; one that is there already and has all that is wished, or fewer queues, will do.

    Args:
        first_offsets: where its queues begin, if there was a topic of that name before.

    Raises:
        MessageIllegalError: the name or a number breaks a rule, or there is another one.
        NoPermissionError: the name is reserved for the broker.
        ConfigError: the cluster's row says how many queues it has.
    """
    _check_name(table, name)
    existing = table.get(name)
    if existing is None:
        reads, writes = _queues_of(wish)
        reads = reads or writes or QUEUES_DEFAULT
        created = _with_wish(Topic(name, reads, writes or reads), wish)
        _check_readable(created)
        return created.beginning_at(first_offsets) if first_offsets else created
    wanted = _with_wish(existing, wish)
    _check_own(existing, wanted)
    numbers = wanted.read_queues, wanted.write_queues
    most = max(existing.read_queues, existing.write_queues)
    if min(numbers) < most and numbers != (existing.read_queues, existing.write_queues):
        raise MessageIllegalError(
            "a topic cannot get fewer queues by being created again: alter it",
            topic=name,
            queues=min(numbers),
            existing=most,
        )
    grown = replace(existing.shown_to(numbers[0]), write_queues=numbers[1])
    if grown != wanted:
        raise MessageIllegalError("topic exists already, and is another one: alter it", topic=name)
    return existing if wanted == existing else wanted


def plan_alter(
    table: TopicTable,
    name: str,
    wish: TopicFields,
    *,
    unread: Callable[[Sequence[int]], UnreadQueue | None],
    force: bool,
) -> Topic:
    """The topic as it is to be.

    Args:
        unread: the first of these queues that holds messages which not every group has consumed.
        force: take queues away from readers although they hold such messages, or still take some.

    Raises:
        TopicUnknownError: there is no such topic.
        NoPermissionError: it is the broker's own.
        MessageIllegalError: a number breaks a rule, or messages would be out of reach.
        ConfigError: the cluster's row says what is to be altered.
    """
    _check_name(table, name)
    existing = _existing(table, name)
    wanted = _with_wish(existing, wish)
    if wanted == existing:
        return existing
    _check_own(existing, wanted)
    if force:
        return wanted
    _check_readable(wanted)
    if wanted.read_queues >= existing.read_queues:
        return wanted
    if wanted.read_queues < existing.write_queues and existing.permission & Permission.WRITE:
        raise MessageIllegalError(
            "queues that take messages cannot be taken from readers: give it fewer write queues "
            "first, and fewer read queues when all is consumed",
            topic=name,
            read_queues=wanted.read_queues,
            write_queues=existing.write_queues,
        )
    hidden = unread(range(wanted.read_queues, existing.read_queues))
    if hidden is not None:
        raise MessageIllegalError(
            "messages in the queues taken away are not consumed: wait until they are, or force it",
            topic=name,
            **hidden._asdict(),
        )
    return wanted


def plan_delete(table: TopicTable, name: str, *, queues_found: int) -> bool:
    """Whether there is something to delete; not when the topic was deleted before.

    Args:
        queues_found: queues that the store has of it, whether the table knows it or not.

    Raises:
        TopicUnknownError: there is no such topic.
        NoPermissionError: it is the broker's own.
        ConfigError: it is the cluster's, or its queues are RocketMQ's queues of batches.
    """
    _check_name(table, name)
    if table.is_deleted(name):
        return False
    existing = table.get(name)
    if existing is not None:
        _check_own(existing, None)
        if existing.has_batches:
            raise ConfigError(
                "the topic has RocketMQ's queues of batches, without which RocketMQ would not"
                " start: delete it there",
                topic=name,
                attribute=f"{QUEUE_TYPE}=BatchCQ",
            )
    if not queues_found:
        _existing(table, name)
    return True


def warnings_of(topic: Topic, *, unread: UnreadQueue | None) -> list[str]:
    """What an operator should know of a topic that was just changed; empty when all is as usual.

    Args:
        unread: a queue out of the readers' reach that holds messages.
    """
    found = []
    if topic.write_queues < topic.read_queues:
        found.append(
            f"queues {topic.write_queues} to {topic.read_queues - 1} take no messages any more; "
            f"when all groups have consumed them: --read-queues {topic.write_queues}"
        )
    if topic.write_queues > topic.read_queues:
        found.append(
            f"queues {topic.read_queues} to {topic.write_queues - 1} take messages that nobody "
            f"can read: --read-queues {topic.write_queues}"
        )
    if not topic.permission & Permission.READ:
        found.append("may not be read: consumers are refused")
    if not topic.permission & Permission.WRITE:
        found.append("may not be written to: producers are refused")
    elif topic.is_compacted_there:
        found.append(
            "is compacted, and RocketMQ serves what it stored itself alone: producers are refused"
        )
    if unread is not None:
        found.append(
            f"queue {unread.queue_id} holds {unread.messages} messages out of reach, until "
            f"--read-queues is at least {unread.queue_id + 1}"
        )
    return found


def _check_name(table: TopicTable, name: str) -> None:
    check_topic_name(name)
    if table.is_system(name):
        raise NoPermissionError("topic name is reserved for the broker", topic=name)


def _existing(table: TopicTable, name: str) -> Topic:
    topic = table.get(name)
    if topic is None:
        raise TopicUnknownError("topic does not exist", topic=name)
    return topic


def _check_own(existing: Topic, wanted: Topic | None) -> None:
    """Leave to the cluster's row what it says: the next comparison would undo anything else."""

    def said(topic: Topic) -> tuple[int, int, int]:
        return topic.read_queues, topic.write_queues, int(topic.permission)

    if existing.cluster and (wanted is None or said(wanted) != said(existing)):
        raise ConfigError(
            "topic is the cluster's: its queues and permission change at the cluster's home, and"
            " it is deleted in no single group",
            topic=existing.name,
            cluster=existing.cluster,
        )


def _check_readable(topic: Topic) -> None:
    if topic.write_queues > topic.read_queues:
        raise MessageIllegalError(
            "messages in queues that are not read could not be consumed",
            topic=topic.name,
            write_queues=topic.write_queues,
            read_queues=topic.read_queues,
        )


def _queues_of(wish: TopicFields) -> tuple[int | None, int | None]:
    """How many are for reading, and for writing; ``queues`` stands for both."""
    return (
        wish.queues if wish.read_queues is None else wish.read_queues,
        wish.queues if wish.write_queues is None else wish.write_queues,
    )


def _with_wish(topic: Topic, wish: TopicFields) -> Topic:
    """``topic`` with what is wished.

    Raises:
        MessageIllegalError: a field is out of its range.
    """
    reads, writes = _queues_of(wish)
    for field, number, low, limit in (
        ("read_queues", reads, 1, QUEUE_ID_MAX),
        ("write_queues", writes, 1, QUEUE_ID_MAX),
        ("perm", wish.perm, 0, PERMISSION_MAX),
        ("sys_flag", wish.sys_flag, 0, SYS_FLAG_MAX),
        ("keep_ms", wish.keep_ms, 0, KEEP_MS_MAX),
        ("keep_bytes", wish.keep_bytes, 0, KEEP_BYTES_MAX),
    ):
        if number is not None and not low <= number <= limit:
            raise MessageIllegalError(
                "out of range",
                topic=topic.name,
                field=field,
                value=number,
                minimum=low,
                limit=limit,
            )
    window_ms = wish.deduplication_window_ms
    if window_ms and not DEDUPLICATION_WINDOW_MS_MIN <= window_ms <= DEDUPLICATION_WINDOW_MS_MAX:
        raise MessageIllegalError(
            "window of de-duplication out of range",
            topic=topic.name,
            field="deduplication_window_ms",
            value=window_ms,
            off=0,
            minimum=DEDUPLICATION_WINDOW_MS_MIN,
            limit=DEDUPLICATION_WINDOW_MS_MAX,
        )
    if wish.message_type is not None:
        if wish.message_type not in MESSAGE_TYPES:
            raise MessageIllegalError(
                "no type of messages",
                topic=topic.name,
                value=wish.message_type,
                allowed=MESSAGE_TYPES,
            )
        topic = topic.with_message_type(wish.message_type)
    if wish.receipts and topic.has_batches:
        raise MessageIllegalError(
            "a topic with queues of batches has no receipts: what is read of them is not what is in"
            " the log",
            topic=topic.name,
        )
    unknown = dict(topic.unknown)
    if wish.filter_type is not None:
        if wish.filter_type not in FILTER_TYPES:
            raise MessageIllegalError(
                "no filter type", topic=topic.name, value=wish.filter_type, allowed=FILTER_TYPES
            )
        if wish.filter_type != unknown.get("topicFilterType", FILTER_TYPES[0]):
            unknown["topicFilterType"] = wish.filter_type
    said = {name: getattr(wish, name) for name in ("sys_flag", *NUMBERS, *FLAGS)}
    return replace(
        topic if reads is None else topic.shown_to(reads),
        write_queues=topic.write_queues if writes is None else writes,
        permission=topic.permission if wish.perm is None else Permission(wish.perm),
        is_ordered=topic.is_ordered if wish.order is None else wish.order,
        unknown=unknown,
        **{name: value for name, value in said.items() if value is not None},
    )


assert READ_WRITE <= PERMISSION_MAX
