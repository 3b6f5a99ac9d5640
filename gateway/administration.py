"""Codes of RocketMQ's administrators, in one piece for the port."""

from __future__ import annotations

from ledgermq.gateway.acl_codes import AclCodes
from ledgermq.gateway.addresses import GroupAddresses
from ledgermq.gateway.broker_codes import BrokerCodes
from ledgermq.gateway.changes import Changes
from ledgermq.gateway.client_groups import ClientGroups
from ledgermq.gateway.client_requests import ClientRequests
from ledgermq.gateway.client_table import ClientTable
from ledgermq.gateway.connection_codes import ConnectionCodes
from ledgermq.gateway.consumer_codes import ConsumerCodes
from ledgermq.gateway.encoded_tables import EncodedTables
from ledgermq.gateway.group_codes import GroupCodes
from ledgermq.gateway.long_replies import LongReplies
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.queue_codes import QueueCodes
from ledgermq.gateway.queue_figures import QueueFigures
from ledgermq.gateway.requests import Codes, ReplyLater
from ledgermq.gateway.topic_codes import TopicCodes
from ledgermq.process.environment import Environment
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.call_service import CallService
from ledgermq.serving.query_service import QueryService


class Administration:
    """Makes those who answer, and has their codes together."""

    def __init__(
        self,
        around: Environment,
        tables: BrokerTables,
        services: tuple[CallService, QueryService],
        *,
        addresses: GroupAddresses,
        changes: Changes,
        clients: ClientTable,
        requests: ClientRequests,
        port_calls: PortCalls,
        reply: ReplyLater,
    ) -> None:
        calls, queries = services
        store = calls.known.store
        figures = QueueFigures(store, tables, around.clock, addresses.broker)
        groups = ClientGroups(clients)
        encoded, long = EncodedTables(tables.state), LongReplies(port_calls, reply)
        topics = TopicCodes(tables, figures, groups, changes, encoded=encoded, long=long)
        connections = ConnectionCodes(clients, requests, reply, around.clock)
        self._broker = BrokerCodes(around, tables, figures)
        self.codes: Codes = {
            **self._broker.codes,
            **topics.codes,
            **GroupCodes(
                tables, figures, groups, changes, addresses,
                encoded=encoded, long=long,
            ).codes,
            **QueueCodes(store, topics, clients).codes,
            **connections.codes,
            **AclCodes(tables, changes, addresses, around.page.started_ms).codes,
            **ConsumerCodes(
                tables, calls, queries, figures=figures, changes=changes, addresses=addresses,
                clients=clients, requests=requests, connections=connections, reply=reply,
            ).codes,
        }  # fmt: skip

    def tidy(self) -> None:
        """Note how much was stored and read; to be called every few seconds."""
        self._broker.note_rates()
