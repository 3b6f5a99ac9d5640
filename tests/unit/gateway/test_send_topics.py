"""Topics that RocketMQ's clients send to: found, refused, or made once for all who wait."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.gateway.producing import send_topics
from ledgermq.gateway.producing.send_topics import SendTopics
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.remoting.send_request import SendRequest
from ledgermq.rules.tables.topics import Permission, Topic

REQUEST = SendRequest("g", "new", "", 7, 0, 0, 1, 0, "", 0, True, None, False)


class Node:
    """Tables and calls that a test answers."""

    def __init__(self, *topics: Topic) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.asked: list[tuple[str, dict[str, Any], Any]] = []
        tables: Any = SimpleNamespace(topics=self.topics)
        calls: Any = SimpleNamespace(ask=self._ask)
        self.found = SendTopics(tables, calls)

    def _ask(
        self, verb: str, arguments: dict[str, Any], _now_ms: int, take: Any, *, owner: str
    ) -> None:
        assert owner == "user:alice"
        self.asked.append((verb, arguments, take))


def test_a_topic_that_has_changed_is_known_as_it_is_now() -> None:
    node = Node(Topic("orders", 4, 4))
    before = node.found.find("orders")
    node.topics["orders"] = Topic("orders", 4, 2)
    after = node.found.find("orders")
    del node.topics["orders"]

    assert before is not None and after is not None
    assert (before.name, before.queues, after.queues) == (b"orders", 4, 2)
    assert node.found.find("orders") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", ProtocolError),
        ("no blanks", ProtocolError),
        ("x" * 128, MessageIllegalError),
        ("RMQ_SYS_TRANS_HALF_TOPIC", NoPermissionError),
        ("closed", NoPermissionError),
    ],
)
def test_what_may_not_be_sent_to_is_refused(name: str, kind: type[LedgerError]) -> None:
    closed = replace(Topic("closed", 4, 4), permission=Permission.READ)

    with pytest.raises(kind):
        Node(closed).found.find(name)


def test_a_topic_is_made_once_and_all_go_on_in_their_order() -> None:
    node = Node()
    told: list[tuple[int, LedgerError | None]] = []
    for number in range(3):
        assert node.found.find("new") is None
        node.found.make(
            "new",
            REQUEST,
            0,
            9,
            lambda error, number=number: told.append((number, error)),
            owner="user:alice",
        )
    ((verb, arguments, take),) = node.asked
    node.topics["new"] = Topic("new", 4, 4)
    # There it is, but those that wait come first.
    waits = node.found.find("new") is None
    take({})

    assert (verb, waits) == ("topic_for_send", True)
    assert arguments == {"topic": "new", "template": "TBW102", "queues": 7, "unit_mode": True}
    assert told == [(0, None), (1, None), (2, None)]
    assert node.found.find("new") is not None


def test_all_who_wait_are_told_why_there_is_no_topic() -> None:
    node = Node()
    told: list[LedgerError | None] = []
    node.found.make("new", REQUEST, 0, 9, told.append, owner="user:alice")
    node.found.make("new", REQUEST, 0, 9, told.append, owner="user:alice")
    error = TopicUnknownError("none is made")
    node.asked[0][2](error)

    assert told == [error, error]


@pytest.mark.parametrize(("name", "limit"), [("WAITING_MAX", 1), ("WAITING_BYTES_MAX", 17)])
def test_not_more_wait_than_may(monkeypatch: pytest.MonkeyPatch, name: str, limit: int) -> None:
    monkeypatch.setattr(send_topics, name, limit)
    node = Node()
    node.found.make("new", REQUEST, 0, 9, lambda _error: None, owner="user:alice")
    with pytest.raises(BusyError):
        node.found.make("other", REQUEST, 0, 9, lambda _error: None, owner="user:alice")
    node.asked[0][2]({})
    node.found.make("other", REQUEST, 0, 9, lambda _error: None, owner="user:alice")

    assert [arguments["topic"] for _, arguments, _ in node.asked] == ["new", "other"]
