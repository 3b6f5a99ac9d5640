"""Rights that each request code needs, a row for each, and where it is answered.

No code can be answered that has no row here, and no row is left without an answer
(``RemotingPort``).

RocketMQ asks for no right at batches, offsets, locks and transactions, and takes any signature for
them (``PlainAccessValidator``). Here a code is refused that this table does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from ledgermq.broker.access import RETRY_PREFIX, Right
from ledgermq.gateway.requests import Codes
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
    """Who may send a code at all, where users are checked."""

    OPEN = "anybody: a name server is asked, and RocketMQ's knows no users"
    USER = "one of the users; a message that is found asks for the right to its topic"
    NAMED = "rights to what it names"
    ADMIN = "an admin: it changes something for others, or shows what is nobody else's business"


class Where(Enum):
    """Which node answers."""

    NODE = "any, whatever its tables are: it is about this node, or is gathered for the log"
    NAMES = "any; one that does not lead from its tables as they are, of which a name server knows"
    TABLES = "any whose tables are not behind the log"


def needs_of(command: Command) -> Needs:
    """The topics and groups that a request wants to use.

    Raises:
        ProtocolError: a field or the body is not what the code wants.
    """
    row = ROWS.get(command.code)
    if row is not None and row.find is not None:
        yield from row.find(command)


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


class Row(NamedTuple):
    """All that is decided about a code before anybody answers it.

    Attributes:
        module: of this package; what answers the code is there.
        find: what a request wants to use, of ``Need.NAMED``.
        by_port_process: port processes answer it, too, where there are some.
        is_for_sender: its answer is all that it is for, and costs something: it is let go of where
            the connection has ended. What changes something is done: who sends one way may close
            at once.
    """

    module: str
    need: Need
    find: Callable[[Command], Needs] | None = None
    where: Where = Where.TABLES
    by_port_process: bool = False
    is_for_sender: bool = False


def _named(module: str, find: Callable[[Command], Needs], where: Where = Where.TABLES) -> Row:
    return Row(module, Need.NAMED, find, where)


def _open(module: str, where: Where = Where.TABLES) -> Row:
    return Row(module, Need.OPEN, None, where)


def _user(module: str, where: Where = Where.TABLES) -> Row:
    return Row(module, Need.USER, None, where)


def _admin(module: str, where: Where = Where.TABLES) -> Row:
    return Row(module, Need.ADMIN, None, where)


def _both_processes(module: str, find: Callable[[Command], Needs]) -> Row:
    return Row(module, Need.NAMED, find, by_port_process=True)


def _for_sender(row: Row) -> Row:
    return row._replace(is_for_sender=True)


ROWS: Mapping[int, Row] = {
    Code.SEND_MESSAGE: _both_processes("produce_codes", _send("topic")),
    Code.SEND_MESSAGE_V2: _both_processes("produce_codes", _send("b")),
    Code.SEND_BATCH_MESSAGE: _both_processes("produce_codes", _send("b")),
    Code.PULL_MESSAGE: _for_sender(_both_processes("pull_codes", _both("consumerGroup"))),
    Code.LITE_PULL_MESSAGE: _for_sender(_both_processes("pull_codes", _both("consumerGroup"))),
    Code.SEND_REPLY_MESSAGE: _named("reply_codes", _send("topic")),
    Code.SEND_REPLY_MESSAGE_V2: _named("reply_codes", _send("b")),
    Code.END_TRANSACTION: _user("transaction_codes"),
    Code.CONSUMER_SEND_MSG_BACK: _named("return_codes", _group("group")),
    Code.QUERY_MESSAGE: _for_sender(_named("lookup_codes", _topic(Right.SUB))),
    Code.VIEW_MESSAGE_BY_ID: _for_sender(_user("lookup_codes")),
    Code.CHECK_CLIENT_CONFIG: _for_sender(_user("lookup_codes")),
    Code.HEART_BEAT: _named("member_codes", _heartbeat, Where.NODE),
    Code.UNREGISTER_CLIENT: _named("member_codes", _leaving, Where.NODE),
    Code.GET_CONSUMER_LIST_BY_GROUP: _named("member_codes", _group("consumerGroup")),
    Code.LOCK_BATCH_MQ: _named("lock_codes", _locks),
    Code.UNLOCK_BATCH_MQ: _named("lock_codes", _locks),
    Code.QUERY_CONSUMER_OFFSET: _named("offset_codes", _both("consumerGroup")),
    Code.UPDATE_CONSUMER_OFFSET: _named("offset_codes", _both("consumerGroup"), Where.NODE),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _named("offset_codes", _topic(ANY)),
    Code.GET_MAX_OFFSET: _named("offset_codes", _topic(ANY)),
    Code.GET_MIN_OFFSET: _named("offset_codes", _topic(ANY)),
    Code.GET_EARLIEST_MSG_STORETIME: _named("offset_codes", _topic(ANY)),
    Code.QUERY_CONSUME_QUEUE: _named("queue_codes", _topic(Right.SUB)),
    Code.UPDATE_AND_CREATE_TOPIC: _admin("topic_codes"),
    Code.DELETE_TOPIC_IN_BROKER: _admin("topic_codes"),
    Code.GET_ALL_TOPIC_CONFIG: _user("topic_codes"),
    Code.GET_TOPIC_STATS_INFO: _named("topic_codes", _topic(ANY)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _named("topic_codes", _topic(ANY)),
    Code.VIEW_BROKER_STATS_DATA: _user("topic_codes"),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _admin("group_codes"),
    Code.DELETE_SUBSCRIPTIONGROUP: _admin("group_codes"),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _user("group_codes"),
    Code.GET_ALL_CONSUMER_OFFSET: _user("group_codes"),
    Code.GET_CONSUME_STATS: _for_sender(_named("group_codes", _group("consumerGroup"))),
    Code.GET_BROKER_CONSUME_STATS: _for_sender(_user("group_codes")),
    Code.QUERY_CONSUME_TIME_SPAN: _named("group_codes", _both("group")),
    Code.QUERY_CORRECTION_OFFSET: _named("group_codes", _topic(Right.SUB)),
    Code.CLONE_GROUP_OFFSET: _admin("group_codes"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _admin("consumer_codes"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _named("consumer_codes", _both("group")),
    Code.CONSUME_MESSAGE_DIRECTLY: _named("consumer_codes", _group("consumerGroup")),
    Code.GET_CONSUMER_CONNECTION_LIST: _named("connection_codes", _group("consumerGroup")),
    Code.GET_CONSUMER_RUNNING_INFO: _named("connection_codes", _group("consumerGroup")),
    Code.GET_PRODUCER_CONNECTION_LIST: _user("connection_codes"),
    Code.GET_ALL_PRODUCER_INFO: _user("connection_codes"),
    Code.GET_BROKER_CONFIG: _admin("broker_codes", Where.NODE),
    Code.GET_BROKER_RUNTIME_INFO: _user("broker_codes", Where.NODE),
    Code.GET_ALL_DELAY_OFFSET: _user("broker_codes"),
    Code.UPDATE_BROKER_CONFIG: _admin("broker_codes"),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _admin("broker_codes"),
    Code.CLEAN_UNUSED_TOPIC: _admin("broker_codes"),
    Code.DELETE_EXPIRED_COMMITLOG: _admin("broker_codes"),
    Code.RESUME_CHECK_HALF_MESSAGE: _admin("broker_codes"),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: _admin("acl_codes"),
    Code.DELETE_ACL_CONFIG: _admin("acl_codes"),
    Code.GET_BROKER_CLUSTER_ACL_INFO: _admin("acl_codes"),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _admin("acl_codes"),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _admin("acl_codes"),
    Code.GET_ROUTEINFO_BY_TOPIC: _open("route_codes", Where.NAMES),
    Code.GET_BROKER_CLUSTER_INFO: _open("route_codes", Where.NODE),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _open("route_codes", Where.NAMES),
    Code.GET_TOPICS_BY_CLUSTER: _open("route_codes", Where.NAMES),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _open("route_codes", Where.NAMES),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _user("route_codes"),
    Code.DELETE_TOPIC_IN_NAMESRV: _open("route_codes"),
    Code.GET_UNIT_TOPIC_LIST: _open("route_codes"),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _open("route_codes"),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _open("route_codes"),
    Code.QUERY_DATA_VERSION: _open("name_value_codes"),
    Code.REGISTER_BROKER: _admin("name_value_codes"),
    Code.UNREGISTER_BROKER: _admin("name_value_codes"),
    Code.GET_KV_CONFIG: _open("name_value_codes"),
    Code.GET_KVLIST_BY_NAMESPACE: _open("name_value_codes"),
    Code.GET_NAMESRV_CONFIG: _admin("name_value_codes"),
    Code.PUT_KV_CONFIG: _admin("name_value_codes"),
    Code.DELETE_KV_CONFIG: _admin("name_value_codes"),
    Code.UPDATE_NAMESRV_CONFIG: _admin("name_value_codes"),
    Code.WIPE_WRITE_PERM_OF_BROKER: _admin("name_value_codes"),
    Code.ADD_WRITE_PERM_OF_BROKER: _admin("name_value_codes"),
}
"""Every code that is served. ``VIEW_MESSAGE_BY_ID``, ``CONSUMER_SEND_MSG_BACK``,
``CONSUME_MESSAGE_DIRECTLY`` and ``END_TRANSACTION`` name a message by its place: they ask for the
right to its topic when they know it."""


def is_for_sender(code: int) -> bool:
    """Whether nobody but its sender has anything of a request; see ``Row``."""
    row = ROWS.get(code)
    return row is not None and row.is_for_sender


def check_answers(codes: Codes) -> None:
    """That each of these codes has its row, and is answered where that says."""
    for code, answer in codes.items():
        row = ROWS.get(code)
        assert row is not None, f"no row in code_rights says who may: {code}"
        assert answer.__module__ == f"{__package__}.{row.module}", (code, answer.__module__)
