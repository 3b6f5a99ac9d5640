"""Members of a group in threads of their own, and what they have read, in the order of reading."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Self, TypeVar

from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.group_member import GroupOptions
from ledgermq.client.groups.rebalance_listener import RebalanceListener
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from tests.suite.patience import PATIENCE_S

Queue = TypeVar("Queue", bound=tuple[object, ...])


class Seen(NamedTuple):
    """A message that a member was given."""

    member: str
    queue: TopicQueue
    offset: int
    body: bytes


class Journal:
    """What all members of a test have seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[Seen] = []

    def note(self, seen: Sequence[Seen]) -> None:
        with self._lock:
            self._seen += seen

    @property
    def seen(self) -> list[Seen]:
        with self._lock:
            return list(self._seen)

    @property
    def bodies(self) -> Counter[bytes]:
        return Counter(one.body for one in self.seen)

    def by_queue(self) -> dict[TopicQueue, list[Seen]]:
        found: dict[TopicQueue, list[Seen]] = defaultdict(list)
        for one in self.seen:
            found[one.queue].append(one)
        return found


class Told(Generic[Queue]):
    """Notes what a member is told; a listener of either kind with that kind behind it."""

    def __init__(self) -> None:
        self.notices: list[tuple[str, tuple[Queue, ...]]] = []

    def on_assigned(self, queues: Sequence[Queue]) -> None:
        self.notices.append(("assigned", tuple(queues)))

    def on_revoked(self, queues: Sequence[Queue]) -> None:
        self.notices.append(("revoked", tuple(queues)))

    def on_lost(self, queues: Sequence[Queue]) -> None:
        self.notices.append(("lost", tuple(queues)))


class ToldReader(Told[TopicQueue], RebalanceListener):
    """In one group of brokers."""


class Reader:
    """A member that reads and commits until it is told to stop."""

    def __init__(
        self,
        address: str | Sequence[str],
        journal: Journal,
        *,
        group: str,
        name: str,
        topics: str | Sequence[str] = "orders",
        options: GroupOptions | None = None,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        self.told = ToldReader()
        self.name = name
        self.errors: list[BaseException] = []
        self.assignment: frozenset[TopicQueue] = frozenset()
        self.warnings: tuple[str, ...] = ()
        self.polls = 0
        self._journal = journal
        self._before_commit = before_commit
        self._stop = threading.Event()
        self._consumer = GroupConsumer(
            address,
            group=group,
            name=name,
            listener=self.told,
            group_options=options,
            options=ConsumerOptions(messages_max=20, hold_ms=500, timeout_s=PATIENCE_S),
        )
        self._consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group; raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with self._consumer as consumer:
                while not self._stop.is_set():
                    self._read(consumer)
        except BaseException as error:
            # Told to the test by ``stop``.
            self.errors.append(error)

    def _read(self, consumer: GroupConsumer) -> None:
        batch = consumer.poll(0.2)
        self.polls += 1
        self.assignment, self.warnings = consumer.assignment, consumer.warnings
        if not len(batch):
            return
        queue = TopicQueue(batch.topic, batch.queue_id)
        self._journal.note(
            [Seen(self.name, queue, one.queue_offset, bytes(one.body)) for one in batch]
        )
        self._before_commit()
        consumer.commit()
