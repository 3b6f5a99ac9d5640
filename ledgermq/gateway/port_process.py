"""Port process: serves connections of RocketMQ's clients beside others of its kind.

It writes no file. It reads what the broker does: queues and log as far as they are dispatched, and
the tables from the broker's files and the log; of clients it knows their last heartbeat. What its
clients store goes to the writer's socket. Where all that is not enough (a topic that is to be made,
a consumer that has not said what it wants), and for all else, a request is handed over to the
broker process as it came, and so the broker's refusal is the one that counts.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Iterable, Mapping, Sequence

from ledgermq.broker.pulls.cold_reads import ColdReads
from ledgermq.broker.pulls.pull_answers import Answer
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.reading.store_upkeep import DamageReports, DispatcherRest, StoreUpkeep
from ledgermq.broker.state.state_reader import StateReader
from ledgermq.gateway.clients.client_table import ClientTable
from ledgermq.gateway.consuming.pull_codes import PullCodes
from ledgermq.gateway.context import PortContext
from ledgermq.gateway.dispatcher import Dispatcher
from ledgermq.gateway.parts import PortParts
from ledgermq.gateway.port import open_port
from ledgermq.gateway.port_calls import Take
from ledgermq.gateway.producing.port_producer import PortProducer
from ledgermq.gateway.producing.port_quotas import PortQuotas
from ledgermq.gateway.producing.produce_codes import ProduceCodes
from ledgermq.gateway.requests import Asked, Code, Codes, Where
from ledgermq.gateway.transport.port_link import BrokerLink
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import Counts
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, Pollable, StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, TopicUnknownError
from ledgermq.process.environment import Environment
from ledgermq.process.node import Surroundings
from ledgermq.process.worker_main import run_worker
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.heartbeat import decode_heartbeat
from ledgermq.sessions.leadership.standing import ReaderStanding
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

BROKERS_TO_SAY = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
)
"""Refusals for what this process does not know, and the broker process may."""


class PortRequests:
    """The dispatcher's ``Port`` in a port process, which owns it."""

    def __init__(
        self, environment: Environment, tables: AppliedTables, pulls: PullService, counts: Counts
    ) -> None:
        """Listen where the settings say.

        Raises:
            ConfigError: an address cannot be listened at, or a file for TLS not be used.
        """
        settings = environment.settings
        self._tables = tables
        self._epoll = select.epoll()
        self._sockets = sockets = open_port(environment, counts)
        self._epoll.register(sockets.fileno(), select.EPOLLIN)
        self._broker = BrokerLink(environment.paths.ports, self._epoll, sockets)
        self._clients = ClientTable(settings.limits)
        self._writer = PortProducer(environment, self._epoll, greeted=sockets.listen)
        self._now_ms = environment.clock.monotonic_ns() // 1_000_000
        self._is_led_elsewhere = False
        context = PortContext(
            environment=environment,
            tables=tables,
            counts=counts,
            pulls=pulls,
            calls=_NoCalls(),
            commits=self._broker,
            sockets=sockets,
            clients=self._clients,
            writer=self._writer,
            quotas=PortQuotas(tables.quotas, settings.quotas, counts, now_ms=self._now_ms),
            reply=self.reply,
        )
        self._pulls = PullCodes(context)
        self._parts = PortParts(
            self._broker, self._writer, context.quotas, ProduceCodes(context), self._pulls
        )
        assert all(row.at is Where.PORT for row in self.codes), self.codes
        self._dispatcher = Dispatcher(self, context, self.codes)

    @property
    def codes(self) -> Codes:
        """All that is answered here; the broker process answers these, too."""
        return self._parts.codes

    def fileno(self) -> int:
        """Descriptor of the port, for the poll set of the process."""
        return self._epoll.fileno()

    def next_deadline_ms(self) -> int | None:
        """When ``take`` has something to do that no descriptor tells of."""
        if self._dispatcher.is_behind:
            return 0
        deadlines = (
            self._sockets.next_deadline_ms(),
            self._clients.next_expiry_ms(),
            self._parts.next_deadline_ms(),
        )
        return min((one for one in deadlines if one is not None), default=None)

    def take(self, now_ms: int) -> bool:
        """Answer, keep or hand over what has come; whether there was anything."""
        self._now_ms = now_ms
        has_come = self._dispatcher.serve(now_ms)
        self._clients.expire(now_ms)
        for turn in self._parts.turns:
            turn(now_ms)
        return has_come

    def send_answers(self, answers: Iterable[Answer]) -> None:
        """Answer pulls that were held."""
        for answer in answers:
            self._pulls.take_answer(answer)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access count from now on."""
        self._tables.secrets.read_again()
        self._dispatcher.take_settings(settings)
        self._clients.limits = settings.limits
        self._parts.take_settings(settings)

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""
        self._is_led_elsewhere = bool(standing.leader) and not standing.leads
        self._parts.tell_standing(standing)

    def flush(self) -> None:
        """Write what this turn has answered and handed over; at the end of each turn."""
        if self._writer.has_gathered:
            self._writer.turn(self._now_ms)
        self._broker.flush()
        self._sockets.flush()

    def close(self) -> None:
        """Refuse what has no answer, and end all connections."""
        self._parts.close()
        self._sockets.flush()
        self._sockets.close()
        self._epoll.close()

    def is_for_others(self, row: Code, connection: Connection) -> bool:
        if self._tables.is_starting:
            return True
        sends = self._dispatcher.sends
        if row.code not in sends:
            return False
        # The broker process hands them on to the leader. Those of one producer stay in their order.
        return self._is_led_elsewhere or self._broker.waits_for(connection, sends)

    def reply(self, asked: Asked, reply: Command) -> None:
        """Answer a request; what the broker process may know better is handed over to it."""
        command = asked.command
        # Of a pull that was held nothing is left that could be handed over.
        if reply.code in BROKERS_TO_SAY and command.fields:
            self.take_other(asked)
        elif not command.is_oneway:
            self._sockets.send(asked.connection, reply)

    def forget(self, connection: Connection) -> None:
        self._clients.forget(connection)
        self._parts.forget(connection)

    def take_other(self, asked: Asked) -> None:
        """Hand a request that is not answered here, or a client's reply, to the broker process."""
        connection, command = asked.connection, asked.command
        try:
            if command.is_reply:
                self._broker.hand_over(connection, command)
            elif command.code == RequestCode.HEART_BEAT:
                self._heartbeat(asked)
            else:
                if command.code == RequestCode.UNREGISTER_CLIENT:
                    self._leave(connection)
                elif command.code == RequestCode.REGISTER_BROKER:
                    self._broker.keep_registrar(connection)
                self._broker.hand_over(connection, command)
        except LedgerError as error:
            if not (command.is_oneway or command.is_reply):
                self._sockets.send(connection, refusal(command, error))

    def _heartbeat(self, asked: Asked) -> None:
        """What a client says counts here, too, when the broker has agreed to it."""
        connection, command = asked.connection, asked.command
        heartbeat = decode_heartbeat(command.body)
        self._broker.keep_heartbeat(connection, command)
        if command.is_oneway:
            self._broker.hand_over(connection, command)
            return

        def take(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._clients.heartbeat(connection, heartbeat, self._now_ms)
            else:
                # The broker tells its pulls from then on what it may.
                self._clients.forget(connection)

        self._broker.hand_over(connection, command, take)

    def _leave(self, connection: Connection) -> None:
        self._clients.forget(connection)
        self._broker.forget_heartbeat(connection)


class _NoCalls:
    """A port process makes no topics: the request that wants one is handed over."""

    def ask(
        self,
        verb: str,
        arguments: Mapping[str, object],
        now_ms: int,
        take: Take,
        **who: object,
    ) -> None:
        """Refuse; see ``AsksVerbs``."""
        del verb, now_ms, who
        take(TopicUnknownError("topic is not known here", topic=arguments["topic"]))


class PortWorker:
    """What one turn of a port process does."""

    def __init__(self, environment: Surroundings, tables: AppliedTables) -> None:
        settings = environment.settings
        self._inbox = environment.inbox
        self._raft = environment.bell(Role.RAFT)
        self._rest = DispatcherRest(environment.page, environment.bell(Role.DISPATCHER))
        self._counts = environment.page.counters(environment.role)
        faults = RequestFaults(self._counts)
        self._cold = ColdReads.of(environment)
        self._store = ReadableStore(
            environment.page,
            settings,
            DamageReports(self._raft, environment.clock),
            first_offset=tables.first_offset,
            elsewhere=self._cold,
        )
        self._reader = StateReader(
            self._store,
            tables,
            lambda _at, _label, _applied: None,
            counts=self._counts,
            clock=environment.clock,
        )
        self._pulls = PullService.made(
            KnownTopics(self._store, tables),
            settings,
            cold=self._cold,
            counts=self._counts,
            contain=lambda error: faults.refusal(error, "pull"),
            clock=environment.clock,
        )
        self._standing = ReaderStanding(environment.page, settings.store.log)
        self.requests = PortRequests(environment, tables, self._pulls, self._counts)
        self._pulls.send = self.requests.send_answers
        self._upkeep = StoreUpkeep(self._store)
        self._untold: Standing | None = None

    @property
    def zmq_uses(self) -> Sequence[int] | None:
        """Questions for what is cold are asked in any turn; the inbox is read when it tells."""
        return (0,) if self._cold is None else None

    def sources(self) -> list[Pollable]:
        """The inbox, and all sockets behind one descriptor."""
        cold = [] if self._cold is None else [self._cold.line.source]
        return [*self._inbox.sources, self.requests.fileno(), *cold]

    def sleep_ms(self, now_ns: int) -> int:
        """Milliseconds until the first deadline; 0 while queues with holds wait to be looked at."""
        if self._pulls.is_behind or self._standing.has_news or self._reader.is_behind:
            return 0
        deadlines = (self._pulls.next_deadline_ms(), self.requests.next_deadline_ms())
        # One millisecond more: the clock's rest below a millisecond is not to be polled away.
        waits = [
            max(0, deadline - now_ns // 1_000_000) + 1
            for deadline in deadlines
            if deadline is not None
        ]
        wait_ms = min([*waits, LOOK_AGAIN_MS])
        if wait_ms > 0 and self.hears_bells(now_ns):
            self._rest.end(now_ns)
        return wait_ms

    def hears_bells(self, now_ns: int) -> bool:
        """True while somebody waits for messages, or for this node to lead.

        Raft rouses it when another node leads.
        """
        del now_ns
        return self._pulls.held > 0 or self._standing.awaits_dispatch

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """News of the log, requests, growth of queues, deadlines; then what has to be written."""
        now_ms = now_ns // 1_000_000
        # Bells; nobody sends it orders.
        self._inbox.drain(ready)
        # First: what it goes by is applied below.
        standing = self._standing.look() or self._untold
        if self._store.look():
            self._pulls.notice_growth(now_ms)
        self._reader.apply()
        begins = standing is not None and standing.leads
        self._untold = standing if begins and self._reader.is_behind else None
        if standing is not None and self._untold is None:
            self.requests.tell_standing(standing)
        if self.requests.take(now_ms):
            self._upkeep.note_use(now_ms)
        self._pulls.turn(now_ms)
        self.requests.flush()
        self._upkeep.let_go(now_ms)
        self._upkeep.tidy(now_ms)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and limits count from now on."""
        self.requests.take_settings(settings)
        self._pulls.take_settings(settings)

    def finish(self) -> None:
        """Answer all who wait for messages."""
        self._store.look()
        self._pulls.end_all()
        self.requests.flush()

    def close(self) -> None:
        """End all connections."""
        self.requests.close()
        if self._cold is not None:
            self._cold.line.close()
        self._counts.release()
        self._raft.close()
        self._rest.close()


def run(role: Role, settings: Settings, stop: StopFlag) -> int:
    """Run the port process ``role`` until it is told to stop; the exit status.

    Raises:
        ConfigError, CorruptLogError: a table cannot be read, or an address not listened at.
        StorageError: the disk refused.
    """
    config = StorePaths.of(settings).topics.parent
    return run_worker(
        role,
        settings,
        stop,
        lambda environment: PortWorker(environment, AppliedTables(config, settings)),
    )
