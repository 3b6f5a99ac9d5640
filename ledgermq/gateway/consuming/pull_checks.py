"""Admission of pulls by RocketMQ's consumers, and their filters.

The filter is a request's own expression, or that of the consumer's heartbeat.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ledgermq.broker.reading.property_scan import sql_filter
from ledgermq.formats.java_hash import java_hash
from ledgermq.gateway.context import PortContext
from ledgermq.gateway.transport.refusals import CodedError
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.errors import FilterIllegalError, NoPermissionError
from ledgermq.model.message_filter import TAGS_MAX, MessageFilter
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.heartbeat import MessageModel, Subscription
from ledgermq.remoting.pull_request import SQL92, TAG, PullRequest

EXPRESSIONS_MAX = 10_000
REMEMBERED_SIZE_MAX = 1_024
"""Characters of an expression that is remembered: longer ones are looked at anew each time."""


class WantedMessages(NamedTuple):
    """Which messages of a queue a consumer wants.

    Attributes:
        tag_hashes: Java's hashes of the tags; empty = all messages.
        sql: an SQL-92 expression; empty = all messages.
    """

    tag_hashes: tuple[int, ...] = ()
    sql: str = ""


class PullChecks:
    """Looks at the tables whenever it is asked; keeps nothing."""

    def __init__(self, context: PortContext) -> None:
        settings = context.environment.settings
        self._clients = context.clients
        self._tables = context.tables
        self._rules = settings.topics
        self._filters_properties = settings.reads.enable_property_filter

    def check(self, request: PullRequest) -> None:
        """Refuse a group that may not read, or a queue that is none of the topic's.

        Whether there is such a topic, and whether it may be read, the pull itself finds out.

        Raises:
            CodedError: 26 for a group that is not there, 1 for a queue that is not.
            NoPermissionError: the group is switched off.
            GroupActiveError: it takes the topic's messages singly.
            MessageIllegalError: the group's name breaks a rule.
        """
        self.check_group(request.group)
        self._tables.shares.check_queue_by_queue(request.group, request.topic)
        topic = self._tables.topics.get(request.topic)
        if topic is not None and not 0 <= request.queue_id < topic.read_queues:
            raise CodedError(
                ResponseCode.SYSTEM_ERROR,
                "topic has no such queue",
                topic=request.topic,
                queue=request.queue_id,
                queues=topic.read_queues,
            )

    def check_group(self, name: str) -> None:
        """Refuse a group that may not read.

        Raises:
            CodedError: 26 for one that is not there.
            NoPermissionError: it is switched off.
            MessageIllegalError: its name breaks a rule.
        """
        group = self._tables.groups.get(name)
        if group is None:
            try:
                self._tables.groups.plan_use(name, self._rules)
            except NoPermissionError as error:
                code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
                raise CodedError(code, error.message, **error.details) from error
        elif not group.consume_enable:
            raise NoPermissionError("group may not consume", group=name, field="consumeEnable")

    def wanted(self, connection: Connection, request: PullRequest) -> WantedMessages:
        """Which messages to give.

        Raises:
            CodedError: 24, 25 and 27 where the heartbeat does not tell, 1 where settings do not
                allow the kind of filter.
            NoPermissionError: the group may not consume by broadcasting, and the consumer does.
            FilterIllegalError: the request's own expression is none.
        """
        if request.subscription is not None:
            return self.check_filter(request.subscription, request.expression_type)
        group, topic = request.group, request.topic
        subscription = self._clients.subscription(connection, group, topic)
        if subscription is None:
            raise CodedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "no consumer of the group has told by heartbeat that it subscribes to the topic",
                group=group,
                topic=topic,
            )
        self._check_model(connection, group)
        if subscription.version < request.sub_version:
            raise CodedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "heartbeat with the new subscription has not come yet",
                group=group,
                topic=topic,
                version=subscription.version,
                wanted=request.sub_version,
            )
        self._check_kind(subscription.expression_type)
        try:
            return by_subscription(subscription)
        except FilterIllegalError as error:
            code = ResponseCode.FILTER_DATA_NOT_EXIST
            raise CodedError(code, error.message, **error.details) from error

    def check_filter(self, expression: str, kind: str) -> WantedMessages:
        """What an expression asks for.

        Raises:
            CodedError: 1 where settings do not allow the kind of filter.
            FilterIllegalError: it is none; names position and token.
        """
        self._check_kind(kind)
        return by_expression(expression, kind)

    def _check_kind(self, kind: str) -> None:
        if kind != TAG and not self._filters_properties:
            raise CodedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind[:64]}",
                setting="reads.enable_property_filter",
            )

    def _check_model(self, connection: Connection, name: str) -> None:
        group = self._tables.groups.get(name)
        if group is None or group.fields.get("consumeBroadcastEnable") is not False:
            return
        if self._clients.model(connection, name) is MessageModel.BROADCASTING:
            raise NoPermissionError(
                "group may not consume by broadcasting", group=name, field="consumeBroadcastEnable"
            )


def by_expression(expression: str, kind: str) -> WantedMessages:
    """What an expression of a kind (``TAG``, ``SQL92``) asks for.

    Raises:
        FilterIllegalError: it is none, or of another kind.
    """
    is_short = len(expression) <= REMEMBERED_SIZE_MAX and len(kind) <= REMEMBERED_SIZE_MAX
    return (_by_expression if is_short else _by_expression.__wrapped__)(expression, kind)


@lru_cache(EXPRESSIONS_MAX)
def _by_expression(expression: str, kind: str) -> WantedMessages:
    if kind == SQL92:
        sql_filter(expression, is_enabled=True)
        return WantedMessages(sql=MessageFilter.by_sql(expression).sql)
    if kind != TAG:
        raise FilterIllegalError(
            "no such kind of filter", kind=kind[:64], allowed=f"{TAG}, {SQL92}"
        )
    tags = MessageFilter.as_rocketmq(expression).tags
    return WantedMessages(tuple(sorted(map(java_hash, tags))))


def by_subscription(subscription: Subscription) -> WantedMessages:
    """What a heartbeat asks for; the client's own hashes count where it has sent any.

    Raises:
        FilterIllegalError: its expression is none.
    """
    if subscription.expression_type == TAG and subscription.codes:
        return _by_codes(subscription.codes)
    return by_expression(subscription.expression, subscription.expression_type)


def _by_codes(codes: frozenset[int]) -> WantedMessages:
    if len(codes) > TAGS_MAX:
        raise FilterIllegalError("too many tags", tags=len(codes), limit=TAGS_MAX)
    return WantedMessages(tuple(sorted(codes)))
