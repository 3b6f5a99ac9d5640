"""Dispatch of requests to their rows, in broker and port processes: looked up, let in, answered.

Who sends a request is told by RocketMQ's signatures. Where ``access.enabled`` is off nothing is
asked, but that admin calls are allowed over sockets (``access.admin_over_clients``). A request with
an access key must have the signature that the user's secret makes, unless it comes from one of the
user's addresses; one without a key is that of the user to whom its address belongs.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from ledgermq.broker.call_rights import act_of, audit
from ledgermq.gateway.code_rights import CodeNeed
from ledgermq.gateway.context import PortContext
from ledgermq.gateway.leader_relay import RELAYED_KEY
from ledgermq.gateway.requests import Asked, Code, Codes, Taken
from ledgermq.gateway.transport.arrivals import Arrivals
from ledgermq.gateway.transport.listening import limits_of
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import Arrival, Connection
from ledgermq.gateway.transport.tls_channel import read_again
from ledgermq.gateway.transport.unread_replies import check_reads
from ledgermq.hosts.address_share import ip_of
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.config.settings import AccessSection, Settings
from ledgermq.model.errors import LedgerError, NoPermissionError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.rights import Right
from ledgermq.remoting.command import REPLY, Command
from ledgermq.remoting.signature import ACCESS_KEY, is_signed
from ledgermq.rules.access.access import UserTable
from ledgermq.sessions.client_rights import ClientRights
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.sessions.signed_rights import Open, SignedRights

logger = logging.getLogger(__name__)

STRANGERS_TOLD_MAX = 256
"""Hosts that wanted to register, and may not: each has one line in the log."""


class PortAccess:
    """The rules of one port; the same for all its connections."""

    def __init__(
        self,
        settings: AccessSection,
        users: UserTable,
        open_secret: Open,
        *,
        registrars: Iterable[str] = (),
    ) -> None:
        """Rules that hold until there are other settings.

        Args:
            open_secret: a user's secret, from how it stands in the table.
            registrars: ``remoting.registrations_from``.
        """
        self._signed = SignedRights(settings, users, open_secret)
        self._gate = self._signed.gate
        self._registrars = [ipaddress.ip_network(one) for one in registrars]
        self._strangers: set[str] = set()

    def take_settings(self, settings: AccessSection, registrars: Iterable[str] = ()) -> None:
        """The settings were read again: they count from the next request on."""
        self._gate.take_settings(settings)
        self._registrars = [ipaddress.ip_network(one) for one in registrars]
        self._strangers.clear()

    @property
    def is_open(self) -> bool:
        """Whether users are not checked, and there are none whose quotas would count."""
        return not (self._gate.settings.enabled or self._gate.users)

    def admitted(self, host: str, command: Command, row: Code) -> ClientRights:
        """The rights of who sends a request, which has those that its code needs.

        Args:
            host: address of the peer.
            row: of the code.

        Raises:
            NoPermissionError: it is nobody, is not who it says, or has no right to that.
            ProtocolError: a field is missing that says what the request is about.
        """
        need, find = row.needs
        if need is CodeNeed.BROKER:
            self._check_registrar(host)
            return self._signed.rights(host, "")
        if not self._gate.is_on:
            rights = self._signed.rights(host, "")
            if need is CodeNeed.ADMIN:
                _check_admin(rights, row)
            if command.fields.get("topic") == SYSTEM_TOPIC:
                rights.check_topic(SYSTEM_TOPIC, Right.SUB)
            return rights
        try:
            signed_by = self._signed_by(host, command)
        except NoPermissionError:
            # Who asks a name server is told where brokers are, and by these why they refuse.
            if need is not CodeNeed.OPEN:
                raise
            signed_by = ""
        rights = self._signed.rights(host, signed_by)
        if need is CodeNeed.OPEN:
            return rights
        if need is CodeNeed.ADMIN:
            _check_admin(rights, row)
            return rights
        rights.check_known(row.code.name)
        for topic, right in find(command):
            if right is None:
                rights.check_group(topic)
            else:
                rights.check_topic(topic, right)
        return rights

    def _check_registrar(self, host: str) -> None:
        """Refuse a host that may not tell of brokers.

        Raises:
            NoPermissionError: it is in none of the networks.
        """
        found = ip_of(host.partition("%")[0])
        if found is not None and any(found in network for network in self._registrars):
            return
        error = NoPermissionError(
            "registrations of brokers are not taken from this host",
            host=host,
            setting="remoting.registrations_from",
        )
        if host not in self._strangers and len(self._strangers) < STRANGERS_TOLD_MAX:
            self._strangers.add(host)
            logger.warning("broker is refused: peer=%s reason=%s", host, error)
        raise error

    def _signed_by(self, host: str, command: Command) -> str:
        """The user whose access key the request has; empty when it has none.

        Raises:
            NoPermissionError: there is no such user, or the signature is another one.
        """
        fields = {name: text for name, text in command.fields.items() if name != RELAYED_KEY}
        return self._signed.signer(
            host, fields.get(ACCESS_KEY, ""), partial(is_signed, fields, command.body)
        )


def _check_admin(rights: ClientRights, row: Code) -> None:
    """Refuse what only an admin may do; that somebody tried is told."""
    name = row.code.name
    try:
        rights.check_admin(name)
    except NoPermissionError as error:
        audit(act_of(rights.who.name, name.lower(), {}), error)
        raise


class Port(Protocol):
    """What differs between the two: what is not answered here, and how replies go out."""

    def is_for_others(self, row: Code, connection: Connection) -> bool:
        """Whether a request that has its row here goes to ``take_other`` all the same.

        Raises:
            LedgerError: it cannot be answered now.
        """
        ...

    def take_other(self, asked: Asked) -> None:
        """Take a request that is not answered here, or a client's reply."""
        ...

    def reply(self, asked: Asked, reply: Command) -> None:
        """Answer a request, unless its sender wants no answer."""
        ...

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        ...


class Dispatcher:
    """Owned by a port.

    Invariant: a request that wants a reply gets at most one, and none when its connection is gone.
    """

    def __init__(self, port: Port, context: PortContext, rows: Codes) -> None:
        """Nothing has come.

        Args:
            port: the one that this one is of.
        """
        tables, settings = context.tables, context.environment.settings
        self._port = port
        self._sockets = context.sockets
        self._arrivals = Arrivals(context.sockets, context.environment.clock)
        self._access = PortAccess(
            settings.access,
            tables.users,
            tables.secrets.opened,
            registrars=settings.remoting.registrations_from,
        )
        self._counts = context.counts
        self._faults = RequestFaults(context.counts)
        self._unread_max = settings.limits.unread_replies_bytes
        self._rows = {int(row.code): row for row in rows}
        assert len(self._rows) == len(rows), "two answer the same code"
        self.sends = frozenset(row.code for row in rows if row.taken is Taken.AT_ONCE)
        self._short = frozenset(row.code for row in rows if row.taken is Taken.IF_NOBODY_WAITS)

    @property
    def is_behind(self) -> bool:
        """Whether requests wait for ``serve``."""
        return bool(self._arrivals.waiting)

    def serve(self, now_ms: int) -> bool:
        """Answer what has come, and let go of who has closed; whether there was anything."""
        has_come = False
        for arrival in self._arrivals.served(now_ms):
            has_come = True
            self._take(arrival, now_ms)
            if not arrival.connection.is_open:
                # It was put off, and has joined what its connection had left.
                self._port.forget(arrival.connection)
        for connection in self._sockets.take_closed():
            self._port.forget(connection)
        return has_come

    def serve_short(self, now_ms: int) -> None:
        """Answer what has its turn as it comes; what else has come waits for ``serve``."""
        for arrival in self._arrivals.read(now_ms):
            code = arrival.command.code
            # A reply has a code of its own, which may be a request's, too.
            is_short = code in self.sends or (code in self._short and not self._arrivals)
            if is_short and not arrival.command.flag & REPLY:
                self._take(arrival, now_ms)
            else:
                self._arrivals.put_off(arrival)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and limits count from now on."""
        self._access.take_settings(settings.access, settings.remoting.registrations_from)
        self._unread_max = settings.limits.unread_replies_bytes
        self._sockets.tls = read_again(settings.remoting, self._sockets.tls)
        self._sockets.limits = limits_of(settings)

    def _take(self, arrival: Arrival, now_ms: int) -> None:
        connection, command = arrival
        row = None if command.flag & REPLY else self._rows.get(command.code)
        if row is None:
            self._port.take_other(Asked(connection, command, now_ms))
            return
        if row.is_for_sender and not connection.is_open:
            return
        try:
            if self._port.is_for_others(row, connection):
                self._port.take_other(Asked(connection, command, now_ms))
                return
            take_open = row.take_open
            if take_open is not None and self._access.is_open and take_open(connection, command):
                return
            if connection.queued_bytes > self._unread_max:
                check_reads(connection, command.code, self._unread_max, self._counts)
            rights = self._access.admitted(connection.peer[0], command, row)
            who = rights.who
            asked = Asked(connection, command, now_ms, rights.check_topic, who.name, who.user)
            reply = row.answer(asked)
        except LedgerError as error:
            self._counts[BrokerCounter.DENIED] += isinstance(error, NoPermissionError)
            asked = Asked(connection, command, now_ms)
            reply = refusal(command, error)
        except Exception as error:
            self._end(Asked(connection, command, now_ms), error)
            return
        if reply is not None:
            self._port.reply(asked, reply)

    def _end(self, asked: Asked, error: Exception) -> None:
        """A request has met what nobody has thought of: its sender alone pays for that."""
        command = asked.command
        fault = self._faults.refusal(error, f"request code {command.code}")
        self._port.reply(asked, refusal(command, fault))
        self._sockets.end(asked.connection, fault.message)
