"""Topic table: RocketMQ's file and rules, and nothing of it lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.config_json import decode_document, encode_document
from ledgermq.model.config.settings import NodeSection, TopicsSection
from ledgermq.model.errors import (
    ConfigError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.names.system_topics import TRACE_TOPIC
from ledgermq.rules.tables.topics import (
    READ_WRITE,
    Permission,
    Topic,
    TopicTable,
    builtin_topics,
    check_topic_name,
    is_system_topic,
)

NODE = NodeSection(broker_cluster_name="C1", broker_name="gd")
RULES = TopicsSection()
Golden = Callable[[str], Path]


def golden_document(golden: Golden, name: str) -> dict[str, Any]:
    return decode_document((golden(name) / "config" / "topics.json").read_bytes())


@pytest.mark.parametrize("name", ["gd0", "gs1", "g6"])
def test_a_golden_table_is_written_as_it_was_read(golden: Golden, name: str) -> None:
    document = golden_document(golden, name)

    table = TopicTable.read(document)

    assert decode_document(encode_document(table.to_document())) == document
    assert len(table) == len(document["topicConfigTable"])


def test_the_builtin_topics_are_those_that_java_registered(golden: Golden) -> None:
    table = TopicTable.read(golden_document(golden, "gd0"))

    added = table.add_builtin(NODE, RULES, 1)

    assert not added
    for topic in builtin_topics(NODE, RULES):
        written = table.get(topic.name)
        assert written is not None
        assert written == topic or written.unknown == {"topicFilterType": "SINGLE_TAG"}
        assert (written.read_queues, written.permission) == (topic.read_queues, topic.permission)


def test_missing_builtin_topics_are_one_change() -> None:
    table = TopicTable()

    assert table.add_builtin(NODE, RULES, 77)
    assert not table.add_builtin(NODE, RULES, 78)
    assert table.to_document()["dataVersion"] == {"counter": 1, "timestamp": 77}


def test_the_template_topic_is_there_only_if_topics_are_made_on_first_use() -> None:
    rules = TopicsSection(auto_create_topic_enable=False)

    names = {topic.name for topic in builtin_topics(NODE, rules)}

    assert "TBW102" not in names
    assert "BenchmarkTest" in names


def test_what_is_not_understood_is_kept() -> None:
    document = {
        "dataVersion": {"counter": 4, "timestamp": 5, "stateVersion": 6},
        "topicConfigTable": {
            "a": {"topicName": "a", "perm": 2, "attributes": {"x": [1]}, "topicFilterType": "MULTI"}
        },
        "later": True,
    }

    table = TopicTable.read(document)
    table.put(table.plan("b", 3), 9)

    written = table.to_document()
    assert written["later"] is True
    assert written["dataVersion"] == {"counter": 5, "stateVersion": 6, "timestamp": 9}
    topics = written["topicConfigTable"]
    assert isinstance(topics, dict)
    assert topics["a"] == {
        "attributes": {"x": [1]},
        "order": False,
        "perm": 2,
        "readQueueNums": 16,
        "topicFilterType": "MULTI",
        "topicName": "a",
        "topicSysFlag": 0,
        "writeQueueNums": 16,
    }


def test_a_topic_gets_the_fields_that_java_writes() -> None:
    fields = Topic("t", 4, 4).to_fields()

    assert list(fields.items()) == [
        ("order", False),
        ("perm", 6),
        ("readQueueNums", 4),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicName", "t"),
        ("topicSysFlag", 0),
        ("writeQueueNums", 4),
    ]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"perm": "six"},
        {"readQueueNums": -1},
        {"writeQueueNums": 2**31},
        {"order": "perhaps"},
        {"perm": {}},
    ],
)
def test_a_field_of_another_type_or_range_is_an_error_that_names_the_topic(value: object) -> None:
    with pytest.raises(ConfigError, match="odd"):
        TopicTable.read({"topicConfigTable": {"odd": value}})


@pytest.mark.parametrize("name", ["a", "%RETRY%group", "a|b", "A_b-9", "x" * 127])
def test_names_that_rocketmq_allows_are_allowed(name: str) -> None:
    table = TopicTable()

    topic = table.plan_on_first_use(name, RULES)

    assert topic == Topic(name, 8, 8, READ_WRITE)


@pytest.mark.parametrize("name", ["", "x" * 128, "a b", "a/b", "..", "ä", "a@b", "a\n"])
def test_names_that_rocketmq_refuses_are_refused(name: str) -> None:
    with pytest.raises(MessageIllegalError):
        check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_anything", "LEDGERMQ_SYSTEM", "C1", "gd"]
)
def test_the_brokers_own_names_are_nobodys_to_create(name: str) -> None:
    table = TopicTable()
    table.add_builtin(NODE, RULES, 1)

    with pytest.raises(NoPermissionError):
        table.plan(name, 2_000)
    assert table.is_system(name)
    assert not is_system_topic("C1-not")


def test_creation_on_first_use_can_be_switched_off_and_names_its_setting() -> None:
    table = TopicTable()

    with pytest.raises(TopicUnknownError, match=r"topics\.auto_create_topic_enable"):
        table.plan_on_first_use("t", TopicsSection(auto_create_topic_enable=False))
    assert table.version == 0
    assert table.get("t") is None


def test_the_trace_topic_is_made_by_its_first_writer_and_by_no_other_way() -> None:
    table = TopicTable()
    made = table.plan_on_first_use(TRACE_TOPIC, TopicsSection())

    assert (made.name, made.write_queues) == (TRACE_TOPIC, 8)
    with pytest.raises(NoPermissionError, match="reserved"):
        table.plan(TRACE_TOPIC, 8)
    with pytest.raises(NoPermissionError, match="reserved"):
        table.plan_on_first_use("rmq_sys_other", TopicsSection())


def test_first_use_of_a_known_topic_changes_nothing() -> None:
    table = TopicTable()
    made = table.plan("t", 3)
    table.put(made, 1)

    again = table.plan_on_first_use("t", TopicsSection(auto_create_topic_enable=False))

    assert again is made
    assert table.version == 1


def test_a_topic_grows_and_never_shrinks() -> None:
    table = TopicTable()
    table.put(table.plan("t", 4), 1)

    assert table.plan("t", 4) == Topic("t", 4, 4)
    assert not table.put(table.plan("t", 4), 2)
    assert table.version == 1
    assert table.put(table.plan("t", 6), 3)
    assert (table.get("t"), table.version) == (Topic("t", 6, 6), 2)
    with pytest.raises(MessageIllegalError, match="existing=6"):
        table.plan("t", 5)


def test_a_topic_that_is_deleted_is_known_no_more() -> None:
    table = TopicTable()
    table.put(table.plan("t", 4), 1)

    assert table.delete("t", 2)
    assert not table.delete("t", 3)
    assert (table.get("t"), table.version) == (None, 2)


@pytest.mark.parametrize("queues", [0, -1, 65_536])
def test_a_number_of_queues_out_of_range_is_refused(queues: int) -> None:
    with pytest.raises(MessageIllegalError, match="65535"):
        TopicTable().plan("t", queues)


def test_permissions_have_rocketmqs_numbers() -> None:
    assert [int(bit) for bit in (Permission.PRIORITY, Permission.READ, Permission.WRITE)] == [
        8,
        4,
        2,
    ]
    assert not Topic("t", permission=Permission.WRITE).is_readable
    assert Topic("t", permission=Permission.READ | Permission.INHERIT).is_readable


def test_a_deleted_topic_is_remembered_until_it_is_made_again() -> None:
    table = TopicTable()
    table.put(table.plan("orders", 4), 5)
    table.delete("orders", 6)
    again = TopicTable.read(table.to_document())

    assert again.is_deleted("orders")
    assert again.to_document() == table.to_document()

    again.put(again.plan("orders", 4), 7)

    assert not again.is_deleted("orders")
    assert "ledgermqDeleted" not in again.to_document()
