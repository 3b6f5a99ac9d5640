"""The port of RocketMQ's clients in the broker process, which answers all codes."""

from __future__ import annotations

import logging
import select
import socket

from ledgermq.broker.pulls.consumers import ClientServices
from ledgermq.broker.pulls.pull_answers import Answer
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_requests import Reply
from ledgermq.gateway.administration.broker_codes import AclCodes, BrokerCodes, SlaveCodes
from ledgermq.gateway.administration.group_codes import ConsumerCodes, GroupCodes
from ledgermq.gateway.administration.queue_figures import QueueFigures
from ledgermq.gateway.administration.topic_codes import QueueCodes, TopicCodes
from ledgermq.gateway.changes import Changes
from ledgermq.gateway.clients.callbacks import ClientRequests
from ledgermq.gateway.clients.client_table import ClientTable
from ledgermq.gateway.clients.member_codes import ConnectionCodes, MemberCodes
from ledgermq.gateway.consuming.assignment_codes import AssignmentCodes
from ledgermq.gateway.consuming.offset_codes import LockCodes, LookupCodes, OffsetCodes, ReturnCodes
from ledgermq.gateway.consuming.offset_commits import NotesOffsets, OffsetCommits
from ledgermq.gateway.consuming.pop_codes import PopCodes
from ledgermq.gateway.consuming.pull_codes import PullCodes
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.dispatcher import Dispatcher
from ledgermq.gateway.far_sockets import FarSockets
from ledgermq.gateway.leader_relay import LeaderRelay, Relayed
from ledgermq.gateway.names.registered_brokers import RegisteredBrokers
from ledgermq.gateway.names.registrations import Registrations
from ledgermq.gateway.names.route_codes import NameValueCodes, RegistrationCodes, RouteCodes
from ledgermq.gateway.parts import PortParts
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.gateway.producing.port_producer import PortProducer
from ledgermq.gateway.producing.port_quotas import PortQuotas
from ledgermq.gateway.producing.produce_codes import ProduceCodes, ReplyCodes
from ledgermq.gateway.producing.transaction_codes import TransactionCodes
from ledgermq.gateway.requests import Asked, Code, Codes, Freshness
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.client_sockets import ClientSockets
from ledgermq.gateway.transport.listening import limits_of, open_listeners
from ledgermq.gateway.transport.remoting_sockets import Connection, RemotingSockets
from ledgermq.gateway.transport.server_links import Authorities, ServerLinks
from ledgermq.gateway.transport.tls_channel import make_context
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.ipc.cursor_page import Role
from ledgermq.members.log_trouble import KnownMembers
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.process.environment import Environment
from ledgermq.process.port_roles import port_roles
from ledgermq.process.systemd.port_addresses import VIP_SETTING, PortAddress, addresses_by_setting
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

WRITER_WAIT_MS = 5_000
"""Clients are not taken before the writer has said how messages are encoded: their first one would
be refused. After so long they can read at least."""


_HA_STATUS = 907
_USERS_AND_ACL_OF_5 = range(3001, 3011)
_INSTEAD = {
    range(_HA_STATUS, _HA_STATUS + 1): "members replicate by Raft: see ledgermq status",
    _USERS_AND_ACL_OF_5: (
        "users and their rights are set by ledgermq acl, and by updateAclConfig of a 4.9's mqadmin"
        " (docs/operating/access.md)"
    ),
}
"""Where what those codes of a RocketMQ 5 are for is found here."""


class RemotingPort:
    """The dispatcher's ``Port`` in the broker process, which owns it; ``fileno`` can be read when
    ``take_requests`` has work.
    """

    def __init__(
        self, environment: Environment, tables: BrokerTables, services: ClientServices
    ) -> None:
        """Listen where the settings say.

        Raises:
            ConfigError: an address cannot be listened at, or a file for TLS not be used.
        """
        self._peers = KnownMembers(environment.settings)
        # What else wakes the port joins here: the process polls one descriptor.
        self._epoll = select.epoll()
        self._links = ServerLinks()
        self._epoll.register(self._links.fileno(), select.EPOLLIN)
        self._counts = environment.page.counters(Role.BROKER)
        context = self._context(environment, tables, services)
        self._calls, self._sockets = context.calls, context.sockets
        self._sockets_fd = self._sockets.fileno()
        self._epoll.register(self._sockets_fd, select.EPOLLIN)
        self._addresses, self._requests = context.addresses, context.requests
        self._writer, self._clients = context.writer, context.clients
        self._commits = context.commits
        self._check_started = context.service.log.check_started
        self._pulls, self._broker = PullCodes(context), BrokerCodes(context)
        self._parts = self._made(context)
        self._dispatcher = Dispatcher(self, context, self._parts.codes)
        self._now_ms = environment.clock.monotonic_ns() // 1_000_000

    def _context(
        self, environment: Environment, tables: BrokerTables, services: ClientServices
    ) -> BrokerContext:
        (pulls, service, queries), counts = services, self._counts
        calls = PortCalls(service, self.reply)
        commits = OffsetCommits(calls, tables)
        sockets = _sockets(environment, counts, commits)
        addresses = GroupAddresses(environment.settings, environment.page.read_absent)
        relay = self._relay(Relayed.CHANGES, environment, addresses)
        figures = QueueFigures(service.known.store, tables, environment.clock, addresses.broker)
        return BrokerContext(
            environment=environment,
            tables=tables,
            counts=counts,
            pulls=pulls,
            calls=calls,
            commits=commits,
            sockets=sockets,
            clients=ClientTable(environment.settings.limits),
            writer=PortProducer(environment, self._epoll, greeted=sockets.listen),
            quotas=_quotas(environment, tables, pulls, counts),
            reply=self.reply,
            service=service,
            queries=queries,
            requests=ClientRequests(sockets),
            addresses=addresses,
            relay=relay,
            consumer_relay=self._relay(Relayed.CONSUMERS, environment, addresses),
            changes=Changes(calls, relay, self.reply),
            figures=figures,
        )

    def _relay(
        self, kind: Relayed, environment: Environment, addresses: GroupAddresses
    ) -> LeaderRelay:
        file = environment.settings.remoting.members_ca_file
        authorities = Authorities(file, "remoting.members_ca_file") if file else None
        return LeaderRelay(self._links, addresses, self.reply, kind, authorities=authorities)

    def _made(self, context: BrokerContext) -> PortParts:
        """All parts, in the order of their turns."""
        sends = self._relay(Relayed.SENDS, context.environment, context.addresses)
        connections, produce = ConnectionCodes(context), ProduceCodes(context, sends)
        registered = RegisteredBrokers()
        values, routes = NameValueCodes(context, registered), RouteCodes(context, registered)
        return PortParts(
            context.addresses,
            self._links,
            Registrations(context, self._links),
            context.requests,
            MemberCodes(context),
            context.commits,
            TransactionCodes(context),
            # At once, and not at the turn's end: producers wait for each of its steps.
            context.writer,
            context.quotas,
            produce,
            self._pulls,
            PopCodes(context),
            self._broker,
            connections,
            AclCodes(context),
            ConsumerCodes(context, connections),
            GroupCodes(context),
            LockCodes(context),
            LookupCodes(context),
            values,
            OffsetCodes(context),
            QueueCodes(context),
            ReplyCodes(context, produce),
            ReturnCodes(context),
            RegistrationCodes(context, registered, values.orders),
            routes,
            AssignmentCodes(context, routes.queue_counts),
            SlaveCodes(context),
            TopicCodes(context),
        )

    @property
    def codes(self) -> Codes:
        """All that is answered."""
        return self._parts.codes

    def fileno(self) -> int:
        """Descriptor of the port, for the poll set of the process."""
        return self._epoll.fileno()

    def next_deadline_ms(self) -> int | None:
        """When ``take_requests`` has something to do that no descriptor tells of."""
        if self._dispatcher.is_behind:
            return 0
        deadlines = self._sockets.next_deadline_ms(), self._parts.next_deadline_ms()
        return min((one for one in deadlines if one is not None), default=None)

    def message_deadline_ms(self) -> int | None:
        """The same, of what ``take_messages`` may have changed."""
        commits_ms, writer_ms = self._commits.next_deadline_ms(), self._writer.next_deadline_ms()
        if commits_ms is None or writer_ms is None:
            return writer_ms if commits_ms is None else commits_ms
        return min(commits_ms, writer_ms)

    def take_requests(self, now_ms: int) -> bool:
        """Answer or keep what has come; whether there was anything."""
        self._now_ms = now_ms
        has_come = self._dispatcher.serve(now_ms)
        for turn in self._parts.turns:
            turn(now_ms)
        self._sockets.flush()
        return has_come

    def take_messages(self, now_ms: int) -> bool:
        """Take messages to be stored, the writer's answers about others, pulls and heartbeats.

        Whatever else has come is kept for ``take_requests``, and consumers' requests behind it.

        Returns:
            whether there was nothing else.
        """
        self._now_ms = now_ms
        has_come = has_answers = False
        for fd, _ in self._epoll.poll(0):
            if fd == self._sockets_fd:
                has_come = True
            elif fd in self._writer.descriptors:
                has_answers = True
            else:
                return False
        asked_before = self._calls.asked
        if has_come:
            self._dispatcher.serve_short(now_ms)
        if has_answers or self._writer.has_gathered:
            self._writer.turn(now_ms)
        self._sockets.flush()
        has_asked = self._calls.asked != asked_before
        return not (has_asked or self._dispatcher.is_behind or self._sockets.has_closed)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and limits count from now on."""
        self._dispatcher.take_settings(settings)
        self._clients.limits = settings.limits
        self._parts.take_settings(settings)

    def take_answer(self, answer: Answer) -> None:
        """Answer a pull that was held."""
        self._pulls.take_answer(answer)

    def take_reply(self, reply: Reply) -> None:
        """Answer a call that has waited."""
        self._calls.take_reply(reply)

    def tell_standing(self, standing: Standing) -> None:
        """This node is something else in its group now, or another one leads."""
        self._parts.tell_standing(standing)

    def tidy(self) -> None:
        """Note what tools will ask for; to be called every few seconds."""
        self._broker.note_rates()

    def flush(self) -> None:
        """Write what this turn has answered; at the end of each turn."""
        if self._writer.has_gathered:
            self._writer.turn(self._now_ms)
        self._sockets.flush()

    def close(self) -> None:
        """End all connections."""
        self._parts.close()
        self._sockets.flush()
        self._sockets.close()
        self._epoll.close()
        self._counts.release()

    def is_for_others(self, row: Code, connection: Connection) -> bool:
        """False, once the tables are as current as the row wants: all rows are answered here.

        The tables are needed also for who may do what.

        Raises:
            NotLeaderError: the tables are behind what the row wants.
        """
        del connection
        if row.tables is Freshness.CURRENT:
            self._check_started()
            return False
        if row.tables is Freshness.NONE:
            return False
        addresses = self._addresses
        if addresses.leads or not self._peers.are_there(addresses.leader):
            self._check_started()
        return False

    def take_other(self, asked: Asked) -> None:
        command = asked.command
        if command.is_reply:
            self._requests.take_reply(asked.connection, command)
            return
        remark = f"request code {command.code} is not supported"
        hints = (hint for codes, hint in _INSTEAD.items() if command.code in codes)
        remark = ": ".join((remark, *hints))
        self.reply(asked, command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))

    def reply(self, asked: Asked, reply: Command) -> None:
        """Queue an answer, which ``flush`` writes, unless its sender wants none."""
        if not asked.command.is_oneway:
            self._sockets.send(asked.connection, reply)

    def forget(self, connection: Connection) -> None:
        self._parts.forget(connection)


def _sockets(environment: Environment, counts: Counts, commits: NotesOffsets) -> ClientSockets:
    """The clients: at sockets of this process, or through port processes, as the settings say.

    Raises:
        ConfigError: an address cannot be listened at, or a file for TLS not be used.
        StorageError: the socket for port processes cannot be made.
    """
    if port_roles(environment.settings):
        return FarSockets(environment.paths.ports, commits)
    return open_port(environment, counts)


def _quotas(
    environment: Environment, tables: BrokerTables, pulls: PullService, counts: Counts
) -> PortQuotas:
    """Those of this process; what is read goes from the buckets that our own clients have."""
    now_ms = environment.clock.monotonic_ns() // 1_000_000
    settings = environment.settings.quotas
    return PortQuotas(tables.quotas, settings, counts, now_ms=now_ms, consume=pulls.limits)


def _open_vip(address: PortAddress, *, are_shared: bool) -> list[socket.socket]:
    """The second port, which few clients use: a node without it is as good for all others."""
    try:
        return open_listeners([address], are_shared=are_shared)
    except ConfigError as error:
        logger.warning("clients with vipChannelEnabled find no port here: %s", error)
        return []


def open_port(environment: Environment, counts: Counts) -> RemotingSockets:
    """Sockets of this process where the settings want them.

    Raises:
        ConfigError: an address cannot be listened at, or a file for TLS not be used.
    """
    settings = environment.settings

    def note_ended() -> None:
        counts[BrokerCounter.CONNECTIONS_ENDED] += 1

    tls = make_context(settings.remoting)
    addresses = addresses_by_setting(settings.listen)
    vip, are_shared = addresses.pop(VIP_SETTING, None), settings.remoting.processes > 1
    listeners = open_listeners(list(addresses.values()), are_shared=are_shared)
    if vip is not None:
        listeners += _open_vip(vip, are_shared=are_shared)
    sockets = RemotingSockets(
        listeners,
        limits_of(settings),
        now_ms=environment.clock.monotonic_ns() // 1_000_000,
        wait_ms=WRITER_WAIT_MS,
        note_ended=note_ended,
    )
    sockets.tls = tls
    for host, port in sockets.addresses:
        logger.info("port of RocketMQ's clients is open: address=%s:%d", host, port)
    return sockets
