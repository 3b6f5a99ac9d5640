"""Calls about the drain of a group of a cluster: its shares closed at the home; what is left in it.

What is left is told by the group itself, from behind a command of its log, so that nothing which
was acknowledged before is missing in it (docs/decisions/0087).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.cluster.cluster_calls import CLUSTER_TOUCHES
from ledgermq.broker.deliveries.delay_service import DelayService
from ledgermq.broker.deliveries.timer_calls import TOUCHES
from ledgermq.broker.deliveries.timer_service import TimerService
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.broker.transactions.transaction_service import TransactionService
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.rules.cluster.cluster_plans import Plan
from ledgermq.rules.cluster.topic_rows import (
    SharePhase,
    plan_group_phase,
    shares_in_other_phase,
)
from ledgermq.rules.tables.table_changes import Change
from ledgermq.rules.tables.topics import Topic
from ledgermq.verbs.clusters import SetGroupPhase, ShowRemains

TOPICS_SHOWN_MAX = 100


class Unfinished(NamedTuple):
    """Services in which messages wait for something else than a consumer."""

    timers: TimerService
    delays: DelayService
    transactions: TransactionService


class DrainCalls:
    """The first verb is asked of the home, the second of the group that is drained."""

    def __init__(
        self, tables: BrokerTables, log: StateLog, notice: WriterNotice, waiting: Unfinished
    ) -> None:
        self._tables = tables
        self._log = log
        self._notice = notice
        self._waiting = waiting
        self.verbs: Verbs = (
            answered(SetGroupPhase, self._set_phase),
            answered(ShowRemains, self._remains),
        )

    def _set_phase(self, call: Call, asked: SetGroupPhase) -> Result | None:
        group, phase = asked.group, SharePhase.OPEN if asked.is_open else SharePhase.CLOSED
        table = self._tables.cluster.table

        def plan() -> Plan:
            return plan_group_phase(table, group, phase)

        def answer() -> Result:
            return {"group": group, "left": shares_in_other_phase(table, group, phase)}

        self._log.check_leads()
        plan()  # refuses at once what cannot be made
        self._log.submit(StateRequest(call.caller, plan, CLUSTER_TOUCHES, answer), call.now_ms)
        return None

    def _remains(self, call: Call, _asked: ShowRemains) -> None:
        found: dict[str, object] = {}

        def plan() -> Sequence[Change]:
            topics = self._writable()
            own = [topic for topic in topics if not topic.cluster]
            # Before the command that stands behind all: what the writer took until it knew that
            # the topics are closed is in front of it.
            found.update(
                topic_count=len(topics),
                own=[
                    {"topic": topic.name, "perm": int(topic.permission)}
                    for topic in own[:TOPICS_SHOWN_MAX]
                ],
                is_known=self._notice.is_confirmed and not self._tables.has_news,
            )
            self._waiting.timers.follow()
            return [self._waiting.timers.nothing_moved()]

        def answer() -> Result:
            timers, delays, transactions = self._waiting
            timers.follow()
            timers.forget_delivered()
            return {
                **found,
                "group": self._tables.node.broker_name,
                "timers": timers.index.count,
                "delayed": delays.waiting,
                "half_messages": len(transactions.table()),
            }

        self._log.check_leads()
        self._log.submit(StateRequest(call.caller, plan, TOUCHES, answer), call.now_ms)

    def _writable(self) -> list[Topic]:
        """Topics of users that take messages; what is sent back to a consumer is its group's."""
        topics = self._tables.topics
        return [
            topic
            for topic in topics
            if topic.is_writable
            and not topics.is_system(topic.name)
            and not topic.name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        ]
