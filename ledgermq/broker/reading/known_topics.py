"""Topics and queues of this node: those of the table, and those of the store's folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ledgermq.broker.call_arguments import Arguments, integer, text
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.model.errors import NoPermissionError, NotLeaderError, TopicUnknownError
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.messages.topic_plans import UnreadQueue
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable, check_topic_name


class KnownTopics:
    """Looks at table and store whenever it is asked; keeps nothing.

    Attributes:
        store: what is dispatched.
        tables: as far as the log is applied.
    """

    def __init__(self, store: ReadableStore, tables: AppliedTables) -> None:
        self.store = store
        self.tables = tables

    @property
    def _table(self) -> TopicTable:
        return self.tables.topics

    def topic(self, name: str) -> Topic:
        """The topic, also one that has queues and is not in the table.

        Raises:
            TopicUnknownError: there is none.
            NotLeaderError: it is one of the broker's own, which a leader that begins makes; or the
                node is starting, and may only not know it yet.
        """
        topic = self._table.get(name)
        if topic is not None:
            return topic
        check_topic_name(name)
        self.tables.check_started()
        queues = self.queues_found(name)
        if not queues and self._table.is_builtin(name):
            raise NotLeaderError("no leader has begun yet to make the broker's topics", topic=name)
        if not queues:
            raise TopicUnknownError("topic does not exist", topic=name)
        return Topic(name, queues, 0, Permission.READ)

    def all(self) -> Iterator[Topic]:
        """All topics by name, also those that only the store has."""
        known = {topic.name: topic for topic in self._table}
        for name in self.store.topics():
            # In this order: to look for queues reads a folder.
            if name not in known and (queues := self.queues_found(name)):
                known[name] = Topic(name, queues, 0, Permission.READ)
        return (known[name] for name in sorted(known))

    def queues_found(self, name: str) -> int:
        """How many queues of a topic the store has; 0 of one that was deleted."""
        if self._table.is_deleted(name):
            return 0
        return max((*self.store.queue_ids(name), -1)) + 1

    def first_offsets(self, name: str) -> dict[int, int]:
        """Where the queues begin of a topic that is made: behind all of the one that was deleted.

        Queues are numbered on: an offset names one message of a queue for ever.
        """
        if not self._table.is_deleted(name):
            return {}
        queues = (QueueName(name, queue_id) for queue_id in self.store.queue_ids(name))
        return {queue.queue_id: self.store.bounds(queue).end for queue in queues}

    def unread(self, name: str, queues: Iterable[int]) -> UnreadQueue | None:
        """The first of these queues of a topic that has messages not every group has consumed.

        Where no group has ever consumed anything of the topic, any message is one.
        """
        groups = [(owner.group, of) for owner, of in self.tables.offsets.of_topic(name)]
        for queue_id in queues:
            bounds = self.store.told_bounds(QueueName(name, queue_id))
            for group, offsets in groups or [("", {})]:
                lag = bounds.end - max(offsets.get(queue_id, 0), bounds.first)
                if lag > 0:
                    return UnreadQueue(queue_id, lag, group)
        return None

    def check_queue(self, queue: QueueName) -> None:
        """Refuse a queue that may not be read.

        Raises:
            TopicUnknownError: there is no such topic, or no such queue of it.
            NoPermissionError: the topic may not be read.
        """
        topic = self.topic(queue.topic)
        if not topic.is_readable:
            raise NoPermissionError("topic may not be read", topic=topic.name)
        self.check_number(queue)

    def check_number(self, queue: QueueName) -> None:
        """Refuse a queue that is not there. Of one whose messages may not be read, offsets and
        times may be told: tools ask for those of all topics.

        Raises:
            TopicUnknownError: there is no such topic, or no such queue of it.
        """
        topic = self.topic(queue.topic)
        if not 0 <= queue.queue_id < topic.read_queues:
            raise TopicUnknownError(
                "topic has no such queue",
                topic=topic.name,
                queue=queue.queue_id,
                queues=topic.read_queues,
            )

    def queue_of(self, arguments: Arguments) -> QueueName:
        """The queue that ``topic`` and ``queue`` of a call name; its messages may be nobody's.

        Raises:
            ProtocolError, TopicUnknownError: there is none.
        """
        queue = QueueName(text(arguments, "topic"), integer(arguments, "queue", 0, QUEUE_ID_MAX))
        self.check_number(queue)
        return queue
