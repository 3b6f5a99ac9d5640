"""Codes of queries by key, unique id and offset id (12, 33), and of filter checks (46)."""

from __future__ import annotations

from ledgermq.broker.pulls.query_service import QueryAnswer
from ledgermq.gateway.code_rights import USER, topic_right
from ledgermq.gateway.consuming.pull_checks import PullChecks
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import ProtocolError, TopicUnknownError
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body
from ledgermq.remoting.fields import int32, int64, text
from ledgermq.remoting.pull_request import TAG
from ledgermq.wire.query_frame import KeyQuery, PositionQuery, decode_queried

MESSAGES_MAX = 64
"""RocketMQ's ``maxMsgsNumBatch``: most messages of one reply."""

UNIQUE_MAX = 32
"""Messages that have one unique id: few, and the client wants all."""


class LookupCodes(PortPart):
    """Answered by any node, from its own store."""

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
