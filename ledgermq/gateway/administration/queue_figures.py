"""Figures of queues for tools: begin, end, and ages."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import Clock
from ledgermq.remoting.fastjson import encode_queue_table
from ledgermq.rules.tables.topics import Topic


class Consumed(NamedTuple):
    """How far a group is in one queue.

    Attributes:
        end: next offset that the queue will give.
        offset: next one that the group will read; 0 when it never committed.
        last_ms: store time of what it read last; 0 when that is not there.
        unsettled: messages that were handed out singly, and are not settled.
    """

    queue: QueueName
    end: int
    offset: int
    last_ms: int
    unsettled: int

    @property
    def behind(self) -> int:
        """Messages that it has not read."""
        return max(0, self.end - self.offset)


class QueueFigures:
    """Looks at the store whenever it is asked; keeps nothing."""

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, clock: Clock, broker: str
    ) -> None:
        self._store = store
        self._tables = tables
        self._clock = clock
        self._broker = broker

    def epoch_ms(self) -> int:
        """The time of day."""
        return self._clock.epoch_ns() // 1_000_000

    def bounds(self, queue: QueueName) -> tuple[int, int]:
        """First offset and the one behind the last; what was never written to is empty.

        Raises:
            NotLeaderError: the node is starting.
        """
        first, end, _ = self._store.bounds(queue)
        return first, end

    def stored_ms(self, queue: QueueName, offset: int) -> int:
        """When the message at ``offset`` was stored; 0 when the queue does not have it."""
        first, end = self.bounds(queue)
        return max(0, self._store.store_time(queue, offset)) if first <= offset < end else 0

    def earliest_ms(self, queue: QueueName | None) -> int:
        """Store time of the first message of a queue, or of the log; -1 without any."""
        return self._store.earliest_time(queue)

    def first_since(self, queue: QueueName, timestamp_ms: int) -> int:
        """Offset of the first message of a time or later; the queue's end without one."""
        return self._store.first_since(queue, timestamp_ms)

    def told_since(self, queue: QueueName, timestamp_ms: int) -> int:
        """The same as ``first_since``, among those, too, that others than the log have.

        Raises:
            ColdAwayError: those cannot tell now.
        """
        return self._store.told_since(queue, timestamp_ms, self.first_since(queue, timestamp_ms))

    def stored_since(self, topic: Topic, timestamp_ms: int) -> int:
        """Messages of a topic that were stored at a time or later, and are still there."""
        found = 0
        for queue_id in self._store.queue_ids(topic.name):
            queue = QueueName(topic.name, queue_id)
            found += self.bounds(queue)[1] - self.first_since(queue, timestamp_ms)
        return found

    def topic_table(self, topic: Topic) -> bytes:
        """``TopicStatsTable``: of each queue its bounds and the time of its last message."""
        rows: list[tuple[str, str, int, object]] = []
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            first, end, _ = self._store.told_bounds(QueueName(topic.name, queue_id))
            last_ms = self.stored_ms(QueueName(topic.name, queue_id), end - 1)
            figures = {"lastUpdateTimestamp": last_ms, "maxOffset": end, "minOffset": first}
            rows.append((self._broker, topic.name, queue_id, figures))
        return b'{"offsetTable":' + encode_queue_table(rows) + b"}"

    def consumed(self, group: str, topic: Topic) -> list[Consumed]:
        """How far a group is in all queues of a topic that are read."""
        offsets = self._tables.offsets.offsets(group, topic.name)
        taken = self._tables.shares.queues(group, topic.name)
        rows = []
        for queue_id in range(topic.read_queues):
            queue = QueueName(topic.name, queue_id)
            offset = offsets.get(queue_id, 0)
            _, end = self.bounds(queue)
            out = taken[queue_id].unsettled if queue_id in taken else 0
            rows.append(Consumed(queue, end, offset, self.stored_ms(queue, offset - 1), out))
        return rows

    def consumed_rows(self, rows: list[Consumed]) -> list[bytes]:
        """Part of a ``consumed_table``: how far a group is in some queues; none of none."""
        table = encode_queue_table(
            (
                self._broker,
                row.queue.topic,
                row.queue.queue_id,
                {
                    "brokerOffset": row.end,
                    "consumerOffset": row.offset,
                    "lastTimestamp": row.last_ms,
                    # What a RocketMQ 5's tools call in flight lies between the two.
                    **({"pullOffset": row.offset + row.unsettled} if row.unsettled else {}),
                },
            )
            for row in rows
        )
        return [table[1:-1]] if rows else []

    def consumed_table(self, parts: list[bytes]) -> bytes:
        """``ConsumeStats``: all that ``consumed_rows`` has made."""
        return b'{"consumeTps":0.0,"offsetTable":{' + b",".join(parts) + b"}}"

    def offset_table(self, topic: str, offsets: dict[int, int]) -> bytes:
        """A map of queues to offsets, as Java and Go read it."""
        return encode_queue_table(
            (self._broker, topic, queue_id, offsets[queue_id]) for queue_id in sorted(offsets)
        )
