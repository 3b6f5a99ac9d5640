"""The call that creates a group and its retry topic on first use."""

from __future__ import annotations

from ledgermq.broker.call_arguments import text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.names.group_topics import retry_topic
from ledgermq.verbs.needs import ADMIN_ANYWHERE


class PreparedGroups:
    """RocketMQ's clients want the retry topic to be there when they begin."""

    def __init__(self, known: KnownTopics, rules: TopicsSection, log: StateLog) -> None:
        self._topics = RetryTopics(known, rules)
        self._log = log
        self.verbs: Verbs = (AnsweredVerb("group_prepare", self._prepare, ADMIN_ANYWHERE),)

    def _prepare(self, call: Call) -> Result | None:
        """The group and its retry topic; a group without retry queues has none."""
        group = text(call.arguments, "group")
        name = retry_topic(group)
        touches = frozenset({f"group {group}", f"topic {name}"})
        self._log.submit(
            StateRequest(
                call.caller, lambda: self._topics.lacking(group, name), touches, lambda: {}
            ),
            call.now_ms,
        )
        return None
