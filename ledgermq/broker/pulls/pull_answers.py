"""Answers to pulls as values, and pulls that are held: they wait for their queue to grow.

No clock here: whoever calls tells the time, in milliseconds of any clock that never goes back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from ledgermq.broker.callers import Client
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.store.record_parts import RecordParts
from ledgermq.wire.header import VERSION
from ledgermq.wire.pull_frame import Pull, PullStatus, encode_pulled

Payload = bytes | memoryview

Holder = TypeVar("Holder", bound=Hashable)
Request = TypeVar("Request")

ENDED_SHARE = 64
"""When all places are taken, up to the n-th part of them is freed at once: to find who has most
costs a look at all.
"""

_DEADLINES_SLACK = 64
"""Dead entries that the heap of deadlines may have however few live ones there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Hold(Generic[Holder, Request]):
    """One held pull; ``request`` is the caller's, and nothing here looks into it."""

    client: Holder
    queue: QueueName
    deadline_ms: int
    request: Request


class Holds(Generic[Holder, Request]):
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
        host_of: Callable[[Holder], object] = lambda client: client,
    ) -> None:
        self.limit = limit
        self.share = limit if share is None else share
        self.host_of = host_of
        self._serial = 0
        self._holds: dict[int, Hold[Holder, Request]] = {}
        self.by_serial: Mapping[int, Hold[Holder, Request]] = self._holds
        # In the order in which they came: serials grow.
        self._by_queue: dict[QueueName, dict[int, None]] = {}
        self._by_client: dict[Holder, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, hold: Hold[Holder, Request]) -> list[Hold[Holder, Request]]:
        """Keep ``hold`` until its queue grows, its time ends or its client goes.

        Returns:
            those that had to make way: the oldest of a client that has its share already, or of the
            host that has most when all places are taken. Their time has ended.
        """
        ended: list[Hold[Holder, Request]] = []
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

    def peek(self, queue: QueueName) -> list[Hold[Holder, Request]]:
        """The holds of ``queue``, oldest first; they stay."""
        return [self._holds[serial] for serial in self._by_queue.get(queue, ())]

    def take(self, queue: QueueName, count: int | None = None) -> list[Hold[Holder, Request]]:
        """Remove and give the holds of ``queue``, oldest first; hold again what finds nothing.

        Args:
            count: at most so many; all without it.
        """
        serials = list(islice(self._by_queue.get(queue, ()), count))
        return [self._remove(serial) for serial in serials]

    def cancel(self, client: Holder) -> int:
        """Forget the holds of ``client``; how many they were."""
        serials = tuple(self._by_client.get(client, ()))
        for serial in serials:
            self._remove(serial)
        return len(serials)

    def take_due(self, now_ms: int, count: int | None = None) -> list[Hold[Holder, Request]]:
        """Remove and give the holds whose time has ended, in the order of their deadlines.

        Args:
            count: at most so many; all without it.
        """
        due: list[Hold[Holder, Request]] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms and len(due) != count:
            _, serial = heapq.heappop(self._deadlines)
            if serial in self._holds:
                due.append(self._remove(serial))
        return due

    def take_all(self) -> list[Hold[Holder, Request]]:
        """Remove and give every hold, oldest first."""
        return [self._remove(serial) for serial in sorted(self._holds)]

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; ``None`` when nothing is held."""
        while self._deadlines and self._deadlines[0][1] not in self._holds:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _end_greediest(self) -> list[Hold[Holder, Request]]:
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

    def _remove(self, serial: int) -> Hold[Holder, Request]:
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


class Answer(NamedTuple):
    """What a pull of one client found, or why it found nothing.

    Attributes:
        next_offset: queue offset to ask for next.
        begin, end: of the queue, as ``ReadableRange`` has them.
        parts: the messages, if there are any.
        suggested: id of the member that had better be asked next; empty = the leader.
        version: of the PULL.
        error: why there is no answer; then nothing of all that counts.
        topic: whose messages these are; empty without any.
    """

    client: Client
    request_id: int
    status: PullStatus = PullStatus.OFFSET_FOUND_NULL
    next_offset: int = 0
    begin: int = 0
    end: int = 0
    parts: RecordParts | None = None
    suggested: str = ""
    version: int = VERSION
    error: LedgerError | None = None
    topic: str = ""

    @property
    def messages(self) -> int:
        """How many there are."""
        return 0 if self.parts is None else len(self.parts.starts)

    @property
    def payload(self) -> Payload:
        """Part 2 of the PULLED."""
        return b"" if self.parts is None else self.parts.payload

    @property
    def head(self) -> bytes:
        """Part 1 of the PULLED."""
        parts = self.parts
        return encode_pulled(
            self.request_id,
            self.status,
            next_offset=self.next_offset,
            begin=self.begin,
            end=self.end,
            starts=b"" if parts is None else parts.starts.tobytes(),
            sizes=b"" if parts is None else parts.sizes.tobytes(),
            suggested=self.suggested,
            version=self.version,
            entry_header_size=0 if parts is None else parts.header_size,
        )


class Held(NamedTuple):
    """A pull that waits; ``scanned_to`` is how far its tags were looked for in vain.

    ``status`` is what the last message that was looked at is a case of.
    """

    pull: Pull
    scanned_to: int
    status: PullStatus = PullStatus.NO_MATCHED_MESSAGE


class Later(NamedTuple):
    """A pull of old messages whose turn has not come."""

    wait_ms: int
    held: Held


def nothing(
    client: Client, pull: Pull, status: PullStatus, next_offset: int, bounds: ReadableRange
) -> Answer:
    """The answer to a pull that has found none."""
    return Answer(
        client,
        pull.request_id,
        status,
        next_offset,
        bounds.first,
        bounds.end,
        version=pull.version,
    )


def refusal(client: Client, held: Held, error: LedgerError) -> Answer:
    """The answer to a pull that waited, and was refused then."""
    return Answer(client, held.pull.request_id, error=error)
