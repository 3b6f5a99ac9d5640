"""The broker process with a port for RocketMQ's clients, where the settings want one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ledgermq.broker import broker_process
from ledgermq.broker.callers import PortClient
from ledgermq.broker.pulls.consumers import ClientServices, Consumers
from ledgermq.broker.pulls.pull_answers import Answer
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_requests import Reply
from ledgermq.gateway.port import RemotingPort
from ledgermq.ipc.loop import Pollable, StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.process.node import Surroundings
from ledgermq.wire.session import Standing


class BothClients:
    """The ``Consumers`` of a broker that has a port: answers go to the side that asked."""

    def __init__(self, own: Consumers, port: RemotingPort) -> None:
        self._own = own
        self._port = port
        self._port_alone = {port.fileno()}

    @property
    def sources(self) -> list[Pollable]:
        return [*self._own.sources, self._port.fileno()]

    @property
    def zmq_uses(self) -> Sequence[int]:
        return self._own.zmq_uses

    def take_settings(self, settings: Settings) -> None:
        self._own.take_settings(settings)
        self._port.take_settings(settings)

    def next_deadline_ms(self) -> int | None:
        return self._port.next_deadline_ms()

    def message_deadline_ms(self) -> int | None:
        return self._port.message_deadline_ms()

    @property
    def is_watched(self) -> bool:
        return self._own.is_watched

    def look(self, now_ns: int) -> None:
        """End connections of our own clients that hold too much; the port counts what it reads
        itself.
        """
        self._own.look(now_ns)

    def let_in(self, ready: Mapping[Pollable, int]) -> None:
        self._own.let_in(ready)

    def take_requests(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        has_come = self._own.take_requests(ready, now_ms)
        # Each turn: connections are closed in time, and a poll costs next to nothing.
        return self._port.take_requests(now_ms) or has_come

    def take_messages(self, ready: Mapping[Pollable, int], now_ms: int) -> bool:
        return ready.keys() == self._port_alone and self._port.take_messages(now_ms)

    def send_answers(self, answers: Iterable[Answer]) -> None:
        self._own.send_answers(self._without_ports(answers))

    def send_reply(self, reply: Reply) -> None:
        if isinstance(reply.caller.client, PortClient):
            self._port.take_reply(reply)
        else:
            self._own.send_reply(reply)

    def tell_standing(self, standing: Standing) -> None:
        self._own.tell_standing(standing)
        self._port.tell_standing(standing)

    def tell_stage(self, *, serves: int, tables: int, services: int) -> None:
        self._own.tell_stage(serves=serves, tables=tables, services=services)

    def flush(self) -> None:
        self._own.flush()
        self._port.flush()

    def tidy(self) -> None:
        self._own.tidy()
        self._port.tidy()

    def close(self) -> None:
        self._own.close()
        self._port.close()

    def _without_ports(self, answers: Iterable[Answer]) -> Iterable[Answer]:
        for answer in answers:
            if isinstance(answer.client, PortClient):
                self._port.take_answer(answer)
            else:
                yield answer


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
    services: ClientServices,
) -> Consumers:
    return BothClients(own, RemotingPort(environment, tables, services))
