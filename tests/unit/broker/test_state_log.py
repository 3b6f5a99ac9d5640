"""What the broker proposes and applies, turn by turn, with a log in memory."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.service import Mailbox
from ledgermq.broker.state import state_log
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import PROPOSAL_MS, StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.formats.arrays import UNIT
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.properties import decode_properties
from ledgermq.members.system_entries import command_record
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    DamagedLogError,
    DiskFullError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
)
from ledgermq.model.features import LEVEL_OF_CHANGE
from ledgermq.model.ids import Position
from ledgermq.process.clock import Clock
from ledgermq.rules.given_back import KEPT_MS, MessageGivenBack
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.state.state_commands import StateCommand, decode_command, encode_command
from ledgermq.rules.tables.group_offsets import GroupOffsets
from ledgermq.rules.tables.table_changes import Change, LevelSet, NamesSet, OffsetsSet
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.record_parts import RecordParts
from ledgermq.store.state_mark import read_state_mark
from ledgermq.wire.session import FOLLOWER, LEADER, Standing
from tests.unit.broker.memory_log import proposal_of
from tests.unit.broker.still_clock import STILL

HOLE = 48
LEADS = Standing(LEADER, 3, "n0")
FOLLOWS = Standing(FOLLOWER, 4, "n1")


class MemoryLog:
    """The state queue of a log that lies in memory, and the writer's inbox before it."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.orders: list[bytes] = []
        self.first = 0
        self.position = 0
        self.trouble: Exception | None = None
        self.is_down = False
        self.knows_all = True

    # As the broker reads a queue.

    def bounds(self, queue: object) -> ReadableRange:
        del queue
        return ReadableRange(self.first, len(self.stored), 0)

    def has_all_committed(self) -> bool:
        return self.knows_all

    def has_caught_up(self) -> bool:
        return self.knows_all

    def store_time(self, queue: object, offset: int) -> int:
        del queue
        return offset * 1_000

    def first_since(self, queue: object, timestamp_ms: int) -> int:
        del queue
        return max(self.first, timestamp_ms // 1_000)

    def units(self, queue: object, offset: int, count: int) -> Any:
        del queue
        if self.trouble is not None:
            raise self.trouble
        units = np.zeros(min(count, len(self.stored) - offset), UNIT)
        units["position"] = np.arange(offset, offset + len(units))
        units["size"] = [len(record) for record in self.stored[offset : offset + len(units)]]
        return units

    def records(self, positions: Any, sizes: Any) -> RecordParts:
        payload = b"".join(self.stored[int(position)] for position in positions)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        return RecordParts(
            payload, starts.astype(np.uint32), sizes.astype(np.uint32), int(sizes.sum())
        )

    # As it rings the writer.

    def ring(self) -> None:
        return

    def send(self, order: bytes) -> bool:
        if not self.is_down:
            self.orders.append(order)
        return not self.is_down

    def close(self) -> None:
        return

    # What the test does.

    def take(self) -> list[bytes]:
        """Have the log what was proposed last; the bodies."""
        records = [record[HOLE:] for record in proposal_of(self.orders.pop(0)).records]
        self.stored += records
        return [bytes(decode_message(memoryview(record)).body) for record in records]

    def put(self, *changes: Change) -> None:
        """A command of another leader."""
        body = encode_command(StateCommand("of another", 1, changes))
        self.stored.append(command_record(body, Settings(), now_ms=1)[HOLE:])


class Broker:
    """A StateLog over a log in memory."""

    def __init__(
        self, directory: Path, log: MemoryLog | None = None, *, clock: Clock = STILL
    ) -> None:
        self.log = log or MemoryLog()
        settings = Settings(store=StoreSection(path_root_dir=directory))
        self.mark = directory / "ledgermq" / "state-snapshot"
        self.mark.parent.mkdir(parents=True, exist_ok=True)
        self.tables = BrokerTables(directory / "config", settings)
        self.mailbox = Mailbox()
        self.state: StateLog = StateLog(
            settings,
            self.log,  # type: ignore[arg-type]
            self.tables,
            self.log,
            mailbox=self.mailbox,
            clock=clock,
        )
        self.state.apply()

    def turn(self, now_ms: int = 0) -> list[Reply]:
        self.state.apply()
        self.state.turn(now_ms)
        return self.mailbox.take()

    def lead(self) -> None:
        """Lead, with the snapshot in the log."""
        self.state.lead(LEADS)
        self.turn()
        self.log.take()  # what was sent before would stand before it
        self.turn()
        self.log.take()
        assert self.turn() == []

    def ask(
        self,
        number: int,
        queue: int,
        offset: int,
        *,
        now_ms: int = 0,
        reads: frozenset[str] = frozenset(),
    ) -> None:
        def plan() -> list[Change]:
            if offset < 0:
                raise MessageIllegalError("offset outside of the queue")
            wanted = OffsetsSet("g", "t", {queue: offset})
            known = self.tables.offsets.offsets("g", "t")
            return [] if known.get(queue) == offset else [wanted]

        touches = frozenset({str(queue)})
        request = StateRequest(Caller(b"c", number), plan, touches, dict, reads=reads)
        self.state.submit(request, now_ms)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def numbers(replies: list[Reply]) -> list[int]:
    return [reply.caller.request_id for reply in replies]


def test_a_leader_begins_with_a_snapshot_in_its_term(broker: Broker) -> None:
    broker.state.lead(LEADS)
    broker.turn()
    (first,) = broker.log.take()
    broker.turn()
    order = proposal_of(broker.log.orders[0])
    (record,) = order.records
    message = decode_message(memoryview(record)[HOLE:])
    early = broker.turn()
    broker.log.take()
    broker.turn()
    broker.state.lead(LEADS)
    broker.turn()

    assert decode_command(first).changes == ()
    assert order.term == 3
    assert dict(decode_properties(message.properties))["PART"] == "1/1"
    assert early == [] and broker.log.orders == []
    assert broker.tables.topics.get("TBW102") is not None
    assert broker.tables.state.snapshots == 1


def test_a_snapshot_takes_nothing_back_that_an_earlier_broker_has_sent(broker: Broker) -> None:
    broker.state.lead(LEADS)
    broker.turn()
    # The broker that died in this term had its command written; nothing was committed since.
    broker.log.put(OffsetsSet("g", "t", {0: 7}))
    broker.log.take()
    broker.turn()
    broker.log.take()
    broker.turn()

    assert broker.tables.state.snapshots == 1
    assert broker.tables.offsets.offsets("g", "t") == {0: 7}


def test_a_snapshot_takes_nothing_back_that_comes_late(broker: Broker) -> None:
    broker.lead()
    broker.ask(1, queue=0, offset=5)
    broker.turn()
    late = broker.log.orders.pop()
    broker.state.want_snapshot(Position(2**60))
    broker.turn(PROPOSAL_MS)
    broker.log.orders.insert(0, late)
    while broker.log.orders:
        broker.log.take()
        broker.turn(PROPOSAL_MS)

    assert broker.tables.state.snapshots == 2
    assert broker.tables.offsets.offsets("g", "t") == {0: 5}


def test_nothing_is_planned_by_tables_that_a_late_command_may_change(broker: Broker) -> None:
    """The end of a timer's move was taken back so, and its messages were delivered again."""
    broker.lead()
    broker.ask(1, queue=0, offset=5)
    broker.turn()
    late = broker.log.orders.pop()
    seen: list[dict[int, int]] = []

    def plan() -> list[Change]:
        seen.append(dict(broker.tables.offsets.offsets("g", "t")))
        return []

    request = StateRequest(Caller(b"c", 2), plan, frozenset({"other"}), dict)
    broker.state.submit(request, PROPOSAL_MS - 1)
    broker.turn(PROPOSAL_MS)
    assert seen == []
    broker.log.orders.insert(0, late)
    while broker.log.orders:
        broker.log.take()
        broker.turn(PROPOSAL_MS)

    assert seen == [{0: 5}]


def test_files_that_are_ahead_of_what_is_dispatched_do_not_go_back(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    first.lead()
    for offset in (5, 6):
        first.ask(offset, queue=0, offset=offset)
        first.turn()
        first.log.take()
        first.turn()
    first.tables.close()
    log = MemoryLog()
    log.knows_all = False
    again = Broker(tmp_path, log)
    seen = []
    for record in first.log.stored:
        log.stored.append(record)
        again.turn()
        seen.append(again.tables.offsets.offsets("g", "t"))
    log.knows_all = True
    again.turn()

    assert seen == [{0: 6}] * 4
    assert again.tables.state.documents() == first.tables.state.documents()


def test_files_of_another_log_are_the_begin_of_this_one(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    first.lead()
    first.tables.close()
    again = Broker(tmp_path, MemoryLog())
    again.log.put(OffsetsSet("g", "t", {0: 5}))
    again.turn()

    assert again.tables.topics.get("TBW102") is not None
    assert again.tables.offsets.offsets("g", "t") == {0: 5}


def test_who_asks_is_answered_when_the_command_is_in_the_log(broker: Broker) -> None:
    broker.lead()
    broker.ask(1, queue=0, offset=5)
    proposed = broker.turn()
    waiting = broker.turn()
    (body,) = broker.log.take()
    done = broker.turn()

    assert proposed == waiting == []
    assert decode_command(body).changes == (OffsetsSet("g", "t", {0: 5}),)
    assert done == [Reply(Caller(b"c", 1), {})]
    assert broker.tables.offsets.offsets("g", "t") == {0: 5}


def test_one_batch_has_all_that_came_but_nothing_twice(broker: Broker) -> None:
    broker.lead()
    for number, (queue, offset) in enumerate([(0, 1), (1, 1), (0, 2), (2, -1), (0, 3)]):
        broker.ask(number, queue, offset)
    refused = broker.turn()
    batches = []
    answered = []
    while broker.log.orders:
        (body,) = broker.log.take()
        batches.append([change.offsets for change in decode_command(body).changes])
        answered.append(numbers(broker.turn()))

    assert numbers(refused) == [3]
    assert isinstance(refused[0].outcome, MessageIllegalError)
    assert batches == [[{0: 1}, {1: 1}], [{0: 2}], [{0: 3}]]
    assert answered == [[0, 1], [2], [4]]


def test_what_a_plan_reads_is_changed_by_no_other_one_of_its_batch(broker: Broker) -> None:
    broker.lead()
    asked = [(0, {9}), (1, {9}), (9, set()), (2, {9}), (3, {8}), (8, set())]
    for number, (queue, reads) in enumerate(asked):
        broker.ask(number, queue, 1, reads=frozenset(map(str, reads)))
    broker.turn()
    batches = []
    while broker.log.orders:
        (body,) = broker.log.take()
        batches.append([change.offsets for change in decode_command(body).changes])
        broker.turn()

    assert batches == [[{0: 1}, {1: 1}, {3: 1}], [{9: 1}, {8: 1}], [{2: 1}]]


def test_a_turn_looks_at_a_bounded_number_of_requests_in_their_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "REQUESTS_PER_COMMAND_MAX", 3)
    broker.lead()
    for number, queue in enumerate([0, 0, 1, 2, 0, 3, 1, 4]):
        broker.ask(number, queue, offset=number + 1)
    answered = []
    while replies := broker.turn() or broker.log.orders:
        if broker.log.orders:
            broker.log.take()
        answered.append(numbers([one for one in replies if isinstance(one, Reply)]))

    # What had to wait for another of its queue is still before what came later.
    assert [one for one in answered if one] == [[0, 2], [1, 3], [4, 5, 6], [7]]


def test_who_is_behind_many_that_change_nothing_is_looked_at_with_the_next_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "REQUESTS_PER_COMMAND_MAX", 3)
    broker.lead()
    for number in range(4):
        broker.ask(number, queue=-1, offset=-1)
    refused = broker.turn(5)
    due_ms = broker.state.next_deadline_ms()

    assert (numbers(refused), due_ms) == ([0, 1, 2], 5)
    assert numbers(broker.turn(6)) == [3]
    assert broker.state.next_deadline_ms() is None


def test_what_changes_nothing_is_answered_at_once(broker: Broker) -> None:
    broker.lead()
    broker.ask(1, queue=0, offset=5)
    broker.turn()
    broker.log.take()
    broker.turn()
    broker.ask(2, queue=0, offset=5)

    assert numbers(broker.turn()) == [2]
    assert broker.log.orders == []


def test_only_a_leader_proposes_and_a_deposed_one_tells_those_who_wait(broker: Broker) -> None:
    with pytest.raises(NotLeaderError):
        broker.ask(0, queue=0, offset=1)
    broker.lead()
    broker.ask(1, queue=0, offset=1)
    broker.turn()
    broker.ask(2, queue=1, offset=1)
    broker.state.lead(FOLLOWS)
    replies = broker.turn()

    assert numbers(replies) == [1, 2]
    assert all(isinstance(reply.outcome, OutcomeUnknownError) for reply in replies)
    with pytest.raises(NotLeaderError):
        broker.ask(3, queue=0, offset=1)


def test_a_refusal_of_the_writer_changes_nothing(broker: Broker) -> None:
    broker.lead()
    broker.ask(1, queue=0, offset=1)
    broker.turn()
    order = proposal_of(broker.log.orders.pop())
    broker.state.take_refusal(order.sequence + 1)
    other = broker.turn()
    broker.state.take_refusal(order.sequence)
    (reply,) = broker.turn()

    assert other == []
    assert isinstance(reply.outcome, NotLeaderError)
    assert not broker.state.awaits


def test_without_an_answer_of_the_log_the_outcome_is_unknown(broker: Broker) -> None:
    broker.lead()
    broker.ask(1, queue=0, offset=1)
    broker.turn(100)
    deadline = broker.state.next_deadline_ms()
    early = broker.turn(100 + PROPOSAL_MS - 1)
    (reply,) = broker.turn(100 + PROPOSAL_MS)

    assert deadline == 100 + PROPOSAL_MS
    assert early == []
    assert isinstance(reply.outcome, OutcomeUnknownError)


def test_a_snapshot_that_nobody_takes_lets_nobody_wait_for_ever(broker: Broker) -> None:
    broker.log.is_down = True
    broker.state.lead(LEADS)
    broker.turn()
    broker.ask(1, queue=0, offset=1, now_ms=10)
    early = broker.turn(10 + PROPOSAL_MS - 1)
    (reply,) = broker.turn(10 + PROPOSAL_MS)
    broker.log.is_down = False
    deadline = broker.state.next_deadline_ms()
    assert deadline is not None
    broker.turn(deadline - 1)
    held_back = len(broker.log.orders)
    broker.turn(deadline)

    assert early == []
    assert isinstance(reply.outcome, NotLeaderError)
    assert (held_back, len(broker.log.orders)) == (0, 1)


def test_a_follower_applies_what_others_write(broker: Broker) -> None:
    broker.log.put(OffsetsSet("g", "t", {0: 5}))
    broker.log.put(OffsetsSet("g", "t", {0: 6}))
    broker.turn()

    assert broker.tables.offsets.offsets("g", "t") == {0: 6}
    assert broker.log.orders == []


def test_a_snapshot_is_taken_when_the_last_one_keeps_the_log(broker: Broker) -> None:
    broker.lead()
    broker.state.want_snapshot(Position(0))
    broker.turn()
    unneeded = len(broker.log.orders)
    broker.state.want_snapshot(Position(2))
    broker.turn()
    broker.log.take()
    broker.turn()

    assert unneeded == 0
    assert broker.tables.state.snapshots == 2
    assert read_state_mark(broker.mark) == 2


def test_a_damaged_place_holds_the_tables_up_until_it_is_repaired(broker: Broker) -> None:
    broker.lead()
    broker.log.put(OffsetsSet("g", "t", {0: 5}))
    broker.log.trouble = DamagedLogError("record is damaged", position=7)
    broker.turn()
    with pytest.raises(BusyError, match="damaged"):
        broker.state.check()
    with pytest.raises(BusyError):
        broker.ask(1, queue=0, offset=1)
    broker.log.trouble = None
    broker.turn()
    broker.state.check()

    assert broker.tables.offsets.offsets("g", "t") == {0: 5}


def test_what_the_tables_say_is_in_their_files(broker: Broker, tmp_path: Path) -> None:
    broker.lead()
    broker.ask(1, queue=0, offset=5)
    broker.turn()
    broker.log.take()
    broker.turn()
    broker.tables.close()
    again = BrokerTables(tmp_path / "config", Settings())

    assert again.topics.get("TBW102") is not None
    assert again.offsets.offsets("g", "t") == {0: 5}
    assert again.state.applied == 3
    assert isinstance(again.offsets, GroupOffsets)


def apply_all(broker: Broker) -> None:
    """In as many turns as a long log takes."""
    broker.turn()
    while broker.state.is_behind:
        broker.turn()


def test_tokens_of_the_last_minutes_are_known_again_after_a_start(
    broker: Broker, tmp_path: Path
) -> None:
    """Whoever asks again is told: also when all files have the command that says so."""
    broker.log.put(MessageGivenBack("long ago"))
    for number in range(KEPT_MS // 1_000 - 1):
        broker.log.put(OffsetsSet("g", "t", {0: number}))
    broker.log.put(MessageGivenBack("token"))
    broker.log.put(OffsetsSet("g", "t", {0: 1_000}))
    apply_all(broker)
    broker.tables.close()
    again = Broker(tmp_path, broker.log)
    apply_all(again)

    assert broker.tables.state.applied == again.tables.state.applied == KEPT_MS // 1_000 + 2
    assert "token" in again.tables.state.given_back
    assert "long ago" not in again.tables.state.given_back
    assert again.tables.offsets.offsets("g", "t") == {0: 1_000}


def test_nobody_is_told_what_the_tables_say_before_they_have_what_was_committed(
    broker: Broker, tmp_path: Path
) -> None:
    broker.log.put(OffsetsSet("g", "t", {0: 5}))
    broker.log.knows_all = False
    again = Broker(tmp_path, broker.log)
    with pytest.raises(NotLeaderError, match="starting"):
        again.state.check()
    again.log.knows_all = True
    again.turn()
    again.state.check()
    again.state.is_beginning = True

    with pytest.raises(NotLeaderError, match="begins to lead"):
        again.state.check()


def test_what_needs_a_level_is_refused_before_that_is_in_force_and_nothing_else(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.lead()
    monkeypatch.setitem(LEVEL_OF_CHANGE, "names", 1)
    for number, change in enumerate((NamesSet("n", {"k": "v"}), OffsetsSet("g", "t", {0: 5}))):
        broker.state.submit(
            StateRequest(Caller(b"c", number), lambda one=change: [one], frozenset(), dict), 0
        )
    refused = broker.turn()
    (body,) = broker.log.take()
    broker.turn()
    broker.log.put(LevelSet(1))
    broker.turn()
    broker.state.submit(
        StateRequest(Caller(b"c", 2), lambda: [NamesSet("n", {"k": "v"})], frozenset(), dict), 0
    )
    late = broker.turn()
    (needing,) = broker.log.take()

    assert numbers(refused) == [0]
    assert isinstance(refused[0].outcome, ConfigError)
    assert decode_command(body).changes == (OffsetsSet("g", "t", {0: 5}),)
    assert late == []
    assert json.loads(needing)["needs"] == 1


def test_an_answer_that_cannot_be_given_is_a_refusal_and_no_death(broker: Broker) -> None:
    def answer() -> dict[str, object]:
        raise BusyError("too many calls wait for a new topic")

    broker.lead()
    request = StateRequest(
        Caller(b"c", 1), lambda: [OffsetsSet("g", "t", {0: 5})], frozenset("0"), answer
    )
    broker.state.submit(request, 0)
    broker.turn()
    broker.log.take()
    (reply,) = broker.turn()

    assert isinstance(reply.outcome, BusyError)
    assert broker.tables.offsets.offsets("g", "t") == {0: 5}


def test_a_full_disk_keeps_the_tables_going_and_their_files_for_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(content: object) -> None:
        raise DiskFullError("file not replaced", errno=errno.ENOSPC)

    broker.state.lead(LEADS)
    for _ in range(2):
        broker.turn()
        broker.log.take()
    with monkeypatch.context() as full:
        full.setattr(ConfigFile, "save_content", lambda self, content: refuse(content))
        full.setattr(state_log, "write_state_mark", lambda path, position: refuse(position))
        broker.turn()
        broker.turn()
        unsaved = broker.tables.has_unsaved_topics
    broker.turn()

    assert unsaved
    assert not broker.tables.has_unsaved_topics
    assert broker.tables.state.snapshots == 1
