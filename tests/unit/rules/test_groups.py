"""Subscription groups: RocketMQ's file and rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.formats.config_json import decode_document, encode_document
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import ConfigError, MessageIllegalError, NoPermissionError
from ledgermq.rules.tables.groups import (
    BUILTIN_GROUPS,
    GroupTable,
    SubscriptionGroup,
    check_group_name,
)

Golden = Callable[[str], Path]


def golden_table(golden: Golden) -> tuple[dict[str, object], GroupTable]:
    path = golden("gd0") / "config" / "subscriptionGroup.json"
    document = decode_document(path.read_bytes())
    return document, GroupTable.read(document)


def test_a_golden_table_is_written_as_it_was_read(golden: Golden) -> None:
    document, table = golden_table(golden)

    assert decode_document(encode_document(table.to_document())) == document


def test_the_builtin_groups_are_those_that_java_registered(golden: Golden) -> None:
    _, table = golden_table(golden)

    assert not table.add_builtin(1)
    for name in BUILTIN_GROUPS:
        written = table.get(name)
        assert written is not None
        assert written.to_fields() == SubscriptionGroup(name).to_fields()


def test_a_group_is_made_on_first_use_with_javas_defaults(golden: Golden) -> None:
    _, table = golden_table(golden)
    version = table.version

    group = table.plan_use("fresh", TopicsSection())
    planned_version = table.version
    assert table.put(group, 9)

    assert group.to_fields() == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": "fresh",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert planned_version == version
    assert table.version == version + 1
    assert table.plan_use("fresh", TopicsSection()) is group
    assert not table.put(SubscriptionGroup("fresh"), 10)
    assert table.version == version + 1


def test_a_group_that_is_deleted_is_known_no_more() -> None:
    table = GroupTable()
    table.put(SubscriptionGroup("g"), 1)

    assert table.delete("g", 2)
    assert not table.delete("g", 3)
    assert (table.get("g"), table.version) == (None, 2)


def test_first_use_can_be_switched_off_except_for_the_brokers_own_groups() -> None:
    table = GroupTable()
    rules = TopicsSection(auto_create_subscription_group=False)

    with pytest.raises(NoPermissionError, match=r"topics\.auto_create_subscription_group"):
        table.plan_use("fresh", rules)
    assert table.plan_use("CID_RMQ_SYS_TRANS", rules).name == "CID_RMQ_SYS_TRANS"


def test_a_group_that_is_switched_off_may_not_consume_and_keeps_its_fields() -> None:
    entry = {"groupName": "g", "consumeEnable": False, "consumeMessageOrderly": True}
    table = GroupTable.read({"subscriptionGroupTable": {"g": entry}, "forbiddenTable": {}})

    with pytest.raises(NoPermissionError, match="consumeEnable"):
        table.plan_use("g", TopicsSection())
    document = table.to_document()
    assert document["forbiddenTable"] == {}
    groups = document["subscriptionGroupTable"]
    assert isinstance(groups, dict)
    assert groups["g"]["consumeMessageOrderly"] is True
    assert groups["g"]["consumeEnable"] is False


@pytest.mark.parametrize("name", ["", "g" * 256, "a b", "a@b", "a/b"])
def test_names_that_rocketmq_refuses_are_refused(name: str) -> None:
    with pytest.raises(MessageIllegalError):
        check_group_name(name)


@pytest.mark.parametrize("value", [3, {"retryQueueNums": "one"}, {"consumeEnable": "yes"}])
def test_a_field_of_another_type_is_an_error_that_names_the_group(value: object) -> None:
    with pytest.raises(ConfigError, match="odd"):
        GroupTable.read({"subscriptionGroupTable": {"odd": value}})
