"""Codes of queue locks, for RocketMQ's ordered consumers (41, 42).

They are those of our own consumers, and in the log: neither an election nor a restart gives a queue
to two. What RocketMQ's clients own bears their mark, so that nobody takes them for ours.
"""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.broker.calls import Result
from ledgermq.broker.consumers.other_members import OTHER_OWNER_PREFIX
from ledgermq.gateway.code_rights import Named, named
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body, encode_body


class _Queue(NamedTuple):
    topic: str
    broker: str
    queue_id: int


class _Wish(NamedTuple):
    group: str
    client: str
    queues: list[_Queue]

    def arguments(self) -> dict[str, object]:
        """Arguments of the broker's own verbs."""
        by_topic: dict[str, list[int]] = {}
        for one in self.queues:
            by_topic.setdefault(one.topic, []).append(one.queue_id)
        return {
            "group": self.group,
            "client": OTHER_OWNER_PREFIX + self.client,
            "queues": by_topic,
            "ordered": True,
        }


class LockCodes(PortPart):
    """Answered when the lock is in the log, or is known to be refused; a follower hands it on."""

    def __init__(self, context: BrokerContext) -> None:
        self._calls = context.calls
        self._relay = context.consumer_relay
        self.codes = (
            Code(RequestCode.LOCK_BATCH_MQ, self._lock, named(_group_that_locks)),
            Code(RequestCode.UNLOCK_BATCH_MQ, self._unlock, named(_group_that_locks)),
        )

    def _lock(self, asked: Asked) -> None:
        wish = _wish(asked.command)
        if self._relay.hand_on(asked):
            return

        def made(result: Result) -> Command:
            owned = result["owned"]
            assert isinstance(owned, dict)
            locked = [
                {"brokerName": one.broker, "queueId": one.queue_id, "topic": one.topic}
                for one in wish.queues
                if one.queue_id in owned.get(one.topic, ())
            ]
            return asked.command.reply(body=encode_body({"lockOKMQSet": locked}))

        self._calls.answer(asked, "queue_lock", wish.arguments(), made)

    def _unlock(self, asked: Asked) -> None:
        wish = _wish(asked.command)
        if not self._relay.hand_on(asked):
            self._calls.answer(asked, "queue_unlock", wish.arguments())


def _group_that_locks(command: Command) -> Named:
    yield str(decode_body(command.body).get("consumerGroup", "")), None


def _wish(command: Command) -> _Wish:
    """What a body asks for.

    Raises:
        ProtocolError: it is none; names the field.
    """
    body = decode_body(command.body)
    group, client, queues = (body.get(name) for name in ("consumerGroup", "clientId", "mqSet"))
    if not isinstance(group, str) or not isinstance(client, str):
        raise ProtocolError("body names no group or no client", field="consumerGroup, clientId")
    if not isinstance(queues, list):
        raise ProtocolError("body has no list of queues", field="mqSet")
    return _Wish(group, client, [_queue(one) for one in queues])


def _queue(value: object) -> _Queue:
    if isinstance(value, dict):
        topic, broker, queue_id = (value.get(name) for name in ("topic", "brokerName", "queueId"))
        if isinstance(topic, str) and isinstance(broker, str) and type(queue_id) is int:
            return _Queue(topic, broker, queue_id)
    raise ProtocolError("not a queue", field="mqSet", value=str(value)[:64])
