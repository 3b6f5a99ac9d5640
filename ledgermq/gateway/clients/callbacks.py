"""Callbacks: requests of the broker to RocketMQ's clients, on the connections that they made.

Requests of this direction have numbers of their own; the connection tells the two apart. Their
headers are JSON: all clients read that.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.transport.client_sockets import ClientSockets
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.errors import BusyError, LedgerError, TimedOutError
from ledgermq.remoting.command import ONEWAY, Command

REPLIES_WAITING_MAX = 10_000
_OPAQUE_MAX = 2**31

TakeReply = Callable[[Command | LedgerError], None]


class _Waiting(NamedTuple):
    connection: Connection
    take: TakeReply
    timeout_ms: int


class ClientRequests(PortPart):
    """Owned by the port.

    Invariant: whoever asks is told once: the reply, or ``TimedOutError`` when none came in time or
    the connection has ended.
    """

    def __init__(self, sockets: ClientSockets) -> None:
        self._sockets = sockets
        self._ids = itertools.count()
        self._waiting: dict[int, _Waiting] = {}
        self._of: dict[int, set[int]] = {}
        self._deadlines: list[tuple[int, int]] = []

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return len(self._waiting)

    def tell(
        self, connection: Connection, code: int, fields: Mapping[str, str], body: bytes = b""
    ) -> None:
        """Send what wants no reply; nothing is done when the connection has ended."""
        self._sockets.send(connection, Command(code, self._number(), fields, body, ONEWAY))

    def ask(
        self,
        connection: Connection,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        *,
        now_ms: int,
        timeout_ms: int,
        take: TakeReply,
    ) -> None:
        """Send a request; ``take`` gets the reply, or why there is none, later and once.

        Raises:
            BusyError: too many wait for replies.
            TimedOutError: the connection has ended already.
        """
        if len(self._waiting) >= REPLIES_WAITING_MAX:
            raise BusyError(
                "too many requests to clients wait for replies", limit=REPLIES_WAITING_MAX
            )
        if not connection.is_open:
            raise _gone(connection, code)
        number = self._number()
        self._waiting[number] = _Waiting(connection, take, timeout_ms)
        self._of.setdefault(connection.number, set()).add(number)
        heapq.heappush(self._deadlines, (now_ms + timeout_ms, number))
        self._sockets.send(connection, Command(code, number, fields, body))

    def take_reply(self, connection: Connection, reply: Command) -> None:
        """A reply has come; one that nobody waits for any more goes nowhere."""
        waiting = self._waiting.get(reply.opaque)
        if waiting is not None and waiting.connection is connection:
            self._take(reply.opaque, reply)

    def forget(self, connection: Connection) -> None:
        """A connection has ended: no reply comes from it."""
        for number in sorted(self._of.get(connection.number, ())):
            self._take(number, _gone(connection, None))

    def turn(self, now_ms: int) -> None:
        """Tell those who have waited long enough."""
        while (due_ms := self.next_deadline_ms()) is not None and due_ms <= now_ms:
            _, number = heapq.heappop(self._deadlines)
            connection, _, timeout_ms = self._waiting[number]
            peer = f"{connection.peer[0]}:{connection.peer[1]}"
            error = TimedOutError("client has not answered", peer=peer, timeout_ms=timeout_ms)
            self._take(number, error)

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _number(self) -> int:
        return next(self._ids) % _OPAQUE_MAX

    def _take(self, number: int, outcome: Command | LedgerError) -> None:
        waiting = self._waiting.pop(number)
        of = self._of[waiting.connection.number]
        of.discard(number)
        if not of:
            del self._of[waiting.connection.number]
        waiting.take(outcome)


def _gone(connection: Connection, code: int | None) -> TimedOutError:
    peer = f"{connection.peer[0]}:{connection.peer[1]}"
    return TimedOutError("client has gone without an answer", peer=peer, code=code)
