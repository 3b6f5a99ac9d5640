"""Calls about subscription groups."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.broker.holds import QueueName
from ledgermq.daemon.calls import Call, Result, Verbs
from ledgermq.daemon.known_topics import KnownTopics
from ledgermq.daemon.state_log import StateLog


class GroupCalls:
    """Changes go through the log; lag is what this node has dispatched."""

    def __init__(self, known: KnownTopics, log: StateLog) -> None:
        self._store = known.store
        self._tables = known.tables
        self._log = log
        self.verbs: Verbs = {"groups": self._groups}

    def _groups(self, _call: Call) -> Result:
        self._log.check()
        return {
            "groups": [
                {
                    "group": owner.group,
                    "topic": owner.topic,
                    "offsets": {str(queue): offset for queue, offset in sorted(offsets.items())},
                    "lag": self._lag(owner.topic, offsets),
                }
                for owner, offsets in sorted(self._tables.offsets)
            ]
        }

    def _lag(self, topic: str, offsets: Mapping[int, int]) -> int:
        """Messages that a group has not consumed, in all queues of the topic."""
        lag = 0
        for queue_id in self._store.queue_ids(topic):
            bounds = self._store.bounds(QueueName(topic, queue_id))
            lag += max(0, bounds.end - max(offsets.get(queue_id, 0), bounds.first))
        return lag
