"""What a leader knows of the members of groups, and when it knows that there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serving.applied import apply_all
from tests.unit.serving.memory_log import MemoryLog, root_of

from ledgermq.model.errors import BusyError
from ledgermq.model.settings import Settings, StoreSection
from ledgermq.process.clock import MACHINE_CLOCK, Clock, MachineClock
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.calls import Call, Result
from ledgermq.serving.known_topics import KnownTopics
from ledgermq.serving.member_calls import ANSWERS_NS, MemberCalls
from ledgermq.serving.other_members import OtherMembers
from ledgermq.serving.pull_service import let_through
from ledgermq.serving.sliced_answers import SlicedAnswers
from ledgermq.serving.state_log import StateLog
from ledgermq.serving.state_requests import Caller, Encoded, Reply
from ledgermq.wire.session import LEADER, Standing

HEARTBEAT: dict[str, object] = {
    "group": "g",
    "client": "c1",
    "instance": "i1",
    "host": "here",
    "model": "clustering",
    "start": "first",
    "ordered": False,
    "strategy": "average",
    "subscription": {"orders": "*"},
    "version": "",
}


def calls_of(directory: Path, clock: Clock = MACHINE_CLOCK) -> MemberCalls:
    settings = Settings(store=StoreSection(path_root_dir=root_of(directory)))
    stand_in: Any = MemoryLog()
    tables = BrokerTables(directory / "config", settings)
    state = StateLog(settings, stand_in, tables, stand_in, clock=clock)
    apply_all(state)
    state.lead(Standing(LEADER, 1, "n0"))
    while not state.is_settled:
        state.turn(0)
        while stand_in.orders:
            stand_in.take()
        apply_all(state)
    known = KnownTopics(stand_in, tables)
    return MemberCalls(known, settings, state, OtherMembers(), SlicedAnswers(clock, let_through))


def test_a_new_leader_does_not_say_that_nobody_consumes_before_members_had_time_to_tell_it(
    tmp_path: Path,
) -> None:
    calls = calls_of(tmp_path)
    heartbeat_ms = Settings().groups.heartbeat_ms
    calls.lead(True, 50_000)
    calls.turn(50_000 + heartbeat_ms - 1)
    with pytest.raises(BusyError) as caught:
        calls.consuming("g")

    assert caught.value.details["retry_after_ms"] == 1
    calls.turn(50_000 + heartbeat_ms)
    assert calls.consuming("g") == []


def test_members_that_have_told_a_new_leader_are_known_at_once(tmp_path: Path) -> None:
    calls = calls_of(tmp_path)
    calls.lead(True, 50_000)
    calls.turn(50_001)
    calls.verbs["group_heartbeat"](Call(Caller(b"c", 1), HEARTBEAT, 50_001))

    assert calls.consuming("g") == ["c1"]


class Ticking(MachineClock):
    """A clock by which a turn ends after some answers."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += -(-ANSWERS_NS // ANSWERS_A_TURN)
        return self._now_ns


ANSWERS_A_TURN = 4
MEMBERS = 3 * ANSWERS_A_TURN


def beat(calls: MemberCalls, client: str, version: str, now_ms: int) -> Result | None:
    arguments = {**HEARTBEAT, "client": client, "version": version}
    return calls.verbs["group_heartbeat"](Call(Caller(client.encode(), 1), arguments, now_ms))


def waiting_members(directory: Path, clock: Clock) -> MemberCalls:
    """A leader whose group has members that all wait, and know one another."""
    calls = calls_of(directory, clock)
    calls.lead(True, 50_000)
    calls.turn(50_000)
    for number in range(MEMBERS):
        assert beat(calls, f"c{number}", "", 50_000) is not None
    while calls.turn(50_000) or calls.next_deadline_ms() == 0:
        pass
    seen = beat(calls, "c0", "", 50_000)
    assert seen is not None
    for number in range(MEMBERS):
        assert beat(calls, f"c{number}", str(seen["version"]), 50_001) is None
    return calls


def told(replies: list[Reply]) -> dict[str, str]:
    """Which version each client is told."""
    views = {}
    for reply in replies:
        assert isinstance(reply.outcome, Encoded)
        view = json.loads(reply.outcome.body)
        assert view["members"] == {f"c{number}": ["orders"] for number in range(MEMBERS + 1)}
        views[reply.caller.client.decode()] = view["version"]
    return views


def test_members_of_a_group_that_changes_are_told_some_a_turn_each_once(tmp_path: Path) -> None:
    calls = waiting_members(tmp_path, Ticking())
    newcomer = beat(calls, f"c{MEMBERS}", "", 50_002)
    assert newcomer is not None

    turns = []
    while calls.next_deadline_ms() == 0:
        turns.append(told(calls.turn(50_002)))

    assert max(map(len, turns)) <= ANSWERS_A_TURN
    assert [name for turn in turns for name in turn] == [f"c{one}" for one in range(MEMBERS)]
    assert {version for turn in turns for version in turn.values()} == {newcomer["version"]}


def test_what_members_are_told_is_made_once_however_often_their_group_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = waiting_members(tmp_path, MACHINE_CLOCK)
    made: list[str] = []
    view = calls._view

    def counted(group: str, now_ms: int) -> Result:
        made.append(group)
        return view(group, now_ms)

    for start in ("first", "last", "first"):
        changed = {**HEARTBEAT, "client": f"c{MEMBERS}", "start": start}
        calls.verbs["group_heartbeat"](Call(Caller(b"new", 1), changed, 50_002))
    monkeypatch.setattr(calls, "_view", counted)
    answered = dict(told(calls.turn(50_002)))
    while calls.next_deadline_ms() == 0:
        answered |= told(calls.turn(50_002))

    assert len(answered) == MEMBERS
    assert len(made) < MEMBERS / 2
