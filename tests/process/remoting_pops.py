"""What RocketMQ 5's consumers do that take messages singly, step by step, with a raw client.

The text that names a message is made as Java's client makes it (``MQClientAPIImpl``,
``ExtraInfoUtil``): of the reply's header and the message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.formats.records.message import Message, decode_message
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from tests.process.remoting_client import RemotingClient

BROKER = "broker-a"
POP_CK = "POP_CK"
LONG_MS = 600_000


class Taken(NamedTuple):
    """A message, and the text by which it is acknowledged."""

    message: Message
    extra_info: str

    @property
    def body(self) -> bytes:
        """Of the message."""
        return bytes(self.message.body)


class Popped(NamedTuple):
    """A reply to a pop."""

    code: int
    remark: str | None
    fields: dict[str, str]
    taken: list[Taken]

    @property
    def bodies(self) -> list[bytes]:
        """Of the messages."""
        return [one.body for one in self.taken]


def pop_fields(topic: str, group: str, **more: object) -> dict[str, object]:
    """The header of a pop as Java's consumer sends it."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": LONG_MS,
        "pollTime": 0,
        "bornTime": 1,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        "bname": BROKER,
        **more,
    }


def popped(reply: Command) -> Popped:
    """What a reply says, as Java's client reads it; fails where that would."""
    fields = dict(reply.fields)
    numbers = [int(fields[name]) for name in ("popTime", "invisibleTime", "reviveQid", "restNum")]
    assert -(2**31) <= numbers[2] < 2**31
    starts = _rows(fields["startOffsetInfo"])
    told = {key: [int(one) for one in text.split(",")] for key, text in
            _rows(fields["msgOffsetInfo"]).items()}  # fmt: skip
    messages = messages_in(reply)
    came: dict[str, list[int]] = {}
    taken: list[Taken] = []
    for one in messages:
        # RocketMQ's own brokers name by it what comes from a retry topic.
        text = one.parsed_properties().get(POP_CK, "")
        key = f"{text.split(' ')[4] if text else 0}@{one.queue_id}"
        came.setdefault(key, []).append(one.queue_offset)
        made = (
            f"{starts[key]} {numbers[0]} {numbers[1]} {numbers[2]} 0 {BROKER} {one.queue_id}"
            f" {one.queue_offset}"
        )
        taken.append(Taken(one, text or made))
    assert came == told
    return Popped(reply.code, reply.remark, fields, taken)


def messages_in(reply: Command) -> list[Message]:
    """The messages of a reply's body."""
    found, at, body = [], 0, memoryview(bytes(reply.body))
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(decode_message(body[at : at + size]))
        at += size
    return found


def pop(client: RemotingClient, topic: str, group: str, **more: object) -> Popped:
    """Pop, and wait for the reply; see ``pop_fields``."""
    return popped(client.ask(Code.POP_MESSAGE, pop_fields(topic, group, **more)))


def named(taken: Taken, group: str, **more: object) -> dict[str, object]:
    """The header of what is asked about a message."""
    message, retry = taken.message, taken.extra_info.split(" ")[4:5]
    return {
        "consumerGroup": group,
        "topic": f"%RETRY%{group}_{message.topic}" if retry == ["1"] else message.topic,
        "queueId": message.queue_id,
        "offset": message.queue_offset,
        "extraInfo": taken.extra_info,
        "bname": BROKER,
        **more,
    }


def ack(client: RemotingClient, taken: Taken, group: str) -> Command:
    """Acknowledge a message."""
    return client.ask(Code.ACK_MESSAGE, named(taken, group))


def change(client: RemotingClient, taken: Taken, group: str, invisible_ms: int) -> Command:
    """Have a message be invisible for another time from now on."""
    fields = named(taken, group, invisibleTime=invisible_ms)
    return client.ask(Code.CHANGE_MESSAGE_INVISIBLETIME, fields)


def acks_body(taken: Sequence[Taken], group: str) -> bytes:
    """The body of a ``BATCH_ACK_MESSAGE``, one row for each queue and pop."""
    rows: dict[tuple[str, str, str, str], dict[str, object]] = {}
    bits: dict[tuple[str, str, str, str], int] = {}
    for one in taken:
        start, pop_ms, invisible_ms, revive, retry, _, queue, offset = one.extra_info.split(" ")
        key = (retry, queue, start, pop_ms)
        bits[key] = bits.get(key, 0) | 1 << int(offset) - int(start)
        rows[key] = {
            "c": group, "t": one.message.topic, "r": retry, "so": int(start), "q": int(queue),
            "rq": int(revive), "pt": int(pop_ms), "it": int(invisible_ms),
        }  # fmt: skip
    for key, row in rows.items():
        data = bits[key].to_bytes(bits[key].bit_length() // 8 + 1, "little")
        row["b"] = base64.b64encode(data).decode()
    return json.dumps({"brokerName": BROKER, "acks": list(rows.values())}).encode()


def assigned(
    client: RemotingClient, topic: str, group: str, client_id: str, **more: object
) -> list[tuple[str, int]]:
    """How a consumer is to read a topic, and which queues."""
    wanted = {
        "topic": topic, "consumerGroup": group, "clientId": client_id, "strategyName": "AVG",
        "messageModel": "CLUSTERING", **more,
    }  # fmt: skip
    reply = client.ask(Code.QUERY_ASSIGNMENT, body=json.dumps(wanted).encode())
    assert reply.code == 0, reply
    rows = json.loads(bytes(reply.body)).get("messageQueueAssignments") or []
    return [(one["mode"], one["messageQueue"]["queueId"]) for one in rows]


def set_mode(
    client: RemotingClient, topic: str, group: str, mode: str, share_queues: int = 0
) -> Command:
    """Say how a group reads a topic (mqadmin's ``setConsumeMode``)."""
    wanted = {
        "topic": topic,
        "consumerGroup": group,
        "mode": mode,
        "popShareQueueNum": share_queues,
    }
    return client.ask(Code.SET_MESSAGE_REQUEST_MODE, body=json.dumps(wanted).encode())


def _rows(told: str) -> dict[str, str]:
    """``RETRY QUEUE VALUE`` with semicolons between them, as Java's client splits it."""
    found: dict[str, str] = {}
    for one in told.split(";") if told else []:
        retry, queue, value = one.split(" ")
        assert f"{retry}@{queue}" not in found
        found[f"{retry}@{queue}"] = value
    return found
