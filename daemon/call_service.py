"""The verbs of CALL: topics, queues, and what groups have consumed.

A call that changes something is answered when the change has come back through the log
(``state_log``); that of a new topic when the writer has read the table besides, so that a producer
who has the answer can send. All others are answered at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.broker.holds import QueueName
from ledgermq.broker.state_commands import Change, GroupSet, OffsetsSet, TopicSet
from ledgermq.broker.topics import Permission, Topic, check_topic_name
from ledgermq.daemon.broker_tables import BrokerTables
from ledgermq.daemon.call_arguments import flag, integer, offsets_by_queue, text
from ledgermq.daemon.readable_store import ReadableStore
from ledgermq.daemon.state_log import Caller, Reply, Request, StateLog
from ledgermq.model.errors import (
    BusyError,
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


class _Waiting(NamedTuple):
    caller: Caller
    name: str
    revision: int
    deadline_ms: int


class CallService:
    """Answers calls from the tables and the store.

    Invariant: ``_loaded_revision`` is the newest content of the topic table that the writer has
    told to have read; a topic that is newer is in ``_unconfirmed``.
    """

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, rules: TopicsSection, log: StateLog
    ) -> None:
        self._store = store
        self._tables = tables
        self._rules = rules
        self._log = log
        self._now_ms = 0
        self._waiting: list[_Waiting] = []
        # Nobody knows what the writer has read before this process was started.
        self._loaded_revision = -1
        self._unconfirmed: dict[str, int] = {}
        self._verbs: dict[str, Callable[[Arguments], Result]] = {
            "topics": self._topics,
            "queue": self._queue,
            "offset_by_time": self._offset_by_time,
            "earliest_time": self._earliest_time,
            "group_offset": self._group_offset,
            "groups": self._groups,
        }
        self._changes: dict[str, Callable[[Caller, Arguments], Result | None]] = {
            "route": self._route,
            "topic_create": self._topic_create,
            "group_commit": self._group_commit,
        }

    @property
    def is_confirmed(self) -> bool:
        """Whether the writer has read the newest topic table."""
        return self._loaded_revision >= self._tables.topics_revision

    @property
    def waiting(self) -> int:
        """Calls that wait for the writer."""
        return len(self._waiting)

    def call(self, caller: Caller, verb: str, arguments: Arguments, now_ms: int) -> Result | None:
        """The result of a call, ``None`` when it comes later (``confirmed``, ``late``).

        Raises:
            LedgerError: why there is none.
        """
        self._now_ms = now_ms
        change = self._changes.get(verb)
        if change is not None:
            return change(caller, arguments)
        answer = self._verbs.get(verb)
        if answer is None:
            raise ProtocolError("unknown verb", verb=verb[:64])
        return answer(arguments)

    def confirmed(self, revision: int) -> list[Reply]:
        """The writer has read the topic table of ``revision``: the answers that waited for it."""
        self._loaded_revision = max(self._loaded_revision, revision)
        self._unconfirmed = {
            topic: newer for topic, newer in self._unconfirmed.items() if newer > revision
        }
        ready = [waiting for waiting in self._waiting if waiting.revision <= revision]
        self._waiting = [waiting for waiting in self._waiting if waiting.revision > revision]
        return [Reply(waiting.caller, self._outcome(waiting.name)) for waiting in ready]

    def adopt_topics(self) -> list[str]:
        """Take up topics and queues that the store has and the table lacks; their names.

        To be called where this node begins to lead, before its tables become those of all: it may
        have been started with files that are older than its log, as RocketMQ leaves them.
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
            topics.put(topics.plan(name, queues), _now_ms())
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

    def _route(self, caller: Caller, arguments: Arguments) -> Result | None:
        name = text(arguments, "topic")
        if self._tables.topics.get(name) is None and flag(arguments, "create"):
            check_topic_name(name)
            found = self._queues_found(name)

            def plan() -> Topic:
                table = self._tables.topics
                return table.plan_on_first_use(name, self._rules, queues_found=found)

            plan()  # refuses at once what cannot be made
            return self._change_topic(caller, name, plan)
        return self._routed(caller, name)

    def _topic_create(self, caller: Caller, arguments: Arguments) -> Result | None:
        name = text(arguments, "topic")
        queues = integer(arguments, "queues", 1, QUEUE_ID_MAX)
        return self._change_topic(caller, name, lambda: self._tables.topics.plan(name, queues))

    def _change_topic(self, caller: Caller, name: str, plan: Callable[[], Topic]) -> Result | None:
        """Have a topic in the log; whoever asked is told once producers can use it."""

        def changes() -> list[Change]:
            topic = plan()
            if topic is self._tables.topics.get(name):
                return []
            return [TopicSet(name, topic.to_fields())]

        def answer() -> Result | None:
            revision = self._tables.topics_revision + self._tables.has_unsaved_topics
            if revision > self._loaded_revision:
                self._unconfirmed[name] = revision
            return self._routed(caller, name)

        self._log.submit(
            Request(caller, changes, frozenset({f"topic {name}"}), answer), self._now_ms
        )
        return None

    def _routed(self, caller: Caller, name: str) -> Result | None:
        revision = self._unconfirmed.get(name)
        if revision is None:
            return self._found(name)
        if len(self._waiting) >= WAITING_MAX:
            raise BusyError("too many calls wait for a new topic", limit=WAITING_MAX)
        self._waiting.append(_Waiting(caller, name, revision, self._now_ms + CONFIRMATION_MS))
        return None

    def _found(self, name: str) -> Result:
        return _route_of(self._topic_of(name))

    def _outcome(self, name: str) -> Result | LedgerError:
        try:
            return self._found(name)
        except LedgerError as error:
            # Deleted before it was confirmed.
            return error

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
        self._log.check()
        offsets = self._tables.offsets.offsets(text(arguments, "group"), text(arguments, "topic"))
        return {"offsets": {str(queue): offset for queue, offset in sorted(offsets.items())}}

    def _group_commit(self, caller: Caller, arguments: Arguments) -> Result | None:
        name, topic = text(arguments, "group"), text(arguments, "topic")
        offsets = offsets_by_queue(arguments, "offsets")
        may_go_back = flag(arguments, "reset")

        def changes() -> list[Change]:
            ends: dict[int, int] = {}
            for queue_id in offsets:
                queue = QueueName(topic, queue_id)
                self.check_queue(queue)
                bounds = self._store.bounds(queue)
                ends[queue_id] = bounds.end + bounds.pending_max
            tables = self._tables
            group = tables.groups.plan_use(name, self._rules)
            found: list[Change] = []
            if tables.groups.get(name) is None:
                found.append(GroupSet(name, group.to_fields()))
            if tables.offsets.check(name, topic, offsets, ends=ends, may_go_back=may_go_back):
                found.append(OffsetsSet(name, topic, offsets))
            return found

        touches = {f"offset {name}@{topic}/{queue_id}" for queue_id in offsets}
        self._log.submit(Request(caller, changes, frozenset(touches), dict), self._now_ms)
        return None

    def _groups(self, _arguments: Arguments) -> Result:
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
        topic=waiting.name,
        waited_max_ms=CONFIRMATION_MS,
    )
    return Reply(waiting.caller, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
