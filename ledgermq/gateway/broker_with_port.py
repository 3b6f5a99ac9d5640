"""The broker process with a port for RocketMQ's clients, where the settings want one."""

from __future__ import annotations

from ledgermq.broker import broker_process
from ledgermq.broker.call_service import CallService
from ledgermq.broker.pulls.consumers import Consumers
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.pulls.query_service import QueryService
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.gateway.clients.both_clients import BothClients
from ledgermq.gateway.port import RemotingPort
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.process.node import Surroundings


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the broker until it is told to stop; the exit status.

    Raises:
        ConfigError, CorruptLogError: a table cannot be read, or an address not listened at.
        StorageError: the disk refused.
    """
    if settings.listen.remoting is None and settings.listen.name_server is None:
        return broker_process.run(settings, stop)
    return broker_process.run(settings, stop, around_clients=_with_port)


def _with_port(
    own: Consumers,
    environment: Surroundings,
    tables: BrokerTables,
    services: tuple[PullService, CallService, QueryService],
) -> Consumers:
    return BothClients(own, RemotingPort(environment, tables, *services))
