"""Timers of RocketMQ 5's wheel become ours: over a log in memory, cut anywhere, there and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.deliveries import wheel_service
from ledgermq.broker.deliveries.pop_service import PopService
from ledgermq.broker.deliveries.timer_service import TimerService
from ledgermq.broker.deliveries.wheel_service import WheelService
from ledgermq.broker.state.state_log import PROPOSAL_MS
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.formats.timer_wheel import WHEEL_QUEUE, WHEEL_TOPIC, TimerCheck
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.limits import PROPERTIES_SIZE_MAX, TIMER_TOPIC
from ledgermq.store.wheel_files import WheelFiles
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog, proposal_of
from tests.unit.broker.state_node import StateNode
from tests.unit.broker.test_timer_service import BEGIN_MS, TestClock

PAST, SOON, LATE = BEGIN_MS - 60_000, BEGIN_MS + 60_000, BEGIN_MS + 86_400_000


def stored(
    log: MemoryLog, name: str, due_ms: int, *, topic: str = WHEEL_TOPIC, **more: str
) -> None:
    properties = {"TIMER_OUT_MS": str(due_ms), "UNIQ_KEY": name, "REAL_TOPIC": "orders"}
    properties |= {"REAL_QID": "0", **more}
    message = Message(
        topic=topic, queue_id=0, body=name.encode(), properties=encode_properties(properties)
    )
    log.put(encode_message(message))


class Node(StateNode):
    """The broker of one node over a log that outlives it, as far as timers go."""

    def __init__(self, directory: Path, log: MemoryLog, term: int, *left: str) -> None:
        self.root = directory
        (directory / "ledgermq").mkdir(exist_ok=True)
        store = StoreSection(path_root_dir=self.root, leave_behind=left)
        self.clock = TestClock()
        super().__init__(directory, log, clock=self.clock, store=store)
        lacking = RetryTopics(self.known, self.settings.topics).lacking
        self.pop = PopService(self.known, self.moves, self.state, self.settings, lacking)
        self.wheel = WheelService(
            self.stand_in,
            self.moves,
            self.state,
            self.clock,
            settings=self.settings,
            find=self._find,
            pop=self.pop,
        )
        self.timers = TimerService(
            self.stand_in,
            self.moves,
            self.state,
            self.clock,
            is_held=lambda: self.wheel.holds_timers,
        )
        self.lead(term)

    def _find(self, topic: str, name: str) -> Iterable[memoryview]:
        found = [one for one in self.log.messages(topic) if one.unique_id == name]
        return [memoryview(encode_message(one)) for one in found]

    def turn(self) -> None:
        self.wheel.notice_growth(self.now_ms)
        self.timers.notice_growth(self.now_ms)
        self.now_ms += 20
        apply_all(self.state)
        self.moves.turn(self.now_ms)
        self.pop.turn(self.now_ms)
        self.wheel.turn(self.now_ms)
        self.timers.turn(self.now_ms)
        self.state.turn(self.now_ms)

    def run(self, now_ms: int = BEGIN_MS) -> list[str]:
        """Have the writer take whatever comes until nothing does; what ``orders`` has then."""
        self.clock.now_ms = now_ms
        idle = 0
        while idle < 8:
            self.turn()
            idle = 0 if self.log.orders else idle + 1
            while self.log.orders:
                self.log.take()
        return [bytes(one.body).decode() for one in self.log.messages("orders")]


def java(directory: Path, *, before: int, enqueued: int) -> None:
    """What RocketMQ leaves of its wheel."""
    root = directory
    (root / "config").mkdir(parents=True, exist_ok=True)
    check = TimerCheck(before, 52, enqueued, enqueued)
    (root / "config" / "timercheck").write_bytes(check.written_to(b""))
    (root / "timerlog").mkdir(exist_ok=True)
    (root / "timerlog" / f"{0:020d}").write_bytes(bytes(520))
    (root / "timerwheel").touch()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def test_what_waits_comes_once_and_nothing_that_was_delivered_or_taken_back(
    tmp_path: Path, log: MemoryLog
) -> None:
    java(tmp_path, before=BEGIN_MS - 30_000, enqueued=9)
    stored(log, "delivered", PAST)
    stored(log, "overdue", BEGIN_MS - 20_000)
    stored(log, "rolled", LATE)
    stored(log, "rolled", LATE, TIMER_ROLL_TIMES="1")
    stored(log, "recalled", SOON)
    stored(log, "recall", SOON, TIMER_DEL_UNIQKEY="orders+recalled")
    stored(log, "pop", SOON, REAL_TOPIC="rmq_sys_REVIVE_LOG_c")
    stored(log, "soon", SOON)
    stored(log, "since", BEGIN_MS - 10_000)
    stored(log, "since", BEGIN_MS - 10_000, topic="orders", TIMER_DEQUEUE_MS="1")
    stored(log, "unread", PAST)
    node = Node(tmp_path, log, 1)

    assert node.run() == ["since", "unread", "overdue"]
    assert node.run(SOON)[3:] == ["soon"]
    assert node.run(LATE)[4:] == ["rolled"]
    assert node.moves.source(WHEEL_QUEUE).next_offset == 10
    assert node.wheel.oldest_position() is None
    assert {path.name for path in node.root.iterdir()} >= {"config", "ledgermq"}
    assert not (node.root / "timerwheel").exists() and not (node.root / "timerlog").exists()


@pytest.mark.parametrize("cut", range(6))
def test_a_take_over_that_a_crash_has_cut_is_finished_by_the_next_leader(
    tmp_path: Path, log: MemoryLog, cut: int
) -> None:
    java(tmp_path, before=PAST, enqueued=4)
    names = ["a", "b", "c", "d"]
    for name in names:
        stored(log, name, SOON)
    node = Node(tmp_path, log, 1)
    while not log.orders or len(proposal_of(log.orders[0]).records) < len(names):
        while log.orders:
            log.take()
        node.turn()
    log.take(cut)
    log.orders.clear()
    after = Node(tmp_path, log, 2)
    after.now_ms = node.now_ms + PROPOSAL_MS

    assert after.run() == []
    assert Counter(after.run(SOON)) == Counter(names)
    assert not (node.root / "timerwheel").exists()


def test_timers_that_are_left_behind_stay_rocketmqs_until_it_has_had_the_store(
    tmp_path: Path, log: MemoryLog
) -> None:
    java(tmp_path, before=PAST, enqueued=1)
    stored(log, "left", SOON)
    first = Node(tmp_path, log, 1, "timers").run(SOON)
    second = Node(tmp_path, log, 2).run(SOON)
    root = tmp_path
    is_there = (root / "timerwheel").exists()
    java(tmp_path, before=PAST + 1_000, enqueued=1)

    assert first == second == []
    assert is_there
    assert Node(tmp_path, log, 3).run(SOON) == ["left"]
    assert not (root / "timerwheel").exists()


def test_timers_that_rocketmq_was_handed_come_from_whoever_is_there_at_their_time(
    tmp_path: Path, log: MemoryLog
) -> None:
    java(tmp_path, before=PAST, enqueued=2)
    stored(log, "soon", SOON)
    stored(log, "late", LATE)
    files = WheelFiles(tmp_path)
    Node(tmp_path, log, 1).run()
    files.hand([], now_ms=BEGIN_MS, ends=(2, 2))
    untouched = Node(tmp_path, log, 2).run(SOON - 1_000)
    aside = files.handed()
    files.hand([], now_ms=SOON - 1_000, ends=(2, 2))
    # RocketMQ has delivered one, and got another one.
    stored(log, "soon", SOON, topic="orders", TIMER_DEQUEUE_MS="1")
    stored(log, "new", LATE)
    java(tmp_path, before=SOON + 1_000, enqueued=3)
    back = Node(tmp_path, log, 3)

    assert untouched == [] and aside is None
    assert back.run(SOON + 5_000) == ["soon"]
    assert Counter(back.run(LATE)) == Counter(["soon", "late", "new"])
    assert files.handed() is None


def test_properties_that_leave_no_room_for_the_time_have_it_once(
    tmp_path: Path, log: MemoryLog
) -> None:
    java(tmp_path, before=PAST, enqueued=1)
    size = PROPERTIES_SIZE_MAX - 90
    stored(log, "large", SOON, x="y" * size)
    stored(log, "nowhere", SOON, REAL_QID="none")
    node = Node(tmp_path, log, 1)
    node.run()
    (waits,) = log.messages(TIMER_TOPIC)

    assert PROPERTIES_SIZE_MAX - 60 < len(waits.properties) <= PROPERTIES_SIZE_MAX
    assert node.run(SOON) == ["large"]
    assert waits.parsed_properties()["x"] == "y" * size


def test_many_are_taken_over_in_groups_and_one_that_was_cut_is_finished(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_service, "GROUP_RECORDS_MAX", 8)
    java(tmp_path, before=PAST, enqueued=0)
    names = [f"n{number}" for number in range(20)]
    for name in names:
        stored(log, name, SOON)
    dead = Node(tmp_path, log, 1)
    while not log.orders or len(proposal_of(log.orders[0]).records) < 8:
        while log.orders:
            log.take()
        dead.turn()
    log.take(5)
    log.orders.clear()
    heir = Node(tmp_path, log, 2)
    heir.now_ms = dead.now_ms + PROPOSAL_MS
    heir.run()
    waiting = len(log.messages(TIMER_TOPIC))

    assert waiting == len(names)
    assert heir.moves.source(WHEEL_QUEUE).next_offset == len(names)
    assert Counter(heir.run(SOON)) == Counter(names)


def test_a_leader_that_cannot_know_what_was_delivered_says_so_and_keeps_no_log(
    tmp_path: Path, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    stored(log, "a", SOON)
    node = Node(tmp_path, log, 1)

    assert node.run(SOON) == []
    assert "timercheck, which says what was delivered, is not there: count=1" in caplog.text
    assert node.wheel.oldest_position() is None
