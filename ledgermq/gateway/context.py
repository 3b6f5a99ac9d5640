"""Context of a port: all that its parts share, made once."""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.broker.call_service import CallService
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.pulls.query_service import QueryService
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.gateway.administration.queue_figures import QueueFigures
from ledgermq.gateway.changes import Changes
from ledgermq.gateway.clients.callbacks import ClientRequests
from ledgermq.gateway.clients.client_table import ClientTable
from ledgermq.gateway.consuming.offset_commits import NotesOffsets, OffsetCommits
from ledgermq.gateway.leader_relay import LeaderRelay
from ledgermq.gateway.port_calls import AsksVerbs, PortCalls
from ledgermq.gateway.producing.port_producer import PortProducer
from ledgermq.gateway.producing.port_quotas import PortQuotas
from ledgermq.gateway.requests import ReplyLater
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.client_sockets import ClientSockets
from ledgermq.ipc.counters import Counts
from ledgermq.process.environment import Environment


@dataclass(frozen=True, slots=True)
class PortContext:
    """What the parts of a port share, in the broker process and in port processes.

    Attributes:
        calls: asks for the broker's verbs.
        reply: answers a request later.
        commits: takes what consumers commit with their pulls.
    """

    environment: Environment
    tables: AppliedTables
    counts: Counts
    pulls: PullService
    calls: AsksVerbs
    commits: NotesOffsets
    sockets: ClientSockets
    clients: ClientTable
    writer: PortProducer
    quotas: PortQuotas
    reply: ReplyLater


@dataclass(frozen=True, slots=True)
class BrokerContext(PortContext):
    """What the parts of a port share in the broker process.

    Attributes:
        service: who answers verbs.
        relay: the way of changes to the node that leads.
        consumer_relay: that of what consumers tell it.
        figures: of queues, as tools want them.
    """

    tables: BrokerTables
    calls: PortCalls
    commits: OffsetCommits
    service: CallService
    queries: QueryService
    requests: ClientRequests
    addresses: GroupAddresses
    relay: LeaderRelay
    consumer_relay: LeaderRelay
    changes: Changes
    figures: QueueFigures
