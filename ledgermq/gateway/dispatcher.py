"""Dispatch of requests to their rows, in broker and port processes: looked up, let in, answered."""

from __future__ import annotations

from typing import Protocol

from ledgermq.gateway.context import PortContext
from ledgermq.gateway.port_access import PortAccess
from ledgermq.gateway.requests import Asked, Code, Codes, Taken
from ledgermq.gateway.transport.arrivals import Arrivals
from ledgermq.gateway.transport.listening import limits_of
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.gateway.transport.remoting_sockets import Arrival, Connection
from ledgermq.gateway.transport.tls_channel import read_again
from ledgermq.gateway.transport.unread_replies import check_reads
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, NoPermissionError
from ledgermq.remoting.command import REPLY, Command
from ledgermq.sessions.request_faults import RequestFaults


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
