"""A group's leader follows the cluster's rows of topics, by its own log."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.broker.cluster.cluster_service import TopicRowCalls
from ledgermq.broker.cluster.topic_follower import TOPICS_AT_ONCE, TopicFollower
from ledgermq.broker.state.state_log import RETRY_MS
from ledgermq.model.errors import BusyError, ConfigError, ProtocolError, TopicUnknownError
from ledgermq.model.features import LEVEL_OF_SPREAD
from ledgermq.rules.cluster.cluster_plans import Plan, plan_group
from ledgermq.rules.cluster.topic_rows import plan_topic_over
from ledgermq.rules.state.cluster_copy import ClusterCopy
from ledgermq.rules.tables.topics import Topic, TopicTable
from tests.unit.broker.answers import answers
from tests.unit.rules.test_cluster_plans import B, applied, home


def as_read(name: str, queues: int, cluster: str = "") -> Topic:
    """As the log gives it back."""
    return Topic.read(name, Topic(name, queues, queues, cluster=cluster).to_fields())


class Leader:
    """The tables of a home's leader, its log, and the follower."""

    def __init__(self) -> None:
        table = home()
        applied(table, plan_group(table, "b", [B], user=""))
        self.copy, self.topics = ClusterCopy(table), TopicTable()
        self.waiting: list[Any] = []
        self.busy = False
        self.log: Any = SimpleNamespace(
            submit=self._submit, is_certain=True, term=1, check_newest=lambda: None,
            check=lambda: None,
            check_leads=lambda: None,
        )  # fmt: skip
        self.features = SimpleNamespace(level=LEVEL_OF_SPREAD)
        known: Any = SimpleNamespace(first_offsets=lambda _: {})
        tables: Any = SimpleNamespace(cluster=self.copy, topics=self.topics, features=self.features)
        self.follower = TopicFollower(known, tables, self.log)
        self._answers = answers(TopicRowCalls(tables, self.log, self.follower).verbs)

    def _submit(self, request: Any, _now_ms: int) -> None:
        if self.busy:
            raise BusyError("too many wait")
        self.waiting.append(request)

    def commit(self) -> list[Any]:
        """Apply what waits; the answers."""
        waiting, self.waiting, told = self.waiting, [], []
        for request in waiting:
            for change in request.plan():
                (self.topics if hasattr(change, "fields") else self.copy).apply(change, 0, 0)
            told.append(request.answer())
        return told

    def turn(self, now_ms: int = 0) -> int:
        """Turns until nothing more is proposed; how many commands there were."""
        self.follower.turn(now_ms)
        count = 0
        while self.waiting:
            self.commit()
            count += 1
            self.follower.turn(now_ms)
        return count

    def change(self, plan: Plan) -> None:
        for command in plan:
            self.copy.apply(command, 0, 0)
            assert self.copy.table.refused == ""

    def over(self, topic: str, *groups: str, adopts: bool = False) -> None:
        table = self.copy.table
        self.change(plan_topic_over(table, topic, groups, queues=4, adopts=adopts))

    def ask(self, verb: str, **arguments: object) -> Any:
        found = self._answers[verb](Call(Caller(b"c", 1), arguments, 0))
        return self.commit()[-1] if found is None else found


def test_topics_come_with_the_rows_in_one_command_and_then_nothing_is_asked() -> None:
    leader = Leader()
    leader.over("orders", "a")
    leader.over("bills", "a")

    assert leader.turn() == 1
    assert leader.topics.get("orders") == as_read("orders", 4, "c")
    assert leader.topics.get("bills") is not None
    assert leader.turn() == 0
    assert leader.follower.next_deadline_ms() is None


def test_many_topics_come_in_commands_of_a_bounded_size() -> None:
    leader = Leader()
    for number in range(TOPICS_AT_ONCE + 1):
        leader.over(f"t{number}", "a")

    assert leader.turn() == 2
    assert len(leader.topics) == TOPICS_AT_ONCE + 1


def test_a_row_that_comes_later_is_followed_and_others_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Leader()
    leader.over("orders", "a")
    leader.turn()
    seen: list[str] = []
    wanted = leader.follower._wanted

    def noted(name: str) -> Topic | None:
        seen.append(name)
        return wanted(name)

    monkeypatch.setattr(leader.follower, "_wanted", noted)
    leader.over("bills", "a")

    assert leader.turn() == 1
    assert set(seen) == {"bills"}


def test_a_topic_of_the_groups_own_is_told_and_taken_up_once_the_row_adopts() -> None:
    leader = Leader()
    leader.topics.put(Topic("orders", 2, 2), 1)
    leader.over("orders", "a")

    assert leader.turn() == 0
    assert "of its own" in leader.follower.refused["orders"]
    leader.over("orders", "a", adopts=True)
    assert leader.turn() == 1
    assert (leader.topics.get("orders"), leader.follower.refused) == (
        as_read("orders", 4, "c"), {},
    )  # fmt: skip


def test_a_topic_of_the_groups_own_that_comes_after_the_row_was_followed_away_is_seen() -> None:
    """A member of an older version, or RocketMQ, wrote the table without the mark."""
    leader = Leader()
    leader.over("orders", "a", adopts=True)
    leader.turn()
    leader.topics.put(Topic("orders", 4, 4), 2)

    assert leader.turn() == 1
    assert leader.topics.get("orders") == as_read("orders", 4, "c")


def unsure(leader: Leader) -> None:
    leader.log.is_certain = False


def low(leader: Leader) -> None:
    leader.features.level = LEVEL_OF_SPREAD - 1


@pytest.mark.parametrize("hinder", [unsure, low])
def test_nobody_follows_who_does_not_lead_or_below_the_level(
    hinder: Callable[[Leader], None],
) -> None:
    leader = Leader()
    leader.over("orders", "a")
    hinder(leader)
    assert leader.turn() == 0

    leader.log.is_certain, leader.features.level = True, LEVEL_OF_SPREAD
    assert leader.turn() == 1


def test_a_log_that_is_busy_is_asked_again_later() -> None:
    leader = Leader()
    leader.over("orders", "a")
    leader.busy = True
    assert leader.turn(0) == 0
    leader.busy = False

    assert leader.follower.next_deadline_ms() == RETRY_MS
    assert leader.turn(RETRY_MS - 1) == 0
    assert leader.turn(RETRY_MS) == 1
    assert leader.follower.next_deadline_ms() is None


def test_what_another_leader_left_undone_the_next_one_does() -> None:
    leader = Leader()
    leader.over("orders", "a")
    leader.follower.turn(0)
    (lost,) = leader.waiting
    leader.waiting.clear()
    lost.refused(BusyError("node does not lead any more"))
    leader.log.is_certain = False
    leader.turn()
    leader.log.is_certain, leader.log.term = True, 2

    assert leader.turn(RETRY_MS) == 1


def test_a_topic_is_made_and_spread_at_the_home() -> None:
    leader = Leader()
    made = leader.ask("cluster_topic_set", topic="orders", groups=["a"], queues=4)
    spread = leader.ask("cluster_topic_set", topic="orders", groups=[], spread=True)
    leader.turn()

    assert made["groups"] == [{"group": "a", "queues": 4, "phase": "open"}]
    assert [one["group"] for one in spread["groups"]] == ["a", "b"]
    told = leader.ask("cluster_topic_show", topic="orders")
    assert (told["follows"], told["refused"], told["group"]) == (True, "", "a")


def test_a_topic_is_closed_spread_closed_and_opened_at_the_home() -> None:
    leader = Leader()
    leader.ask("cluster_topic_set", topic="orders", groups=["a"], queues=4)
    leader.ask("cluster_topic_phase", topic="orders")
    spread = leader.ask("cluster_topic_set", topic="orders", groups=[], spread=True, closed=True)
    leader.turn()
    before = leader.topics.get("orders")
    opened = leader.ask("cluster_topic_phase", topic="orders", open=True)
    leader.turn()
    after = leader.topics.get("orders")

    assert {(one["group"], one["phase"]) for one in spread["groups"]} == {
        ("a", "closed"), ("b", "closed"),
    }  # fmt: skip
    assert {one["phase"] for one in opened["groups"]} == {"open"}
    assert before is not None and not before.is_writable
    assert after is not None and after.is_writable


def test_clients_are_told_of_a_topic_where_its_groups_are_and_what_it_promises() -> None:
    leader = Leader()
    before = leader.ask("cluster_topic_groups", topic="orders")
    leader.ask("cluster_topic_set", topic="orders", groups=["a"], queues=4, fails_over=True)
    told = leader.ask("cluster_topic_groups", topic="orders", known=before["number"])
    again = leader.ask("cluster_topic_groups", topic="orders", known=told["number"])
    shown = leader.ask("cluster_topic_alter", topic="orders", order=True)
    altered = leader.ask("cluster_topic_groups", topic="orders", known=told["number"])

    assert before["groups"] == [] and before["number"] < told["number"]
    assert told["groups"] == [{"group": "a", "queues": 4, "phase": "open"}]
    assert (told["fails_over"], told["order"]) == (True, False)
    assert again == {"topic": "orders", "number": told["number"], "groups": None}
    assert (shown["fails_over"], shown["order"]) == (True, True)
    assert (altered["fails_over"], altered["order"]) == (True, True)
    with pytest.raises(ProtocolError, match="true or false"):
        leader.ask("cluster_topic_alter", topic="orders", order=1)
    with pytest.raises(ProtocolError, match="known"):
        leader.ask("cluster_topic_groups", topic="orders", known=-1)


def test_what_the_home_itself_would_not_follow_is_refused_at_once() -> None:
    leader = Leader()
    leader.topics.put(Topic("orders", 2, 2), 1)

    with pytest.raises(ConfigError, match="--adopt takes it up"):
        leader.ask("cluster_topic_set", topic="orders", groups=[])
    with pytest.raises(ConfigError, match="--adopt takes it up"):
        leader.ask("cluster_topic_set", topic="orders", groups=["b", "a"])
    with pytest.raises(TopicUnknownError, match="over no groups"):
        leader.ask("cluster_topic_show", topic="orders")
    with pytest.raises(ProtocolError, match="not names of groups"):
        leader.ask("cluster_topic_set", topic="orders", groups="all")
    leader.features.level = LEVEL_OF_SPREAD - 1
    with pytest.raises(ConfigError, match="need feature level 6"):
        leader.ask("cluster_topic_set", topic="bills", groups=[])
    assert leader.waiting == []


def test_of_the_home_that_keeps_a_topic_of_its_own_another_group_may_have_one() -> None:
    leader = Leader()
    leader.topics.put(Topic("orders", 2, 2), 1)
    leader.ask("cluster_topic_set", topic="orders", groups=["b"], queues=4)

    assert leader.turn() == 0
    assert leader.topics.get("orders") == Topic("orders", 2, 2)


def test_a_released_topic_is_the_groups_own() -> None:
    leader = Leader()
    leader.over("orders", "a")
    leader.turn()
    leader.ask("cluster_topic_release", topic="orders")

    assert leader.turn() == 1
    assert leader.topics.get("orders") == as_read("orders", 4)
    with pytest.raises(TopicUnknownError):
        leader.ask("cluster_topic_release", topic="orders")


def test_a_group_below_the_level_says_that_it_follows_nothing() -> None:
    leader = Leader()
    leader.over("orders", "a")
    low(leader)
    leader.turn()

    told = leader.ask("cluster_topic_show", topic="orders")
    assert not told["follows"]
    assert "feature level 6 is not in force in the group, but 5" in told["refused"]


def test_who_does_not_lead_any_more_tells_no_old_refusals() -> None:
    leader = Leader()
    leader.topics.put(Topic("orders", 2, 2), 1)
    leader.over("orders", "a")
    leader.turn()
    unsure(leader)
    leader.turn()

    assert leader.follower.refused == {}
