"""What a client may have wait in share groups, with a log in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, anybody
from ledgermq.broker.consumers import share_calls, share_room
from ledgermq.broker.consumers.share_calls import ShareCalls
from ledgermq.broker.pulls.queue_messages import QueueMessages
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.ipc.counters import no_counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import MACHINE_CLOCK
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.tables.topics import Topic
from tests.unit.broker.answers import answers
from tests.unit.broker.retry_node import RetryLog, RetryNode

HANDLE = "1:g:t:0:0:1:ab"


class ShareNode(RetryNode):
    """A node that leads, and whose log takes nothing before it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, RetryLog(), 1)
        stand_in: Any = self.log
        self.shares = ShareCalls(
            KnownTopics(stand_in, self.tables),
            self.state,
            QueueMessages(stand_in, self.moves, None),
            Settings(),
            lambda _group: [],
            mailbox=self.mailbox,
            clock=MACHINE_CLOCK,
            counts=no_counts(),
        )
        self.run()

    def receive(self, number: int, group: str, topic: str) -> None:
        """Wait for messages, for a minute."""
        arguments = {"group": group, "topic": topic, "wait_ms": 60_000}
        call = Call(Caller(b"c", number), arguments, self.now_ms, anybody)
        assert answers(self.shares.verbs)["share_receive"](call) is None

    def settle(self, client: bytes, number: int, count: int) -> None:
        """Ask for so many handles to be settled."""
        arguments = {"group": "g", "action": "accept", "handles": [HANDLE] * count}
        call = Call(Caller(client, number), arguments, self.now_ms, anybody)
        assert answers(self.shares.verbs)["share_settle"](call) is None


def test_handles_that_wait_to_be_settled_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_room, "SETTLING_MAX", 50)
    monkeypatch.setattr(share_room, "SETTLING_PER_CLIENT", 30)
    node = ShareNode(tmp_path)
    node.settle(b"a", 1, 30)
    with pytest.raises(BusyError, match="limit=30"):
        node.settle(b"a", 2, 1)
    node.settle(b"b", 3, 20)
    with pytest.raises(BusyError, match="limit=50"):
        node.settle(b"c", 4, 1)
    node.run()
    assert {number: len(told["handles"]) for number, told in node.answers.items()} == {  # type: ignore[index]
        1: 30,
        3: 20,
    }
    node.settle(b"a", 5, 30)
    node.settle(b"c", 6, 20)


def test_what_is_stored_has_one_look_at_each_topic_however_many_groups_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ShareNode(tmp_path)
    node.tables.topics.put(Topic("t", 8, 8), 0)
    node.tables.topics.put(Topic("u", 8, 8), 0)
    for number in range(30):
        node.receive(number, f"g{number}", "t" if number % 2 else "u")
    node.shares.turn(node.now_ms)
    node.shares.notice_growth(node.now_ms)
    node.shares.turn(node.now_ms)
    asked: list[QueueName] = []
    bounds = node.log.bounds

    def counted(queue: QueueName) -> ReadableRange:
        asked.append(queue)
        return bounds(queue)

    monkeypatch.setattr(node.log, "bounds", counted)
    node.shares.notice_growth(node.now_ms)
    node.shares.turn(node.now_ms)

    assert sorted(asked) == [QueueName(topic, queue) for topic in "tu" for queue in range(8)]
    assert node.shares.next_deadline_ms() == node.now_ms + share_calls.CLOCK_LOOK_MS
