"""Leases of queue locks: which owners are still alive, known to the leader alone.

A lock ends when its owner was not heard of for the lease of the lock (60 s in RocketMQ's
``RebalanceLockManager``). A leader begins with the locks in the log; each counts as renewed
at that moment, so that no owner loses its queue by a change of leaders. No clock: the caller tells
the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgermq.rules.tables.queue_locks import QueueLocks
from ledgermq.rules.tables.table_changes import Lock

Queues = Mapping[str, Iterable[int]]
"""Queue ids by topic."""


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
