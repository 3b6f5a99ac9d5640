"""What holds up a strict spread of a topic, as a group's answers say it."""

from __future__ import annotations

import pytest

from ledgermq.cli.admin.strict_spread import TopicRemains, UnfinishedMessages

CLOSED = TopicRemains(True, True, "", False, 4, 4, True, {"readers": 0})
BY_NONE: list[str] = []


def test_a_group_that_has_closed_the_topic_and_consumed_all_holds_nothing_up() -> None:
    assert (CLOSED.not_closed, CLOSED.left, CLOSED.not_followed) == (BY_NONE, BY_NONE, BY_NONE)


def test_a_group_without_a_share_has_to_know_the_row_alone() -> None:
    assert TopicRemains(True).not_closed == TopicRemains(True).not_followed == []
    assert TopicRemains(False).not_closed == ["does not know yet that the topic is closed"]
    assert TopicRemains(False).not_followed == ["does not know the cluster's row yet"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"is_writable": True}, "has not closed the topic yet"),
        ({"is_known": False}, "a writer that does not know its topics yet"),
        ({"refused": "its own"}, "does not follow: its own"),
    ],
)
def test_a_group_that_may_take_messages_holds_it_up(
    changed: dict[str, object], reason: str
) -> None:
    assert CLOSED._replace(**changed).not_closed == [reason]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"lags": {"readers": 6_000}}, "6,000 messages for readers"),
        ({"waiting": UnfinishedMessages(timers=1)}, "1 timers"),
        ({"waiting": UnfinishedMessages(delayed=2)}, "2 delayed messages"),
        ({"waiting": UnfinishedMessages(half_messages=3)}, "3 messages of open transactions"),
        ({"waiting": UnfinishedMessages(packs=4)}, "4 parts of batches of a sink"),
    ],
)
def test_what_is_not_consumed_holds_it_up(changed: dict[str, object], reason: str) -> None:
    assert CLOSED._replace(**changed).left == [reason]  # type: ignore[arg-type]


def test_a_group_that_has_fewer_queues_than_its_row_has_not_followed() -> None:
    assert CLOSED._replace(wanted=8).not_followed == ["has 4 of 8 queues yet"]
