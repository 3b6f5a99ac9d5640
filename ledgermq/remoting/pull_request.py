"""Pull requests, and the fields of their replies."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import int32, int64, text

COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION = 4

TAG = "TAG"
SQL92 = "SQL92"


class PullRequest(NamedTuple):
    """What a consumer asks for (``PullMessageRequestHeader``, ``PullSysFlag``).

    Attributes:
        commit_offset: to be stored for the group; None when the request has none that counts.
        suspend_ms: how long the broker may wait for messages; 0 when it may not.
        subscription: the expression; None when that of the last heartbeat counts.
        sub_version: of the subscription that the consumer has.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    commit_offset: int | None
    suspend_ms: int
    subscription: str | None
    sub_version: int
    expression_type: str


def decode_pull(command: Command) -> PullRequest:
    """What a ``PULL_MESSAGE`` asks for.

    Raises:
        ProtocolError: a field is missing, or is no number.
    """
    fields = command.fields
    flags = int32(fields, "sysFlag")
    commit_offset = int64(fields, "commitOffset")
    suspend_ms = int64(fields, "suspendTimeoutMillis", 0)
    return PullRequest(
        text(fields, "consumerGroup"),
        text(fields, "topic"),
        int32(fields, "queueId"),
        int64(fields, "queueOffset"),
        int32(fields, "maxMsgNums"),
        commit_offset if flags & COMMIT_OFFSET else None,
        suspend_ms if flags & SUSPEND else 0,
        fields.get("subscription", "") if flags & SUBSCRIPTION else None,
        int64(fields, "subVersion", 0),
        fields.get("expressionType") or TAG,
    )


def pull_reply_fields(
    *, next_offset: int, min_offset: int, max_offset: int, broker_id: int
) -> dict[str, str]:
    """Fields that every reply to a pull has, whatever came of it.

    Args:
        broker_id: of the broker to ask next time: 0 the leader.
    """
    return {
        "suggestWhichBrokerId": str(broker_id),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
    }
