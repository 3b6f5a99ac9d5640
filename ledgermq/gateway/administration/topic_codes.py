"""Codes about topics and the units of a queue, for RocketMQ's tools."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.gateway.administration.encoded_tables import EncodedTables, shown_fields
from ledgermq.gateway.code_rights import ADMIN, USER, topic_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import LedgerError, ProtocolError, TopicUnknownError
from ledgermq.model.names.message_types import (
    ATTRIBUTES,
    CLEANUP_POLICY,
    COMPACTION,
    MESSAGE_TYPE,
    UNSPECIFIED,
)
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import flag, int32, int64, json_field, objects_in, text
from ledgermq.rules.tables.topics import Topic
from ledgermq.verbs.needs import ANY

KIND_SIZE_MAX = 64
UNITS_MAX = 1_000
"""Units that are shown at once."""


class TopicCodes(PortPart):
    """Looks are answered by every node, changes by the one that leads."""

    def __init__(self, context: BrokerContext) -> None:
        self._calls = context.calls
        self._encoded = EncodedTables(context.tables.state)
        self._tables = context.tables
        self._figures = context.figures
        self._clients = context.clients
        self._changes = context.changes
        self.codes = (
            Code(RequestCode.UPDATE_AND_CREATE_TOPIC, self._put, ADMIN),
            Code(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self._put_all, ADMIN),
            Code(RequestCode.DELETE_TOPIC_IN_BROKER, self._delete, ADMIN),
            Code(RequestCode.GET_ALL_TOPIC_CONFIG, self._all, USER),
            Code(RequestCode.GET_TOPIC_CONFIG, self._one, topic_right(ANY)),
            Code(RequestCode.GET_TOPIC_STATS_INFO, self._stats, topic_right(ANY)),
            Code(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self._groups, topic_right(ANY)),
            Code(RequestCode.VIEW_BROKER_STATS_DATA, self._rates, USER),
        )

    def _put(self, asked: Asked) -> None:
        """Make a topic, or change the one that there is; no message gets out of reach by that."""
        fields = asked.command.fields
        arguments: dict[str, object] = {
            "topic": text(fields, "topic"),
            "read_queues": int32(fields, "readQueueNums"),
            "write_queues": int32(fields, "writeQueueNums"),
            "perm": int32(fields, "perm"),
            "sys_flag": int32(fields, "topicSysFlag", 0),
        }
        filter_type = fields.get("topicFilterType")
        if filter_type:
            arguments["filter_type"] = filter_type
        if flag(fields, "order"):
            arguments["order"] = True
        arguments |= _obeyed(attributes_of(fields.get("attributes", "")))
        self._changes.ask(asked, *self._change_of(arguments))

    def _put_all(self, asked: Asked) -> None:
        """The same for each topic of a list, which is read as a whole before anything is done."""
        wishes = [_wish(fields) for fields in objects_in(asked.command.body, "topicConfigList")]
        self._changes.ask_all(asked, [partial(self._change_of, wish) for wish in wishes])

    def _change_of(self, wish: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
        is_new = self._tables.topics.get(str(wish["topic"])) is None
        return ("topic_create" if is_new else "topic_alter"), wish

    def _delete(self, asked: Asked) -> None:
        """Delete a topic on all nodes; one that is not there is no error, as tools ask each one."""
        name = text(asked.command.fields, "topic")

        def refused(error: LedgerError) -> Command | None:
            return asked.command.reply() if isinstance(error, TopicUnknownError) else None

        self._changes.ask(asked, "topic_delete", {"topic": name}, refused=refused)

    def _all(self, asked: Asked) -> None:
        self._calls.build(asked, self._encoded.topics())

    def _one(self, asked: Asked) -> Command:
        """One topic (``TopicConfigAndQueueMapping``); it has no mapping of static topics."""
        topic = topic_of(asked, self._tables)
        fields = shown_fields(topic)
        if topic.compact:
            known = fields.get(ATTRIBUTES)
            fields[ATTRIBUTES] = {
                **(known if isinstance(known, Mapping) else {}),
                CLEANUP_POLICY: COMPACTION,
            }
        return asked.command.reply(body=encode_body(fields))

    def _stats(self, asked: Asked) -> Command:
        return asked.command.reply(body=self._figures.topic_table(topic_of(asked, self._tables)))

    def _groups(self, asked: Asked) -> Command:
        name = text(asked.command.fields, "topic")
        found = {owner.group for owner, _ in self._tables.offsets.of_topic(name)}
        found.update(self._clients.consuming(name))
        return asked.command.reply(body=encode_body({"groupList": sorted(found)}))

    def _rates(self, asked: Asked) -> Command:
        """Messages stored in a topic in the last minute, hour and day: counted in its queues."""
        name, key = text(asked.command.fields, "statsName"), text(asked.command.fields, "statsKey")
        topic = self._tables.topics.get(key)
        if name != "TOPIC_PUT_NUMS" or topic is None:
            remark = f"The stats <{name}> <{key}> not exist: of topics TOPIC_PUT_NUMS is counted"
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        now_ms = self._figures.epoch_ms()
        spans = {"statsMinute": 60, "statsHour": 3_600, "statsDay": 86_400}
        body: dict[str, object] = {}
        for span, seconds in spans.items():
            stored = self._figures.stored_since(topic, now_ms - 1_000 * seconds)
            body[span] = {"avgpt": 0.0, "sum": stored, "tps": round(stored / seconds, 2)}
        return asked.command.reply(body=encode_body(body))


def _wish(fields: Mapping[str, object]) -> dict[str, object]:
    """Arguments of ``topic_create`` and ``topic_alter`` for a ``TopicConfig``.

    Raises:
        ProtocolError: a field is missing, or of another type. Those that are not here mean nothing.
    """
    wish: dict[str, object] = {
        "topic": json_field(fields, "topicName", str),
        "read_queues": json_field(fields, "readQueueNums", int),
        "write_queues": json_field(fields, "writeQueueNums", int),
        "perm": json_field(fields, "perm", int),
        "sys_flag": json_field(fields, "topicSysFlag", int, 0),
    }
    filter_type = json_field(fields, "topicFilterType", str, "")
    if filter_type:
        wish["filter_type"] = filter_type
    if json_field(fields, "order", bool, False):
        wish["order"] = True
    attributes = fields.get("attributes")
    return wish | _obeyed(attributes if isinstance(attributes, Mapping) else {})


def attributes_of(text: str) -> dict[str, str]:
    """Attributes as RocketMQ 5's tools write them, ``+NAME=VALUE,-NAME``, signs included."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _obeyed(attributes: Mapping[str, object]) -> dict[str, object]:
    """The arguments for the attributes of a topic that mean something here; others are not kept."""
    found: dict[str, object] = {}
    if "-message.type" in attributes:
        found["message_type"] = UNSPECIFIED
    elif (kind := _said(attributes, MESSAGE_TYPE)) is not None:
        found["message_type"] = kind[:KIND_SIZE_MAX].upper()
    if f"-{CLEANUP_POLICY}" in attributes:
        found["compact"] = False
    elif (policy := _said(attributes, CLEANUP_POLICY)) is not None:
        found["compact"] = policy.upper() == COMPACTION
    return found


def _said(attributes: Mapping[str, object], name: str) -> str | None:
    value = attributes.get(f"+{name}", attributes.get(name))
    return None if value is None else str(value)


def topic_of(asked: Asked, tables: BrokerTables) -> Topic:
    """The topic that a request names.

    Raises:
        TopicUnknownError: there is none.
    """
    name = text(asked.command.fields, "topic")
    topic = tables.topics.get(name)
    if topic is None:
        raise TopicUnknownError("topic does not exist", topic=name)
    return topic


def queue_of(asked: Asked, topic: Topic) -> QueueName:
    """The queue that a request names.

    Raises:
        ProtocolError: the topic has no such queue.
    """
    queue_id = int32(asked.command.fields, "queueId")
    if not 0 <= queue_id < max(topic.read_queues, topic.write_queues):
        raise ProtocolError("topic has no such queue", topic=topic.name, queue=queue_id)
    return QueueName(topic.name, queue_id)


class QueueCodes(PortPart):
    """Answered by every node, from its own queue."""

    def __init__(self, context: BrokerContext) -> None:
        self._store = context.service.known.store
        self._tables = context.tables
        self._clients = context.clients
        self.codes = (Code(RequestCode.QUERY_CONSUME_QUEUE, self._units, topic_right(Right.SUB)),)

    def _units(self, asked: Asked) -> Command:
        fields = asked.command.fields
        queue = queue_of(asked, topic_of(asked, self._tables))
        index, count = int64(fields, "index"), int32(fields, "count")
        first, end, _ = self._store.bounds(queue)
        bounds: dict[str, object] = {"maxQueueIndex": end, "minQueueIndex": first}
        if index < 0:
            index = end - count
        index = max(first, index)
        count = max(0, min(count, UNITS_MAX, end - index))
        units = self._store.units(queue, index, count) if count else None
        if units is None:
            remark = f"queue has no units from {index} on: minimum {first}, end {end}"
            return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        codes = self._codes(fields.get("consumerGroup", ""), queue.topic)
        rows = [
            {
                "eval": codes is None or int(unit["tags"]) in codes,
                "physicOffset": int(unit["position"]),
                "physicSize": int(unit["size"]),
                "tagsCode": int(unit["tags"]),
            }
            for unit in units
        ]
        return asked.command.reply(body=encode_body({**bounds, "queueData": rows}))

    def _codes(self, group: str, topic: str) -> set[int] | None:
        """Hashes of the tags that a group wants; None for all."""
        found: set[int] = set()
        for member in self._clients.consumers(group):
            for one in member.group.subscriptions:
                if one.topic == topic:
                    if not one.codes:
                        return None
                    found |= one.codes
        return found or None
