"""Codes of routes and brokers, which every node answers as name servers do.

What is its own group's comes from its tables, and stands first; what is others' from what their
brokers have registered here.
"""

from __future__ import annotations

from functools import partial

from ledgermq.broker.administration.topic_calls import order_config
from ledgermq.gateway.code_rights import ADMIN, OPEN, USER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.names.registered_brokers import RegisteredBrokers
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import AnswerRequest, Asked, Code, Freshness
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import text
from ledgermq.remoting.routes import (
    BrokerAddresses,
    QueueCounts,
    encode_cluster,
    encode_route,
    encode_topic_list,
)
from ledgermq.rules.tables.name_values import CLOSED_BROKERS, ORDER_TOPICS
from ledgermq.rules.tables.topics import Permission, Topic

_UNIT, _UNIT_SUB = 1, 2
"""Bits of a topic's system flag (``TopicSysFlag``)."""


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
        """The permission of a topic as routes have it: not for writing where that is closed."""
        permission = topic.permission
        if self._tables.names.get(CLOSED_BROKERS, self._addresses.broker) is not None:
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
            if not others:
                remark = f"No topic route info in name server for the topic: {name}"
                return asked.command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        brokers = [] if topic is None else [self._own()]
        queues = [] if topic is None else [self._own_queues(topic)]
        for broker in self._registered.brokers(others):
            brokers.append(broker)
            one = others[broker.name]
            queues.append(
                QueueCounts(broker.name, one.read_queues, one.write_queues, one.perm, one.sys_flag)
            )
        order = self._order_of(name, topic)
        return asked.command.reply(body=encode_route(brokers, queues, order=order))

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
