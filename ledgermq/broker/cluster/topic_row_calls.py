"""Calls about topics over the groups of a cluster: made and spread at the home, shown by all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledgermq.broker.call_arguments import optional_integer, text
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.cluster.topic_follower import TopicFollower
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.errors import ConfigError, NoPermissionError, TopicUnknownError
from ledgermq.model.features import LEVEL_OF_SPREAD
from ledgermq.rules.cluster.cluster_plans import Plan
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.json_objects import NUMBER_MAX
from ledgermq.rules.cluster.topic_rows import (
    ClusterTopic,
    SharePhase,
    TopicPromises,
    plan_topic_over,
    plan_topic_phase,
    plan_topic_promises,
    plan_topic_release,
    plan_topic_spread,
    topic_row,
)
from ledgermq.rules.messages.topic_plans import QUEUES_DEFAULT
from ledgermq.rules.state.cluster_copy import FILE
from ledgermq.rules.tables.topics import check_topic_name
from ledgermq.verbs import clusters as verbs
from ledgermq.verbs.needs import ANY, shown, topic_right


class TopicRowCalls:
    """Changes are in the home's log when they are answered; each group follows them by its own."""

    def __init__(self, tables: BrokerTables, log: StateLog, follower: TopicFollower) -> None:
        self._tables = tables
        self._log = log
        self._follower = follower
        self.verbs: Verbs = (
            answered(verbs.SetTopicGroups, self._set),
            answered(verbs.AlterTopicGroups, self._alter),
            answered(verbs.SetTopicPhase, self._set_phase),
            answered(verbs.ReleaseTopic, self._release),
            answered(verbs.ShowTopicGroups, self._show),
            AnsweredVerb("cluster_topic_groups", self._groups_of, shown(topic_right(ANY))),
        )

    @property
    def _table(self) -> ClusterTable:
        return self._tables.cluster.table

    def _show(self, _call: Call, asked: verbs.ShowTopicGroups) -> Result:
        self._log.check_newest()
        return self._shown(asked.topic)

    def _shown(self, name: str) -> Result:
        row = topic_row(self._table, name)
        if row is None:
            raise TopicUnknownError("topic is over no groups of a cluster", topic=name)
        own = self._tables.topics.get(name)
        return {
            "topic": name,
            "adopts": row.adopts,
            **_promised(row),
            "groups": _shares(row),
            "group": self._table.group,
            "follows": own is not None and own.cluster != "",
            "refused": self._why_not(name),
        }

    def _groups_of(self, call: Call) -> Result:
        """What clients go by: a topic's groups; ``number`` is that of the last change of any row.

        There are no groups where the topic is over none; None where whoever asks knows the rows of
        that number.
        """
        name = text(call.arguments, "topic")
        known = optional_integer(call.arguments, "known", 0, NUMBER_MAX)
        self._log.check_newest()
        told: Result = {"topic": name, "number": self._table.at.number, "groups": []}
        if known == self._table.at.number:
            return {**told, "groups": None}
        row = topic_row(self._table, name)
        return told if row is None else {**told, "groups": _shares(row), **_promised(row)}

    def _why_not(self, name: str) -> str:
        level = self._tables.features.level
        if level < LEVEL_OF_SPREAD:
            return f"feature level {LEVEL_OF_SPREAD} is not in force in the group, but {level}"
        return self._follower.refused.get(name, "")

    def _set(self, call: Call, asked: verbs.SetTopicGroups) -> None:
        name, over, queues = asked.topic, asked.groups, asked.queues
        adopts, phase = asked.adopt is True, SharePhase.CLOSED if asked.closed else SharePhase.OPEN

        def plan() -> Plan:
            self._check(name)
            if asked.spread:
                return plan_topic_spread(self._table, name, over, queues=queues, phase=phase)
            self._check_adopted(name, over, adopts=adopts)
            own = QUEUES_DEFAULT if queues is None else queues
            return plan_topic_over(
                self._table, name, over, queues=own, adopts=adopts, promises=_promises(asked)
            )

        def answer() -> Result:
            return self._shown(name)

        self._submit(call, name, plan, answer)

    def _alter(self, call: Call, asked: verbs.AlterTopicGroups) -> None:
        name = asked.topic

        def plan() -> Plan:
            return plan_topic_promises(self._table, name, _promises(asked))

        self._submit(call, name, plan, lambda: self._shown(name))

    def _set_phase(self, call: Call, asked: verbs.SetTopicPhase) -> None:
        name, phase = asked.topic, SharePhase.OPEN if asked.is_open else SharePhase.CLOSED

        def plan() -> Plan:
            return plan_topic_phase(self._table, name, phase)

        self._submit(call, name, plan, lambda: self._shown(name))

    def _release(self, call: Call, asked: verbs.ReleaseTopic) -> None:
        name = asked.topic

        def plan() -> Plan:
            return plan_topic_release(self._table, name)

        self._submit(call, name, plan, lambda: {"topic": name})

    def _submit(
        self, call: Call, name: str, plan: Callable[[], Plan], answer: Callable[[], Result]
    ) -> None:
        self._log.check_leads()
        plan()  # refuses at once what cannot be made
        touches = frozenset({FILE, f"topic {name}"})
        self._log.submit(StateRequest(call.caller, plan, touches, answer), call.now_ms)

    def _check(self, name: str) -> None:
        """Refuse what no group could follow."""
        self._table.check_home()
        level = self._tables.features.level
        if level < LEVEL_OF_SPREAD:
            raise ConfigError(
                f"topics over groups need feature level {LEVEL_OF_SPREAD}, which is not in force in"
                " the home: see `ledgermq cluster features`",
                in_force=level,
            )
        check_topic_name(name)
        if self._tables.topics.is_system(name):
            raise NoPermissionError("topic name is reserved for the broker", topic=name)

    def _check_adopted(self, name: str, over: Sequence[str], *, adopts: bool) -> None:
        """Refuse what this group itself would not follow."""
        own = self._tables.topics.get(name)
        is_over = not over or self._table.group in over
        if own is not None and not own.cluster and is_over and not adopts:
            raise ConfigError(
                "the home has a topic of that name of its own: --adopt takes it up", topic=name
            )


def _promises(asked: verbs.TopicPromised) -> TopicPromises:
    return TopicPromises(asked.fails_over, asked.order)


def _promised(row: ClusterTopic) -> dict[str, bool]:
    return {"fails_over": row.fails_over, "order": row.order}


def _shares(row: ClusterTopic) -> list[dict[str, object]]:
    return [
        {"group": group, "queues": share.queues, "phase": share.phase.value}
        for group, share in sorted(row.shares.items())
    ]
