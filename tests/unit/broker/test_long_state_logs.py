"""Long logs of changes are applied, and snapshots encoded, over several turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.broker.state.state_log import PROPOSAL_MS
from ledgermq.broker.state.state_reader import APPLY_NS
from ledgermq.model.errors import NotLeaderError
from ledgermq.process.clock import MachineClock
from ledgermq.rules.tables.documents import ROWS_PER_STEP
from ledgermq.rules.tables.table_changes import OffsetsSet, TopicSet
from tests.unit.broker.test_state_log import FOLLOWS, LEADS, Broker, MemoryLog

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


TOPICS = 6 * COMMANDS_A_TURN * ROWS_PER_STEP


def leader_with_topics(directory: Path) -> Broker:
    """One with many topics, whose first snapshot is still to be made."""
    broker = Broker(directory, clock=Ticking())
    changes = [TopicSet(f"topic-{number}", {}) for number in range(TOPICS)]
    broker.log.put(*changes, OffsetsSet("g", "topic-1", {0: 5}))
    broker.state.apply()
    broker.state.lead(LEADS)
    broker.turn()
    broker.log.take()
    return broker


def test_a_snapshot_of_many_topics_is_encoded_over_several_turns(tmp_path: Path) -> None:
    broker = leader_with_topics(tmp_path)
    broker.ask(1, 0, 7)

    turns = 0
    while broker.turn() == [] and not broker.log.orders:
        # Nothing else is proposed, and it goes on at once.
        assert broker.state.next_deadline_ms() == 0
        turns += 1

    assert turns >= 5
    broker.log.take()
    state = broker.tables.state
    before = state.tables()
    while not state.snapshots:
        assert broker.turn() == []
    assert state.tables() == before
    assert broker.tables.topics.get(f"topic-{TOPICS - 1}") is not None
    broker.log.take()
    assert [reply.outcome for reply in broker.turn()] == [{}]
    assert broker.tables.offsets.offsets("g", "t") == {0: 7}


def test_a_snapshot_of_tables_that_change_meanwhile_is_begun_again(tmp_path: Path) -> None:
    broker = leader_with_topics(tmp_path)
    broker.turn()
    broker.turn()
    broker.log.put(OffsetsSet("g", "topic-1", {0: 6}))

    while not broker.log.orders:
        broker.turn()
    broker.log.take()
    while not broker.tables.state.snapshots:
        broker.turn()

    assert broker.tables.offsets.offsets("g", "topic-1") == {0: 6}


def test_a_node_that_leads_no_more_proposes_no_snapshot(tmp_path: Path) -> None:
    broker = leader_with_topics(tmp_path)
    broker.turn()

    broker.state.lead(FOLLOWS)

    for _ in range(3 * TOPICS // ROWS_PER_STEP):
        assert broker.turn() == []
    assert broker.log.orders == []


def test_a_snapshot_of_many_topics_is_read_over_several_turns_and_counts_at_once(
    tmp_path: Path,
) -> None:
    leader = leader_with_topics(tmp_path / "leader")
    while not leader.log.orders:
        leader.turn()
    leader.log.take()
    follower = Broker(tmp_path / "follower", clock=Ticking())
    # It has none of the commands before, which are gone.
    follower.log.stored = leader.log.stored[-1:]
    follower.log.put(OffsetsSet("g", "topic-1", {0: 6}))

    turns = 0
    while follower.turn() == [] and follower.state.is_behind:
        if not follower.tables.state.snapshots:
            assert follower.tables.topics.get("topic-1") is None
            assert follower.state.next_offset == 0
            turns += 1

    assert turns >= 5
    assert follower.state.next_offset == 2
    assert len(follower.tables.topics) == len(leader.tables.topics)
    assert follower.tables.offsets.offsets("g", "topic-1") == {0: 6}


def test_a_snapshot_that_takes_longer_to_read_than_a_proposal_may_is_not_lost(
    tmp_path: Path,
) -> None:
    broker = leader_with_topics(tmp_path)
    while not broker.log.orders:
        broker.turn()
    broker.log.take()
    now_ms = 0
    while not broker.tables.state.snapshots:
        now_ms += PROPOSAL_MS
        assert broker.turn(now_ms) == []

    for _ in range(TOPICS // ROWS_PER_STEP):
        assert broker.turn(now_ms) == []
    assert broker.log.orders == []
    assert broker.state.is_settled
