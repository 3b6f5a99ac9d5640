"""The broker process with a port for RocketMQ's clients, where the settings want one."""

from __future__ import annotations

from ledgermq.gateway.both_clients import BothClients
from ledgermq.gateway.port import RemotingPort
from ledgermq.model.settings import Settings
from ledgermq.process.loop import StopFlag
from ledgermq.process.node import Surroundings
from ledgermq.serving import broker_process
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.call_service import CallService
from ledgermq.serving.consumers import Consumers
from ledgermq.serving.pull_service import PullService
from ledgermq.serving.query_service import QueryService


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
    around: Surroundings,
    tables: BrokerTables,
    services: tuple[PullService, CallService, QueryService],
) -> Consumers:
    return BothClients(own, RemotingPort(around, tables, *services))
