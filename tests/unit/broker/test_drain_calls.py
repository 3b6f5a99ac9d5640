"""What a group that is drained says of itself, and its shares that are closed at the home."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.broker.cluster.cluster_calls import TOPICS_SHOWN_MAX, DrainCalls, Unfinished
from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster.cluster_plans import plan_group
from ledgermq.rules.cluster.topic_rows import plan_topic_over, topic_row
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable
from tests.unit.broker.answers import answers
from tests.unit.rules.test_cluster_plans import B, applied, home


class Drained:
    """Tables of a leader, and services in which something waits."""

    def __init__(self) -> None:
        self.table = home()
        applied(self.table, plan_group(self.table, "b", [B], user=""))
        self.topics = TopicTable()
        self.notice = SimpleNamespace(is_confirmed=True)
        self.index = SimpleNamespace(count=0)
        timers: Any = SimpleNamespace(
            index=self.index, follow=lambda: None, forget_delivered=lambda: None,
            nothing_moved=lambda: "nothing",
        )  # fmt: skip
        self.delays: Any = SimpleNamespace(waiting=0)
        transactions: Any = SimpleNamespace(table=lambda: [1, 2])
        tables: Any = SimpleNamespace(
            cluster=SimpleNamespace(table=self.table), topics=self.topics,
            node=SimpleNamespace(broker_name="a"), has_news=False,
        )  # fmt: skip
        self.tables = tables
        self._asked: list[Any] = []
        log: Any = SimpleNamespace(
            check_leads=lambda: None, submit=lambda request, _: self._asked.append(request)
        )
        notice: Any = self.notice
        calls = DrainCalls(tables, log, notice, Unfinished(timers, self.delays, transactions))
        self._answers = answers(calls.verbs)

    def ask(self, verb: str, **arguments: object) -> Any:
        """Ask; something comes while the command is on its way through the log."""
        self._answers[verb](Call(Caller(b"c", 1), arguments, 0))
        request = self._asked.pop()
        for change in request.plan():
            if change != "nothing":
                self.table.apply(change)
                assert self.table.refused == ""
        self.index.count += 3
        self.delays.waiting += 4
        return request.answer()


def test_what_waits_is_told_as_it_is_behind_the_command() -> None:
    drained = Drained()
    drained.topics.put(Topic("closed", 1, 1, Permission.READ), 1)

    assert drained.ask("cluster_remains") == {
        "group": "a", "topic_count": 0, "own": [], "is_known": True,
        "timers": 3, "delayed": 4, "half_messages": 2,
    }  # fmt: skip


def test_topics_that_take_messages_are_told_and_those_of_consumer_groups_not() -> None:
    drained = Drained()
    drained.notice.is_confirmed = False
    for topic in (
        Topic("own", 1, 1),
        Topic("spread", 1, 1, cluster="c"),
        Topic("%RETRY%g", 1, 1),
        Topic("%DLQ%g", 1, 1),
        Topic("SCHEDULE_TOPIC_XXXX", 18, 18),
    ):
        drained.topics.put(topic, 1)
    told = drained.ask("cluster_remains")

    assert (told["topic_count"], told["own"]) == (2, [{"topic": "own", "perm": 6}])
    assert not told["is_known"]


def test_a_topic_that_was_just_closed_is_not_known_to_be_before_the_writer_is_told() -> None:
    drained = Drained()
    drained.tables.has_news = True

    assert not drained.ask("cluster_remains")["is_known"]


def test_of_many_topics_some_are_told_and_all_are_counted() -> None:
    drained = Drained()
    for number in range(TOPICS_SHOWN_MAX + 1):
        drained.topics.put(Topic(f"t{number}", 1, 1), 1)
    told = drained.ask("cluster_remains")

    assert (told["topic_count"], len(told["own"])) == (TOPICS_SHOWN_MAX + 1, TOPICS_SHOWN_MAX)


def test_shares_of_a_group_are_closed_and_opened_at_the_home() -> None:
    drained = Drained()
    plan = plan_topic_over(drained.table, "orders", [], queues=4, adopts=False)
    applied(drained.table, plan)

    assert drained.ask("cluster_group_phase", group="b") == {"group": "b", "left": 0}
    row = topic_row(drained.table, "orders")
    assert row is not None
    assert {group: share.phase.value for group, share in row.shares.items()} == {
        "a": "open", "b": "closed",
    }  # fmt: skip
    assert drained.ask("cluster_group_phase", group="b", open=True)["left"] == 0
    row = topic_row(drained.table, "orders")
    assert row is not None and row.shares["b"].phase.value == "open"
    with pytest.raises(ConfigError, match="no group of that name"):
        drained.ask("cluster_group_phase", group="x")
