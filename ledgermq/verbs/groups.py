"""Verbs about consumer groups: lists, changes, and how far they are."""

from __future__ import annotations

import secrets
from dataclasses import KW_ONLY, field
from typing import Annotated, ClassVar, NamedTuple

from ledgermq.model.rights import Right
from ledgermq.verbs.answers import Fields, integer, rows, text
from ledgermq.verbs.needs import CHANGE, GROUP, USER, both_rights, shown
from ledgermq.verbs.told_rows import BELOW_0_IS_NONE, Wire, read_row
from ledgermq.verbs.verb import (
    Bounds,
    DoneVerb,
    GroupName,
    Json,
    Key,
    PageVerb,
    RowsVerb,
    TopicName,
    Verb,
)

GROUP_ROWS_MAX = 1_000
TOKEN_BYTES = 8


class GroupRow(NamedTuple):
    """A subscription group.

    Attributes:
        exists: it is in the table; else only what it has consumed is known.
        system: it is the broker's own.
        fields: RocketMQ's ``SubscriptionGroupConfig``, under its names.
        topics: those of which it has committed offsets.
        members: clients that consume for it now, as a list of groups tells.
    """

    group: str
    exists: bool
    system: bool
    fields: dict[str, object]
    topics: tuple[str, ...] = ()
    members: int = 0


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
    begin: Annotated[int, Wire("min")]
    end: Annotated[int, Wire("max")]
    offset: int | None
    lag: int
    last_consumed: Annotated[int | None, BELOW_0_IS_NONE]


GroupFields = Annotated[
    dict[str, object],
    Key(
        "consumeEnable", bool, "False: its consumers are refused",
        "consume", "off: its consumers are refused",
    ),
    Key(
        "consumeFromMinEnable", bool, "New queues are consumed from their beginning",
        "consume-from-min",
    ),
    Key("consumeBroadcastEnable", bool, "Its consumers may each get all messages", "broadcast"),
    Key(
        "notifyConsumerIdsChangedEnable", bool, "Members hear at once of others",
        "notify", "members are told at once when others come or go",
    ),
    Key(
        "consumeMessageOrderly", bool, "As a share group it hands out messages of one key in order",
        "ordered", "as a share group it hands out the messages of one key one after another",
    ),
    Key("retryQueueNums", int, "Queues of its retry topic", "retry-queues"),
    Key(
        "retryMaxTimes", int, "So often is a message given again",
        "retry-max", "so often is a message given again before it is a dead letter",
    ),
    Key(
        "priorityFactor", int, "Of 100 receives of a topic of PRIORITY so many go by priority",
        "priority-factor",
        "of 100 receives of a topic of PRIORITY so many get the highest first (0 to 100)",
    ),
    Key("brokerId", int, "The broker to pull from: 0 is the leader", "broker-id"),
    Key(
        "whichBrokerWhenConsumeSlowly", int, "The broker for readers of old messages",
        "slow-broker-id",
    ),
]  # fmt: skip
"""RocketMQ's names."""


class ListGroups(PageVerb[GroupRow]):
    """Groups by name, also those of which only offsets are known; whether there are more."""

    NAME: ClassVar = "group_list"
    NEEDS: ClassVar = shown(USER)
    ROWS: ClassVar = "groups", GroupRow

    limit: Annotated[int | None, Bounds(1, GROUP_ROWS_MAX)] = None
    after: str | None = None


class ShowGroup(Verb[GroupState]):
    """One group: its settings, its lag, its members.

    Raises:
        GroupUnknownError: there is none.
    """

    NAME: ClassVar = "group_show"
    NEEDS: ClassVar = shown(GROUP)
    ROW: ClassVar = GroupState

    group: GroupName

    def told(self, answer: Fields) -> GroupState:
        lag = rows(answer, "topics", lambda row: (text(row, "topic"), integer(row, "lag")))
        return read_row(GroupState, {**answer, "lag": dict(lag)})


class CreateGroup(Verb[GroupRow]):
    """Create a group.

    Args:
        fields: RocketMQ's defaults for those left out.

    Raises:
        MessageIllegalError: the name or a field breaks a rule, or there is another group.
        NoPermissionError: it is the broker's own.
    """

    NAME: ClassVar = "group_create"
    NEEDS: ClassVar = CHANGE
    ROW: ClassVar = GroupRow

    group: GroupName
    fields: GroupFields = field(default_factory=dict)


class AlterGroup(Verb[GroupRow]):
    """Change the fields that are given; ``consumeEnable: False`` stops its pulls.

    Raises:
        GroupUnknownError: there is no such group.
        MessageIllegalError: a field breaks a rule.
        NoPermissionError: it is the broker's own.
    """

    NAME: ClassVar = "group_alter"
    NEEDS: ClassVar = CHANGE
    ROW: ClassVar = GroupRow

    group: GroupName
    fields: GroupFields = field(default_factory=dict)


class DeleteGroup(DoneVerb):
    """Delete a group.

    Args:
        with_offsets: forget what it has consumed; else a group of that name goes on there.
        with_topics: delete its retry topic, and that of its dead letters, too.

    Raises:
        GroupUnknownError: there is no such group.
        NoPermissionError: it is the broker's own.
    """

    NAME: ClassVar = "group_delete"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "deleted", "group"

    group: GroupName
    _: KW_ONLY
    with_offsets: Annotated[bool, "Forget what it has consumed"] = False
    with_topics: Annotated[bool, "Delete its retry topic and its dead letters"] = False
    # Asked again of the next leader it is the same act, by its token.
    token: str | None = field(init=False, default_factory=lambda: secrets.token_hex(TOKEN_BYTES))


class ShowLag(RowsVerb[QueueLag]):
    """How far a group is, queue by queue: in all topics that it has consumed, or in one.

    Raises:
        GroupUnknownError: there is no such group.
        TopicUnknownError: there is no such topic.
    """

    NAME: ClassVar = "group_lag"
    NEEDS: ClassVar = shown(both_rights(Right.SUB))
    ROWS: ClassVar = "queues", QueueLag

    group: GroupName
    topic: Annotated[TopicName | None, "Only in this topic"] = None

    def document(self, told: list[QueueLag]) -> Json:
        """All rows, and their sum; None where the group has consumed nothing: it may be in no
        topic, or about to begin with all messages of one.
        """
        lag = sum(row.lag for row in told) if told else None
        return {"group": self.group, "lag": lag, **super().document(told)}
