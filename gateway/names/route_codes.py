"""Codes of routes and brokers, which every node answers from its tables, as name servers do."""

from __future__ import annotations

from functools import partial

from ledgermq.broker.administration.topic_calls import order_config
from ledgermq.gateway.code_rights import OPEN, USER
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import AnswerRequest, Asked, Code, Freshness
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import text
from ledgermq.remoting.routes import (
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

    def __init__(self, context: BrokerContext) -> None:
        self._tables = context.tables
        self._addresses = context.addresses
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
            Code(RequestCode.DELETE_TOPIC_IN_NAMESRV, self._delete_route, OPEN),
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

    def order_of(self, topic: Topic) -> str:
        """Where which queues of a topic are for ever; empty when nobody said so."""
        told = self._tables.names.get(ORDER_TOPICS, topic.name)
        if told is not None:
            return told
        return order_config(topic, self._tables.node) if topic.is_ordered else ""

    def _route(self, asked: Asked) -> Command:
        name = text(asked.command.fields, "topic")
        topic = self._tables.topics.get(name)
        if topic is None:
            self._tables.check_started()
            remark = f"No topic route info in name server for the topic: {name}"
            return asked.command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        brokers = self._addresses.brokers(self._addresses.leader)
        queues = QueueCounts(
            brokers.name,
            topic.read_queues,
            topic.write_queues,
            self.shown(topic),
            topic.sys_flag,
        )
        return asked.command.reply(
            body=encode_route([brokers], [queues], order=self.order_of(topic))
        )

    def _cluster(self, asked: Asked) -> Command:
        return asked.command.reply(
            body=encode_cluster([self._addresses.brokers(self._addresses.leader)])
        )

    def _names(self) -> list[str]:
        return [topic.name for topic in self._tables.topics if topic.name != SYSTEM_TOPIC]

    def _all_topics(self, asked: Asked) -> Command:
        return asked.command.reply(body=encode_topic_list(self._names()))

    def _topics_of_cluster(self, asked: Asked) -> Command:
        cluster = text(asked.command.fields, "cluster")
        names = self._names() if cluster == self._addresses.cluster else []
        return asked.command.reply(body=encode_topic_list(names))

    def _system_topics(self, asked: Asked) -> Command:
        """Names of cluster and brokers; the client asks the broker for the rest."""
        addresses = self._addresses
        names = {addresses.cluster, addresses.broker}
        broker = addresses.of_leader or addresses.own
        return asked.command.reply(body=encode_topic_list(names, broker=broker))

    def _broker_topics(self, asked: Asked) -> Command:
        topics = self._tables.topics
        names = [name for name in self._names() if topics.is_system(name)]
        return asked.command.reply(body=encode_topic_list(names))

    def _delete_route(self, asked: Asked) -> Command | None:
        """Routes are those of the topics that there are: this only looks whether one is left.

        A follower that still has the topic may just not know yet that it was deleted.
        """
        name = text(asked.command.fields, "topic")
        if self._tables.topics.get(name) is None:
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
            found = [one.name for one in topics if one.sys_flag & looked_at == wanted]
            return asked.command.reply(body=encode_topic_list(found))

        return listed
