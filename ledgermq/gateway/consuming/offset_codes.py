"""Codes of consumers beside pulls: offsets, bounds of queues, locks, messages given back, look-ups.

What is asked about a queue is answered by any node, from its own store; a queue that is not there
is an empty one, as in RocketMQ.
"""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.broker.calls import Result
from ledgermq.broker.consumers.other_members import OTHER_OWNER_PREFIX
from ledgermq.broker.pulls.query_service import QueryAnswer
from ledgermq.gateway.code_rights import USER, Named, both_rights, group_right, named, topic_right
from ledgermq.gateway.consuming.pull_checks import PullChecks
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code, Freshness
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.model.errors import (
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.limits import LEVEL_MAX, TIMES_MAX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import RETRIES_VERSION, Command
from ledgermq.remoting.fastjson import decode_body, encode_body
from ledgermq.remoting.fields import int32, int64, text
from ledgermq.remoting.pull_request import TAG
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.verbs.needs import ANY
from ledgermq.wire.query_frame import KeyQuery, PositionQuery, decode_queried

NOTHING = ReadableRange(0, 0)

MESSAGES_MAX = 64
"""RocketMQ's ``maxMsgsNumBatch``: most messages of one reply."""

UNIQUE_MAX = 32
"""Messages that have one unique id: few, and the client wants all."""


class OffsetCodes(PortPart):
    """Commits are gathered (``OffsetCommits``); who wants a reply gets it once they are stored.

    A follower hands them on: consumers ask for routes every half minute, and tell the one before.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._service = context.service
        self._known = context.service.known
        self._store = self._known.store
        self._commits = context.commits
        self._relay = context.consumer_relay
        self._reply = context.reply
        self.codes = (
            Code(RequestCode.QUERY_CONSUMER_OFFSET, self._committed, both_rights("consumerGroup")),
            Code(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                self._commit,
                both_rights("consumerGroup"),
                tables=Freshness.NONE,
            ),
            Code(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self._by_time, topic_right(ANY)),
            Code(RequestCode.GET_MAX_OFFSET, self._end, topic_right(ANY)),
            Code(RequestCode.GET_MIN_OFFSET, self._first, topic_right(ANY)),
            Code(RequestCode.GET_EARLIEST_MSG_STORETIME, self._earliest, topic_right(ANY)),
        )

    def _committed(self, asked: Asked) -> Command | None:
        """Where a group goes on, by the leader; 0 where it has not begun and the queue is young.

        Raises:
            NotLeaderError: see ``StateLog.check_newest``.
        """
        if self._relay.hand_on(asked):
            return None
        self._service.log.check_newest()
        fields = asked.command.fields
        group = text(fields, "consumerGroup")
        queue = _queue(asked.command)
        offset = self._commits.offset(group, queue.topic, queue.queue_id)
        if offset is None or offset < 0:
            if self._bounds(queue) != NOTHING and not self._store.is_young(queue):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return asked.command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
            offset = 0
        return asked.command.reply(fields={"offset": str(offset)})

    def _commit(self, asked: Asked) -> Command | None:
        command = asked.command
        offset = int64(command.fields, "commitOffset")
        group, queue = text(command.fields, "consumerGroup"), _queue(command)
        if command.is_oneway:
            if offset >= 0 and not self._relay.hand_on(asked):
                self._commits.note(group, queue.topic, queue.queue_id, offset, owner=asked.owner)
            return None
        if offset < 0:
            # Some clients say so when they know of none: what is stored stays.
            return command.reply()
        if self._relay.hand_on(asked):
            return None

        def done(error: LedgerError | None) -> None:
            self._reply(asked, command.reply() if error is None else refusal(command, error))

        self._commits.note(group, queue.topic, queue.queue_id, offset, done, owner=asked.owner)
        return None

    def _by_time(self, asked: Asked) -> Command:
        """The queue offset at a time, as RocketMQ 4.9 finds it; for clients that say which side
        they want, as RocketMQ 5 finds it.

        Those take what they get for an end that is not included: of 4.9's answer, which is the last
        message's own offset, they would leave that one out.
        """
        queue = _queue(asked.command)
        time_ms = max(0, int64(asked.command.fields, "timestamp"))
        side = asked.command.fields.get("boundaryType")
        store = self._store
        if self._bounds(queue) == NOTHING:
            offset = 0
        elif side is None:
            offset = store.told_since(queue, time_ms, store.offset_by_time(queue, time_ms))
        elif side.lower() == "upper":
            later_ms = time_ms + 1
            later = store.told_since(queue, later_ms, store.first_since(queue, later_ms))
            offset = max(later - 1, store.told_bounds(queue).first)
        else:
            offset = store.told_since(queue, time_ms, store.first_since(queue, time_ms))
        return asked.command.reply(fields={"offset": str(offset)})

    def _end(self, asked: Asked) -> Command:
        bounds = self._bounds(_queue(asked.command))
        return asked.command.reply(fields={"offset": str(bounds.end)})

    def _first(self, asked: Asked) -> Command:
        queue = _queue(asked.command)
        bounds = self._bounds(queue)
        if bounds != NOTHING:
            # Consumers begin there.
            bounds = self._store.told_bounds(queue, surely=True)
        return asked.command.reply(fields={"offset": str(bounds.first)})

    def _earliest(self, asked: Asked) -> Command:
        queue = _queue(asked.command)
        found = self._bounds(queue) != NOTHING
        time_ms = self._store.earliest_time(queue) if found else -1
        return asked.command.reply(fields={"timestamp": str(time_ms)})

    def _bounds(self, queue: QueueName) -> ReadableRange:
        """Queue offsets that can be read; ``NOTHING`` where there is no such queue.

        Raises:
            NotLeaderError: the node is starting.
        """
        try:
            self._known.check_number(queue)
        except (TopicUnknownError, MessageIllegalError):
            return NOTHING
        return self._store.bounds(queue)


def _queue(command: Command) -> QueueName:
    return QueueName(text(command.fields, "topic"), int32(command.fields, "queueId"))


class ReturnCodes(PortPart):
    """Messages given back (36): answered when the copy is in the log; RocketMQ says so before."""

    def __init__(self, context: BrokerContext) -> None:
        self._calls = context.calls
        self._tables = context.tables
        self.codes = (
            Code(RequestCode.CONSUMER_SEND_MSG_BACK, self._send_back, group_right("group")),
        )

    def _send_back(self, asked: Asked) -> None:
        command = asked.command
        group = text(command.fields, "group")
        arguments: dict[str, object] = {
            "group": group,
            "position": int64(command.fields, "offset"),
            "delay_level": min(max(int32(command.fields, "delayLevel"), -1), LEVEL_MAX),
        }
        times = int32(command.fields, "maxReconsumeTimes", -1)
        if command.version >= RETRIES_VERSION and times >= 0:
            arguments["max_reconsume_times"] = min(times, TIMES_MAX)

        def refused(error: LedgerError) -> Command | None:
            is_about_group = error.details.get("group") == group
            is_unknown = is_about_group and self._tables.groups.get(group) is None
            if not (isinstance(error, NoPermissionError) and is_unknown):
                return None
            return refusal(command, GroupUnknownError(error.message, **error.details))

        self._calls.answer(asked, "send_back", arguments, refused=refused)


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
    """Queue locks of ordered consumers (41, 42).

    They are those of our own consumers, and in the log: neither an election nor a restart gives a
    queue to two. What RocketMQ's clients own bears their mark, so that nobody takes them for ours.
    Answered when the lock is in the log, or is known to be refused; a follower hands it on.
    """

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
    return _Wish(group, client, [_locked_queue(one) for one in queues])


def _locked_queue(value: object) -> _Queue:
    if isinstance(value, dict):
        topic, broker, queue_id = (value.get(name) for name in ("topic", "brokerName", "queueId"))
        if isinstance(topic, str) and isinstance(broker, str) and type(queue_id) is int:
            return _Queue(topic, broker, queue_id)
    raise ProtocolError("not a queue", field="mqSet", value=str(value)[:64])


class LookupCodes(PortPart):
    """Queries by key, unique id and offset id (12, 33), and checks of filters (46).

    Answered by any node, from its own store.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._quotas = context.quotas
        self._queries = context.queries
        self._checks = PullChecks(context)
        self.codes = (
            Code(
                RequestCode.QUERY_MESSAGE, self._by_key, topic_right(Right.SUB), is_for_sender=True
            ),
            Code(RequestCode.VIEW_MESSAGE_BY_ID, self._by_position, USER, is_for_sender=True),
            Code(RequestCode.CHECK_CLIENT_CONFIG, self._check_filter, USER, is_for_sender=True),
        )

    def _by_key(self, asked: Asked) -> Command:
        fields = asked.command.fields
        is_unique = fields.get("_UNIQUE_KEY_QUERY") == "true"
        wanted = UNIQUE_MAX if is_unique else int32(fields, "maxNum")
        query = KeyQuery(
            text(fields, "topic"),
            text(fields, "key"),
            min(max(wanted, 1), MESSAGES_MAX),
            max(0, int64(fields, "beginTimestamp")),
            max(0, int64(fields, "endTimestamp")),
        )
        try:
            found = self._answer(asked, query)
        except TopicUnknownError:
            return _not_found(asked.command)
        if not found.payload:
            return _not_found(asked.command)
        queried = decode_queried(found.head, records_size=len(found.payload))
        return asked.command.reply(
            fields=_index_fields(queried.index_timestamp, queried.index_position),
            body=found.payload,
        )

    def _by_position(self, asked: Asked) -> Command:
        position = int64(asked.command.fields, "offset")
        if position >= 0:
            found = self._answer(asked, PositionQuery(position))
            if found.payload:
                return asked.command.reply(body=found.payload)
        remark = f"can not find message by the offset, {position}"
        return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _answer(self, asked: Asked, query: KeyQuery | PositionQuery) -> QueryAnswer:
        topics = []

        def check(topic: str) -> None:
            asked.check(topic, Right.SUB)
            self._quotas.check_read(asked, topic)
            topics.append(topic)

        found = self._queries.answer(0, query, check)
        if found.payload and topics:
            queried = decode_queried(found.head, records_size=len(found.payload))
            count = len(queried.starts)
            self._quotas.note_read(asked, topics[0], size=len(found.payload), messages=count)
        return found

    def _check_filter(self, asked: Asked) -> Command:
        """Consumers that filter by properties ask before they start."""
        subscription = decode_body(asked.command.body).get("subscriptionData")
        if not isinstance(subscription, dict):
            raise ProtocolError("body has no subscription", field="subscriptionData")
        kind = subscription.get("expressionType") or TAG
        expression = subscription.get("subString")
        if not isinstance(kind, str) or not isinstance(expression, str):
            raise ProtocolError("subscription has no expression", field="subString")
        if kind != TAG:
            self._checks.check_filter(expression, kind)
        return asked.command.reply()


def _not_found(command: Command) -> Command:
    return command.reply(
        ResponseCode.QUERY_NOT_FOUND,
        fields=_index_fields(0, 0),
        remark="can not find message, maybe time range not correct",
    )


def _index_fields(timestamp_ms: int, position: int) -> dict[str, str]:
    return {
        "indexLastUpdateTimestamp": str(timestamp_ms),
        "indexLastUpdatePhyoffset": str(position),
    }
