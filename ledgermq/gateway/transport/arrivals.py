"""Fair queueing of requests by what each connection has cost.

A request costs what its sender likes. So each turn ends in time, whatever has come, and the time
is shared: next is who has had least of it (start-time fair queueing, Goyal et al. 1996). Whoever
asks for little is served behind one request of the others, however many of them ask for much; and
while there is somebody who does, those whose requests are dear have a share of the time together,
not all that is left. What a connection sends stays in its order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Protocol

from ledgermq.gateway.transport.client_sockets import ClientSockets
from ledgermq.gateway.transport.remoting_sockets import Arrival

TURN_NS = 10_000_000
"""What waits is answered for so long; then the process's other work has its turn: answers of the
writer, pulls that waited, our own clients. A process that gives no sign of life for seconds is
killed."""

READ_NS = 50_000_000
"""What can be answered as it comes is answered for so long."""

UNLOOKED_BYTES = 4_096
"""While nobody waits the clock is asked behind so much of requests."""

LOOK_NS = 5_000_000
"""Within a turn it is looked so often who has come meanwhile, and is to be served before others."""

WAITING_BYTES_MAX = 32 * 1024 * 1024
"""Requests that wait; with more nothing is read, and they wait at the clients."""

HEADER_BYTES = 512
"""What a request without a body counts for: there may be many of them, too."""


CREDIT_NS = 20_000_000
"""Who has asked for nothing is taken to have had so much less than those who wait, and no more."""

DEAR_NS = 10_000_000
"""Whose requests take so long is dear: a mean, in which the last one"""

MEAN_OF = 2
"""counts for the n-th part."""

DEAR_SHARE = 4
"""Dear ones have the n-th part of the time while others ask, too,"""

DEAR_BURST_NS = 20_000_000
"""and so much at once. Above that they wait."""

OTHERS_NS = 100_000_000
"""Others ask, too, if one of them was served within this time."""

KEPT_MAX = 4_096
"""Connections whose time is kept in mind before it is looked whose needs to be."""


class TellsTime(Protocol):
    """A clock that does not jump; ``process.clock.Clock`` is one."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment."""
        ...


class Arrivals:
    """Owned by a port.

    Invariants: ``_waiting`` has, by the number of the connection, the requests that wait, and none
    without; ``_bytes`` is the sum of what they count for. Each of these connections is once in one
    of the heaps ``_order`` and ``_dear_order``, with the time that it has had: in the second one if
    it was dear when it joined. ``_had`` and ``_mean_ns`` have nothing but connections that were
    served since nobody waited.

    Attributes:
        waiting: the requests that wait, by the number of their connection.
    """

    def __init__(self, sockets: ClientSockets, clock: TellsTime) -> None:
        self._sockets = sockets
        self._clock = clock
        self._waiting: dict[int, deque[Arrival]] = {}
        self.waiting: Mapping[int, deque[Arrival]] = self._waiting
        self._bytes = 0
        self._order: list[tuple[int, int, int]] = []
        self._dear_order: list[tuple[int, int, int]] = []
        self._mean_ns: dict[int, int] = {}
        # What dear ones may take now; less than nothing behind one that took more.
        self._dear_ns = DEAR_BURST_NS
        self._earned_ns = 0
        self._others_ns = -OTHERS_NS - 1
        self._count = 0
        # Virtual time: the least that anybody has had who waits, who is not new.
        self._now_had = 0
        self._had: dict[int, int] = {}

    def __len__(self) -> int:
        """Connections with requests that wait."""
        return len(self._waiting)

    def read(self, now_ms: int) -> Iterator[Arrival]:
        """What has come now, of connections without any that wait; to be gone through to its end.

        After ``READ_NS`` the rest waits for ``served``.

        Whoever does not answer one of them hands it to ``put_off``.
        """
        if self._bytes >= WAITING_BYTES_MAX:
            return
        clock_ns = self._clock.monotonic_ns
        at_ns = clock_ns()
        until_ns = at_ns + READ_NS
        waiting = self._waiting
        unlooked = 0
        for arrival in self._sockets.turn(now_ms, unread=waiting):
            number = arrival.connection.number
            if at_ns >= until_ns or number in waiting:
                self.put_off(arrival)
                continue
            yield arrival
            unlooked += HEADER_BYTES + len(arrival.command.body)
            if not waiting and unlooked < UNLOOKED_BYTES:
                # Nobody waits who would have to pay less for what this one takes.
                continue
            unlooked = 0
            began_ns, at_ns = at_ns, clock_ns()
            if waiting and number not in waiting:
                self._charge(number, self._had_so_far(number), at_ns - began_ns, at_ns)

    def put_off(self, arrival: Arrival) -> None:
        """Have a request wait for ``served``."""
        number = arrival.connection.number
        requests = self._waiting.get(number)
        if requests is None:
            requests = self._waiting[number] = deque()
            self._queue(number)
        requests.append(arrival)
        self._bytes += HEADER_BYTES + len(arrival.command.body)

    def served(self, now_ms: int) -> Iterator[Arrival]:
        """What is to be answered in this turn, next of who has had least, until the turn's time is
        over. At least one, if any waits that may be answered now.
        """
        clock_ns = self._clock.monotonic_ns
        at_ns = clock_ns()
        until_ns = at_ns + TURN_NS
        self._take_in(now_ms)
        looked_ns = at_ns = clock_ns()
        while (order := self._next_order(at_ns)) is not None:
            had, _, number = heapq.heappop(order)
            self._now_had = max(self._now_had, had)
            requests = self._waiting[number]
            arrival = requests.popleft()
            self._bytes -= HEADER_BYTES + len(arrival.command.body)
            if not requests:
                del self._waiting[number]
            began_ns = clock_ns()
            yield arrival
            at_ns = clock_ns()
            self._charge(number, had, at_ns - began_ns, at_ns)
            if requests:
                self._queue(number)
            if at_ns >= until_ns:
                break
            if at_ns - looked_ns >= LOOK_NS:
                looked_ns = at_ns
                self._take_in(now_ms)
        self._tidy()

    def _take_in(self, now_ms: int) -> None:
        if self._bytes < WAITING_BYTES_MAX:
            for arrival in self._sockets.turn(now_ms, unread=self._waiting):
                self.put_off(arrival)

    def _queue(self, number: int) -> None:
        """Put a connection in line behind all that came before and have had as much."""
        self._count += 1
        order = self._dear_order if self._is_dear(number) else self._order
        heapq.heappush(order, (self._had_so_far(number), self._count, number))

    def _next_order(self, at_ns: int) -> list[tuple[int, int, int]] | None:
        """Where the next one is; None where all have to wait."""
        order, dear = self._order, self._dear_order
        if not dear:
            return order or None
        earned_ns = (at_ns - self._earned_ns) // DEAR_SHARE
        self._dear_ns = min(self._dear_ns + earned_ns, DEAR_BURST_NS)
        self._earned_ns = at_ns
        if self._dear_ns > 0 or at_ns - self._others_ns > OTHERS_NS:
            return dear if not order or dear[0] < order[0] else order
        return order or None

    def _had_so_far(self, number: int) -> int:
        least = self._now_had - CREDIT_NS
        return max(least, self._had.get(number, least))

    def _charge(self, number: int, had: int, cost_ns: int, at_ns: int) -> None:
        """A connection that has had ``had`` was served for so long, until now.

        The share that all who wait could have had of what a new one took is what the next new one
        is taken to have had: new ones without end do not keep out those that are known.
        """
        if number not in self._had:
            self._now_had += cost_ns // (len(self._waiting) + 1)
        self._had[number] = had + cost_ns
        if self._is_dear(number):
            self._dear_ns = max(self._dear_ns, 0) - cost_ns
        else:
            self._others_ns = at_ns
        # Not by one request: anything may be slow once.
        mean_ns = self._mean_ns.get(number, 0)
        self._mean_ns[number] = mean_ns + (cost_ns - mean_ns) // MEAN_OF

    def _is_dear(self, number: int) -> bool:
        return self._mean_ns.get(number, 0) >= DEAR_NS

    def _tidy(self) -> None:
        if not self._waiting:
            self._had.clear()
            self._mean_ns.clear()
            self._now_had = 0
        elif len(self._had) > KEPT_MAX:
            # Who has had no more than that is as good as new.
            self._had = {one: had for one, had in self._had.items() if had > self._now_had}
            kept = self._had.keys() | self._waiting.keys()
            self._mean_ns = {one: mean for one, mean in self._mean_ns.items() if one in kept}
