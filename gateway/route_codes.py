"""What RocketMQ's name servers answer: every node does, from the replicated tables."""

from __future__ import annotations

from ledgermq.gateway.addresses import GroupAddresses
from ledgermq.gateway.requests import Asked, Codes
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import text
from ledgermq.remoting.routes import QueueCounts, encode_cluster, encode_route
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.wire.session import Standing


class RouteCodes:
    """Answers from tables as they are on this node, whether it leads or not."""

    def __init__(self, tables: BrokerTables, addresses: GroupAddresses) -> None:
        self._tables = tables
        self._addresses = addresses
        self._leader = ""
        self.codes: Codes = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
        }

    def tell_standing(self, standing: Standing) -> None:
        """Another node may lead now; nobody, when ``leader`` is empty."""
        self._leader = standing.leader

    def _route(self, asked: Asked) -> Command:
        name = text(asked.command.fields, "topic")
        topic = self._tables.topics.get(name)
        if topic is None:
            remark = f"No topic route info in name server for the topic: {name}"
            return asked.command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        brokers = self._addresses.brokers(self._leader)
        queues = QueueCounts(
            brokers.name,
            topic.read_queues,
            topic.write_queues,
            int(topic.permission),
            topic.sys_flag,
        )
        return asked.command.reply(body=encode_route([brokers], [queues]))

    def _cluster(self, asked: Asked) -> Command:
        return asked.command.reply(body=encode_cluster([self._addresses.brokers(self._leader)]))
