"""What a leader knows of the members of groups, and when it knows that there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.serving.applied import apply_all
from tests.unit.serving.memory_log import MemoryLog, root_of

from ledgermq.model.errors import BusyError
from ledgermq.model.settings import Settings, StoreSection
from ledgermq.serving.broker_tables import BrokerTables
from ledgermq.serving.calls import Call
from ledgermq.serving.known_topics import KnownTopics
from ledgermq.serving.member_calls import MemberCalls
from ledgermq.serving.other_members import OtherMembers
from ledgermq.serving.state_log import StateLog
from ledgermq.serving.state_requests import Caller
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


def calls_of(directory: Path) -> MemberCalls:
    settings = Settings(store=StoreSection(path_root_dir=root_of(directory)))
    stand_in: Any = MemoryLog()
    tables = BrokerTables(directory / "config", settings)
    state = StateLog(settings, stand_in, tables, stand_in)
    apply_all(state)
    state.lead(Standing(LEADER, 1, "n0"))
    while not state.is_settled:
        state.turn(0)
        while stand_in.orders:
            stand_in.take()
        apply_all(state)
    known = KnownTopics(stand_in, tables)
    return MemberCalls(known, settings, state, OtherMembers())


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
