"""Dispatch of requests in a port process: own sends and pulls, and the broker's rest.

It knows the tables as far as the log is applied, and of clients their last heartbeat. Where that is
not enough (a topic that is to be made, a consumer that has not said what it wants), the request is
handed over as it came, and so the broker's refusal is the one that counts.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Mapping

from ledgermq.gateway.arrivals import Arrivals
from ledgermq.gateway.broker_link import BrokerLink
from ledgermq.gateway.client_table import ClientTable
from ledgermq.gateway.code_rights import ROWS, check_answers, is_for_sender
from ledgermq.gateway.listening import limits_of
from ledgermq.gateway.port import open_port
from ledgermq.gateway.port_access import PortAccess
from ledgermq.gateway.port_calls import Take
from ledgermq.gateway.port_quotas import PortQuotas
from ledgermq.gateway.produce_codes import ProduceCodes
from ledgermq.gateway.pull_checks import PullChecks
from ledgermq.gateway.pull_codes import PullCodes
from ledgermq.gateway.refusals import refusal
from ledgermq.gateway.remoting_sockets import Arrival, Connection
from ledgermq.gateway.requests import Asked
from ledgermq.gateway.send_topics import SendTopics
from ledgermq.gateway.tls_channel import read_again
from ledgermq.gateway.unread_replies import check_reads
from ledgermq.gateway.writer_link import WriterLink
from ledgermq.ipc.counters import Counts
from ledgermq.model.errors import LedgerError, TopicUnknownError
from ledgermq.model.settings import Settings
from ledgermq.process.environment import Environment
from ledgermq.process.request_faults import RequestFaults
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.heartbeat import decode_heartbeat
from ledgermq.serving.applied_tables import AppliedTables
from ledgermq.serving.pull_answers import Answer
from ledgermq.serving.pull_service import PullService
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
    """Owned by a port process.

    Invariant: a request that wants a reply gets at most one, and none when its connection is gone.
    """

    def __init__(
        self, around: Environment, tables: AppliedTables, pulls: PullService, counts: Counts
    ) -> None:
        """Listen where the settings say.

        Raises:
            ConfigError: an address cannot be listened at, or a file for TLS not be used.
        """
        settings = around.settings
        self._tables = tables
        self._access = PortAccess(settings.access, tables.users, tables.secrets.opened)
        self._epoll = select.epoll()
        self._sockets = open_port(around, counts)
        self._epoll.register(self._sockets.fileno(), select.EPOLLIN)
        self._arrivals = Arrivals(self._sockets, around.clock)
        self._broker = BrokerLink(around.paths.ports, self._epoll, self._sockets)
        self._limits = around.settings.limits
        self._clients = ClientTable(self._limits)
        self._writer = WriterLink(around, self._epoll, greeted=self._sockets.listen)
        self._quotas = PortQuotas(
            tables.quotas,
            settings.quotas,
            counts,
            now_ms=around.clock.monotonic_ns() // 1_000_000,
        )
        self._produce = ProduceCodes(
            around,
            tables,
            topics=SendTopics(tables, _NoCalls()),
            writer=self._writer,
            reply=self._reply,
            send_bytes=self._sockets.send_bytes,
            quotas=self._quotas,
        )
        checks = PullChecks(self._clients, tables, settings)
        self._pulls = PullCodes(
            pulls, checks, self._broker, counts, self._reply, quotas=self._quotas
        )
        self._handlers = {**self._produce.codes, **self._pulls.codes}
        check_answers(self._handlers)
        assert self._handlers.keys() == {code for code, row in ROWS.items() if row.by_port_process}
        self._now_ms = 0
        self._counts = counts
        self._faults = RequestFaults(counts)

    def fileno(self) -> int:
        """For the poll set of the process."""
        return self._epoll.fileno()

    def next_deadline_ms(self) -> int | None:
        """When ``take`` has something to do that no descriptor tells of."""
        if self._arrivals:
            return 0
        deadlines = (
            self._sockets.next_deadline_ms(),
            self._broker.next_deadline_ms(),
            self._clients.next_expiry_ms(),
            self._writer.next_deadline_ms(),
        )
        return min((one for one in deadlines if one is not None), default=None)

    def take(self, now_ms: int) -> bool:
        """Answer, keep or hand over what has come; whether there was anything."""
        self._now_ms = now_ms
        has_come = False
        for arrival in self._arrivals.served(now_ms):
            has_come = True
            self._take(arrival, now_ms)
            if not arrival.connection.is_open:
                # It was put off, and has joined what its connection had left.
                self._forget(arrival.connection)
        for connection in self._sockets.take_closed():
            self._forget(connection)
        self._clients.expire(now_ms)
        self._broker.turn(now_ms)
        self._writer.advance(now_ms)
        return has_come

    def _forget(self, connection: Connection) -> None:
        self._pulls.forget(connection)
        self._quotas.forget(connection)
        self._clients.forget(connection)
        self._broker.forget(connection)

    def take_answer(self, answer: Answer) -> None:
        """Answer a pull that was held."""
        self._pulls.take_answer(answer)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access count from now on."""
        self._access.take_settings(settings.access)
        self._tables.secrets.read_again()
        self._sockets.tls = read_again(settings.remoting, self._sockets.tls)
        self._sockets.limits = limits_of(settings)
        self._limits = self._clients.limits = settings.limits
        self._quotas.take_settings(settings.quotas)

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""
        self._produce.tell_standing(standing)

    def flush(self) -> None:
        """Write what this turn has answered and handed over; at the end of each turn."""
        if self._writer.has_gathered:
            self._writer.advance(self._now_ms)
        self._broker.flush()
        self._sockets.flush()

    def close(self) -> None:
        """Refuse what has no answer, and end all connections."""
        self._writer.close()
        self._broker.close()
        self._sockets.flush()
        self._sockets.close()
        self._epoll.close()

    def _take(self, arrival: Arrival, now_ms: int) -> None:
        connection, command = arrival
        if not connection.is_open and is_for_sender(command.code):
            return
        handler = None if command.is_reply else self._handlers.get(command.code)
        asked = Asked(connection, command, now_ms)
        if handler is None or self._tables.is_starting:
            self._hand_over(asked)
            return
        sends = self._produce.codes
        if command.code in sends and self._broker.waits_for(connection, sends):
            # Messages of one producer stay in their order.
            self._hand_over(asked)
            return
        try:
            unread = self._limits.unread_replies_bytes
            if connection.queued_bytes > unread:
                check_reads(connection, command.code, unread, self._counts)
            rights = self._access.admitted(connection.peer[0], command)
            who = rights.who
            asked = Asked(connection, command, now_ms, rights.check_topic, who.name, who.user)
            reply = handler(asked)
        except LedgerError as error:
            reply = refusal(command, error)
        except Exception as error:
            self._end(asked, error)
            return
        if reply is not None:
            self._reply(asked, reply)

    def _end(self, asked: Asked, error: Exception) -> None:
        """A request has met what nobody has thought of: its sender alone pays for that."""
        command = asked.command
        fault = self._faults.refusal(error, f"request code {command.code}")
        if not command.is_oneway:
            self._sockets.send(asked.connection, refusal(command, fault))
        self._sockets.end(asked.connection, fault.message)

    def _reply(self, asked: Asked, reply: Command) -> None:
        command = asked.command
        # Of a pull that was held nothing is left that could be handed over.
        if reply.code in BROKERS_TO_SAY and command.fields:
            self._hand_over(asked)
        elif not command.is_oneway:
            self._sockets.send(asked.connection, reply)

    def _hand_over(self, asked: Asked) -> None:
        connection, command = asked.connection, asked.command
        try:
            if command.is_reply:
                self._broker.hand_over(connection, command)
            elif command.code == RequestCode.HEART_BEAT:
                self._heartbeat(asked)
            else:
                if command.code == RequestCode.UNREGISTER_CLIENT:
                    self._leave(connection)
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
        *,
        owner: str = "",
    ) -> None:
        """Refuse."""
        del verb, now_ms, owner
        take(TopicUnknownError("topic is not known here", topic=arguments["topic"]))
