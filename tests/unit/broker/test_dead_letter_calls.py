"""Replays over a log in memory, cut at each place where a crash can cut them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.model.errors import (
    BusyError,
    GroupUnknownError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.rules.tables.topics import Permission, Topic
from ledgermq.wire.session import FOLLOWER, Standing
from tests.unit.broker.retry_node import RetryLog, RetryNode

DEAD = Topic("%DLQ%g", 1, 1)
RETRY = Topic("%RETRY%g", 1, 1)
ORDERS = Topic("orders", 4, 4)
LETTERS = 5


def filled(count: int = LETTERS, *, body: bytes = b"") -> RetryLog:
    log = RetryLog()
    for number in range(count):
        properties = encode_properties({"UNIQ_KEY": f"U{number}", "RETRY_TOPIC": "orders"})
        dead = Message(
            topic="%DLQ%g",
            queue_id=0,
            body=b"%d" % number + body,
            properties=properties,
            reconsume_times=17,
        )
        log.put(encode_message(dead))
    return log


def replay(node: RetryNode, number: int, *offsets: int, **how: object) -> None:
    arguments = {"group": "g", "queue": 0, "offsets": list(offsets), "token": number, **how}
    node.call(number, "dead_letters_replay", **arguments)


def started(path: Path, log: RetryLog, term: int = 1, *topics: Topic) -> RetryNode:
    node = RetryNode(path, log, term, *(topics or (DEAD, RETRY, ORDERS)))
    node.run()
    return node


def bodies(log: RetryLog, topic: str = "%RETRY%g", queue_id: int = 0) -> list[bytes]:
    return [bytes(message.body) for message in log.messages(topic, queue_id)]


def test_a_replay_is_marked_and_made_once(tmp_path: Path) -> None:
    log = filled()
    node = started(tmp_path, log)
    replay(node, 1, 3, 1)
    node.run()
    replay(node, 2, 0, 1, 3, 9)
    node.run()
    node.call(3, "dead_letters", group="g")

    assert node.answers[1] == {"replayed": [1, 3], "already": [], "missing": [], "left": []}
    assert node.answers[2] == {"replayed": [0], "already": [1, 3], "missing": [9], "left": []}
    assert bodies(log) == [b"1", b"3", b"0"]
    assert node.answers[3] == {
        "topic": "%DLQ%g",
        "queues": [{"queue": 0, "min": 0, "max": 5, "replayed": [[0, 2], [3, 4]]}],
    }


@pytest.mark.parametrize("cut", range(LETTERS + 3))
@pytest.mark.parametrize("origin", [False, True])
def test_the_next_leader_finishes_a_replay_that_was_cut(
    tmp_path: Path, cut: int, origin: bool
) -> None:
    log = filled()
    dead = started(tmp_path / "dead", log)
    replay(dead, 7, *range(LETTERS), origin=origin)
    dead.propose()
    kept = log.take(cut)
    heir = started(tmp_path / "heir", log, 2)
    replay(heir, 7, *range(LETTERS), origin=origin)
    heir.run()
    replay(heir, 8, *range(LETTERS), origin=origin)
    heir.run()

    assert kept == LETTERS + 2
    topic = "orders" if origin else "%RETRY%g"
    found = [body for queue_id in range(4) for body in bodies(log, topic, queue_id)]
    assert sorted(found) == [b"%d" % number for number in range(LETTERS)]
    assert heir.answers[7] == {
        "replayed": list(range(LETTERS)),
        "already": [],
        "missing": [],
        "left": [],
    }
    again = heir.answers[8]
    assert isinstance(again, dict)
    assert again["already"] == list(range(LETTERS))


def test_asked_again_with_its_token_even_again_replays_once(tmp_path: Path) -> None:
    log = filled(1)
    node = started(tmp_path, log)
    for number in (1, 2, 2, 2):
        replay(node, number, 0, again=True)
        node.run()

    assert bodies(log) == [b"0", b"0"]
    assert node.answers[2] == {"replayed": [0], "already": [], "missing": [], "left": []}


def test_what_is_too_much_for_one_move_is_left(tmp_path: Path) -> None:
    log = filled(3, body=bytes(300_000))
    node = started(tmp_path, log)
    replay(node, 1, 0, 1, 2)
    node.run()
    answer = node.answers[1]

    assert isinstance(answer, dict)
    assert (answer["replayed"], answer["left"]) == ([0], [1, 2])


def test_the_groups_retry_topic_is_made_when_it_is_needed(tmp_path: Path) -> None:
    log = filled()
    node = started(tmp_path, log, 1, DEAD)
    replay(node, 1, 0)
    node.run()

    assert bodies(log) == [b"0"]
    assert node.tables.topics.get("%RETRY%g") is not None
    assert node.tables.groups.get("g") is not None


def test_a_replayed_letter_names_its_dead_letter(tmp_path: Path) -> None:
    log = filled()
    node = started(tmp_path, log)
    replay(node, 1, 2)
    node.run()
    (made,) = log.messages("%RETRY%g")

    assert made.reconsume_times == 0
    assert decode_properties(made.properties) == {
        "UNIQ_KEY": "U2",
        "RETRY_TOPIC": "orders",
        "REPLAYED_FROM": "%DLQ%g/0/2",
    }


def test_a_topic_that_takes_nothing_refuses_and_nothing_is_marked(tmp_path: Path) -> None:
    log = filled()
    closed = Topic("orders", 4, 4, Permission.READ)
    node = started(tmp_path, log, 1, DEAD, RETRY, closed)
    replay(node, 1, 0, origin=True)
    node.run()
    node.tables.topics.delete("orders", 0)
    replay(node, 2, 0, origin=True)
    node.run()
    replay(node, 3, 0)
    node.run()

    assert isinstance(node.answers[1], NoPermissionError)
    assert isinstance(node.answers[2], TopicUnknownError)
    assert "replay to the group" in str(node.answers[2])
    assert bodies(log) == [b"0"]


def test_refusals_name_what_is_wrong(tmp_path: Path) -> None:
    node = started(tmp_path, filled())
    replay(node, 1, 0)
    with pytest.raises(BusyError, match="under way"):
        replay(node, 2, 1)
    with pytest.raises(GroupUnknownError, match="other"):
        replay(node, 3, 0, group="other")
    for wrong in ({"offsets": []}, {"offsets": [-1]}, {"offsets": "0"}, {"token": 0}):
        with pytest.raises(ProtocolError):
            replay(node, 4, 0, **wrong)
    node.state.lead(Standing(FOLLOWER, 2, "n1"))
    node.turn()
    with pytest.raises(NotLeaderError):
        replay(node, 5, 0)

    assert isinstance(node.answers[1], Exception)
