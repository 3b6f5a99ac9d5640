"""The call that creates a topic on a RocketMQ client's first send (``createTopicInSendMessage``).

RocketMQ's clients name a *template*: a topic whose settings the new one gets, if it may be
inherited from. A group's own topics are made as its other users make them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ledgermq.broker.administration.topic_calls import route_of
from ledgermq.broker.call_arguments import flag, integer, text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import NoPermissionError, TopicUnknownError
from ledgermq.model.limits import FORBIDDEN_TOPICS, QUEUE_ID_MAX
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.rules.tables.groups import check_group_name
from ledgermq.rules.tables.table_changes import Change, TopicSet
from ledgermq.rules.tables.topics import Permission, Topic, check_topic_name
from ledgermq.verbs.needs import ADMIN_ANYWHERE

UNIT_MODE = 1
"""Bit of a topic's flags (``TopicSysFlag``)."""


class SendTopicCalls:
    """Goes through the log; whoever asked is told once producers can rely on it."""

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

        self._log.check_leads()
        changes()  # refuses at once what cannot be made

        def answer() -> Result | None:
            self._notice.expect(name)
            return self._notice.answer(
                call.caller, name, lambda: route_of(self._known.topic(name)), call.now_ms
            )

        touched = {f"topic {name}"} if group is None else {f"topic {name}", f"group {group}"}
        request = StateRequest(call.caller, changes, frozenset(touched), answer)
        self._log.submit(request, call.now_ms)
        return None

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
