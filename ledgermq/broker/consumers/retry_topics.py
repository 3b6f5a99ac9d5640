"""Creation of a group's retry and dead-letter topics, when they are needed."""

from __future__ import annotations

from ledgermq.broker.call_arguments import text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import submit_call
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.rules.messages.retries import DEAD_LETTER_QUEUES, check_writable
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.table_changes import Change, GroupSet, TopicSet
from ledgermq.rules.tables.topics import Topic
from ledgermq.verbs.needs import ADMIN_ANYWHERE


class RetryTopics:
    """Looks at the tables whenever it is asked; keeps nothing."""

    def __init__(self, known: KnownTopics, rules: TopicsSection) -> None:
        self._known = known
        self._tables = known.tables
        self._rules = rules

    def get(self, name: str) -> Topic | None:
        """The topic called ``name``, if there is one."""
        return self._tables.topics.get(name)

    def group(self, name: str) -> SubscriptionGroup:
        """The group, also one that may not consume, or that is to be made.

        Raises:
            NoPermissionError: there is none, and none may be made.
        """
        known = self._tables.groups.get(name)
        return known or self._tables.groups.plan_use(name, self._rules)

    def lacking(self, group: str, name: str) -> list[Change]:
        """What the tables lack of a group and one of its two topics.

        Raises:
            NoPermissionError: the group does not exist, and may not be made; or the topic may not
                be written to.
        """
        changes: list[Change] = []
        known = self.group(group)
        if self._tables.groups.get(group) is None:
            changes.append(GroupSet(group, known.to_fields()))
        topic = self.get(name)
        if topic is not None:
            check_writable(topic)
            return changes
        queues = DEAD_LETTER_QUEUES
        if name == retry_topic(group):
            queues = max(1, known.retry_queues)
        begins = self._known.first_offsets(name)
        made = Topic(name, queues, queues)
        fields = (made.beginning_at(begins) if begins else made).to_fields()
        return [*changes, TopicSet(name, fields)]


class PreparedGroups:
    """Creation of a group and its retry topic on first use.

    RocketMQ's clients want the retry topic to be there when they begin.
    """

    def __init__(self, known: KnownTopics, rules: TopicsSection, log: StateLog) -> None:
        self._topics = RetryTopics(known, rules)
        self._log = log
        self.verbs: Verbs = (AnsweredVerb("group_prepare", self._prepare, ADMIN_ANYWHERE),)

    def _prepare(self, call: Call) -> Result | None:
        """The group and its retry topic; a group without retry queues has none."""
        group = text(call.arguments, "group")
        name = retry_topic(group)
        touches = {f"group {group}", f"topic {name}"}
        return submit_call(
            self._log, call, lambda: self._topics.lacking(group, name), touches, lambda: {}
        )
