"""Old timers are stored once more at their queue's end: over a log in memory, cut anywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ledgermq.broker.deliveries.timer_service import AGAIN_PAUSE_MS, QUEUE, TimerService
from ledgermq.broker.state.state_log import PROPOSAL_MS
from ledgermq.formats.records.delayed_message import RealQueue, timer_properties
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.ids import Position
from ledgermq.model.limits import TIMER_TOPIC
from ledgermq.process.clock import MachineClock
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import HOLE, MemoryLog, proposal_of
from tests.unit.broker.state_node import StateNode

BEGIN_MS = 1_700_000_000_000
FAR_MS = BEGIN_MS + 86_400_000
COUNT = 5


class TestClock(MachineClock):
    """The machine's, but for the time of day, which the test sets."""

    __test__ = False

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS

    def epoch_ns(self) -> int:
        return self.now_ms * 1_000_000


class Node(StateNode):
    """The broker of one node over a log that outlives it, as far as timers go."""

    def __init__(self, directory: Path, log: MemoryLog, term: int) -> None:
        self.clock = TestClock()
        super().__init__(directory, log, clock=self.clock)
        self.timers = TimerService(self.stand_in, self.moves, self.state, self.clock)
        self.lead(term)

    def turn(self) -> None:
        self.timers.notice_growth(self.now_ms)
        self.now_ms += AGAIN_PAUSE_MS
        apply_all(self.state)
        self.moves.turn(self.now_ms)
        self.timers.turn(self.now_ms)
        self.state.turn(self.now_ms)

    def run(self) -> None:
        """Have the writer take whatever comes, until nothing does."""
        idle = 0
        while idle < 5:
            self.turn()
            idle = 0 if self.log.orders else idle + 1
            while self.log.orders:
                self.log.take()

    def run_late(self) -> None:
        """The same when all is due."""
        self.clock.now_ms = FAR_MS + 1_000
        self.run()


def timer(number: int) -> bytes:
    properties = timer_properties(FAR_MS - number, RealQueue("orders", 0))
    body = b"m%d" % number
    return encode_message(
        Message(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=body,
            properties=encode_properties({**properties, "UNIQ_KEY": f"U{number}"}),
        )
    )


def filled(*, plain_size: int) -> MemoryLog:
    """Timers, and behind them a message that nobody waits for."""
    log = MemoryLog()
    for number in range(COUNT):
        log.put(timer(number))
    log.put(encode_message(Message(topic="plain", queue_id=0, body=bytes(plain_size))))
    return log


def waiting(log: MemoryLog) -> list[tuple[int, str]]:
    """Where messages stand in the timers' queue, and their ids."""
    return [(one.queue_offset, one.unique_id) for one in log.messages(TIMER_TOPIC)]


def assert_delivered_once(log: MemoryLog) -> None:
    bodies = Counter(bytes(one.body) for one in log.messages("orders"))
    assert bodies == Counter(b"m%d" % number for number in range(COUNT))


def test_timers_that_keep_the_log_are_stored_again_and_delivered_once(tmp_path: Path) -> None:
    log = filled(plain_size=10_000)
    end = log.end
    node = Node(tmp_path, log, 1)
    node.run()
    node.timers.make_way(Position(end))
    node.run()
    moved = waiting(log)
    oldest = node.timers.oldest_position()
    delivered_early = log.messages("orders")
    node.run_late()

    ids = [f"U{number}" for number in range(COUNT)]
    assert moved == list(enumerate(ids + ids))
    assert oldest is not None and oldest > end
    assert node.moves.source(QUEUE).next_offset >= COUNT
    assert delivered_early == []
    assert_delivered_once(log)


@pytest.mark.parametrize("cut", range(COUNT + 3))
def test_the_next_leader_stores_again_what_a_crash_has_left_out(tmp_path: Path, cut: int) -> None:
    log = filled(plain_size=10_000)
    end = log.end
    dead = Node(tmp_path / "dead", log, 1)
    dead.run()
    dead.timers.make_way(Position(end))
    dead.turn()
    proposed = len(proposal_of(log.orders[0]).records)
    log.take(cut)
    heir = Node(tmp_path / "heir", log, 2)
    heir.run()
    counted = heir.timers.index.count
    heir.run_late()

    assert proposed == COUNT + 2
    assert counted == COUNT
    assert len(waiting(log)) == (2 * COUNT if cut else COUNT)
    assert_delivered_once(log)


@pytest.mark.parametrize("cut", [1, 3, COUNT + 1])
def test_the_same_leader_goes_on_where_its_writer_was_cut(tmp_path: Path, cut: int) -> None:
    log = filled(plain_size=10_000)
    node = Node(tmp_path, log, 1)
    node.run()
    node.timers.make_way(Position(log.end))
    node.turn()
    log.take(cut)
    node.now_ms += PROPOSAL_MS
    node.run()
    node.now_ms += PROPOSAL_MS
    node.run_late()

    assert len(waiting(log)) == 2 * COUNT
    assert_delivered_once(log)


def test_the_log_is_kept_where_most_of_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(plain_size=100)
    node = Node(tmp_path, log, 1)
    node.run()
    # Of what lies before it more than a half waits.
    last = log.messages(TIMER_TOPIC)[-1]
    for _ in range(2):
        node.timers.make_way(Position(last.physical_offset + last.size))
        node.run()

    assert len(waiting(log)) == COUNT
    assert node.timers.oldest_position() == HOLE
    assert caplog.text.count("log is kept for messages that wait") == 1


def test_what_is_due_is_delivered_before_old_ones_are_stored_again(tmp_path: Path) -> None:
    log = filled(plain_size=10_000)
    node = Node(tmp_path, log, 1)
    node.run()
    node.timers.make_way(Position(log.end))
    node.clock.now_ms = FAR_MS
    node.run()

    assert waiting(log) == [(number, f"U{number}") for number in range(COUNT)]
    assert_delivered_once(log)
