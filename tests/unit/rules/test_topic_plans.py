"""What an operator may do with a topic: RocketMQ's fields and names, no message out of reach."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ledgermq.model.config.settings import NodeSection, TopicsSection
from ledgermq.model.errors import (
    ConfigError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.limits import KEEP_MS_MAX
from ledgermq.model.names.message_types import UNSPECIFIED
from ledgermq.rules.messages.topic_plans import (
    UnreadQueue,
    plan_alter,
    plan_create,
    plan_delete,
    warnings_of,
)
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable
from ledgermq.verbs.topics import TopicFields


def table_of(*topics: Topic) -> TopicTable:
    table = TopicTable()
    table.reserve_builtin(NodeSection(broker_cluster_name="C1"), TopicsSection())
    for topic in topics:
        table.put(topic, 1)
    return table


def create(table: TopicTable, name: str, **wish: int | bool | str) -> Topic:
    return plan_create(table, name, TopicFields(**wish), first_offsets={})  # type: ignore[arg-type]


def alter(table: TopicTable, *, unread: UnreadQueue | None = None, **wish: int | bool) -> Topic:
    def first_of(queues: Sequence[int]) -> UnreadQueue | None:
        return unread if unread is not None and unread.queue_id in queues else None

    force = bool(wish.pop("force", False))
    return plan_alter(
        table,
        "orders",
        TopicFields(**wish),
        unread=first_of,
        force=force,  # type: ignore[arg-type]
    )


def test_a_new_topic_has_what_was_given_and_rocketmqs_defaults() -> None:
    plain = create(table_of(), "orders")
    full = create(
        table_of(), "orders", read_queues=6, write_queues=4, perm=4, order=True,
        filter_type="MULTI_TAG", sys_flag=1,
    )  # fmt: skip

    assert (plain.read_queues, plain.write_queues, plain.permission) == (8, 8, 6)
    assert full.to_fields() == {
        "order": True,
        "perm": 4,
        "readQueueNums": 6,
        "topicFilterType": "MULTI_TAG",
        "topicName": "orders",
        "topicSysFlag": 1,
        "writeQueueNums": 4,
    }


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", MessageIllegalError),
        ("a b", MessageIllegalError),
        ("x" * 128, MessageIllegalError),
        ("TBW102", NoPermissionError),
        ("C1", NoPermissionError),
        ("rmq_sys_x", NoPermissionError),
        ("LEDGERMQ_SYSTEM", NoPermissionError),
        ("SCHEDULE_TOPIC_XXXX", NoPermissionError),
    ],
)
def test_names_that_break_a_rule_are_neither_created_nor_deleted(
    name: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        create(table_of(), name)
    with pytest.raises(error):
        plan_delete(table_of(), name, queues_found=3)


@pytest.mark.parametrize(
    "wish",
    [
        {"read_queues": 0},
        {"write_queues": 65_536},
        {"perm": 8},
        {"perm": -1},
        {"sys_flag": 4},
        {"filter_type": "EVERY_TAG"},
        {"read_queues": 2, "write_queues": 3},
    ],
)
def test_numbers_out_of_range_are_refused(wish: dict[str, int]) -> None:
    with pytest.raises(MessageIllegalError):
        create(table_of(), "orders", **wish)


def test_to_create_again_what_is_there_changes_nothing() -> None:
    table = table_of(Topic("orders", 8, 8))

    assert create(table, "orders") is table.get("orders")
    assert create(table, "orders", read_queues=8, write_queues=8) is table.get("orders")
    assert create(table, "orders", read_queues=9, write_queues=9).write_queues == 9
    with pytest.raises(MessageIllegalError, match="fewer queues"):
        create(table, "orders", read_queues=8, write_queues=7)
    with pytest.raises(MessageIllegalError, match="alter it"):
        create(table, "orders", perm=4)


def test_only_what_is_given_is_altered() -> None:
    table = table_of(Topic("orders", 8, 8, is_ordered=True, unknown={"attributes": {"x": 1}}))

    altered = alter(table, perm=4)

    assert altered == Topic(
        "orders", 8, 8, Permission.READ, is_ordered=True, unknown={"attributes": {"x": 1}}
    )
    assert alter(table, read_queues=8) is table.get("orders")


def test_queues_go_in_two_steps() -> None:
    table = table_of(Topic("orders", 8, 8))

    with pytest.raises(MessageIllegalError, match="fewer write queues first"):
        alter(table, read_queues=4, write_queues=4)
    shrunk = alter(table, write_queues=4)
    table.put(shrunk, 2)
    hidden = alter(table, read_queues=4)

    assert (shrunk.read_queues, shrunk.write_queues) == (8, 4)
    assert (hidden.read_queues, hidden.write_queues) == (4, 4)


def test_queues_with_messages_that_nobody_consumed_stay_readable() -> None:
    table = table_of(Topic("orders", 8, 4))
    left = UnreadQueue(6, 17, "billing")

    with pytest.raises(MessageIllegalError, match="not consumed") as caught:
        alter(table, unread=left, read_queues=4)
    forced = alter(table, unread=left, read_queues=4, force=True)

    assert caught.value.details["group"] == "billing"
    assert caught.value.details["messages"] == 17
    assert forced.read_queues == 4
    assert alter(table, unread=left, read_queues=7).read_queues == 7


def test_queues_that_were_taken_away_are_not_taken_for_forgotten_ones() -> None:
    table = table_of(Topic("orders", 8, 4))
    table.put(alter(table, read_queues=4), 2)
    again = TopicTable.read(table.to_document()).get("orders")

    assert again is not None
    assert again.queues_kept == 8
    table.put(alter(table, read_queues=8, write_queues=8), 3)
    grown = table.get("orders")
    assert grown == Topic("orders", 8, 8)


def test_more_queues_than_are_read_may_not_be_written_to() -> None:
    table = table_of(Topic("orders", 4, 4))

    with pytest.raises(MessageIllegalError, match="could not be consumed"):
        alter(table, write_queues=5)
    assert alter(table, write_queues=5, force=True).write_queues == 5


def test_a_topic_that_is_made_again_begins_behind_the_old_one() -> None:
    made = plan_create(
        table_of(), "orders", TopicFields(queues=2), first_offsets={0: 57, 1: 60, 2: 3}
    )
    again = Topic.read("orders", made.to_fields())

    assert again.to_fields() == made.to_fields()
    assert again.first_offsets == made.first_offsets
    assert made.first_offsets == {0: 57, 1: 60, 2: 3}
    assert made.queues_kept == 3


def test_what_is_deleted_must_be_there_or_have_been() -> None:
    table = table_of(Topic("orders", 4, 4))

    with pytest.raises(TopicUnknownError):
        plan_delete(table, "none", queues_found=0)
    assert plan_delete(table, "lost-by-its-table", queues_found=4)
    assert plan_delete(table, "orders", queues_found=4)
    table.delete("orders", 2)
    assert not plan_delete(table, "orders", queues_found=0)


def test_warnings_name_the_queues_and_what_to_do() -> None:
    assert warnings_of(Topic("orders", 8, 8), unread=None) == []
    found = warnings_of(Topic("orders", 8, 4, Permission.READ), unread=UnreadQueue(9, 3, ""))

    assert "queues 4 to 7 take no messages any more" in found[0]
    assert "--read-queues 4" in found[0]
    assert "producers are refused" in found[1]
    assert "queue 9 holds 3 messages out of reach" in found[2]
    assert "queues 8 to 9" in warnings_of(Topic("orders", 8, 10), unread=None)[0]


def test_a_window_of_deduplication_is_set_kept_and_switched_off() -> None:
    made = create(table_of(), "orders", deduplication_window_ms=60_000)
    table = table_of(made)
    more = alter(table, write_queues=4)
    longer = alter(table, deduplication_window_ms=120_000)
    off = alter(table, deduplication_window_ms=0)

    assert made.to_fields()["ledgermqDeduplicationWindowMs"] == 60_000
    assert Topic.read("orders", made.to_fields()).to_fields() == made.to_fields()
    assert (more.deduplication_window_ms, longer.deduplication_window_ms) == (60_000, 120_000)
    assert "ledgermqDeduplicationWindowMs" not in off.to_fields()


def test_the_type_of_a_topics_messages_is_rocketmqs_attribute() -> None:
    made = create(table_of(), "orders", message_type="PRIORITY")
    read = Topic.read("orders", made.to_fields())
    more = alter(table_of(read), write_queues=4)
    off = alter(table_of(read), message_type="UNSPECIFIED")
    kept = Topic.read("orders", {"attributes": {"reserve.time": "3", "message.type": "priority"}})

    assert made.to_fields()["attributes"] == {"message.type": "PRIORITY"}
    assert (read.message_type, more.message_type, off.message_type) == (
        *("PRIORITY", "PRIORITY", "UNSPECIFIED"),
    )
    assert "attributes" not in off.to_fields()
    assert kept.message_type == "PRIORITY"
    plain = alter(table_of(kept), message_type="NORMAL")
    assert plain.to_fields()["attributes"] == {"reserve.time": "3", "message.type": "NORMAL"}
    assert plain.kept_ms == kept.kept_ms
    with pytest.raises(MessageIllegalError, match="HIGH"):
        alter(table_of(kept), message_type="HIGH")


def test_how_long_a_topic_is_kept_is_set_kept_and_switched_off() -> None:
    made = create(table_of(), "orders", keep_ms=60_000, keep_bytes=1 << 40)
    table = table_of(made)
    off = alter(table, keep_ms=0, keep_bytes=0)

    assert Topic.read("orders", made.to_fields()).to_fields() == made.to_fields()
    assert alter(table, write_queues=4).keep_ms == 60_000
    assert (made.kept_ms, made.keep_bytes) == (60_000, 1 << 40)
    assert {"ledgermqKeepMs", "ledgermqKeepBytes"} & off.to_fields().keys() == set()
    for wrong in ({"keep_ms": -1}, {"keep_bytes": 1 << 61}, {"keep_ms": 1 << 50}):
        with pytest.raises(MessageIllegalError, match="out of range"):
            alter(table, **wrong)
    for field, value in (("ledgermqKeepMs", -1), ("ledgermqKeepBytes", 1 << 61)):
        with pytest.raises(ConfigError, match="out of range"):
            Topic.read("orders", {field: value})


def test_a_topic_is_compacted_where_that_was_said_to_us_or_to_rocketmq() -> None:
    made = create(table_of(), "orders", compact=True)
    table = table_of(made)

    assert made.is_compacted
    assert Topic.read("orders", made.to_fields()).to_fields() == made.to_fields()
    assert alter(table, write_queues=4).is_compacted
    off = alter(table, compact=False)
    assert not off.is_compacted
    assert "ledgermqCompact" not in off.to_fields()
    for value, is_compacted in (("COMPACTION", True), ("compaction", True), ("DELETE", False)):
        found = Topic.read("orders", {"attributes": {"cleanup.policy": value}})
        assert found.is_compacted is is_compacted
        # RocketMQ serves what it stored itself alone.
        assert found.is_writable is not is_compacted
    assert made.is_writable
    with pytest.raises(ConfigError):
        Topic.read("orders", {"ledgermqCompact": [1]})


@pytest.mark.parametrize(
    ("value", "hours"),
    [("72", 72), (72, 72), ("-1", 0), ("", 0), (None, 0), (True, 0), ("7" * 30, 0), ("9" * 15, -1)],
)
def test_reserve_time_of_rocketmq_5_counts_where_nothing_else_was_said(
    value: object, hours: int
) -> None:
    attributes = {"attributes": {"reserve.time": value}}
    kept_ms = Topic.read("orders", attributes).kept_ms

    assert kept_ms == (KEEP_MS_MAX if hours < 0 else hours * 3_600_000)
    assert Topic.read("orders", {**attributes, "ledgermqKeepMs": 5}).kept_ms == 5
    assert Topic.read("orders", attributes).to_fields()["attributes"] == attributes["attributes"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("FIFO", "FIFO"), ("mixed", "MIXED"), ("LITE", "LITE"), (5, UNSPECIFIED), (None, UNSPECIFIED)],
)
def test_a_type_of_rocketmq_5_is_known_by_its_word(value: object, kind: str) -> None:
    row = {"attributes": {"message.type": value}}

    assert Topic.read("orders", row).message_type == kind
    assert Topic.read("orders", row).to_fields()["attributes"] == row["attributes"]
    assert Topic.read("orders", {}).message_type == UNSPECIFIED


@pytest.mark.parametrize("window_ms", [1, 999, 7 * 86_400_000 + 1])
def test_a_window_out_of_range_is_refused_with_the_range(window_ms: int) -> None:
    with pytest.raises(MessageIllegalError, match="1000") as caught:
        create(table_of(), "orders", deduplication_window_ms=window_ms)

    assert caught.value.details["value"] == window_ms
    assert caught.value.details["limit"] == 7 * 86_400_000
