"""A long log of changes is applied over several turns, and nobody is told what it says before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.serving.test_state_log import Broker, MemoryLog

from ledgermq.broker.state_commands import OffsetsSet, TopicSet
from ledgermq.model.errors import NotLeaderError
from ledgermq.process.clock import MachineClock
from ledgermq.serving.state_reader import APPLY_NS

COMMANDS_A_TURN = 4


class Ticking(MachineClock):
    """A clock by which a turn ends after some commands."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += -(-APPLY_NS // COMMANDS_A_TURN)
        return self._now_ns


def test_a_long_log_is_applied_over_several_turns_and_saved_at_its_end(tmp_path: Path) -> None:
    clock = Ticking()
    broker = Broker(tmp_path, clock=clock)
    for number in range(3 * COMMANDS_A_TURN + 1):
        broker.log.put(OffsetsSet("g", "t", {0: number}), TopicSet(f"t{number}", {}))
    known: list[int] = []
    file = tmp_path / "config" / "topics.json"

    while broker.turn() == [] and broker.state.is_behind:
        known.append(broker.tables.offsets.offsets("g", "t")[0])
        assert not file.exists()

    assert known == [3, 7, 11]
    assert broker.tables.offsets.offsets("g", "t") == {0: 12}
    assert "t12" in json.loads(file.read_bytes())["topicConfigTable"]
    assert broker.turn() == [] and not broker.state.is_behind


def test_nobody_is_told_what_tables_say_before_the_whole_log_is_applied(tmp_path: Path) -> None:
    log = MemoryLog()
    for number in range(2 * COMMANDS_A_TURN + 1):
        log.put(OffsetsSet("g", "t", {0: number}))
    broker = Broker(tmp_path, log, clock=Ticking())

    turns = 1
    while broker.state.is_behind:
        with pytest.raises(NotLeaderError, match="starting"):
            broker.state.check()
        broker.turn()
        turns += 1

    assert turns == 3
    broker.state.check()
