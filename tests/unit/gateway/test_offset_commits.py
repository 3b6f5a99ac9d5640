"""Offsets of many consumers, gathered: what is sent to the log, when, and who is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.broker.administration.offset_calls import OffsetCommit
from ledgermq.broker.callers import Caller
from ledgermq.broker.state.state_requests import Reply
from ledgermq.gateway.consuming.offset_commits import (
    NOTED_MAX,
    PERIOD_MS,
    OffsetCommits,
)
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.model.errors import BusyError, LedgerError, MessageIllegalError, NotLeaderError
from ledgermq.model.limits import GROUP_SIZE_MAX
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.wire.session import Standing

LEADS = Standing("leader", 1, "n0")
FOLLOWS = Standing("follower", 2, "n1")


class Log:
    """Stands for the service that has commits in the log: answers when the test says so."""

    def __init__(self) -> None:
        self.offsets = GroupOffsets()
        self.batches: list[list[OffsetCommit]] = []
        self._callers: list[Caller] = []
        self.calls = PortCalls(cast("Any", self), reply=cast("Any", None))
        self.commits = OffsetCommits(self.calls, cast("Any", SimpleNamespace(offsets=self.offsets)))
        self.commits.tell_standing(LEADS)
        self.told: list[LedgerError | None] = []

    def call(
        self, caller: Caller, verb: str, arguments: dict[str, Any], now_ms: int, **_more: object
    ) -> None:
        del now_ms
        assert verb == "offsets_store"
        self.batches.append(arguments["commits"])
        self._callers.append(caller)

    def answer(self, outcome: LedgerError | None = None, *refused: tuple[Any, ...]) -> None:
        """The last batch is in the log, but for what was refused; or none of it is."""
        if outcome is None:
            lost = {row[:3] for row in refused}
            for group, topic, offsets, _ in self.batches[-1]:
                kept = {one: at for one, at in offsets.items() if (group, topic, one) not in lost}
                self.offsets.set(group, topic, kept)
        result = {"refused": list(refused)} if outcome is None else outcome
        self.calls.take_reply(Reply(self._callers.pop(), result))


def test_the_latest_offset_of_each_queue_goes_to_the_log_once() -> None:
    log = Log()
    for offset in (5, 9, 7):
        log.commits.note("g", "orders", 0, offset)
    log.commits.note("g", "orders", 1, 3)
    log.commits.note("h", "other", 0, 4, owner="10.0.0.9")

    log.commits.turn(1_000)
    log.commits.turn(1_000 + PERIOD_MS)

    other = OffsetCommit("h", "other", {0: 4}, "10.0.0.9")
    assert log.batches == [[OffsetCommit("g", "orders", {0: 7, 1: 3}), other]]
    assert log.commits.offset("g", "orders", 0) == 7
    log.answer()
    assert log.commits.offset("g", "orders", 0) == 7
    assert log.commits.offset("g", "orders", 2) is None
    assert log.commits.next_deadline_ms() is None


def test_one_batch_is_under_way_and_the_next_has_what_came_meanwhile() -> None:
    log = Log()
    log.commits.note("g", "orders", 0, 1)
    log.commits.turn(1_000)
    log.commits.note("g", "orders", 0, 2)

    log.commits.turn(5_000)
    assert (len(log.batches), log.commits.next_deadline_ms()) == (1, None)
    log.answer()
    assert log.commits.offset("g", "orders", 0) == 2
    assert log.commits.next_deadline_ms() == 1_000 + PERIOD_MS
    log.commits.turn(1_000 + PERIOD_MS - 1)
    assert len(log.batches) == 1
    log.commits.turn(1_000 + PERIOD_MS)

    assert log.batches[1:] == [[OffsetCommit("g", "orders", {0: 2})]]


def test_what_is_stored_already_is_not_sent_again() -> None:
    log = Log()
    log.offsets.set("g", "orders", {0: 5})
    log.commits.note("g", "orders", 0, 5)

    log.commits.turn(1_000)

    assert log.batches == []


def test_who_waits_is_told_once_it_is_stored_or_why_it_is_not() -> None:
    log = Log()
    log.commits.note("g", "orders", 0, 5, log.told.append)
    log.commits.note("g", "orders", 1, 5, log.told.append)
    assert log.commits.next_deadline_ms() == 0
    log.commits.turn(0)
    assert log.told == []
    log.answer(None, ("g", "orders", 1, "outside"))

    assert log.told[0] is None
    assert isinstance(log.told[1], MessageIllegalError)
    log.commits.note("g", "orders", 0, 6, log.told.append)
    log.commits.turn(PERIOD_MS)
    log.answer(BusyError("held up"))
    assert isinstance(log.told[2], BusyError)
    assert log.commits.offset("g", "orders", 0) == 5


def test_a_node_that_does_not_lead_stores_nothing_and_says_so_to_who_waits() -> None:
    log = Log()
    log.commits.note("g", "orders", 0, 5)
    log.commits.note("g", "orders", 1, 5, log.told.append)
    log.commits.tell_standing(FOLLOWS)
    log.commits.note("g", "orders", 0, 6)
    with pytest.raises(NotLeaderError):
        log.commits.note("g", "orders", 0, 6, log.told.append)
    log.commits.tell_standing(LEADS)
    log.commits.turn(1_000)

    assert [type(one) for one in log.told] == [NotLeaderError]
    assert (log.batches, log.commits.offset("g", "orders", 0)) == ([], None)


def test_what_is_gathered_has_a_limit_and_there_is_room_again_behind_it() -> None:
    log = Log()
    for queue_id in range(NOTED_MAX):
        log.commits.note("g", "orders", queue_id, 1)
    log.commits.note("h", "orders", 0, 1)

    assert log.commits.offset("h", "orders", 0) is None
    with pytest.raises(BusyError, match=str(NOTED_MAX)):
        log.commits.note("h", "orders", 0, 1, log.told.append)

    log.commits.turn(1_000)
    log.commits.note("h", "orders", 0, 1)

    assert log.commits.offset("h", "orders", 0) == 1


def test_a_name_that_nothing_has_is_not_kept() -> None:
    log = Log()
    name = "x" * (GROUP_SIZE_MAX + 1)
    log.commits.note(name, "orders", 0, 1)
    log.commits.note("g", name, 0, 1)

    assert log.commits.next_deadline_ms() is None
    with pytest.raises(MessageIllegalError, match="limit=255"):
        log.commits.note(name, "orders", 0, 1, log.told.append)
