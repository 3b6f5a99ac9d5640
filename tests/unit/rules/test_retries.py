"""What a message that was given back becomes, by RocketMQ's rules; and what is noted of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgermq.formats.records.message import TRANSACTION_COMMIT, Message
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.model.errors import MessageIllegalError, NoPermissionError
from ledgermq.rules.given_back import KEPT_MAX, KEPT_MS, GivenBackTokens
from ledgermq.rules.messages.retries import (
    REPLAYED_FROM,
    Returned,
    check_writable,
    first_topic,
    give_back,
    offset_id_of,
    replay,
)
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.moves import Replayed
from ledgermq.rules.tables.topics import Permission, Topic

LEVELS = 18
GROUP = SubscriptionGroup("g")
MESSAGE = Message(
    topic="orders",
    queue_id=3,
    body=b"body",
    properties=encode_properties({"TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "U", "mine": "x"}),
    flag=7,
    queue_offset=41,
    physical_offset=4_660,
    born_timestamp=1_000,
    born_host=("10.0.0.9", 5),
    store_timestamp=2_000,
    store_host=("127.0.0.1", 10_911),
)


def given(message: Message = MESSAGE, group: SubscriptionGroup = GROUP, **how: Any) -> Returned:
    settings = {"level": 0, "times_max": None, "existing": None, "chance": 5}
    returned = give_back(message, group, level_max=LEVELS, **{**settings, **how})
    assert returned is not None
    return returned


def properties_of(returned: Returned) -> dict[str, str]:
    return decode_properties(returned.message.properties)


def test_a_message_waits_in_its_levels_queue_for_the_groups_retry_topic() -> None:
    returned = given(group=replace(GROUP, retry_queues=3))
    message = returned.message

    assert (returned.topic, returned.queues, returned.level) == ("%RETRY%g", 3, 3)
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert (message.body, message.flag, message.born_timestamp) == (b"body", 7, 1_000)
    assert (message.born_host, message.reconsume_times) == (("10.0.0.9", 5), 1)
    assert properties_of(returned) == {
        "TAGS": "t",
        "KEYS": "a b",
        "UNIQ_KEY": "U",
        "mine": "x",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000001234",
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "2",
    }


def test_first_topic_and_first_id_are_kept_over_all_retries() -> None:
    first = given().message
    delivered = replace(first, topic="%RETRY%g", queue_id=0, physical_offset=9_999)
    second = given(delivered)

    assert properties_of(second)["RETRY_TOPIC"] == "orders"
    assert properties_of(second)["ORIGIN_MESSAGE_ID"] == offset_id_of(MESSAGE)
    assert properties_of(second)["DELAY"] == "4"
    assert second.message.reconsume_times == 2


@pytest.mark.parametrize(
    ("times", "asked", "level"),
    [(0, 0, 3), (1, 0, 4), (15, 0, 18), (0, 1, 1), (4, 18, 18), (0, 99, 18)],
)
def test_the_level_is_the_one_asked_for_or_the_next_in_turn(
    times: int, asked: int, level: int
) -> None:
    returned = given(replace(MESSAGE, reconsume_times=times), level=asked)

    assert (returned.level, returned.message.queue_id) == (level, level - 1)


@pytest.mark.parametrize(
    ("times", "how"),
    [
        (16, {}),
        (17, {"level": 5}),
        (0, {"level": -1}),
        (0, {"times_max": 0}),
        (3, {"times_max": 3}),
        (2, {"group": replace(GROUP, retry_times_max=2)}),
    ],
)
def test_what_was_tried_often_enough_is_a_dead_letter(times: int, how: dict[str, Any]) -> None:
    returned = given(replace(MESSAGE, reconsume_times=times), **how)
    message = returned.message

    assert (returned.topic, returned.queues, returned.level) == ("%DLQ%g", 1, 0)
    assert (message.topic, message.queue_id) == ("%DLQ%g", 0)
    assert message.reconsume_times == times + 1
    assert properties_of(returned)["DELAY"] == "0"
    assert "REAL_TOPIC" not in properties_of(returned)


def test_the_limit_of_the_call_goes_before_that_of_the_group() -> None:
    tried = replace(MESSAGE, reconsume_times=16)

    assert given(tried, times_max=17).topic == "%RETRY%g"
    assert given(tried, times_max=16).topic == "%DLQ%g"


def test_a_group_without_retry_queues_drops_what_it_gives_back() -> None:
    group = replace(GROUP, retry_queues=0)

    dropped = give_back(
        MESSAGE, group, level=0, times_max=None, level_max=LEVELS, existing=None, chance=0
    )

    assert dropped is None


def test_only_queues_that_the_retry_topic_has_are_chosen() -> None:
    group = replace(GROUP, retry_queues=4)
    returned = given(group=group, existing=Topic("%RETRY%g", 2, 2), chance=3)

    assert properties_of(returned)["REAL_QID"] == "1"


def test_a_retry_topic_that_may_not_be_written_to_refuses() -> None:
    with pytest.raises(NoPermissionError, match="may not be written"):
        given(existing=Topic("%RETRY%g", 1, 1, Permission.READ))
    with pytest.raises(NoPermissionError):
        check_writable(Topic("t", 1, 0))


def test_a_group_whose_name_fits_no_topic_is_refused() -> None:
    with pytest.raises(MessageIllegalError, match="too long"):
        given(group=SubscriptionGroup("g" * 121))


def test_a_committed_transaction_stays_one_and_points_to_no_half_message() -> None:
    committed = replace(MESSAGE, sys_flag=TRANSACTION_COMMIT, prepared_transaction_offset=77)
    message = given(committed).message

    assert message.sys_flag == TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == 0


def dead_letter() -> Message:
    dead = given(replace(MESSAGE, reconsume_times=16)).message
    return replace(dead, queue_offset=12, physical_offset=7_777)


def test_a_replayed_dead_letter_has_all_its_retries_before_it() -> None:
    message = replay(dead_letter(), "%RETRY%g", queues=1)
    properties = decode_properties(message.properties)

    assert (message.topic, message.queue_id, message.reconsume_times) == ("%RETRY%g", 0, 0)
    assert properties["RETRY_TOPIC"] == "orders"
    assert properties["ORIGIN_MESSAGE_ID"] == offset_id_of(MESSAGE)
    assert properties[REPLAYED_FROM] == "%DLQ%g/0/12"
    assert properties.keys().isdisjoint({"DELAY", "WAIT", "REAL_TOPIC", "REAL_QID"})


def test_replayed_to_its_first_topic_it_is_a_message_of_that_topic() -> None:
    dead = dead_letter()
    message = replay(dead, first_topic(dead), queues=5)

    assert (message.topic, message.queue_id) == ("orders", 2)
    assert "RETRY_TOPIC" not in decode_properties(message.properties)


def test_a_replay_is_the_same_whoever_makes_it() -> None:
    dead = dead_letter()
    later = replace(dead, store_host=("10.0.0.1", 1))

    assert replay(dead, "%RETRY%g", queues=3) == replace(
        replay(later, "%RETRY%g", queues=3), store_host=dead.store_host
    )


def test_a_dead_letter_that_does_not_say_where_it_was_sent_goes_to_the_group_only() -> None:
    with pytest.raises(MessageIllegalError, match="replay it to the group"):
        first_topic(replace(dead_letter(), properties=b""))


def test_replayed_offsets_are_ranges_that_survive_the_table() -> None:
    marks = Replayed().with_offsets([5, 3, 4, 9], first=0)
    marks = marks.with_offsets([6], first=0)._replace(token=77, is_origin=True)

    assert marks.ranges == ((3, 7), (9, 10))
    assert Replayed.read(marks.to_marks()) == marks
    assert [offset for offset in range(12) if marks.has(offset)] == [3, 4, 5, 6, 9]


def test_what_the_queue_does_not_hold_any_more_is_forgotten() -> None:
    marks = Replayed(((0, 4), (6, 9))).with_offsets([20], first=7)

    assert marks.ranges == ((6, 9), (20, 21))


def test_tokens_are_known_for_some_minutes() -> None:
    tokens = GivenBackTokens()
    tokens.note("first", 0)
    tokens.note("second", KEPT_MS)

    assert "first" in tokens and "second" in tokens
    tokens.note("third", KEPT_MS + 1)

    assert "first" not in tokens and "second" in tokens


def test_tokens_are_not_too_many() -> None:
    tokens = GivenBackTokens()
    for number in range(KEPT_MAX + 10):
        tokens.note(str(number), 0)

    assert len(tokens) == KEPT_MAX
    assert "9" not in tokens and "10" in tokens
