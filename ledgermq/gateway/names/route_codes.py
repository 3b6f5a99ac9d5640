"""Codes of a name server, which every node is: routes, name values, registrations of brokers.

What is of the node's own group comes from its tables, and stands first; what is others' from what
their brokers have registered here.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

from ledgermq.broker.administration.topic_calls import order_config
from ledgermq.gateway.code_rights import ADMIN, BROKER, OPEN, USER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.names.registered_brokers import RegisteredBrokers
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import AnswerRequest, Asked, Code, Freshness
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.errors import LedgerError, ProtocolError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import text
from ledgermq.remoting.registration import (
    WHOLE_KEY,
    RegisteredBroker,
    check_body,
    decode_registration,
    decode_version,
    encode_version,
    registered_broker,
)
from ledgermq.remoting.routes import (
    LEADER_ID,
    BrokerAddresses,
    QueueCounts,
    encode_cluster,
    encode_route,
    encode_topic_list,
)
from ledgermq.rules.tables.name_values import CLOSED_BROKERS, ORDER_TOPICS
from ledgermq.rules.tables.topics import Permission, Topic
from ledgermq.sessions.refusal_lines import RefusalLines

_UNIT, _UNIT_SUB = 1, 2
"""Bits of a topic's system flag (``TopicSysFlag``)."""

logger = logging.getLogger(__name__)

BODY_DIGEST_SIZE = 16
"""Bytes."""


class RouteCodes(PortPart):
    """Answers from tables as they are on this node, whether it leads or not."""

    def __init__(self, context: BrokerContext, registered: RegisteredBrokers) -> None:
        self._tables = context.tables
        self._registered = registered
        self._addresses = context.addresses
        self._node = context.environment.settings.node
        self._relay = context.relay
        named = partial(Code, needs=OPEN, tables=Freshness.AS_THEY_ARE)
        unit, sub = self._listing(_UNIT, _UNIT), self._listing(_UNIT_SUB, _UNIT_SUB)
        sub_alone = self._listing(_UNIT | _UNIT_SUB, _UNIT_SUB)
        self.codes = (
            named(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route),
            named(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self._all_topics),
            named(RequestCode.GET_TOPICS_BY_CLUSTER, self._topics_of_cluster),
            named(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self._system_topics),
            Code(RequestCode.GET_BROKER_CLUSTER_INFO, self._cluster, OPEN, tables=Freshness.NONE),
            Code(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self._broker_topics, USER),
            Code(RequestCode.DELETE_TOPIC_IN_NAMESRV, self._delete_route, ADMIN),
            Code(RequestCode.GET_UNIT_TOPIC_LIST, unit, OPEN),
            Code(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, sub, OPEN),
            Code(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, sub_alone, OPEN),
        )

    def shown(self, topic: Topic) -> int:
        """The permission of a topic as routes have it: not for writing where that is closed, or
        where RocketMQ alone may write.
        """
        permission = topic.permission
        is_closed = self._tables.names.get(CLOSED_BROKERS, self._addresses.broker) is not None
        if is_closed or topic.is_compacted_there:
            permission &= ~Permission.WRITE
        return int(permission)

    def _order_of(self, name: str, topic: Topic | None) -> str:
        """Where which queues of a topic are for ever; empty when nobody said so.

        A group that takes nothing of it is left out, see ``RegisteredBrokers.order_of``.
        """
        told = self._tables.names.get(ORDER_TOPICS, name)
        if told is not None:
            return told
        own = []
        if topic is not None and topic.is_ordered and self.shown(topic) & Permission.WRITE:
            own.append(order_config(topic, self._node))
        return ";".join(own + self._registered.order_of(name))

    def _route(self, asked: Asked) -> Command:
        name = text(asked.command.fields, "topic")
        topic = self._tables.topics.get(name)
        others = self._registered.of_topic(name)
        if topic is None:
            self._tables.check_started()
            if not (others or self._is_to_retry(name)):
                remark = f"No topic route info in name server for the topic: {name}"
                if name.startswith(RETRY_PREFIX):
                    remark += ", and there is no such consumer group"
                return asked.command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        brokers = [] if topic is None and others else [self._own()]
        brokers += self._registered.brokers(others)
        queues = self.queue_counts(name)
        order = self._order_of(name, topic)
        return asked.command.reply(body=encode_route(brokers, queues, order=order))

    def _is_to_retry(self, name: str) -> bool:
        """Whether a group has no retries yet: tools find by this route who knows of the group. One
        that takes messages singly never has any.
        """
        group = name.removeprefix(RETRY_PREFIX)
        return group != name and self._tables.groups.get(group) is not None

    def queue_counts(self, name: str) -> list[QueueCounts]:
        """The queues of a topic here and at the brokers that have registered; none: no topic."""
        topic, others = self._tables.topics.get(name), self._registered.of_topic(name)
        queues = [] if topic is None else [self._own_queues(topic)]
        for broker in self._registered.brokers(others):
            one = others[broker.name]
            queues.append(
                QueueCounts(broker.name, one.read_queues, one.write_queues, one.perm, one.sys_flag)
            )
        return queues

    def _own(self) -> BrokerAddresses:
        return self._addresses.brokers(self._addresses.leader)

    def _own_queues(self, topic: Topic) -> QueueCounts:
        return QueueCounts(
            self._addresses.broker,
            topic.read_queues,
            topic.write_queues,
            self.shown(topic),
            topic.sys_flag,
        )

    def _cluster(self, asked: Asked) -> Command:
        brokers = [self._own(), *self._registered.brokers()]
        return asked.command.reply(body=encode_cluster(brokers, self._registered.clusters()))

    def _names(self) -> set[str]:
        return {topic.name for topic in self._tables.topics if topic.name != SYSTEM_TOPIC}

    def _all_topics(self, asked: Asked) -> Command:
        names = self._names() | self._registered.topics().keys()
        return asked.command.reply(body=encode_topic_list(names))

    def _topics_of_cluster(self, asked: Asked) -> Command:
        cluster = text(asked.command.fields, "cluster")
        names = self._registered.of_cluster(cluster)
        if cluster == self._addresses.cluster:
            names |= self._names()
        return asked.command.reply(body=encode_topic_list(names))

    def _system_topics(self, asked: Asked) -> Command:
        """Names of clusters and brokers; the client asks the broker for the rest."""
        addresses = self._addresses
        names = {addresses.cluster, addresses.broker}
        names.update(name for pair in self._registered.clusters() for name in pair)
        broker = addresses.of_leader or addresses.own
        return asked.command.reply(body=encode_topic_list(names, broker=broker))

    def _broker_topics(self, asked: Asked) -> Command:
        topics = self._tables.topics
        names = [name for name in self._names() if topics.is_system(name)]
        return asked.command.reply(body=encode_topic_list(names))

    def _delete_route(self, asked: Asked) -> Command | None:
        """Forget what other groups have registered. Own routes are those of the topics that there
        are: this only looks whether one is left.

        A follower that still has the topic may just not know yet that it was deleted.
        """
        name = text(asked.command.fields, "topic")
        cluster = asked.command.fields.get("clusterName", "")
        self._registered.delete_topic(name, cluster)
        is_own = not cluster or cluster == self._addresses.cluster
        if not is_own or self._tables.topics.get(name) is None:
            return asked.command.reply()
        if self._relay.hand_on(asked):
            return None
        remark = (
            f"topic {name} exists, and its route with it: delete the topic at its broker"
            " (DELETE_TOPIC_IN_BROKER)"
        )
        return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _listing(self, looked_at: int, wanted: int) -> AnswerRequest:
        """Topics whose system flags have of some bits these."""

        def listed(asked: Asked) -> Command:
            topics = self._tables.topics
            found = {one.name for one in topics if one.sys_flag & looked_at == wanted}
            for name, at in self._registered.topics().items():
                if any(one.sys_flag & looked_at == wanted for one in at.values()):
                    found.add(name)
            return asked.command.reply(body=encode_topic_list(found))

        return listed


class NameValueCodes(PortPart):
    """Name values, which are in the log here.

    Reads are answered by every node, changes by the one that leads.
    """

    def __init__(self, context: BrokerContext, registered: RegisteredBrokers) -> None:
        self._registered = registered
        self._settings = context.environment.settings
        self._tables = context.tables
        self._addresses = context.addresses
        self._changes = context.changes
        self.codes = (
            Code(RequestCode.PUT_KV_CONFIG, self._put, ADMIN),
            Code(RequestCode.GET_KV_CONFIG, self._get, OPEN),
            Code(RequestCode.DELETE_KV_CONFIG, self._delete, ADMIN),
            Code(RequestCode.GET_KVLIST_BY_NAMESPACE, self._list, OPEN),
            Code(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self._close_broker, ADMIN),
            Code(RequestCode.ADD_WRITE_PERM_OF_BROKER, self._open_broker, ADMIN),
            Code(RequestCode.UPDATE_NAMESRV_CONFIG, self._refuse_settings, ADMIN),
            Code(RequestCode.GET_NAMESRV_CONFIG, self._show_settings, ADMIN),
        )

    def _put(self, asked: Asked) -> None:
        fields = asked.command.fields
        self._set(asked, _namespace(asked), text(fields, "key"), text(fields, "value"))

    def _delete(self, asked: Asked) -> None:
        self._set(asked, _namespace(asked), text(asked.command.fields, "key"), None)

    def _get(self, asked: Asked) -> Command:
        namespace, key = _namespace(asked), text(asked.command.fields, "key")
        value = self._tables.names.get(namespace, key)
        if value is None and namespace == ORDER_TOPICS:
            value = self._orders().get(key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return asked.command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return asked.command.reply(fields={"value": value})

    def _list(self, asked: Asked) -> Command:
        namespace = _namespace(asked)
        values = dict(self._tables.names.of(namespace))
        if namespace == ORDER_TOPICS:
            values = self.orders()
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            return asked.command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return asked.command.reply(body=encode_body({"table": values}))

    def orders(self) -> dict[str, str]:
        """Where the queues of which topics are for ever, by what was put and the topic table."""
        return {**self._orders(), **self._tables.names.of(ORDER_TOPICS)}

    def _orders(self) -> dict[str, str]:
        """What the topic table itself says of ordered topics."""
        broker = self._addresses.broker
        return {
            topic.name: f"{broker}:{topic.write_queues}"
            for topic in self._tables.topics
            if topic.is_ordered
        }

    def _close_broker(self, asked: Asked) -> Command | None:
        change = self._registered.close_writes
        return self._switch_broker(asked, "closed", change, "wipeTopicCount")

    def _open_broker(self, asked: Asked) -> Command | None:
        return self._switch_broker(asked, None, self._registered.open_writes, "addTopicCount")

    def _switch_broker(
        self,
        asked: Asked,
        value: str | None,
        change: Callable[[str], int | None],
        counted: str,
    ) -> Command | None:
        """Have routes show all topics of a broker as closed for producers, or as they are: this
        group's by the log, another one's as long as it is registered, at this node.
        """
        name = text(asked.command.fields, "brokerName")
        if name == self._addresses.broker:
            topics = sum(one.name != SYSTEM_TOPIC for one in self._tables.topics)
            self._set(asked, CLOSED_BROKERS, name, value, {counted: str(topics)})
            return None
        changed = change(name)
        if changed is None:
            raise ProtocolError(
                "broker is not this one, and none that is registered",
                broker=name[:255],
                this=self._addresses.broker,
            )
        return asked.command.reply(fields={counted: str(changed)})

    def _set(
        self,
        asked: Asked,
        namespace: str,
        key: str,
        value: str | None,
        told: dict[str, str] | None = None,
    ) -> None:
        arguments = {"namespace": namespace, "key": key}
        if value is not None:
            arguments["value"] = value
        self._changes.ask(
            asked, "name_set", arguments, lambda _result: asked.command.reply(fields=told)
        )

    def _refuse_settings(self, asked: Asked) -> Command:
        remark = (
            "does not apply: settings are those of the node's own file: change them there, and"
            " reload (docs/operating/settings.md)"
        )
        return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _show_settings(self, asked: Asked) -> Command:
        listen = self._settings.listen
        lines = {
            "clusterTest": "false",
            "listenPort": str((listen.name_server or listen.remoting or "").rpartition(":")[2]),
            "orderMessageEnable": "true",
            "rocketmqHome": str(self._settings.store.path_root_dir),
        }
        content = "".join(f"{key}={value}\n" for key, value in lines.items())
        return asked.command.reply(body=content.encode())


def _namespace(asked: Asked) -> str:
    return text(asked.command.fields, "namespace")


class RegistrationCodes(PortPart):
    """Takes what brokers tell, as RocketMQ's name servers do; own members tell nothing new."""

    def __init__(
        self,
        context: BrokerContext,
        brokers: RegisteredBrokers,
        orders: Callable[[], Mapping[str, str]],
    ) -> None:
        """Nobody has registered.

        Args:
            orders: where the queues of which topics are for ever, by topic.
        """
        self._addresses = context.addresses
        self._check_started = context.service.log.check_started
        self._counts = context.counts
        self._brokers = brokers
        self._orders = orders
        self._lines = RefusalLines()
        row = partial(Code, needs=BROKER, tables=Freshness.NONE)
        self.codes = (
            row(RequestCode.REGISTER_BROKER, self._telling(self._register)),
            row(RequestCode.UNREGISTER_BROKER, self._telling(self._unregister)),
            row(RequestCode.QUERY_DATA_VERSION, self._telling(self._compare)),
            row(RequestCode.BROKER_HEARTBEAT, self._telling(self._hear)),
        )

    def next_deadline_ms(self) -> int | None:
        return self._brokers.next_deadline_ms()

    def turn(self, now_ms: int) -> None:
        due_ms = self._brokers.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._brokers.expire(now_ms)
            self._count()

    def forget(self, connection: Connection) -> None:
        """A connection has ended: with it its broker is gone."""
        self._brokers.forget(connection.number)
        self._count()

    def _telling(self, answer: AnswerRequest) -> AnswerRequest:
        """``answer``, with a line in the log about a refusal: brokers ask again all the time."""

        def told(asked: Asked) -> Command | None:
            try:
                return answer(asked)
            except LedgerError as error:
                host = asked.connection.peer[0]
                if self._lines.is_news(host, error.message, asked.now_ms / 1_000):
                    logger.warning("broker is refused: peer=%s reason=%s", host, error)
                raise

        return told

    def _register(self, asked: Asked) -> Command:
        command = asked.command
        broker = registered_broker(command.fields)
        if self._is_own_slave(broker):
            return command.reply(fields=self._own_master(), body=self._order_table())
        if not self._is_own(broker):
            check_body(command.fields, command.body)
            digest = _digest(command)
            number, now_ms = asked.connection.number, asked.now_ms
            if self._brokers.repeats(broker, digest):
                self._brokers.hear(broker.address, connection=number, now_ms=now_ms)
            else:
                told = decode_registration(command.fields, command.body)
                self._brokers.register(
                    broker, told, connection=number, now_ms=now_ms, digest=digest
                )
                self._count()
        fields = {} if broker.id == LEADER_ID else self._master_of(broker.name)
        return command.reply(fields=fields, body=self._order_table())

    def _unregister(self, asked: Asked) -> Command:
        broker = registered_broker(asked.command.fields)
        if not (self._is_own_slave(broker) or self._is_own(broker)):
            self._brokers.unregister(broker)
            self._count()
        return asked.command.reply()

    def _compare(self, asked: Asked) -> Command:
        """Whether a broker's topics are others than those that it has told, or it is not known."""
        broker = registered_broker(asked.command.fields)
        if self._is_own_slave(broker):
            # It is told who its master is with each registration.
            return asked.command.reply(fields={"changed": "true"})
        if self._is_own(broker):
            return asked.command.reply(fields={"changed": "false"}, body=asked.command.body)
        asked_for = decode_version(asked.command.body)
        known = self._brokers.version_of(broker.address)
        if known == asked_for:
            self._hear_over(asked, broker)
        changed = "false" if known == asked_for else "true"
        body = b"" if known is None else encode_version(known)
        return asked.command.reply(fields={"changed": changed}, body=body)

    def _hear(self, asked: Asked) -> Command:
        self._hear_over(asked, registered_broker(asked.command.fields))
        return asked.command.reply()

    def _hear_over(self, asked: Asked, broker: RegisteredBroker) -> None:
        self._brokers.hear(broker.address, connection=asked.connection.number, now_ms=asked.now_ms)

    def _is_own_slave(self, broker: RegisteredBroker) -> bool:
        """Whether it follows this node at ``listen.ha``. Nothing of it is kept: whoever can say so
        would else be where consumers of this node read.
        """
        addresses = self._addresses
        return (
            addresses.ha is not None
            and broker.name == addresses.broker
            and broker.id != LEADER_ID
            and not addresses.has(broker.address)
        )

    def _own_master(self) -> dict[str, str]:
        assert self._addresses.ha is not None
        return {"masterAddr": self._addresses.own, "haServerAddr": self._addresses.ha}

    def _is_own(self, broker: RegisteredBroker) -> bool:
        """Whether it is a member of this node's group, whose tables say all about it.

        Raises:
            ProtocolError: it is none, and has the group's name.
        """
        if broker.name != self._addresses.broker:
            return False
        if not self._addresses.has(broker.address):
            raise ProtocolError(
                "broker name is that of this node's group, and the address is no member's: give the"
                " other broker a name of its own (node.broker_name, RocketMQ's brokerName), or the"
                " member its address (remoting.addresses)",
                name=broker.name,
                address=broker.address,
                cluster=self._addresses.cluster,
            )
        return True

    def _master_of(self, name: str) -> dict[str, str]:
        """What slaves of RocketMQ's are told: where they get offsets and groups, and the log."""
        master = self._brokers.master_of(name)
        return {} if master is None else {"masterAddr": master[0], "haServerAddr": master[1]}

    def _order_table(self) -> bytes:
        """What RocketMQ's brokers are told of ordered topics; nothing while it may be old."""
        try:
            self._check_started()
        except LedgerError:
            return b""
        orders = self._orders()
        return encode_body({"table": dict(orders)}) if orders else b""

    def _count(self) -> None:
        self._counts[BrokerCounter.REGISTERED_BROKERS] = len(self._brokers)


def _digest(command: Command) -> bytes:
    """Digest of all that a broker tells besides who it is."""
    digest = hashlib.blake2b(command.body, digest_size=BODY_DIGEST_SIZE)
    for name in ("compressed", "haServerAddr", WHOLE_KEY):
        digest.update(f"\n{command.fields.get(name)}".encode(errors="replace"))
    return digest.digest()
