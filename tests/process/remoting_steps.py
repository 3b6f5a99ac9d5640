"""What RocketMQ's clients do, step by step, with a raw client."""

from __future__ import annotations

import json
from typing import NamedTuple

from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.pull_request import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from tests.process.conftest import wait_until
from tests.process.remoting_client import RemotingClient

GROUP = "billing"
NOW_MS = 1_700_000_000_123


def heartbeat_body(
    client_id: str,
    *topics: str,
    group: str = GROUP,
    expression: str = "*",
    kind: str = "TAG",
    version: int = 1,
    model: str = "CLUSTERING",
) -> bytes:
    """A heartbeat as Java's consumer sends it."""
    tags = [] if expression == "*" or kind != "TAG" else expression.split("||")
    wanted = [
        {
            "classFilterMode": False,
            "codeSet": [java_hash(tag.strip()) for tag in tags],
            "expressionType": kind,
            "subString": expression,
            "subVersion": version,
            "tagsSet": [tag.strip() for tag in tags],
            "topic": topic,
        }
        for topic in topics
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": model,
        "subscriptionDataSet": wanted,
        "unitMode": False,
    }
    body = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(body).encode()


def beat(client: RemotingClient, client_id: str, *topics: str, **more: object) -> Command:
    """Send a heartbeat; see ``heartbeat_body``."""
    body = heartbeat_body(client_id, *topics, **more)  # type: ignore[arg-type]
    return client.ask(RequestCode.HEART_BEAT, body=body)


def beat_when_leading(client: RemotingClient, client_id: str, *topics: str, **more: object) -> None:
    """Wait until the node leads its group, and what a heartbeat makes is made."""
    group = more.get("group", GROUP)

    def is_made() -> bool:
        beat(client, client_id, *topics, **more)
        retry = {"topic": f"%RETRY%{group}"}
        return client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, retry).code == ResponseCode.SUCCESS

    wait_until(is_made, "the node leads")


def members(client: RemotingClient, group: str = GROUP) -> list[str]:
    """Who is in a group, as a consumer asks before it shares the queues."""
    reply = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if reply.code != ResponseCode.SUCCESS:
        return []
    found: list[str] = json.loads(bytes(reply.body))["consumerIdList"]
    return found


def send(
    client: RemotingClient, topic: str, queue_id: int, *bodies: bytes, properties: str = ""
) -> list[Command]:
    """Store messages, one after the other, and wait until they can be read."""
    replies = []
    for body in bodies:
        fields = dict(
            zip(
                "abcdefghijk",
                ("producers", topic, "TBW102", 4, queue_id, 0, NOW_MS, 0, properties, 0, "false"),
                strict=True,
            )
        )
        replies.append(client.ask(RequestCode.SEND_MESSAGE_V2, fields, body))
    assert [one.code for one in replies] == [ResponseCode.SUCCESS] * len(bodies), replies
    end = int(replies[-1].fields["queueOffset"]) + 1
    # One with a priority goes elsewhere.
    queue = {"topic": topic, "queueId": replies[-1].fields["queueId"]}
    wait_until(
        lambda: int(client.ask(RequestCode.GET_MAX_OFFSET, queue).fields["offset"]) >= end,
        "messages are in their queue",
    )
    return replies


def pull_fields(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    group: str = GROUP,
    most: int = 32,
    commit: int | None = None,
    suspend_ms: int = 0,
    subscription: str | None = None,
    version: int = 1,
    kind: str = "TAG",
) -> dict[str, object]:
    """The header of a pull as Java's consumer sends it."""
    flags = 0
    flags |= COMMIT_OFFSET if commit is not None else 0
    flags |= SUSPEND if suspend_ms else 0
    flags |= SUBSCRIPTION if subscription is not None else 0
    found: dict[str, object] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": most,
        "sysFlag": flags,
        "commitOffset": commit or 0,
        "suspendTimeoutMillis": suspend_ms,
        "subVersion": version,
        "expressionType": kind,
    }
    return found if subscription is None else {**found, "subscription": subscription}


class Pulled(NamedTuple):
    """A reply to a pull."""

    code: int
    remark: str | None
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Message]

    @property
    def bodies(self) -> list[bytes]:
        """Of the messages."""
        return [bytes(one.body) for one in self.messages]


def messages_of(reply: Command) -> list[Message]:
    """The messages in its body."""
    messages, at = [], 0
    body = memoryview(bytes(reply.body))
    while at < len(body):
        message = decode_message(body[at : at + int.from_bytes(body[at : at + 4], "big")])
        messages.append(message)
        at += int.from_bytes(body[at : at + 4], "big")
    return messages


def pulled(reply: Command) -> Pulled:
    """What a reply to a pull says, also that the node only starts; fails for all else."""
    if reply.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return Pulled(reply.code, reply.remark, -1, -1, -1, [])
    fields = reply.fields
    assert fields.get("suggestWhichBrokerId") == "0", reply
    messages = messages_of(reply)
    numbers = (int(fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    return Pulled(reply.code, reply.remark, *numbers, messages)


def pull(client: RemotingClient, topic: str, queue_id: int, offset: int, **more: object) -> Pulled:
    """Pull, and wait for the reply; see ``pull_fields``."""
    fields = pull_fields(topic, queue_id, offset, **more)  # type: ignore[arg-type]
    return pulled(client.ask(RequestCode.PULL_MESSAGE, fields))


def offset_fields(
    topic: str, queue_id: int, *, group: str = GROUP, **more: object
) -> dict[str, object]:
    """The header of a question about a queue, or about a group's place in it."""
    return {"consumerGroup": group, "topic": topic, "queueId": queue_id, **more}
