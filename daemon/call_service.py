"""The verbs of CALL: topics, queues, and what groups have consumed.

A call is answered at once, except where a topic is new: that answer waits until the writer has
read the table, so that a producer who has it can send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.broker.holds import QueueName
from ledgermq.broker.topics import Permission, Topic, check_topic_name
from ledgermq.daemon.broker_tables import BrokerTables
from ledgermq.daemon.call_arguments import flag, integer, offsets_by_queue, text
from ledgermq.daemon.readable_store import ReadableStore
from ledgermq.model.errors import (
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.settings import TopicsSection

CONFIRMATION_MS = 2_000
"""Longest wait for the writer to read a new topic; it is restarted within milliseconds."""

WAITING_MAX = 10_000

Result = Mapping[str, object]
Arguments = Mapping[str, object]


class Caller(NamedTuple):
    """Who called, and the number to answer with."""

    client: bytes
    request_id: int


class Reply(NamedTuple):
    """A result, or why there is none."""

    caller: Caller
    outcome: Result | LedgerError


class _Waiting(NamedTuple):
    caller: Caller
    topic: Topic
    version: int
    deadline_ms: int


class CallService:
    """Answers calls from the tables and the store.

    Invariant: ``loaded_version`` is the newest version of the topic table that the writer has told
    to have read; a topic that is newer is in ``_unconfirmed``.
    """

    def __init__(self, store: ReadableStore, tables: BrokerTables, rules: TopicsSection) -> None:
        self._store = store
        self._tables = tables
        self._rules = rules
        self._waiting: list[_Waiting] = []
        # Nobody knows what the writer has read before this process was started.
        self._loaded_version = -1
        self._unconfirmed: dict[str, int] = {}
        self._verbs: dict[str, Callable[[Arguments], Result]] = {
            "topics": self._topics,
            "queue": self._queue,
            "offset_by_time": self._offset_by_time,
            "earliest_time": self._earliest_time,
            "group_offset": self._group_offset,
            "group_commit": self._group_commit,
            "groups": self._groups,
        }

    @property
    def is_confirmed(self) -> bool:
        """Whether the writer has read the newest topic table."""
        return self._loaded_version >= self._tables.topics.version

    @property
    def waiting(self) -> int:
        """Calls that wait for the writer."""
        return len(self._waiting)

    def call(self, caller: Caller, verb: str, arguments: Arguments, now_ms: int) -> Result | None:
        """The result of a call, ``None`` when it comes later (``confirmed``, ``late``).

        Raises:
            LedgerError: why there is none.
        """
        if verb == "route":
            return self._routed(caller, self._route(arguments), now_ms)
        if verb == "topic_create":
            return self._routed(caller, self._topic_create(arguments), now_ms)
        answer = self._verbs.get(verb)
        if answer is None:
            raise ProtocolError("unknown verb", verb=verb[:64])
        return answer(arguments)

    def confirmed(self, version: int) -> list[Reply]:
        """The writer has read the topic table of ``version``: the answers that waited for it."""
        self._loaded_version = max(self._loaded_version, version)
        self._unconfirmed = {
            topic: newer for topic, newer in self._unconfirmed.items() if newer > version
        }
        ready = [waiting for waiting in self._waiting if waiting.version <= version]
        self._waiting = [waiting for waiting in self._waiting if waiting.version > version]
        return [Reply(waiting.caller, _route_of(waiting.topic)) for waiting in ready]

    def adopt_topics(self) -> list[str]:
        """Take up topics and queues that the store has and the table lacks; their names.

        Another leader made them, and its table stayed with it. What it gave a topic beyond the
        queues that hold messages is not known here.
        """
        topics, adopted = self._tables.topics, []
        for name in self._store.topics():
            queues = self._queues_found(name)
            known = topics.get(name)
            if topics.is_system(name) or queues == 0:
                continue
            if known is None:
                queues = max(queues, self._rules.default_topic_queue_nums)
            elif queues <= max(known.read_queues, known.write_queues):
                continue
            self._keep(topics.create(name, queues, _now_ms()))
            adopted.append(name)
        return adopted

    def late(self, now_ms: int) -> list[Reply]:
        """Refusals of the calls that have waited long enough."""
        if not self._waiting or self._waiting[0].deadline_ms > now_ms:
            return []
        late = [waiting for waiting in self._waiting if waiting.deadline_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting.deadline_ms > now_ms]
        return [_not_confirmed(waiting) for waiting in late]

    def end_all(self) -> list[Reply]:
        """Refusals of all calls that wait: the node stops."""
        waiting, self._waiting = self._waiting, []
        return [_not_confirmed(one) for one in waiting]

    def next_deadline_ms(self) -> int | None:
        """When the next call has waited long enough; ``None`` when none waits."""
        return self._waiting[0].deadline_ms if self._waiting else None

    def check_queue(self, queue: QueueName) -> None:
        """Refuse a queue that may not be read.

        Raises:
            TopicUnknownError: there is no such topic, or no such queue of it.
            NoPermissionError: the topic may not be read.
        """
        topic = self._topic_of(queue.topic)
        if not topic.is_readable:
            raise NoPermissionError("topic may not be read", topic=topic.name)
        if not 0 <= queue.queue_id < topic.read_queues:
            raise TopicUnknownError(
                "topic has no such queue",
                topic=topic.name,
                queue=queue.queue_id,
                queues=topic.read_queues,
            )

    def _topic_of(self, name: str) -> Topic:
        """The topic, also one that has queues and is not in the table.

        Raises:
            TopicUnknownError: there is none.
        """
        topic = self._tables.topics.get(name)
        if topic is not None:
            return topic
        check_topic_name(name)
        queues = self._queues_found(name)
        if not queues:
            raise TopicUnknownError("topic does not exist", topic=name)
        return Topic(name, queues, 0, Permission.READ)

    def _queues_found(self, name: str) -> int:
        return max((*self._store.queue_ids(name), -1)) + 1

    # --- topics ---------------------------------------------------------------------------------

    def _routed(self, caller: Caller, topic: Topic, now_ms: int) -> Result | None:
        version = self._unconfirmed.get(topic.name)
        if version is None:
            return _route_of(topic)
        if len(self._waiting) >= WAITING_MAX:
            raise NotLeaderError("too many calls wait for a new topic", limit=WAITING_MAX)
        self._waiting.append(_Waiting(caller, topic, version, now_ms + CONFIRMATION_MS))
        return None

    def _route(self, arguments: Arguments) -> Topic:
        name = text(arguments, "topic")
        if self._tables.topics.get(name) is None and flag(arguments, "create"):
            check_topic_name(name)
            table = self._tables.topics
            found = self._queues_found(name)
            topic = table.create_on_first_use(name, self._rules, _now_ms(), queues_found=found)
            self._keep(topic)
            return topic
        return self._topic_of(name)

    def _topic_create(self, arguments: Arguments) -> Topic:
        name = text(arguments, "topic")
        queues = integer(arguments, "queues", 1, QUEUE_ID_MAX)
        version = self._tables.topics.version
        topic = self._tables.topics.create(name, queues, _now_ms())
        if self._tables.topics.version != version:
            self._keep(topic)
        return topic

    def _keep(self, topic: Topic) -> None:
        """Write the table; what waits for the writer to read it must not be told before."""
        self._unconfirmed[topic.name] = self._tables.topics.version
        self._tables.save_topics()

    def _topics(self, _arguments: Arguments) -> Result:
        known = {topic.name: topic for topic in self._tables.topics}
        stored = set(self._store.topics())
        for name in stored - known.keys():
            queues = self._queues_found(name)
            known[name] = Topic(name, queues, 0, Permission.READ)
        return {
            "topics": [
                {
                    **_route_of(known[name]),
                    "system": self._tables.topics.is_system(name),
                    "messages": self._store.message_count(name) if name in stored else 0,
                }
                for name in sorted(known)
            ]
        }

    # --- queues ---------------------------------------------------------------------------------

    def _queue(self, arguments: Arguments) -> Result:
        bounds = self._store.bounds(self._queue_of(arguments))
        return {"min": bounds.first, "max": bounds.end}

    def _offset_by_time(self, arguments: Arguments) -> Result:
        queue = self._queue_of(arguments)
        timestamp_ms = integer(arguments, "timestamp", 0, 2**63 - 1)
        return {"offset": self._store.offset_by_time(queue, timestamp_ms)}

    def _earliest_time(self, arguments: Arguments) -> Result:
        queue = self._queue_of(arguments) if "topic" in arguments else None
        return {"timestamp": self._store.earliest_time(queue)}

    def _queue_of(self, arguments: Arguments) -> QueueName:
        queue = QueueName(text(arguments, "topic"), integer(arguments, "queue", 0, QUEUE_ID_MAX))
        self.check_queue(queue)
        return queue

    # --- groups ---------------------------------------------------------------------------------

    def _group_offset(self, arguments: Arguments) -> Result:
        offsets = self._tables.offsets.offsets(text(arguments, "group"), text(arguments, "topic"))
        return {"offsets": {str(queue): offset for queue, offset in sorted(offsets.items())}}

    def _group_commit(self, arguments: Arguments) -> Result:
        name, topic = text(arguments, "group"), text(arguments, "topic")
        offsets = offsets_by_queue(arguments, "offsets")
        ends: dict[int, int] = {}
        for queue_id in offsets:
            queue = QueueName(topic, queue_id)
            self.check_queue(queue)
            bounds = self._store.bounds(queue)
            ends[queue_id] = bounds.end + bounds.pending_max
        self._tables.groups.use(name, self._rules, _now_ms())
        self._tables.save_groups()
        changed = self._tables.offsets.commit(
            name, topic, offsets, ends=ends, may_go_back=flag(arguments, "reset")
        )
        if changed:
            self._tables.note_commit(time.monotonic_ns())
        return {}

    def _groups(self, _arguments: Arguments) -> Result:
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


def _route_of(topic: Topic) -> Result:
    return {
        "topic": topic.name,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "perm": int(topic.permission),
    }


def _not_confirmed(waiting: _Waiting) -> Reply:
    error = NotLeaderError(
        "the writer has not taken notice of the new topic",
        topic=waiting.topic.name,
        waited_max_ms=CONFIRMATION_MS,
    )
    return Reply(waiting.caller, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
