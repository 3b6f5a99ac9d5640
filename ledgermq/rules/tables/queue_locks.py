"""Queue locks: which member of a group owns which queue, and whether it is still there.

The table is ``{"lockTable": {"topic@group": {queue: [owner, lease_ms]}}}``. That somebody owns a
queue is in the log, so that a new leader knows it; that the owner is still there is not:
that is a lease, known to the leader alone. A lock ends when its owner was not heard of for its
lease (60 s in RocketMQ's ``RebalanceLockManager``). A leader begins with the locks in the log; each
counts as renewed at that moment, so that no owner loses its queue by a change of leaders. No clock:
the caller tells the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.rules.tables.documents import Document, read_table
from ledgermq.rules.tables.group_offsets import SEPARATOR, GroupTopic
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import GroupSet, Lock, LocksSet

FILE = "queue-locks.json"

_TABLE = "lockTable"

Queues = Mapping[str, Iterable[int]]
"""Queue ids by topic."""


class QueueLocks(Table[LocksSet | GroupSet]):
    """The locks of all groups. Invariant: a queue has at most one owner in a group."""

    file = FILE
    takes = (LocksSet, GroupSet)

    def __init__(self) -> None:
        super().__init__()
        self._table: dict[GroupTopic, dict[int, Lock]] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        locks = cls()
        for key, value in read_table(document, _TABLE, file=FILE).items():
            topic, separator, group = key.partition(SEPARATOR)
            if not (topic and separator and group) or not isinstance(value, Mapping):
                raise ConfigError("not the locks of a topic and a group", file=FILE, key=key)
            queues = {queue: read_lock(item) for queue, item in value.items()}
            read = {
                int(queue): lock for queue, lock in queues.items() if lock and queue.isdecimal()
            }
            if len(read) < len(queues):
                raise ConfigError("not a queue and its lock", file=FILE, key=key, value=str(value))
            locks._table[GroupTopic(group, topic)] = read
        return locks

    def to_document(self) -> dict[str, object]:
        return {
            _TABLE: {
                owner.key: {str(queue): list(lock) for queue, lock in sorted(queues.items())}
                for owner, queues in self._table.items()
            }
        }

    def __iter__(self) -> Iterator[tuple[GroupTopic, Mapping[int, Lock]]]:
        return iter(self._table.items())

    def locks(self, group: str, topic: str) -> Mapping[int, Lock]:
        """Lock by queue; a queue without one is left out."""
        return self._table.get(GroupTopic(group, topic), {})

    def check_owner(self, group: str, topic: str, client: str, queues: Iterable[int]) -> None:
        """Refuse ``client`` where another member has come to own one of ``queues``.

        Raises:
            MessageIllegalError: names the queue.
        """
        locks = self.locks(group, topic)
        for queue_id in queues:
            lock = locks.get(queue_id)
            if lock is not None and lock.owner != client:
                raise MessageIllegalError(
                    "queue is another member's by now",
                    group=group,
                    topic=topic,
                    queue=queue_id,
                    client=client,
                )

    def of_group(self, group: str) -> dict[str, Mapping[int, Lock]]:
        """Locks by queue, by topic."""
        return {
            owner.topic: queues for owner, queues in self._table.items() if owner.group == group
        }

    def apply(self, change: LocksSet | GroupSet, _place: int, _at_ms: int, /) -> None:
        if isinstance(change, LocksSet):
            self.set(change.group, change.topic, change.locks)
        elif change.fields is None:
            self.forget_group(change.name)

    def set(self, group: str, topic: str, locks: Mapping[int, Lock | None]) -> bool:
        """Have these locks from now on, none where ``None`` stands; true for a change."""
        owner = GroupTopic(group, topic)
        stored = self._table.get(owner, {})
        merged = {queue: lock for queue, lock in {**stored, **locks}.items() if lock is not None}
        if merged == stored:
            return False
        if merged:
            self._table[owner] = merged
        else:
            del self._table[owner]
        self.revision += 1
        return True

    def forget_group(self, group: str) -> None:
        """A group that is deleted owns nothing."""
        for topic, queues in self.of_group(group).items():
            self.set(group, topic, dict.fromkeys(queues))

    def replace_with(self, other: QueueLocks) -> None:
        self._table = other._table
        self.revision += 1


def read_lock(value: object) -> Lock | None:
    """The lock that stands as ``[owner, lease_ms]`` in JSON; ``None`` when it is none."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    owner, lease_ms = value
    if not isinstance(owner, str) or not owner:
        return None
    if not isinstance(lease_ms, int) or isinstance(lease_ms, bool) or lease_ms <= 0:
        return None
    return Lock(owner, lease_ms)


class QueueLeases:
    """The locks of all groups as they are now.

    Invariant: a lock that is live has one owner; whoever else asks for it is refused.
    """

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks
        self._renewed: dict[tuple[str, str, int], int] = {}
        self._begin_ms = 0

    def begin(self, now_ms: int) -> None:
        """This node leads from now on: every lock in the log counts as renewed."""
        self._begin_ms = now_ms
        self._renewed.clear()

    def renew(self, group: str, client: str, queues: Queues, now_ms: int) -> None:
        """The owner was heard of; queues that it does not own are left alone."""
        for topic, queue_ids in queues.items():
            locks = self._locks.locks(group, topic)
            for queue_id in queue_ids:
                lock = locks.get(queue_id)
                if lock is not None and lock.owner == client:
                    self._renewed[group, topic, queue_id] = now_ms

    def owners(self, group: str, now_ms: int) -> dict[str, dict[int, str]]:
        """Owner by queue, by topic; of the live locks alone."""
        found: dict[str, dict[int, str]] = {}
        for topic, locks in self._locks.of_group(group).items():
            live = {
                queue_id: lock.owner
                for queue_id, lock in locks.items()
                if self._is_live(group, topic, queue_id, lock, now_ms)
            }
            if live:
                found[topic] = live
        return found

    def owned(self, group: str, client: str, queues: Queues) -> dict[str, list[int]]:
        """Which of ``queues`` the table says that ``client`` owns."""
        return {
            topic: [
                queue_id
                for queue_id in queue_ids
                if (lock := self._locks.locks(group, topic).get(queue_id)) and lock.owner == client
            ]
            for topic, queue_ids in queues.items()
        }

    def plan_lock(
        self, group: str, client: str, queues: Queues, *, lease_ms: int, now_ms: int
    ) -> dict[str, dict[int, Lock | None]]:
        """What the table has to say so that ``client`` owns those of ``queues`` that it can."""
        wanted = Lock(client, lease_ms)
        changes: dict[str, dict[int, Lock | None]] = {}
        for topic, queue_ids in queues.items():
            locks = self._locks.locks(group, topic)
            for queue_id in queue_ids:
                lock = locks.get(queue_id)
                is_taken = (
                    lock is not None
                    and lock.owner != client
                    and self._is_live(group, topic, queue_id, lock, now_ms)
                )
                if not is_taken and lock != wanted:
                    changes.setdefault(topic, {})[queue_id] = wanted
        return changes

    def plan_unlock(
        self, group: str, client: str, queues: Queues
    ) -> dict[str, dict[int, Lock | None]]:
        """What the table has to say so that ``client`` owns none of ``queues``."""
        owned = self.owned(group, client, queues)
        return {topic: dict.fromkeys(ids) for topic, ids in owned.items() if ids}

    def forget_dead(self, group: str, now_ms: int) -> dict[str, dict[int, Lock | None]]:
        """What the table has to say to be rid of the group's locks that have ended."""
        changes: dict[str, dict[int, Lock | None]] = {}
        for topic, locks in self._locks.of_group(group).items():
            dead = [
                queue_id
                for queue_id, lock in locks.items()
                if not self._is_live(group, topic, queue_id, lock, now_ms)
            ]
            if dead:
                changes[topic] = dict.fromkeys(dead)
        return changes

    def forget_times(self) -> None:
        """Drop the times of locks that are no more, when there are many."""
        if len(self._renewed) <= 2 * sum(len(locks) for _, locks in self._locks) + 1_000:
            return
        kept = {
            (owner.group, owner.topic, queue_id)
            for owner, locks in self._locks
            for queue_id in locks
        }
        self._renewed = {key: at for key, at in self._renewed.items() if key in kept}

    def _is_live(self, group: str, topic: str, queue_id: int, lock: Lock, now_ms: int) -> bool:
        renewed_ms = self._renewed.get((group, topic, queue_id), self._begin_ms)
        return now_ms - renewed_ms < lock.lease_ms
