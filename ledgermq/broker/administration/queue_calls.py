"""Calls about the content of one queue."""

from __future__ import annotations

from ledgermq.broker.call_arguments import flag, integer
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.verbs.needs import ANY, shown, topic_right


class QueueCalls:
    """Answered at once, by any node, from its own store."""

    def __init__(self, known: KnownTopics) -> None:
        self._store = known.store
        self._known = known
        self.verbs: Verbs = (
            AnsweredVerb("queue", self._queue, shown(topic_right(ANY)), whatever_tables=True),
            AnsweredVerb(
                "offset_by_time",
                self._offset_by_time,
                shown(topic_right(ANY)),
                whatever_tables=True,
            ),
            AnsweredVerb(
                "earliest_time", self._earliest_time, shown(topic_right(ANY)), whatever_tables=True
            ),
        )

    def _queue(self, call: Call) -> Result:
        bounds = self._store.bounds(self._known.queue_of(call.arguments))
        return {"min": bounds.first, "max": bounds.end}

    def _offset_by_time(self, call: Call) -> Result:
        queue = self._known.queue_of(call.arguments)
        timestamp_ms = integer(call.arguments, "timestamp", 0, 2**63 - 1)
        if flag(call.arguments, "since"):
            return {"offset": self._store.first_since(queue, timestamp_ms)}
        return {"offset": self._store.offset_by_time(queue, timestamp_ms)}

    def _earliest_time(self, call: Call) -> Result:
        queue = self._known.queue_of(call.arguments) if "topic" in call.arguments else None
        return {"timestamp": self._store.earliest_time(queue)}
