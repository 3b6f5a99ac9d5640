"""What each request code needs: rights to the topics and groups that it names, or an admin.

RocketMQ asks for no right at batches, offsets, locks and transactions, and takes any signature for
them (``PlainAccessValidator``). Here a code is refused that this table does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum

from ledgermq.broker.access import RETRY_PREFIX, Right
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import decode_body
from ledgermq.remoting.fields import text
from ledgermq.remoting.heartbeat import decode_heartbeat

ANY = Right.PUB | Right.SUB
"""Either is enough."""

Needs = Iterator[tuple[str, Right | None]]
"""Topics with the right to them, and groups with None."""


class Need(Enum):
    """What a code needs, where it is not simply rights to what it names."""

    USER = "one of the users"
    ADMIN = "an admin"
    NAMED = "rights to what it names"


OPEN_CODES = frozenset(
    (
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
        Code.GET_NAMESRV_CONFIG,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.QUERY_DATA_VERSION,
    )
)
"""What clients ask a name server: RocketMQ's knows no users, and some clients sign nothing."""

ADMIN_CODES = frozenset(
    (
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_BROKER_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.RESUME_CHECK_HALF_MESSAGE,
    )
)
"""What changes something for others, or shows what is nobody else's business."""


def needs_of(command: Command) -> Needs:
    """The topics and groups that a request wants to use.

    Raises:
        ProtocolError: a field or the body is not what the code wants.
    """
    find = _FINDS.get(command.code)
    if find is not None:
        yield from find(command)


def _send(topic: str) -> Callable[[Command], Needs]:
    def find(command: Command) -> Needs:
        name = text(command.fields, topic)
        if name.startswith(RETRY_PREFIX):
            # Its consumers send that, when they cannot give a message back.
            yield name.removeprefix(RETRY_PREFIX), None
        else:
            yield name, Right.PUB

    return find


def _topic(right: Right) -> Callable[[Command], Needs]:
    def find(command: Command) -> Needs:
        yield text(command.fields, "topic"), right

    return find


def _group(name: str) -> Callable[[Command], Needs]:
    def find(command: Command) -> Needs:
        yield text(command.fields, name), None

    return find


def _both(group: str) -> Callable[[Command], Needs]:
    def find(command: Command) -> Needs:
        yield text(command.fields, "topic"), Right.SUB
        yield text(command.fields, group), None

    return find


def _heartbeat(command: Command) -> Needs:
    for consumer in decode_heartbeat(command.body).consumers:
        yield consumer.name, None
        for subscription in consumer.subscriptions:
            yield subscription.topic, Right.SUB


def _leaving(command: Command) -> Needs:
    group = command.fields.get("consumerGroup")
    if group:
        yield group, None


def _locks(command: Command) -> Needs:
    yield str(decode_body(command.body).get("consumerGroup", "")), None


_FINDS: Mapping[int, Callable[[Command], Needs]] = {
    Code.SEND_MESSAGE: _send("topic"),
    Code.SEND_MESSAGE_V2: _send("b"),
    Code.SEND_BATCH_MESSAGE: _send("b"),
    Code.SEND_REPLY_MESSAGE: _send("topic"),
    Code.SEND_REPLY_MESSAGE_V2: _send("b"),
    Code.PULL_MESSAGE: _both("consumerGroup"),
    Code.LITE_PULL_MESSAGE: _both("consumerGroup"),
    Code.QUERY_MESSAGE: _topic(Right.SUB),
    Code.QUERY_CONSUMER_OFFSET: _both("consumerGroup"),
    Code.UPDATE_CONSUMER_OFFSET: _both("consumerGroup"),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _topic(ANY),
    Code.GET_MAX_OFFSET: _topic(ANY),
    Code.GET_MIN_OFFSET: _topic(ANY),
    Code.GET_EARLIEST_MSG_STORETIME: _topic(ANY),
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _leaving,
    Code.CONSUMER_SEND_MSG_BACK: _group("group"),
    Code.GET_CONSUMER_LIST_BY_GROUP: _group("consumerGroup"),
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.GET_TOPIC_STATS_INFO: _topic(ANY),
    Code.GET_CONSUMER_CONNECTION_LIST: _group("consumerGroup"),
    Code.GET_CONSUME_STATS: _group("consumerGroup"),
    Code.GET_CONSUMER_RUNNING_INFO: _group("consumerGroup"),
    Code.CONSUME_MESSAGE_DIRECTLY: _group("consumerGroup"),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _topic(ANY),
    Code.QUERY_CONSUME_TIME_SPAN: _both("group"),
    Code.QUERY_CONSUME_QUEUE: _topic(Right.SUB),
    Code.QUERY_CORRECTION_OFFSET: _topic(Right.SUB),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _both("group"),
}

NEEDS: Mapping[int, Need] = {
    **dict.fromkeys(_FINDS, Need.NAMED),
    **dict.fromkeys(ADMIN_CODES, Need.ADMIN),
    **dict.fromkeys(
        (
            Code.VIEW_MESSAGE_BY_ID,
            Code.END_TRANSACTION,
            Code.CHECK_CLIENT_CONFIG,
            Code.GET_ALL_TOPIC_CONFIG,
            Code.GET_BROKER_RUNTIME_INFO,
            Code.GET_ALL_CONSUMER_OFFSET,
            Code.GET_ALL_DELAY_OFFSET,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            Code.GET_PRODUCER_CONNECTION_LIST,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Code.VIEW_BROKER_STATS_DATA,
            Code.GET_BROKER_CONSUME_STATS,
            Code.GET_ALL_PRODUCER_INFO,
        ),
        Need.USER,
    ),
}
"""Codes that are not open; ``VIEW_MESSAGE_BY_ID`` and ``END_TRANSACTION`` check the topic when they
know it."""
