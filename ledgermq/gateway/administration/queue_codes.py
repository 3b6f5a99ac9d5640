"""Codes about the units of a queue, for RocketMQ's tools."""

from __future__ import annotations

from ledgermq.gateway.administration.topic_codes import queue_of, topic_of
from ledgermq.gateway.code_rights import topic_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.rights import Right
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import int32, int64

UNITS_MAX = 1_000
"""Units that are shown at once."""


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
