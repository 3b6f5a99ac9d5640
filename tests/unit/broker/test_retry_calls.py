"""Giving back over a log in memory: what is stored, and what is told to who asks again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.model.errors import (
    BusyError,
    MessageIllegalError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.limits import FORBIDDEN_TOPICS
from ledgermq.model.rights import Right
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.topics import Permission, Topic
from ledgermq.wire.session import FOLLOWER, Standing
from tests.unit.broker.retry_node import RetryLog, RetryNode

ORDERS = Topic("orders", 4, 4)
WAITING = "SCHEDULE_TOPIC_XXXX"


def put(log: RetryLog, body: bytes = b"body", tries: int = 0) -> Message:
    properties = encode_properties({"UNIQ_KEY": "U"})
    return log.put(
        encode_message(
            Message(
                topic="orders",
                queue_id=1,
                body=body,
                properties=properties,
                reconsume_times=tries,
            )
        )
    )


def started(path: Path, log: RetryLog, term: int = 1, *topics: Topic) -> RetryNode:
    node = RetryNode(path, log, term, ORDERS, *topics)
    node.run()
    return node


def give(node: RetryNode, number: int, message: Message, **how: object) -> None:
    asked = {
        "group": "g",
        "position": message.physical_offset,
        "delay_level": 0,
        "token": f"t{number}",
        **how,
    }
    node.call(number, "send_back", **asked)


def test_what_is_given_back_waits_in_its_level(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    message = put(log)
    give(node, 1, message)
    node.run()
    (stored,) = log.messages(WAITING, 2)
    made = node.tables.topics.get("%RETRY%g")

    assert node.answers[1] == {
        "topic": "%RETRY%g",
        "delay_level": 3,
        "reconsume_times": 1,
        "repeated": False,
    }
    assert (bytes(stored.body), stored.reconsume_times) == (b"body", 1)
    assert decode_properties(stored.properties)["REAL_TOPIC"] == "%RETRY%g"
    assert made is not None and (made.read_queues, made.write_queues) == (1, 1)
    assert node.tables.groups.get("g") is not None


def test_many_at_once_make_their_topic_once_and_share_a_group(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    messages = [put(log, b"%d" % number) for number in range(50)]
    commands = len(log.messages("LEDGERMQ_SYSTEM", 1))
    for number, message in enumerate(messages):
        give(node, number, message, delay_level=-1)
    node.run()

    assert len(node.answers) == 50
    assert [bytes(one.body) for one in log.messages("%DLQ%g")] == [b"%d" % n for n in range(50)]
    # One makes the topic; one begins the group of messages, and one ends it.
    assert len(log.messages("LEDGERMQ_SYSTEM", 1)) == commands + 3


@pytest.mark.parametrize("cut", range(4))
def test_a_token_is_known_exactly_when_its_message_is_in_the_log(tmp_path: Path, cut: int) -> None:
    log = RetryLog()
    topics = (Topic("%RETRY%g", 1, 1),)
    dead = started(tmp_path / "dead", log, 1, *topics)
    dead.tables.groups.put(SubscriptionGroup("g"), 0)
    message = put(log)
    give(dead, 1, message)
    dead.propose()
    kept = log.take(cut)
    heir = started(tmp_path / "heir", log, 2, *topics)
    give(heir, 1, message)
    heir.run()
    answer = heir.answers[1]

    assert kept == 3
    assert isinstance(answer, dict)
    assert answer["repeated"] == (cut == 3)
    # Behind the message and before its token it is stored once more: never lost.
    assert len(log.messages(WAITING, 2)) == (2 if cut == 2 else 1)


def test_another_act_on_the_same_message_is_another_one(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    message = put(log)
    for number in (1, 1, 2):
        give(node, number, message)
        node.run()

    assert len(log.messages(WAITING, 2)) == 2


def test_a_group_without_retry_queues_drops(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    node.tables.groups.put(SubscriptionGroup.read("g", {"retryQueueNums": 0}), 0)
    give(node, 1, put(log))
    node.run()
    answer = node.answers[1]

    assert isinstance(answer, dict)
    assert (answer["topic"], answer["reconsume_times"]) == ("", 0)
    assert node.tables.topics.get("%RETRY%g") is None


def test_a_group_that_may_not_consume_gives_back_what_it_has(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    node.tables.groups.put(
        SubscriptionGroup.read("g", {"consumeEnable": False, "retryMaxTimes": 2}), 0
    )
    give(node, 1, put(log, tries=1))
    give(node, 2, put(log, tries=2))
    node.run()

    topics = [answer["topic"] for answer in node.answers.values() if isinstance(answer, dict)]
    assert sorted(topics) == ["%DLQ%g", "%RETRY%g"]


def test_a_message_may_be_named_by_its_queue(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    put(log, b"first")
    put(log, b"second")
    named = {"group": "g", "delay_level": -1, "topic": "orders", "queue": 1}
    node.call(1, "send_back", offset=1, **named)
    node.run()
    with pytest.raises(MessageIllegalError, match="does not hold"):
        node.call(2, "send_back", offset=2, **named)
    with pytest.raises(TopicUnknownError):
        node.call(3, "send_back", offset=0, **{**named, "queue": 4})

    assert [bytes(one.body) for one in log.messages("%DLQ%g")] == [b"second"]


def test_refusals_store_nothing(tmp_path: Path) -> None:
    log = RetryLog()
    closed = Topic("%RETRY%g", 1, 1, Permission.READ)
    node = started(tmp_path, log, 1, closed)
    message = put(log)
    with pytest.raises(NoPermissionError, match="may not be written"):
        give(node, 1, message)
    with pytest.raises(MessageIllegalError, match="no message begins there"):
        give(node, 2, message, position=message.physical_offset + 1)
    log.pending_from = message.physical_offset + 1_000
    with pytest.raises(BusyError, match="not in its queue yet"):
        give(node, 2, message, position=message.physical_offset + 1_000)
    with pytest.raises(MessageIllegalError, match="another message"):
        give(node, 3, message, queue=2)
    with pytest.raises(ProtocolError, match="token is too long"):
        give(node, 4, message, token="t" * 65)
    with pytest.raises(ProtocolError, match="out of range"):
        give(node, 5, message, max_reconsume_times=-1)
    node.state.lead(Standing(FOLLOWER, 2, "n1"))
    with pytest.raises(NotLeaderError):
        give(node, 6, message, group="other")
    node.run()

    assert log.messages(WAITING, 2) == []


def test_a_leader_that_leads_no_more_tells_who_waits(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    message = put(log)
    give(node, 1, message)
    give(node, 2, message)
    node.state.lead(Standing(FOLLOWER, 2, "n1"))
    node.turn()

    assert [type(answer).__name__ for answer in node.answers.values()] == [
        "OutcomeUnknownError",
        "OutcomeUnknownError",
    ]


def test_a_position_is_no_way_around_the_rights_to_its_topic(tmp_path: Path) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    message = put(log)
    asked: list[tuple[str, Right]] = []

    def refuse(topic: str, right: Right) -> None:
        asked.append((topic, right))
        raise NoPermissionError("user has not the right", topic=topic)

    node.check_topic = refuse
    before = len(log.messages(WAITING, 2))
    with pytest.raises(NoPermissionError):
        give(node, 1, message)
    with pytest.raises(NoPermissionError):
        # Nor is it told what is there instead of what was asked for.
        give(node, 2, message, topic="mine", queue=0, offset=0)

    assert asked == [("orders", Right.SUB)] * 2
    assert len(log.messages(WAITING, 2)) == before


@pytest.mark.parametrize("topic", sorted(FORBIDDEN_TOPICS))
def test_what_a_node_keeps_for_itself_is_given_back_to_nobody(tmp_path: Path, topic: str) -> None:
    log = RetryLog()
    node = started(tmp_path, log)
    secret = log.put(encode_message(Message(topic=topic, queue_id=1, body=b"secret")))

    with pytest.raises(MessageIllegalError, match="not given back"):
        give(node, 1, secret)
