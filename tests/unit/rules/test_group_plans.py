"""What an operator may do with a group."""

from __future__ import annotations

import pytest

from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import GroupUnknownError, MessageIllegalError, NoPermissionError
from ledgermq.rules.consumers.group_plans import names_of, plan_alter, plan_create, plan_delete
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.groups import GroupTable, SubscriptionGroup
from ledgermq.rules.tables.table_changes import GroupSet, OffsetsSet


def table_of(*groups: SubscriptionGroup) -> GroupTable:
    table = GroupTable()
    for group in groups:
        table.put(group, 1)
    return table


def test_all_fields_of_rocketmqs_group_can_be_given() -> None:
    wish = {
        "brokerId": 2,
        "consumeBroadcastEnable": False,
        "consumeEnable": False,
        "consumeFromMinEnable": False,
        "notifyConsumerIdsChangedEnable": False,
        "retryMaxTimes": 3,
        "retryQueueNums": 2,
        "whichBrokerWhenConsumeSlowly": 4,
    }

    group = plan_create(table_of(), "billing", wish)

    assert group.to_fields() == {**wish, "groupName": "billing"}
    assert (group.consume_enable, group.retry_times_max, group.retry_queues) == (False, 3, 2)


def test_a_group_that_nobody_orders_stays_as_rocketmq_4_knows_it() -> None:
    table = table_of(plan_create(table_of(), "billing", {}))
    ordered = plan_alter(table, "billing", {"consumeMessageOrderly": True})

    assert (
        "consumeMessageOrderly"
        not in plan_create(table, "billing", {"consumeMessageOrderly": False}).to_fields()
    )
    assert ordered.is_ordered
    again = plan_alter(table_of(ordered), "billing", {"consumeMessageOrderly": False})
    assert again.to_fields()["consumeMessageOrderly"] is False
    assert not again.is_ordered


def test_the_share_of_receives_by_priority_is_rocketmqs_attribute() -> None:
    others = {"attributes": {"lite.bind.topic": "t"}}
    table = table_of(SubscriptionGroup.read("billing", others))
    some = plan_alter(table, "billing", {"priorityFactor": 90})
    again = SubscriptionGroup.read("billing", some.to_fields())
    whole = plan_alter(table_of(again), "billing", {"priorityFactor": 100})

    assert some.to_fields()["attributes"] == {"lite.bind.topic": "t", "priority.factor": "90"}
    assert "priorityFactor" not in some.to_fields()
    assert (again.priority_factor, whole.priority_factor) == (90, 100)
    assert whole.to_fields()["attributes"] == others["attributes"]
    assert "attributes" not in plan_create(table_of(), "g", {"priorityFactor": 100}).to_fields()
    odd = SubscriptionGroup.read("odd", {"attributes": {"priority.factor": "1e9"}})
    assert odd.priority_factor == 100


@pytest.mark.parametrize(
    "wish",
    [
        {"priorityFactor": 101},
        {"priorityFactor": "90"},
        {"consumeMessageOrderly": 1},
        {"consumeEnable": 1},
        {"retryMaxTimes": -1},
        {"retryMaxTimes": True},
        {"retryQueueNums": 70_000},
        {"groupName": "other"},
        {"consumeenable": True},
    ],
)
def test_fields_that_are_none_are_refused(wish: dict[str, object]) -> None:
    with pytest.raises(MessageIllegalError):
        plan_create(table_of(), "billing", wish)


def test_the_brokers_own_groups_stay_as_they_are() -> None:
    table = table_of(SubscriptionGroup("TOOLS_CONSUMER"))

    with pytest.raises(NoPermissionError):
        plan_alter(table, "TOOLS_CONSUMER", {"consumeEnable": False})
    with pytest.raises(NoPermissionError):
        plan_delete(table, GroupOffsets(), "TOOLS_CONSUMER", with_offsets=False)
    with pytest.raises(NoPermissionError):
        plan_create(table, "CID_RMQ_SYS_X", {})


def test_altering_keeps_what_is_not_given() -> None:
    table = table_of(SubscriptionGroup.read("billing", {"retryMaxTimes": 3, "later": [1]}))

    altered = plan_alter(table, "billing", {"consumeEnable": False})

    assert altered.to_fields()["later"] == [1]
    assert (altered.consume_enable, altered.retry_times_max) == (False, 3)
    assert plan_alter(table, "billing", {"retryMaxTimes": 3}) is table.get("billing")
    with pytest.raises(GroupUnknownError):
        plan_alter(table, "none", {"consumeEnable": False})
    with pytest.raises(NoPermissionError):
        table.put(altered, 2)
        table.plan_use("billing", TopicsSection())


def test_to_create_again_what_is_there_changes_nothing() -> None:
    table = table_of(SubscriptionGroup.read("billing", {"retryMaxTimes": 3}))

    assert plan_create(table, "billing", {"retryMaxTimes": 3}) is table.get("billing")
    with pytest.raises(MessageIllegalError, match="alter it"):
        plan_create(table, "billing", {"retryMaxTimes": 4})


def test_a_group_goes_with_or_without_its_offsets() -> None:
    table, offsets = table_of(SubscriptionGroup("billing")), GroupOffsets()
    offsets.set("billing", "orders", {0: 4})
    offsets.set("other", "orders", {0: 5})
    offsets.set("lost", "orders", {0: 6})

    assert names_of(table, offsets) == ["billing", "lost", "other"]
    assert plan_delete(table, offsets, "billing", with_offsets=False) == [GroupSet("billing", None)]
    assert plan_delete(table, offsets, "billing", with_offsets=True) == [
        GroupSet("billing", None),
        OffsetsSet("billing", "orders", None),
    ]
    assert plan_delete(table, offsets, "lost", with_offsets=True) == [
        OffsetsSet("lost", "orders", None)
    ]
    with pytest.raises(GroupUnknownError):
        plan_delete(table, offsets, "lost", with_offsets=False)
    with pytest.raises(GroupUnknownError):
        plan_delete(table, offsets, "none", with_offsets=True)
