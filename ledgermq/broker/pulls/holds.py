"""Held pulls: long polls that wait for their queue to grow, or for their timeout.

No clock here: whoever calls tells the time, in milliseconds of any clock that never goes back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from ledgermq.model.names.queue_name import QueueName

Client = TypeVar("Client", bound=Hashable)
Request = TypeVar("Request")

ENDED_SHARE = 64
"""When all places are taken, up to the n-th part of them is freed at once: to find who has most
costs a look at all.
"""

_DEADLINES_SLACK = 64
"""Dead entries that the heap of deadlines may have however few live ones there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Hold(Generic[Client, Request]):
    """One held pull; ``request`` is the caller's, and nothing here looks into it."""

    client: Client
    queue: QueueName
    deadline_ms: int
    request: Request


class Holds(Generic[Client, Request]):
    """All held pulls, by queue, by client and by deadline.

    Invariants: ``len(self) <= limit``, and no client has more than ``share``, while neither is made
    smaller; a queue in ``queues()`` has at least one hold; a hold that was taken, cancelled or
    expired is never given out again.

    Attributes:
        limit: of all clients together.
        share: of one client.
        host_of: which clients are of one host; asked when all places are taken.
    """

    def __init__(
        self,
        *,
        limit: int,
        share: int | None = None,
        host_of: Callable[[Client], object] = lambda client: client,
    ) -> None:
        self.limit = limit
        self.share = limit if share is None else share
        self.host_of = host_of
        self._serial = 0
        self._holds: dict[int, Hold[Client, Request]] = {}
        self.by_serial: Mapping[int, Hold[Client, Request]] = self._holds
        # In the order in which they came: serials grow.
        self._by_queue: dict[QueueName, dict[int, None]] = {}
        self._by_client: dict[Client, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, hold: Hold[Client, Request]) -> list[Hold[Client, Request]]:
        """Keep ``hold`` until its queue grows, its time ends or its client goes.

        Returns:
            those that had to make way: the oldest of a client that has its share already, or of the
            host that has most when all places are taken. Their time has ended.
        """
        ended: list[Hold[Client, Request]] = []
        own = self._by_client.get(hold.client)
        if own is not None and len(own) >= self.share:
            ended = [self._remove(next(iter(own)))]
        elif len(self._holds) >= self.limit:
            ended = self._end_greediest()
        self._serial += 1
        serial = self._serial
        self._holds[serial] = hold
        self._by_queue.setdefault(hold.queue, {})[serial] = None
        self._by_client.setdefault(hold.client, {})[serial] = None
        heapq.heappush(self._deadlines, (hold.deadline_ms, serial))
        return ended

    def queues(self) -> list[QueueName]:
        """The queues that somebody waits for."""
        return list(self._by_queue)

    def count(self, queue: QueueName) -> int:
        """How many holds ``queue`` has."""
        return len(self._by_queue.get(queue, ()))

    def peek(self, queue: QueueName) -> list[Hold[Client, Request]]:
        """The holds of ``queue``, oldest first; they stay."""
        return [self._holds[serial] for serial in self._by_queue.get(queue, ())]

    def take(self, queue: QueueName, count: int | None = None) -> list[Hold[Client, Request]]:
        """Remove and give the holds of ``queue``, oldest first; hold again what finds nothing.

        Args:
            count: at most so many; all without it.
        """
        serials = list(islice(self._by_queue.get(queue, ()), count))
        return [self._remove(serial) for serial in serials]

    def cancel(self, client: Client) -> int:
        """Forget the holds of ``client``; how many they were."""
        serials = tuple(self._by_client.get(client, ()))
        for serial in serials:
            self._remove(serial)
        return len(serials)

    def take_due(self, now_ms: int, count: int | None = None) -> list[Hold[Client, Request]]:
        """Remove and give the holds whose time has ended, in the order of their deadlines.

        Args:
            count: at most so many; all without it.
        """
        due: list[Hold[Client, Request]] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms and len(due) != count:
            _, serial = heapq.heappop(self._deadlines)
            if serial in self._holds:
                due.append(self._remove(serial))
        return due

    def take_all(self) -> list[Hold[Client, Request]]:
        """Remove and give every hold, oldest first."""
        return [self._remove(serial) for serial in sorted(self._holds)]

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; ``None`` when nothing is held."""
        while self._deadlines and self._deadlines[0][1] not in self._holds:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _end_greediest(self) -> list[Hold[Client, Request]]:
        """Remove the oldest of the host that has most, and of it only those it has above half."""
        hosts = {client: self.host_of(client) for client in self._by_client}
        counts: Counter[object] = Counter()
        for client, serials in self._by_client.items():
            counts[hosts[client]] += len(serials)
        greediest, most = counts.most_common(1)[0]
        free = min(max(1, self.limit // ENDED_SHARE), max(1, most // 2))
        # Serials grow, and a dictionary keeps its order: the oldest come first.
        oldest = [serial for serial, hold in self._holds.items() if hosts[hold.client] == greediest]
        return [self._remove(serial) for serial in oldest[:free]]

    def _remove(self, serial: int) -> Hold[Client, Request]:
        hold = self._holds.pop(serial)
        _discard(self._by_queue, hold.queue, serial)
        _discard(self._by_client, hold.client, serial)
        self._drop_dead_deadlines()
        return hold

    def _drop_dead_deadlines(self) -> None:
        # A hold that is answered leaves its deadline in the heap; long holds on a busy queue would
        # otherwise pile up there until their time comes.
        if len(self._deadlines) > 2 * len(self._holds) + _DEADLINES_SLACK:
            self._deadlines = [item for item in self._deadlines if item[1] in self._holds]
            heapq.heapify(self._deadlines)


Key = TypeVar("Key", bound=Hashable)


def _discard(serials: dict[Key, dict[int, None]], key: Key, serial: int) -> None:
    members = serials[key]
    del members[serial]
    if not members:
        del serials[key]
