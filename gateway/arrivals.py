"""What has come from clients and is not answered yet, served connection by connection.

A request costs what its sender likes. So each turn ends in time, whatever has come, and connections
take turns: one with a hundred requests does not keep another one waiting for all of them. What a
connection sends stays in its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from ledgermq.gateway.client_sockets import ClientSockets
from ledgermq.gateway.remoting_sockets import Arrival

TURN_NS = 50_000_000
"""What has come is answered for so long; then the process's other work has its turn. A process that
gives no sign of life for seconds is killed."""

WAITING_BYTES_MAX = 32 * 1024 * 1024
"""Requests that wait; with more nothing is read, and they wait at the clients."""

HEADER_BYTES = 512
"""What a request without a body counts for: there may be many of them, too."""


class TellsTime(Protocol):
    """A clock that does not jump; ``process.clock.Clock`` is one."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment."""
        ...


class Arrivals:
    """Owned by a port.

    Invariants: ``_waiting`` has, by the number of the connection, the requests that wait, and none
    without; ``_bytes`` is the sum of what they count for.
    """

    def __init__(self, sockets: ClientSockets, clock: TellsTime) -> None:
        self._sockets = sockets
        self._clock = clock
        self._waiting: dict[int, deque[Arrival]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Connections with requests that wait."""
        return len(self._waiting)

    def read(self, now_ms: int) -> Iterator[Arrival]:
        """What has come now, of connections without any that wait; to be gone through to its end.

        After a turn's time the rest waits for ``served``.

        Whoever does not answer one of them hands it to ``put_off``.
        """
        until_ns = self._clock.monotonic_ns() + TURN_NS
        if self._bytes < WAITING_BYTES_MAX:
            for arrival in self._sockets.turn(now_ms, unread=self._waiting):
                is_late = self._clock.monotonic_ns() >= until_ns
                if is_late or arrival.connection.number in self._waiting:
                    self.put_off(arrival)
                else:
                    yield arrival

    def put_off(self, arrival: Arrival) -> None:
        """Have a request wait for ``served``."""
        self._waiting.setdefault(arrival.connection.number, deque()).append(arrival)
        self._bytes += HEADER_BYTES + len(arrival.command.body)

    def served(self, now_ms: int) -> Iterator[Arrival]:
        """What is to be answered in this turn: one of each connection, again and again, until the
        turn's time is over. At least one, if any waits.
        """
        until_ns = self._clock.monotonic_ns() + TURN_NS
        for arrival in self.read(now_ms):
            self.put_off(arrival)
        while self._waiting:
            number = next(iter(self._waiting))
            requests = self._waiting.pop(number)
            arrival = requests.popleft()
            self._bytes -= HEADER_BYTES + len(arrival.command.body)
            if requests:
                # Behind all others.
                self._waiting[number] = requests
            yield arrival
            if self._clock.monotonic_ns() >= until_ns:
                return
