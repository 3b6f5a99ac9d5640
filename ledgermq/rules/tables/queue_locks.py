"""Queue locks: which member of a group owns which queue, in the log.

The table is ``{"lockTable": {"topic@group": {queue: [owner, lease_ms]}}}``. That somebody owns a
queue is in the log, so that a new leader knows it; that the owner is still there is not
(``queue_leases``).
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


class QueueLocks(Table[LocksSet | GroupSet]):
    """The locks of all groups. Invariant: a queue has at most one owner in a group."""

    file = FILE
    takes = (LocksSet, GroupSet)

    def __init__(self) -> None:
        super().__init__()
        self._table: dict[GroupTopic, dict[int, Lock]] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        """The table in the document of ``queue-locks.json``.

        Raises:
            ConfigError: it has another shape; names the key.
        """
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
        """The document to write to ``queue-locks.json``."""
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
        """Have what ``other`` has."""
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
