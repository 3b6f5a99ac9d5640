"""What a leader knows of the members of groups, and when it knows that there are none."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, Result
from ledgermq.broker.consumers import member_calls
from ledgermq.broker.consumers.member_calls import HEARTBEATS_NS, MemberCalls
from ledgermq.broker.consumers.other_members import OtherMembers
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox
from ledgermq.broker.sliced_answers import SlicedAnswers
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Encoded, Reply
from ledgermq.ipc.counters import no_counts
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.model.errors import BusyError, LedgerError
from ledgermq.process.clock import MACHINE_CLOCK, Clock, MachineClock
from ledgermq.sessions.request_faults import let_through
from ledgermq.wire.session import LEADER, Standing
from tests.unit.broker.answers import answers
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog, root_of

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
    mailbox = Mailbox()
    state = StateLog(settings, stand_in, tables, stand_in, mailbox=mailbox, clock=clock)
    apply_all(state)
    state.lead(Standing(LEADER, 1, "n0"))
    while not state.is_settled:
        state.turn(0)
        while stand_in.orders:
            stand_in.take()
        apply_all(state)
    known = KnownTopics(stand_in, tables)
    slices = SlicedAnswers(clock, let_through, mailbox)
    return MemberCalls(
        known,
        settings,
        state,
        OtherMembers(),
        slices,
        mailbox=mailbox,
        clock=clock,
        counts=no_counts(),
    )


def answered_in(calls: MemberCalls, now_ms: int) -> list[Reply]:
    """What one turn answers."""
    calls.turn(now_ms)
    return calls._mailbox.take()


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
    answers(calls.verbs)["group_heartbeat"](Call(Caller(b"c", 1), HEARTBEAT, 50_001))

    assert calls.consuming("g") == ["c1"]


class Ticking(MachineClock):
    """A clock by which a turn ends after some answers."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += -(-HEARTBEATS_NS // ANSWERS_A_TURN)
        return self._now_ns


ANSWERS_A_TURN = 4
MEMBERS = 3 * ANSWERS_A_TURN


def beat(calls: MemberCalls, client: str, version: str, now_ms: int) -> None:
    arguments = {**HEARTBEAT, "client": client, "version": version}
    call = Call(Caller(client.encode(), 1), arguments, now_ms)
    assert answers(calls.verbs)["group_heartbeat"](call) is None


def waiting_members(directory: Path, clock: Clock) -> MemberCalls:
    """A leader whose group has members that all wait, and know one another."""
    calls = calls_of(directory, clock)
    calls.lead(True, 50_000)
    calls.turn(50_000)
    for number in range(MEMBERS):
        beat(calls, f"c{number}", "", 50_000)
    seen: list[Reply] = []
    while calls.next_deadline_ms() == 0:
        seen += answered_in(calls, 50_000)
    assert len(seen) == MEMBERS
    assert isinstance(seen[-1].outcome, Encoded)
    version = json.loads(seen[-1].outcome.body)["version"]
    for number in range(MEMBERS):
        beat(calls, f"c{number}", version, 50_001)
    assert calls.next_deadline_ms() != 0
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
    beat(calls, f"c{MEMBERS}", "", 50_002)
    turns = []
    while calls.next_deadline_ms() == 0:
        turns.append(told(answered_in(calls, 50_002)))

    assert max(map(len, turns)) <= ANSWERS_A_TURN
    newcomer, *others = [name for turn in turns for name in turn]
    assert (newcomer, others) == (f"c{MEMBERS}", [f"c{one}" for one in range(MEMBERS)])
    assert len({version for turn in turns for version in turn.values()}) == 1


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
        answers(calls.verbs)["group_heartbeat"](Call(Caller(b"new", 1), changed, 50_002))
    monkeypatch.setattr(calls, "_view", counted)
    answered = dict(told(answered_in(calls, 50_002)))
    while calls.next_deadline_ms() == 0:
        answered |= told(answered_in(calls, 50_002))

    assert len(answered) == MEMBERS + 1
    assert len(made) < MEMBERS / 2


def come(calls: MemberCalls, client: str, **more: object) -> None:
    arguments = {**HEARTBEAT, "client": client, **more}
    answers(calls.verbs)["group_heartbeat"](Call(Caller(client.encode(), 1), arguments, 50_001))


def test_members_of_one_group_want_only_so_many_topics_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_calls, "GROUP_TOPICS_MAX", 10)
    calls = calls_of(tmp_path)
    calls.lead(True, 50_000)
    six = {f"t{number}": "*" for number in range(6)}
    come(calls, "c1", subscription=six)
    with pytest.raises(BusyError, match="too many topics"):
        come(calls, "c2", subscription=six)
    come(calls, "c2", group="other", subscription=six)
    come(calls, "c3")
    come(calls, "c1", subscription=six)

    assert calls.consuming("g") == ["c1", "c3"]


def test_a_group_whose_members_come_and_go_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    calls = calls_of(tmp_path)
    calls.lead(True, 50_000)
    for number in range(2 * member_calls.LINES_MAX):
        come(calls, f"c{number}")
    come(calls, "c1", group="other")
    lines = [line for line in caplog.text.splitlines() if "consumer in group" in line]

    assert len(lines) == member_calls.LINES_MAX + 1
    assert "group=other" in lines[-1]


def test_a_member_that_wants_what_no_topic_can_be_is_refused_and_harms_nobody(
    tmp_path: Path,
) -> None:
    calls = calls_of(tmp_path)
    calls.lead(True, 50_000)
    come(calls, "c1")
    answered_in(calls, 50_001)
    for name in ("bad topic!", "", "x" * 10_000, "../../etc"):
        with pytest.raises(LedgerError):
            come(calls, "c2", subscription={name: "*"})
    come(calls, "c3", subscription={"SCHEDULE_TOPIC_XXXX": "*", "nothing-yet": "*"})
    (answered,) = answered_in(calls, 50_002)

    assert calls.consuming("g") == ["c1", "c3"]
    assert isinstance(answered.outcome, Encoded)
    assert json.loads(answered.outcome.body)["queues"]["nothing-yet"] == 0


def test_a_bug_that_an_answer_meets_refuses_that_answer_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = BusyError("a bug")
    calls = calls_of(tmp_path)
    monkeypatch.setattr(calls, "_contain", lambda error: refusal)
    calls.lead(True, 50_000)
    come(calls, "c1")
    come(calls, "c2", group="other")
    view = calls._view

    def broken(group: str, now_ms: int) -> Result:
        assert group != "g", "a bug"
        return view(group, now_ms)

    monkeypatch.setattr(calls, "_view", broken)
    first, second = answered_in(calls, 50_001)

    assert first.outcome is refusal
    assert isinstance(second.outcome, Encoded)
