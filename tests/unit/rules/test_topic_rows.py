"""Topics over groups: rows of the home, and what a group's share changes in its own table."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import (
    ConfigError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.rules.cluster import topic_rows
from ledgermq.rules.cluster.cluster_plans import plan_group, plan_joining, plan_row
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.json_objects import Object
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.cluster.topic_rows import (
    CLUSTER_TOPICS_MAX,
    ROWS_AT_ONCE,
    TOPIC_KIND,
    ClusterTopic,
    SharePhase,
    TopicPromises,
    TopicShare,
    plan_group_phase,
    plan_topic_over,
    plan_topic_phase,
    plan_topic_promises,
    plan_topic_release,
    plan_topic_spread,
    read_topic_row,
    shares_in_other_phase,
    topic_row,
)
from ledgermq.rules.messages.topic_plans import (
    plan_alter,
    plan_create,
    plan_delete,
    plan_followed,
)
from ledgermq.rules.tables.topics import READ_WRITE, Permission, Topic, TopicTable
from ledgermq.verbs.topics import TopicFields
from tests.unit.rules.test_cluster_plans import B, applied, chain_of, home, joins


def two_groups() -> ClusterTable:
    table = home()
    return applied(table, plan_group(table, "b", [B], user=""))


def over(table: ClusterTable, *groups: str, queues: int = 4, adopts: bool = False) -> ClusterTable:
    return applied(table, plan_topic_over(table, "orders", groups, queues=queues, adopts=adopts))


def closed(table: ClusterTable) -> ClusterTable:
    row = ClusterTopic({"a": TopicShare(4, SharePhase.CLOSED)})
    return applied(table, plan_row(table, RowKey(TOPIC_KIND, "orders"), row.to_value()))


def followed(topics: TopicTable, table: ClusterTable) -> Topic | None:
    """What is to be done; it is done."""
    wanted = plan_followed(topics, table, "orders", first_offsets={})
    if wanted is not None:
        topics.put(wanted, 1)
    return wanted


def test_a_topic_is_over_the_groups_that_are_named_or_all() -> None:
    named, everywhere = over(two_groups(), "b"), over(two_groups())

    assert topic_row(named, "orders") == ClusterTopic({"b": TopicShare(4)})
    assert topic_row(everywhere, "orders") == ClusterTopic({"a": TopicShare(4), "b": TopicShare(4)})
    assert topic_row(named, "other") is None
    assert plan_topic_over(everywhere, "orders", [], queues=4, adopts=False) == []


def test_a_spread_topic_has_queues_in_more_groups_and_keeps_those_that_it_has() -> None:
    table = over(two_groups(), "a", queues=6)
    applied(table, plan_topic_spread(table, "orders", ["a", "b"], queues=2))

    row = topic_row(table, "orders")
    assert row == ClusterTopic({"a": TopicShare(6), "b": TopicShare(2)})
    assert plan_topic_spread(table, "orders", [], queues=None) == []


def test_a_group_that_has_some_queues_gets_more_and_never_fewer() -> None:
    table = over(two_groups(), "a", "b", queues=4)
    applied(table, plan_topic_spread(table, "orders", ["b"], queues=6))

    row = topic_row(table, "orders")
    assert row == ClusterTopic({"a": TopicShare(4), "b": TopicShare(6)})
    assert plan_topic_spread(table, "orders", ["b"], queues=2) == []


def test_a_closed_share_that_gets_more_queues_stays_closed() -> None:
    table = closed(over(two_groups(), "a"))
    applied(table, plan_topic_spread(table, "orders", ["a"], queues=6))

    assert topic_row(table, "orders") == ClusterTopic({"a": TopicShare(6, SharePhase.CLOSED)})


def test_a_topic_is_closed_and_opened_in_all_of_its_groups_at_once() -> None:
    table = over(two_groups(), "a", queues=4)
    applied(table, plan_topic_phase(table, "orders", SharePhase.CLOSED))
    plan = plan_topic_spread(table, "orders", ["b"], queues=None, phase=SharePhase.CLOSED)
    applied(table, plan)
    shut = TopicShare(4, SharePhase.CLOSED)

    assert topic_row(table, "orders") == ClusterTopic({"a": shut, "b": shut})
    assert plan_topic_phase(table, "orders", SharePhase.CLOSED) == []
    opened = plan_topic_phase(table, "orders", SharePhase.OPEN)
    applied(table, opened)
    assert len(opened) == 1
    assert topic_row(table, "orders") == ClusterTopic({"a": TopicShare(4), "b": TopicShare(4)})
    with pytest.raises(TopicUnknownError, match="over no groups"):
        plan_topic_phase(table, "other", SharePhase.OPEN)


def test_a_share_of_a_group_that_was_removed_is_neither_closed_nor_opened() -> None:
    table = over(two_groups(), "a", "b")
    applied(table, plan_group_phase(table, "b", SharePhase.CLOSED))
    applied(table, plan_row(table, RowKey(GROUP_KIND, "b"), None))

    assert plan_topic_phase(table, "orders", SharePhase.OPEN) == []


def test_the_shares_of_one_group_are_closed_some_at_a_time_and_opened_again() -> None:
    table = two_groups()
    topics = [f"t{number}" for number in range(ROWS_AT_ONCE + 1)]
    for topic in topics:
        applied(table, plan_topic_over(table, topic, ["a", "b"], queues=4, adopts=False))
    applied(table, plan_topic_over(table, "other", ["a"], queues=4, adopts=False))

    def left(phase: SharePhase) -> int:
        plan = plan_group_phase(table, "b", phase)
        applied(table, plan)
        assert len(plan) <= ROWS_AT_ONCE
        return shares_in_other_phase(table, "b", phase)

    assert [left(SharePhase.CLOSED), left(SharePhase.CLOSED)] == [1, 0]
    for topic in topics:
        row = topic_row(table, topic)
        assert row is not None
        assert (row.shares["a"].phase, row.shares["b"].phase) == (
            SharePhase.OPEN, SharePhase.CLOSED,
        )  # fmt: skip
    assert plan_group_phase(table, "b", SharePhase.CLOSED) == []
    assert [left(SharePhase.OPEN), left(SharePhase.OPEN)] == [1, 0]


def test_shares_are_closed_at_the_home_of_a_group_that_there_is() -> None:
    other = ClusterTable()
    applied(other, plan_joining(other, joins("b", B), chain_of("a")))

    with pytest.raises(ConfigError, match="no group of that name"):
        plan_group_phase(two_groups(), "x", SharePhase.CLOSED)
    with pytest.raises(ConfigError, match="change in its home"):
        plan_group_phase(other, "b", SharePhase.CLOSED)


def test_a_topic_promises_what_it_was_told_last_and_keeps_it_when_it_is_spread() -> None:
    table = two_groups()
    told = TopicPromises(fails_over=True)
    applied(
        table,
        plan_topic_over(table, "orders", ["a"], queues=4, adopts=False, promises=told),
    )
    applied(table, plan_topic_spread(table, "orders", ["b"], queues=4))
    shares = {"a": TopicShare(4), "b": TopicShare(4)}

    assert topic_row(table, "orders") == ClusterTopic(shares, fails_over=True)
    applied(table, plan_topic_promises(table, "orders", TopicPromises(order=True)))
    applied(table, plan_group_phase(table, "b", SharePhase.CLOSED))
    row = topic_row(table, "orders")
    assert row is not None and (row.fails_over, row.order) == (True, True)
    assert plan_topic_promises(table, "orders", TopicPromises(fails_over=True)) == []
    applied(table, plan_topic_promises(table, "orders", TopicPromises(False, False)))
    row = topic_row(table, "orders")
    assert row is not None and row.to_value().keys() == {"groups"}
    with pytest.raises(TopicUnknownError, match="over no groups"):
        plan_topic_promises(table, "other", TopicPromises(True))


def test_a_topic_whose_row_promises_order_is_an_order_topic_in_its_groups() -> None:
    topics, table = TopicTable(), over(two_groups(), "a")
    assert followed(topics, table) == Topic("orders", 4, 4, cluster="c")
    applied(table, plan_topic_promises(table, "orders", TopicPromises(order=True)))
    assert followed(topics, table) == Topic("orders", 4, 4, is_ordered=True, cluster="c")
    applied(table, plan_topic_promises(table, "orders", TopicPromises(order=False)))

    # All else is the group's: it may have been one before.
    assert followed(topics, table) is None


def test_a_topic_is_released_once_also_where_its_row_cannot_be_read() -> None:
    table = two_groups()
    applied(table, plan_row(table, RowKey(TOPIC_KIND, "orders"), {"groups": 1}))
    applied(table, plan_topic_release(table, "orders"))

    assert topic_row(table, "orders") is None
    with pytest.raises(TopicUnknownError, match="over no groups"):
        plan_topic_release(table, "orders")


def test_a_group_that_has_none_gets_as_many_queues_as_the_one_that_has_most() -> None:
    table = over(two_groups(), "a", queues=6)
    applied(table, plan_topic_spread(table, "orders", [], queues=None))

    row = topic_row(table, "orders")
    assert row is not None and row.shares["b"] == TopicShare(6)


def test_what_the_home_cannot_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = over(two_groups(), "a"), ClusterTable()
    applied(other, plan_joining(other, joins("b", B), chain_of("a")))

    with pytest.raises(ConfigError, match="change in its home"):
        plan_topic_over(other, "orders", [], queues=4, adopts=False)
    with pytest.raises(ConfigError, match=r"no group of that name.*group='c'"):
        plan_topic_over(table, "new", ["c"], queues=4, adopts=False)
    nobody = home()
    applied(nobody, plan_row(nobody, RowKey(GROUP_KIND, "a"), None))
    with pytest.raises(ConfigError, match="no group is in the cluster yet"):
        plan_topic_over(nobody, "new", [], queues=4, adopts=False)
    with pytest.raises(ConfigError, match="over groups already"):
        plan_topic_over(table, "orders", ["b"], queues=4, adopts=False)
    with pytest.raises(ConfigError, match=r"out of range \(queues=0"):
        plan_topic_over(table, "new", ["a"], queues=0, adopts=False)
    with pytest.raises(ConfigError, match="over no groups yet"):
        plan_topic_spread(table, "new", ["b"], queues=4)
    assert CLUSTER_TOPICS_MAX == 10_000
    monkeypatch.setattr(topic_rows, "CLUSTER_TOPICS_MAX", 1)
    with pytest.raises(ConfigError, match=r"too many topics.*limit=1"):
        plan_topic_over(table, "new", ["a"], queues=4, adopts=False)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "has no groups"),
        ({"groups": {"a": 4}}, "is no object"),
        ({"groups": {"a": {"queues": 0, "phase": "open"}}}, "not a number of that range"),
        ({"groups": {"a": {"queues": 65_536, "phase": "open"}}}, "limit=65535"),
        ({"groups": {"a": {"queues": 4, "phase": "newer"}}}, "of no known name"),
        ({"groups": {"a" * 300: {"queues": 4, "phase": "open"}}}, "not a text of that size"),
    ],
)
def test_a_row_of_another_shape_is_refused(value: Object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_topic_row(value)


def test_a_group_has_its_share_once_and_nothing_of_the_others() -> None:
    topics, table = TopicTable(), over(two_groups(), "a")
    wanted = followed(topics, table)

    assert wanted == Topic("orders", 4, 4, cluster="c")
    assert followed(topics, table) is None
    assert followed(TopicTable(), over(two_groups(), "b")) is None
    again = Topic.read("orders", wanted.to_fields())
    assert again.cluster == "c"


def test_a_closed_share_is_read_and_not_written_until_it_is_opened() -> None:
    topics, table = TopicTable(), over(two_groups(), "a")
    followed(topics, table)
    shut = followed(topics, closed(table))

    assert shut is not None and shut.permission == Permission.READ
    assert (shut.read_queues, shut.write_queues) == (4, 4)
    opened = ClusterTopic({"a": TopicShare(4)}).to_value()
    applied(table, plan_row(table, RowKey(TOPIC_KIND, "orders"), opened))
    assert followed(topics, table) == Topic("orders", 4, 4, READ_WRITE, cluster="c")


def test_a_topic_of_the_groups_own_is_left_alone_unless_it_is_adopted() -> None:
    topics = TopicTable()
    own = Topic("orders", 2, 2, deduplication_window_ms=60_000)
    topics.put(own, 1)

    with pytest.raises(ConfigError, match="topic of that name of its own"):
        followed(topics, over(two_groups(), "a"))
    assert topics.get("orders") == own
    adopted = followed(topics, over(two_groups(), "a", adopts=True))
    assert adopted == Topic("orders", 4, 4, deduplication_window_ms=60_000, cluster="c")


def test_a_share_takes_no_queues_away() -> None:
    topics = TopicTable()
    topics.put(Topic("orders", 8, 8), 1)

    with pytest.raises(MessageIllegalError, match="cannot get fewer queues"):
        followed(topics, over(two_groups(), "a", adopts=True))


def test_the_brokers_own_topics_follow_no_row() -> None:
    table = two_groups()
    row = ClusterTopic({"a": TopicShare(4)}, adopts=True).to_value()
    applied(table, plan_row(table, RowKey(TOPIC_KIND, "SCHEDULE_TOPIC_XXXX"), row))

    with pytest.raises(NoPermissionError):
        plan_followed(TopicTable(), table, "SCHEDULE_TOPIC_XXXX", first_offsets={})


def test_a_row_that_is_gone_leaves_the_topic_to_its_group() -> None:
    topics, table = TopicTable(), over(two_groups(), "a")
    followed(topics, table)
    applied(table, plan_row(table, RowKey(TOPIC_KIND, "orders"), None))

    assert followed(topics, table) == Topic("orders", 4, 4)
    assert followed(topics, table) is None


def test_a_group_that_has_left_keeps_the_topic_and_one_that_waits_for_rows_too() -> None:
    left, waits = TopicTable(), TopicTable()
    for topics in (left, waits):
        topics.put(Topic("orders", 4, 4, cluster="c"), 1)
    joining = ClusterTable()
    applied(joining, plan_joining(joining, joins("b", B), chain_of("a")))

    assert followed(left, ClusterTable()) == Topic("orders", 4, 4)
    assert followed(waits, joining) is None


def test_what_the_row_says_is_not_changed_in_the_group_and_all_else_is() -> None:
    topics, table = TopicTable(), over(two_groups(), "a")
    followed(topics, table)

    def altered(wish: TopicFields, *, force: bool = False) -> Topic:
        return plan_alter(topics, "orders", wish, unread=lambda _: None, force=force)

    for wish in (TopicFields(queues=8), TopicFields(perm=4)):
        with pytest.raises(ConfigError, match=r"topic is the cluster's.*cluster='c'"):
            altered(wish, force=True)
        with pytest.raises(ConfigError, match="topic is the cluster's"):
            plan_create(topics, "orders", wish, first_offsets={})
    with pytest.raises(ConfigError, match="topic is the cluster's"):
        plan_delete(topics, "orders", queues_found=4)
    topics.put(altered(TopicFields(deduplication_window_ms=60_000)), 1)
    assert followed(topics, table) is None


def test_a_topic_that_was_deleted_before_is_numbered_on() -> None:
    table = over(two_groups(), "a")

    wanted = plan_followed(TopicTable(), table, "orders", first_offsets={0: 7})
    assert wanted is not None and wanted.first_offsets == {0: 7}
