"""The port of RocketMQ's clients: dispatch of requests by their code, and replies."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable

from ledgermq.gateway.administration import Administration
from ledgermq.gateway.arrivals import Arrivals
from ledgermq.gateway.client_requests import ClientRequests
from ledgermq.gateway.client_sockets import ClientSockets
from ledgermq.gateway.client_table import ClientTable
from ledgermq.gateway.code_rights import ROWS, Where, check_answers, is_for_sender
from ledgermq.gateway.consume_codes import ConsumeCodes
from ledgermq.gateway.far_sockets import FarSockets
from ledgermq.gateway.listening import limits_of, listening_addresses, open_listeners
from ledgermq.gateway.name_service import NameService
from ledgermq.gateway.port_access import PortAccess
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.port_quotas import PortQuotas
from ledgermq.gateway.producing import Producing
from ledgermq.gateway.refusals import refusal
from ledgermq.gateway.remoting_sockets import Arrival, Connection, RemotingSockets
from ledgermq.gateway.requests import Asked, Codes, Handler
from ledgermq.gateway.tls_channel import make_context, read_again
from ledgermq.gateway.unread_replies import check_reads
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.ipc.cursor_page import Role
from ledgermq.model.errors import LedgerError
from ledgermq.model.settings import Settings
from ledgermq.process.environment import Environment
from ledgermq.process.log_trouble import has_others
from ledgermq.process.port_roles import port_roles
from ledgermq.process.request_faults import RequestFaults
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.call_service import CallService
from ledgermq.serving.pull_answers import Answer
from ledgermq.serving.pull_service import PullService
from ledgermq.serving.query_service import QueryService
from ledgermq.serving.state_requests import Reply
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

WRITER_WAIT_MS = 5_000
"""Clients are not taken before the writer has said how messages are encoded: their first one would
be refused. After so long they can read at least."""


class RemotingPort:
    """Owned by the broker process; ``fileno`` can be read when ``take_requests`` has work.

    Invariant: a request that wants a reply gets at most one, and none when its connection is gone.
    """

    def __init__(
        self,
        around: Environment,
        tables: BrokerTables,
        pulls: PullService,
        calls: CallService,
        queries: QueryService,
    ) -> None:
        """Listen where the settings say.

        Raises:
            ConfigError: an address cannot be listened at, or a file for TLS not be used.
        """
        settings = around.settings
        self._calls = PortCalls(calls)
        self._has_others, self._self_id = has_others(settings), settings.node.self_id
        self._handlers: dict[int, Handler] = {}
        self._counts = around.page.counters(Role.BROKER)
        self._limits = settings.limits
        self._faults = RequestFaults(self._counts)
        self._access = PortAccess(settings.access, tables.users, tables.secrets.opened)
        # What else wakes the port joins here: the process polls one descriptor.
        self._epoll = select.epoll()
        self._names = NameService(settings, tables, self._calls, self.reply, epoll=self._epoll)
        self._register(self._names.codes)
        self._closed: list[Callable[[Connection], object]] = []
        self.sockets = _sockets(around, self._counts)
        self._arrivals = Arrivals(self.sockets, around.clock)
        self._epoll.register(self.sockets.fileno(), select.EPOLLIN)
        self.clients = ClientTable(self._limits)
        self.requests = ClientRequests(self.sockets)
        self._administration = Administration(
            around,
            tables,
            (calls, queries),
            addresses=self._names.addresses,
            changes=self._names.changes,
            clients=self.clients,
            requests=self.requests,
            port_calls=self._calls,
            reply=self.reply,
        )
        self._register(self._administration.codes)
        self._quotas = _quotas(around, tables, pulls, self._counts)
        self._consume = ConsumeCodes(
            around,
            tables,
            (pulls, calls, queries),
            clients=self.clients,
            requests=self.requests,
            calls=self._calls,
            reply=self.reply,
            quotas=self._quotas,
        )
        self._register(self._consume.codes)
        if isinstance(self.sockets, FarSockets):
            self.sockets.note_offset = self._consume.note_offset
        self._closed += [self._consume.forget, self.requests.forget, self._quotas.forget]
        self._produce = Producing(
            around,
            tables,
            queries,
            calls=self._calls,
            clients=self.clients,
            requests=self.requests,
            sockets=self.sockets,
            epoll=self._epoll,
            reply=self.reply,
            store_host=self._names.addresses.own,
            quotas=self._quotas,
            counts=self._counts,
        )
        self._register(self._produce.codes)
        assert self._handlers.keys() == ROWS.keys(), ROWS.keys() ^ self._handlers.keys()
        self._sends, self._short = self._produce.sends, self._consume.short

    def fileno(self) -> int:
        """For the poll set of the process."""
        return self._epoll.fileno()

    def next_deadline_ms(self) -> int | None:
        """When ``take_requests`` has something to do that no descriptor tells of."""
        if self._arrivals:
            return 0
        deadlines = (
            self.sockets.next_deadline_ms(),
            self.requests.next_deadline_ms(),
            self._names.next_deadline_ms(),
            self._consume.next_deadline_ms(),
            self._produce.next_deadline_ms(),
        )
        return min((one for one in deadlines if one is not None), default=None)

    def take_requests(self, now_ms: int) -> bool:
        """Answer or keep what has come; whether there was anything."""
        has_come = False
        for arrival in self._arrivals.served(now_ms):
            has_come = True
            self._take(arrival, now_ms)
            if not arrival.connection.is_open:
                # It was put off, and has joined what its connection had left.
                self._forget(arrival.connection)
        for connection in self.sockets.take_closed():
            self._forget(connection)
        self._names.turn(now_ms)
        self.requests.turn(now_ms)
        self._consume.turn(now_ms)
        # At once, and not at the turn's end: producers wait for each of these steps.
        self._produce.turn(now_ms)
        self.sockets.flush()
        return has_come

    def _forget(self, connection: Connection) -> None:
        for forget in self._closed:
            forget(connection)

    def take_messages(self, now_ms: int) -> bool:
        """Take messages to be stored, the writer's answers about others, pulls and heartbeats.

        Whatever else has come is kept for ``take_requests``, and consumers' requests behind it.

        Returns:
            whether there was nothing else.
        """
        own = self.sockets.fileno(), *self._produce.descriptors
        if any(fd not in own for fd, _ in self._epoll.poll(0)):
            return False
        asked_before = self._calls.asked
        for arrival in self._arrivals.read(now_ms):
            code = arrival.command.code
            is_short = code in self._sends or (code in self._short and not self._arrivals)
            if is_short and not arrival.command.is_reply:
                self._take(arrival, now_ms)
            else:
                self._arrivals.put_off(arrival)
        self._produce.advance(now_ms)
        self.sockets.flush()
        has_asked = self._calls.asked != asked_before
        return not (has_asked or self._arrivals or self.sockets.has_closed)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access count from now on."""
        self._access.take_settings(settings.access)
        self.sockets.tls = read_again(settings.remoting, self.sockets.tls)
        self.sockets.limits = limits_of(settings)
        self._limits = self.clients.limits = settings.limits
        self._consume.take_settings(settings)
        self._quotas.take_settings(settings.quotas)

    def take_answer(self, answer: Answer) -> None:
        """Answer a pull that was held."""
        self._consume.take_answer(answer)

    def take_reply(self, reply: Reply) -> None:
        """Answer a call that has waited."""
        self._calls.take_reply(reply)

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""
        self._names.tell_standing(standing)
        self._produce.tell_standing(standing)
        self._consume.tell_standing(standing)

    def reply(self, asked: Asked, reply: Command) -> None:
        """Answer a request, unless its sender wants no answer; ``flush`` writes it."""
        if not asked.command.is_oneway:
            self.sockets.send(asked.connection, reply)

    def tidy(self) -> None:
        """Note what tools will ask for; to be called every few seconds."""
        self._administration.tidy()

    def flush(self) -> None:
        """Write what this turn has answered; at the end of each turn."""
        self._produce.flush()
        self.sockets.flush()

    def close(self) -> None:
        """End all connections."""
        self._names.close()
        self._produce.close()
        self.sockets.flush()
        self.sockets.close()
        self._epoll.close()
        self._consume.close()

    def _register(self, codes: Codes) -> None:
        check_answers(codes)
        assert self._handlers.keys().isdisjoint(codes), codes.keys()
        self._handlers |= codes

    def _take(self, arrival: Arrival, now_ms: int) -> None:
        command = arrival.command
        if command.is_reply:
            self.requests.take_reply(arrival.connection, command)
            return
        connection = arrival.connection
        if not connection.is_open and is_for_sender(command.code):
            return
        handler = self._handlers.get(command.code)
        if handler is None:
            asked = Asked(connection, command, now_ms)
            remark = f"request code {command.code} is not supported"
            self.reply(asked, command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
            return
        try:
            self._check_started(command.code)
            if connection.queued_bytes > self._limits.unread_replies_bytes:
                unread = self._limits.unread_replies_bytes
                check_reads(connection, command.code, unread, self._counts)
            rights = self._access.admitted(connection.peer[0], command)
            who = rights.who
            asked = Asked(connection, command, now_ms, rights.check_topic, who.name, who.user)
            reply = handler(asked)
        except LedgerError as error:
            asked = Asked(connection, command, now_ms)
            reply = refusal(command, error)
        except Exception as error:
            self._end(Asked(connection, command, now_ms), error)
            return
        if reply is not None:
            self.reply(asked, reply)

    def _check_started(self, code: int) -> None:
        """Who may do what is in the tables, too."""
        where = ROWS[code].where
        if where is Where.NODE:
            return
        leader = self._names.leader
        # Members may have come since the start.
        is_led = leader != self._self_id and (self._has_others or leader != "")
        if not (is_led and where is Where.NAMES):
            self._calls.check_started()

    def _end(self, asked: Asked, error: Exception) -> None:
        """A request has met what nobody has thought of: its sender alone pays for that."""
        command = asked.command
        fault = self._faults.refusal(error, f"request code {command.code}")
        self.reply(asked, refusal(command, fault))
        self.sockets.end(asked.connection, fault.message)


def _sockets(around: Environment, counts: Counts) -> ClientSockets:
    """The clients: at sockets of this process, or through port processes, as the settings say.

    Raises:
        ConfigError: an address cannot be listened at, or a file for TLS not be used.
        StorageError: the socket for port processes cannot be made.
    """
    if port_roles(around.settings):
        return FarSockets(around.paths.ports)
    return open_port(around, counts)


def _quotas(
    around: Environment, tables: BrokerTables, pulls: PullService, counts: Counts
) -> PortQuotas:
    """Those of this process; what is read goes from the buckets that our own clients have."""
    now_ms = around.clock.monotonic_ns() // 1_000_000
    settings = around.settings.quotas
    return PortQuotas(tables.quotas, settings, counts, now_ms=now_ms, consume=pulls.limits)


def open_port(around: Environment, counts: Counts) -> RemotingSockets:
    """Sockets of this process where the settings want them.

    Raises:
        ConfigError: an address cannot be listened at, or a file for TLS not be used.
    """
    settings = around.settings

    def note_ended() -> None:
        counts[BrokerCounter.CONNECTIONS_ENDED] += 1

    tls = make_context(settings.remoting)
    listeners = open_listeners(
        listening_addresses(settings.listen), are_shared=settings.remoting.processes > 1
    )
    sockets = RemotingSockets(
        listeners,
        limits_of(settings),
        now_ms=around.clock.monotonic_ns() // 1_000_000,
        wait_ms=WRITER_WAIT_MS,
        note_ended=note_ended,
    )
    sockets.tls = tls
    for host, port in sockets.addresses:
        logger.info("port of RocketMQ's clients is open: address=%s:%d", host, port)
    return sockets
