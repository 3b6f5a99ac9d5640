"""Commits of a group's offsets: by whom, and of which queues."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.administration.offset_calls import OffsetCalls
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.ipc.counters import no_counts
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import MessageIllegalError
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.groups import GroupTable
from ledgermq.rules.tables.queue_locks import QueueLocks
from ledgermq.rules.tables.shares import ShareTable
from ledgermq.rules.tables.table_changes import Lock, OffsetsSet
from tests.unit.broker.answers import answers


class Node:
    """Tables of a leader; a commit is in them at once."""

    def __init__(self) -> None:
        self.offsets, self.locks = GroupOffsets(), QueueLocks()
        self._requests: list[Any] = []
        known: Any = SimpleNamespace(
            tables=SimpleNamespace(
                offsets=self.offsets, locks=self.locks, groups=GroupTable(), shares=ShareTable()
            ),
            store=SimpleNamespace(bounds=lambda _queue: ReadableRange(0, 1_000, 0)),
            check_queue=lambda _queue: None,
        )
        log: Any = SimpleNamespace(submit=lambda request, _now: self._requests.append(request))
        self._calls = OffsetCalls(known, TopicsSection(), log, lambda _group: [], no_counts())

    def own(self, client: str, *queues: int) -> None:
        self.locks.set("g", "orders", dict.fromkeys(queues, Lock(client, 60_000)))

    def commit(self, offsets: dict[str, int], **client: str) -> None:
        arguments = {"group": "g", "topic": "orders", "offsets": offsets, **client}
        answers(self._calls.verbs)["group_commit"](Call(Caller(b"c", 1), arguments, 0))
        for change in self._requests[-1].plan():
            if isinstance(change, OffsetsSet):
                self.offsets.set(change.group, change.topic, change.offsets)

    def stored(self) -> dict[int, int]:
        return self.offsets.offsets("g", "orders")


def test_a_member_that_has_lost_a_queue_does_not_commit_over_its_next_owner() -> None:
    node = Node()
    node.own("c1", 0, 1)
    node.commit({"0": 100}, client="c1")
    # It was cut off, and another one took the queue.
    node.own("c2", 0)
    for offset in (99, 100, 120):
        with pytest.raises(MessageIllegalError, match="another member's by now"):
            node.commit({"0": offset, "1": 7}, client="c1")
    assert node.stored() == {0: 100}

    node.commit({"0": 110}, client="c2")
    node.commit({"1": 7}, client="c1")
    assert node.stored() == {0: 110, 1: 7}


def test_whoever_owns_nothing_commits_where_nobody_else_does() -> None:
    """A member whose lock has ended, as long as no other one came; and readers in no group."""
    node = Node()
    node.commit({"0": 5}, client="c1")
    node.own("c2", 0)
    node.commit({"0": 6})

    assert node.stored() == {0: 6}
