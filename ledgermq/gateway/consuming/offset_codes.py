"""Codes of offsets: those consumed by groups, and the bounds of queues.

What is asked about a queue is answered by any node, from its own store; a queue that is not there
is an empty one, as in RocketMQ.
"""

from __future__ import annotations

from ledgermq.gateway.code_rights import both_rights, topic_right
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code, Freshness
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.model.errors import LedgerError, MessageIllegalError, TopicUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import int32, int64, text
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.verbs.needs import ANY

NOTHING = ReadableRange(0, 0)


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
        self._service.check_newest()
        fields = asked.command.fields
        group = text(fields, "consumerGroup")
        queue = _queue(asked.command)
        offset = self._commits.offset(group, queue.topic, queue.queue_id)
        if offset is None or offset < 0:
            if not self._is_young(queue):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return asked.command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
            offset = 0
        return asked.command.reply(fields={"offset": str(offset)})

    def _is_young(self, queue: QueueName) -> bool:
        """Whether a queue has all messages that it ever had, and the first one still in memory.

        RocketMQ lets a group that is new to such a queue begin with the first message, whatever it
        wants: nothing that was sent before it came for the first time is passed over.
        """
        bounds = self._bounds(queue)
        if bounds.first > 0:
            return False
        units = self._store.units(queue, 0, 1) if bounds.end else None
        if units is None or not len(units):
            return True
        return int(units["position"][0]) >= self._store.disk_below

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
        bounds = self._bounds(queue)
        if bounds == NOTHING:
            offset = 0
        elif side is None:
            offset = self._store.offset_by_time(queue, time_ms)
        elif side.lower() == "upper":
            offset = max(self._store.first_since(queue, time_ms + 1) - 1, bounds.first)
        else:
            offset = self._store.first_since(queue, time_ms)
        return asked.command.reply(fields={"offset": str(offset)})

    def _end(self, asked: Asked) -> Command:
        bounds = self._bounds(_queue(asked.command))
        return asked.command.reply(fields={"offset": str(bounds.end)})

    def _first(self, asked: Asked) -> Command:
        bounds = self._bounds(_queue(asked.command))
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
            NoPermissionError: the topic may not be read.
        """
        try:
            self._known.check_queue(queue)
        except (TopicUnknownError, MessageIllegalError):
            return NOTHING
        return self._store.bounds(queue)


def _queue(command: Command) -> QueueName:
    return QueueName(text(command.fields, "topic"), int32(command.fields, "queueId"))
