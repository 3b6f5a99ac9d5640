"""All that a broker answers: the rows that its services have, of one made for that alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple
from unittest.mock import patch

from ledgermq.broker.broker_process import BrokerWorker
from ledgermq.broker.calls import AnsweredVerb
from ledgermq.broker.pulls.consumers import ClientServices, Consumers, MakeConsumers
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.gateway.port import RemotingPort
from ledgermq.gateway.requests import Code
from ledgermq.process.environment import Environment
from tests.simulator import readers
from tests.simulator.world import Shape, World


class _Rows(NamedTuple):
    verbs: dict[str, AnsweredVerb]
    codes: dict[int, Code]


@cache
def _rows() -> _Rows:
    found = _Rows({}, {})

    def begin(environment: Environment, tables: BrokerTables, make: MakeConsumers) -> BrokerWorker:
        def noted(services: ClientServices) -> Consumers:
            found.verbs.update(services.calls.verbs)
            port = RemotingPort(environment, tables, services)
            found.codes.update({row.code: row for row in port.codes})
            port.close()
            return make(services)

        return BrokerWorker(environment, tables, noted)

    with (
        patch.object(readers, "BrokerWorker", begin),
        World(1, Shape(members=1, has_readers=True, producers=0)),
    ):
        pass
    return found


def verbs() -> Mapping[str, AnsweredVerb]:
    """What our own clients may ask for, by name."""
    return _rows().verbs


def codes() -> Mapping[int, Code]:
    """What RocketMQ's clients and tools may ask the port for."""
    return _rows().codes
