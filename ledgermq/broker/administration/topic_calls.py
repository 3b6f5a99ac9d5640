"""Calls about topics and the content of their queues: lists, and changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from ledgermq.broker.call_arguments import flag, integer, text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.sliced_answers import SlicedAnswers
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import submit_call
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.config.settings import NodeSection, TopicsSection
from ledgermq.model.errors import NoPermissionError, TopicUnknownError
from ledgermq.model.limits import FORBIDDEN_TOPICS, QUEUE_ID_MAX
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.rules.messages.topic_plans import (
    plan_alter,
    plan_create,
    plan_delete,
    warnings_of,
)
from ledgermq.rules.tables.groups import check_group_name
from ledgermq.rules.tables.table_changes import Change, OffsetsSet, TopicSet
from ledgermq.rules.tables.topics import FLAGS, NUMBERS, Permission, Topic, check_topic_name
from ledgermq.verbs.needs import ADMIN_ANYWHERE, ANY, shown, topic_right
from ledgermq.verbs.topics import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ListTopics,
    ShowTopic,
)

UNIT_MODE = 1
"""Bit of a topic's flags (``TopicSysFlag``)."""


class TopicCalls:
    """Changes go through the log; whoever asked is told once producers can rely on it."""

    def __init__(
        self,
        known: KnownTopics,
        rules: TopicsSection,
        log: StateLog,
        notice: WriterNotice,
        slices: SlicedAnswers,
    ) -> None:
        self._store = known.store
        self._tables = known.tables
        self._rules = rules
        self._log = log
        self._known = known
        self._notice = notice
        self._slices = slices
        self.verbs: Verbs = (
            answered(ListTopics, self._topics),
            answered(ShowTopic, self._show),
            AnsweredVerb("route", self._route, topic_right(ANY, to_create=Right.PUB)),
            answered(CreateTopic, self._create),
            answered(AlterTopic, self._alter),
            answered(DeleteTopic, self._delete),
        )

    def adopt(self, at_ms: int) -> list[str]:
        """Take up topics and queues that the store has and the table lacks; their names.

        To be called where this node begins to lead, before its tables become those of all: it may
        have been started with files that are older than its log, as RocketMQ leaves them.

        Args:
            at_ms: epoch; of the table's new version.
        """
        topics, adopted = self._tables.topics, []
        for name in self._store.topics():
            queues = self._known.queues_found(name)
            known = topics.get(name)
            if topics.is_system(name) or queues == 0:
                continue
            if known is None:
                queues = max(queues, self._rules.default_topic_queue_nums)
            elif queues <= max(known.read_queues, known.write_queues, known.queues_kept):
                continue
            topics.put(topics.plan(name, queues), at_ms)
            adopted.append(name)
        return adopted

    def _topics(self, call: Call, asked: ListTopics) -> Result | None:
        """All, or with ``limit`` at most so many whose names are behind ``after``."""
        stored = frozenset(self._store.topics())
        found = (topic for topic in self._known.all() if topic.name > (asked.after or ""))
        chosen = list(islice(found, asked.limit))
        rows = (self._row(topic, stored) for topic in chosen)
        fields = {"more": asked.limit is not None and len(chosen) == asked.limit}
        return self._slices.show(call, fields, topics=rows)

    def _row(self, topic: Topic, stored: frozenset[str]) -> Result:
        is_stored = topic.name in stored
        return {
            **route_of(topic),
            "order": topic.is_ordered,
            "deduplication_window_ms": topic.deduplication_window_ms,
            "system": self._tables.topics.is_system(topic.name),
            "messages": self._store.message_count(topic.name) if is_stored else 0,
        }

    def _show(self, call: Call, asked: ShowTopic) -> Result | None:
        topic = self._known.topic(asked.topic)
        has = set(self._store.queue_ids(topic.name))
        queues = range(max(topic.read_queues, topic.write_queues))
        fields = {
            **self._described(topic),
            "system": self._tables.topics.is_system(topic.name),
            "groups": [owner.group for owner, _ in self._tables.offsets.of_topic(topic.name)],
        }
        rows = (self._queue_row(topic, number) for number in queues if number in has)
        return self._slices.show(call, fields, queues=rows)

    def _queue_row(self, topic: Topic, queue_id: int) -> Result:
        queue = QueueName(topic.name, queue_id)
        held, end, _ = self._store.bounds(queue)
        stored_ms = self._store.store_time(queue, end - 1) if held < end else -1
        first = self._store.told_bounds(queue).first
        return {"queue": queue_id, "min": first, "max": end, "last_stored": stored_ms}

    def _route(self, call: Call) -> Result | None:
        name = text(call.arguments, "topic")
        if self._tables.topics.get(name) is None and flag(call.arguments, "create"):
            check_topic_name(name)
            found = self._known.queues_found(name)

            def plan() -> Topic:
                return self._tables.topics.plan_on_first_use(
                    name,
                    self._rules,
                    queues_found=found,
                    first_offsets=self._known.first_offsets(name),
                )

            return self._change(call, name, plan, route_of, tries=True)
        return self._notice.answer(
            call.caller, name, lambda: route_of(self._known.topic(name)), call.now_ms
        )

    def _create(self, call: Call, asked: CreateTopic) -> Result | None:
        name = asked.topic

        def plan() -> Topic:
            begins = self._known.first_offsets(name)
            return plan_create(self._tables.topics, name, asked, first_offsets=begins)

        return self._change(call, name, plan, self._described)

    def _alter(self, call: Call, asked: AlterTopic) -> Result | None:
        name = asked.topic

        def plan() -> Topic:
            return plan_alter(
                self._tables.topics,
                name,
                asked,
                unread=lambda queues: self._known.unread(name, queues),
                force=asked.force,
            )

        return self._change(call, name, plan, self._described)

    def _delete(self, call: Call, asked: DeleteTopic) -> Result | None:
        name = asked.topic
        groups: list[str] = []

        def changes() -> list[Change]:
            found = self._known.queues_found(name)
            if not plan_delete(self._tables.topics, name, queues_found=found):
                return []
            groups[:] = [owner.group for owner, _ in self._tables.offsets.of_topic(name)]
            return [TopicSet(name, None), *(OffsetsSet(group, name, None) for group in groups)]

        def answer() -> Result | None:
            deleted = {"topic": name, "groups": groups}
            return self._notice.answer_changed(call, name, lambda: deleted)

        return submit_call(self._log, call, changes, {f"topic {name}"}, answer)

    def _change(
        self,
        call: Call,
        name: str,
        plan: Callable[[], Topic],
        describe: Callable[[Topic], Result],
        *,
        tries: bool = False,
    ) -> Result | None:
        """Have a topic in the log; whoever asked is told once producers can use it."""

        def changes() -> list[Change]:
            topic = plan()
            if topic is self._tables.topics.get(name):
                return []
            return [TopicSet(name, topic.to_fields())]

        def answer() -> Result | None:
            return self._notice.answer_changed(
                call, name, lambda: describe(self._known.topic(name))
            )

        return submit_call(self._log, call, changes, {f"topic {name}"}, answer, tries=tries)

    def _described(self, topic: Topic) -> Result:
        """All that the table says of a topic, and what an operator should know of it.

        By now all messages before the topic's command are dispatched, those of a queue too that
        was just taken from readers.
        """
        hidden = self._known.unread(
            topic.name,
            [one for one in self._store.queue_ids(topic.name) if one >= topic.read_queues],
        )
        return {
            **route_of(topic),
            "order": topic.is_ordered,
            "filter_type": topic.unknown.get("topicFilterType", "SINGLE_TAG"),
            "sys_flag": topic.sys_flag,
            **{name: getattr(topic, name) for name in (*NUMBERS, *FLAGS)},
            # What RocketMQ's attributes say counts, too.
            "keep_ms": topic.kept_ms,
            "compact": topic.is_compacted,
            "order_config": order_config(topic, self._tables.node) if topic.is_ordered else "",
            "warnings": warnings_of(topic, unread=hidden),
        }


def order_config(topic: Topic, node: NodeSection) -> str:
    """What RocketMQ's name server has as ``orderTopicConf``: where which queues are, for ever."""
    return f"{node.broker_name}:{topic.write_queues}"


def route_of(topic: Topic) -> Result:
    """What a client has to know of a topic."""
    return {
        "topic": topic.name,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "perm": int(topic.permission),
        "message_type": topic.message_type,
    }


class SendTopicCalls:
    """Creation of a topic on a RocketMQ client's first send (``createTopicInSendMessage``).

    RocketMQ's clients name a *template*: a topic whose settings the new one gets, if it may be
    inherited from. A group's own topics are made as its other users make them. Whoever asked is
    told once producers can rely on it.
    """

    def __init__(
        self, known: KnownTopics, rules: TopicsSection, log: StateLog, notice: WriterNotice
    ) -> None:
        self._known = known
        self._tables = known.tables
        self._rules = rules
        self._log = log
        self._notice = notice
        self._of_groups = RetryTopics(known, rules)
        self.verbs: Verbs = (AnsweredVerb("topic_for_send", self._make, ADMIN_ANYWHERE),)

    def _make(self, call: Call) -> Result | None:
        arguments = call.arguments
        name, template = text(arguments, "topic"), text(arguments, "template")
        queues = integer(arguments, "queues", 0, QUEUE_ID_MAX)
        is_unit = flag(arguments, "unit_mode")
        check_topic_name(name)
        if name in FORBIDDEN_TOPICS:
            raise NoPermissionError("topic is the broker's own", topic=name)
        group = _group_of(name)

        def changes() -> list[Change]:
            if group is None:
                is_there = self._tables.topics.get(name) is not None
                return [] if is_there else [set_of(self._inherit(name, template, queues))]
            lacking = self._of_groups.lacking(group, name)
            # Like any other one that is sent to first; of what its group gets back itself it is
            # another topic, with the group's number of queues.
            with suppress(TopicUnknownError):
                made = set_of(self._inherit(name, template, queues))
                return [made if isinstance(one, TopicSet) else one for one in lacking]
            return lacking

        def set_of(made: Topic) -> TopicSet:
            if is_unit:
                made = replace(made, sys_flag=made.sys_flag | UNIT_MODE)
            return TopicSet(name, made.to_fields())

        def answer() -> Result | None:
            return self._notice.answer_changed(
                call, name, lambda: route_of(self._known.topic(name))
            )

        touched = {f"topic {name}"} if group is None else {f"topic {name}", f"group {group}"}
        return submit_call(self._log, call, changes, touched, answer, tries=True)

    def _inherit(self, name: str, template: str, queues: int) -> Topic:
        """A new topic with the settings of ``template``.

        Raises:
            TopicUnknownError: no topic may be made on first use, or none from that template.
        """
        if not self._rules.auto_create_topic_enable:
            raise TopicUnknownError(
                "topic does not exist, and is not created on first use",
                topic=name,
                setting="topics.auto_create_topic_enable",
            )
        source = self._tables.topics.get(template)
        if source is None or not source.permission & Permission.INHERIT:
            raise TopicUnknownError(
                "topic does not exist, and its template is no topic to inherit from",
                topic=name,
                template=template,
            )
        count = max(1, min(queues, source.write_queues), self._known.queues_found(name))
        made = replace(
            Topic(name, count, count),
            permission=source.permission & ~Permission.INHERIT,
            unknown=source.unknown,
        )
        begins = self._known.first_offsets(name)
        return made.beginning_at(begins) if begins else made


def _group_of(name: str) -> str | None:
    """The group whose own topic that is; None when it is nobody's."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            group = name.removeprefix(prefix)
            check_group_name(group)
            return group
    return None


class QueueCalls:
    """The content of one queue: answered at once, by any node, from its own store."""

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
        # Consumers begin there.
        bounds = self._store.told_bounds(self._known.queue_of(call.arguments), surely=True)
        return {"min": bounds.first, "max": bounds.end}

    def _offset_by_time(self, call: Call) -> Result:
        queue = self._known.queue_of(call.arguments)
        timestamp_ms = integer(call.arguments, "timestamp", 0, 2**63 - 1)
        if flag(call.arguments, "since"):
            offset = self._store.first_since(queue, timestamp_ms)
        else:
            offset = self._store.offset_by_time(queue, timestamp_ms)
        return {"offset": self._store.told_since(queue, timestamp_ms, offset)}

    def _earliest_time(self, call: Call) -> Result:
        queue = self._known.queue_of(call.arguments) if "topic" in call.arguments else None
        return {"timestamp": self._store.earliest_time(queue)}
