"""Calls about topics: which there are, and what is to become of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from ledgermq.broker.state_commands import Change, TopicSet
from ledgermq.broker.topics import Topic, check_topic_name
from ledgermq.daemon.call_arguments import flag, integer, text
from ledgermq.daemon.calls import Call, Result, Verbs
from ledgermq.daemon.known_topics import KnownTopics
from ledgermq.daemon.state_log import Request, StateLog
from ledgermq.daemon.writer_notice import WriterNotice
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.settings import TopicsSection


class TopicCalls:
    """Changes go through the log; whoever asked is told once producers can rely on it."""

    def __init__(
        self, known: KnownTopics, rules: TopicsSection, log: StateLog, notice: WriterNotice
    ) -> None:
        self._store = known.store
        self._tables = known.tables
        self._rules = rules
        self._log = log
        self._known = known
        self._notice = notice
        self.verbs: Verbs = {
            "topics": self._topics,
            "route": self._route,
            "topic_create": self._create,
        }

    def adopt(self) -> list[str]:
        """Take up topics and queues that the store has and the table lacks; their names.

        To be called where this node begins to lead, before its tables become those of all: it may
        have been started with files that are older than its log, as RocketMQ leaves them.
        """
        topics, adopted = self._tables.topics, []
        for name in self._store.topics():
            queues = self._known.queues_found(name)
            known = topics.get(name)
            if topics.is_system(name) or queues == 0:
                continue
            if known is None:
                queues = max(queues, self._rules.default_topic_queue_nums)
            elif queues <= max(known.read_queues, known.write_queues):
                continue
            topics.put(topics.plan(name, queues), time.time_ns() // 1_000_000)
            adopted.append(name)
        return adopted

    def _topics(self, _call: Call) -> Result:
        stored = set(self._store.topics())
        return {
            "topics": [
                {
                    **route_of(topic),
                    "system": self._tables.topics.is_system(topic.name),
                    "messages": self._store.message_count(topic.name)
                    if topic.name in stored
                    else 0,
                }
                for topic in self._known.all()
            ]
        }

    def _route(self, call: Call) -> Result | None:
        name = text(call.arguments, "topic")
        if self._tables.topics.get(name) is None and flag(call.arguments, "create"):
            check_topic_name(name)
            found = self._known.queues_found(name)

            def plan() -> Topic:
                table = self._tables.topics
                return table.plan_on_first_use(name, self._rules, queues_found=found)

            plan()  # refuses at once what cannot be made
            return self._change(call, name, plan)
        return self._notice.answer(call.caller, name, lambda: self._found(name), call.now_ms)

    def _create(self, call: Call) -> Result | None:
        name = text(call.arguments, "topic")
        queues = integer(call.arguments, "queues", 1, QUEUE_ID_MAX)
        return self._change(call, name, lambda: self._tables.topics.plan(name, queues))

    def _change(self, call: Call, name: str, plan: Callable[[], Topic]) -> Result | None:
        """Have a topic in the log; whoever asked is told once producers can use it."""

        def changes() -> list[Change]:
            topic = plan()
            if topic is self._tables.topics.get(name):
                return []
            return [TopicSet(name, topic.to_fields())]

        def answer() -> Result | None:
            self._notice.expect(name)
            return self._notice.answer(call.caller, name, lambda: self._found(name), call.now_ms)

        request = Request(call.caller, changes, frozenset({f"topic {name}"}), answer)
        self._log.submit(request, call.now_ms)
        return None

    def _found(self, name: str) -> Result:
        return route_of(self._known.topic(name))


def route_of(topic: Topic) -> Result:
    """What a client has to know of a topic."""
    return {
        "topic": topic.name,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "perm": int(topic.permission),
    }
