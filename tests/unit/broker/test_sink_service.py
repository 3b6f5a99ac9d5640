"""Batches of sinks over a log in memory: committed once, moved once, dropped after a time."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.deliveries.moves import NOBODY
from ledgermq.broker.sinks import sink_service
from ledgermq.broker.sinks.sink_commits import COMMIT_MS, Aborter, SinkCommit
from ledgermq.broker.sinks.sink_service import SinkService
from ledgermq.broker.state.state_log import RETRY_MS
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.ipc.orders import PackRows
from ledgermq.model.config.settings import SinksSection
from ledgermq.model.errors import (
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    StagedUnknownError,
    TopicUnknownError,
)
from ledgermq.model.names.stages import Stage
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX
from ledgermq.rules.tables.sinks import QUEUE
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.rules.tables.topics import Topic
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.session import FOLLOWER, Standing
from ledgermq.wire.staged_pack import encode_pack
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog
from tests.unit.broker.state_node import StateNode

KEPT_MS = 50_000
TOPIC = "target"


class Clock:
    """A time of day that a test sets."""

    def __init__(self) -> None:
        self.epoch_ms = 1_000
        self._seed = 0

    def epoch_ns(self) -> int:
        return self.epoch_ms * 1_000_000

    def monotonic_ns(self) -> int:
        return 1

    def seed(self) -> int:
        self._seed += 1
        return self._seed


def rows(name: str, count: int, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [
        encode_message(
            Message(
                topic=topic,
                queue_id=queue_id,
                body=f"{name}-{number}".encode() * 7,
                properties=encode_properties({"UNIQ_KEY": f"{name}{number}"}),
            )
        )
        for number in range(count)
    ]


def stage(log: MemoryLog, label: Stage, count: int, *, topic: str = TOPIC) -> int:
    """Have the log a pack of so many rows; its offset."""
    made = rows(label.name, count, topic)
    runs = [SendRun(count, 0, topic.encode())]
    pack = encode_pack(8, array("I", map(len, made)).tobytes(), runs, b"".join(made))
    properties = encode_properties({"STAGE": label.label, "UNIQ_KEY": label.label})
    message = Message(topic=QUEUE.topic, queue_id=0, body=pack, properties=properties)
    return log.put(encode_message(message)).queue_offset


class Node(StateNode):
    """The broker of one node over a log that outlives it."""

    def __init__(self, directory: Path, log: MemoryLog, term: int, clock: Clock) -> None:
        kept = SinksSection(staged_reserved_ms=KEPT_MS, batch_reserved_ms=10 * KEPT_MS)
        super().__init__(directory, log, clock=clock, sinks=kept)
        self.replies: dict[int, Reply] = {}
        self.sinks = SinkService(
            self.stand_in,
            self.tables,
            self.state,
            self.moves,
            self.settings,
            mailbox=self.mailbox,
            clock=clock,
            counts=self.counts,
        )
        self.asked = 0
        self.lead(term)

    def turn(self) -> None:
        apply_all(self.state)
        for service in (self.moves, self.sinks, self.state):
            service.turn(self.now_ms)
        for reply in self.mailbox.take():
            if reply.caller != NOBODY:
                assert reply.caller.request_id not in self.replies, "answered twice"
                self.replies[reply.caller.request_id] = reply

    def run(self, until_ms: int | None = None) -> None:
        """Have the writer take whatever comes, until nothing does."""
        self.now_ms = self.now_ms if until_ms is None else until_ms
        idle = 0
        for _ in range(200):
            self.turn()
            idle = 0 if self.log.orders else idle + 1
            if idle == 3 and not self.sinks.is_behind:
                return
            while self.log.orders:
                self.log.take()
        raise AssertionError("it moves for ever")

    def create(self, topic: str = TOPIC) -> None:
        fields = Topic(topic, 1, 1).to_fields()
        request = StateRequest(
            NOBODY, lambda: [TopicSet(topic, fields)], frozenset({topic}), lambda: None
        )
        self.state.submit(request, self.now_ms)
        self.run()

    def ask(
        self, batch: int, packs: list[tuple[str, int]], *, sink: str = "q", denied: str = ""
    ) -> int:
        """Ask for a commit; the number of its answer."""

        def check(topic: str) -> None:
            if topic == denied:
                raise NoPermissionError("not yours", topic=topic)

        self.asked += 1
        until_ms = self.now_ms + COMMIT_MS
        caller = Caller(b"c", self.asked)
        self.sinks.commit(SinkCommit(caller, sink, batch, False, tuple(packs), check, until_ms))
        return self.asked

    def commit(self, batch: int, packs: list[tuple[str, int]], *, sink: str = "q") -> dict:  # type: ignore[type-arg]
        asked = self.ask(batch, packs, sink=sink)
        self.run()
        outcome = self.replies[asked].outcome
        if isinstance(outcome, LedgerError):
            raise outcome
        return dict(outcome)

    def floor(self) -> int:
        return self.moves.source(QUEUE).next_offset


def bodies(log: MemoryLog, topic: str = TOPIC) -> list[str]:
    return [bytes(one.body).decode()[: len(one.body) // 7] for one in log.messages(topic)]


def begun(directory: Path, log: MemoryLog, term: int = 1, clock: Clock | None = None) -> Node:
    node = Node(directory, log, term, clock or Clock())
    node.run()
    node.create()
    return node


def named(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def test_what_is_committed_becomes_messages_in_the_order_of_the_commit(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    second = stage(log, Stage("q", 0, "b"), 3)
    first = stage(log, Stage("q", 0, "a"), 2)
    stage(log, Stage("q", 0, "lost"), 4)
    node.run()
    before = bodies(log)

    answer = node.commit(0, [("a", first), ("b", second)])

    assert before == []
    assert answer == {"sink": "q", "batch": 0, "rows": 5, "already": False}
    assert bodies(log) == [*named("a", 2), *named("b", 3)]
    assert node.tables.state.sinks.unmoved == set()
    assert node.moves.source(QUEUE).open_at is None


def test_a_batch_that_is_committed_is_not_taken_again_however_it_was_staged(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    first = stage(log, Stage("q", 3, "a"), 2)
    again = stage(log, Stage("q", 3, "b"), 2)
    older = stage(log, Stage("q", 2, "c"), 2)
    next_one = stage(log, Stage("q", 4, "d"), 1)
    other = stage(log, Stage("other", 3, "e"), 1)
    node.commit(3, [("a", first)])

    assert node.commit(3, [("b", again)])["already"] is True
    assert node.commit(2, [("c", older)])["already"] is True
    assert node.commit(4, [("d", next_one)])["already"] is False
    assert node.commit(3, [("e", other)], sink="other")["already"] is False
    assert bodies(log) == [*named("a", 2), "d-0", "e-0"]
    assert node.floor() == 5  # nothing of it keeps the log


def test_two_commits_of_a_batch_at_once_are_one(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    offset = stage(log, Stage("q", 0, "a"), 2)
    asked = [node.ask(0, [("a", offset)]) for _ in range(2)]
    node.run()
    outcomes = [node.replies[one].outcome for one in asked]

    assert [one["already"] for one in outcomes] == [False, True]  # type: ignore[index]
    assert bodies(log) == named("a", 2)


@pytest.mark.parametrize("cut", range(1, 9))
@pytest.mark.parametrize("file_size", [1 << 20, 1_500])
def test_the_next_leader_finishes_what_a_crash_has_cut(
    tmp_path: Path, cut: int, file_size: int
) -> None:
    log = MemoryLog(file_size)
    clock = Clock()
    dead = begun(tmp_path / "dead", log, 1, clock)
    packs = [(name, stage(log, Stage("q", 0, name), 3)) for name in "ab"]
    dead.ask(0, packs)
    dead.turn()
    log.take()
    dead.turn()
    dead.turn()
    kept = log.take(cut)
    log.put(encode_message(Message(topic=TOPIC, queue_id=9, body=b"of a producer")))
    heir = Node(tmp_path / "heir", log, 2, clock)
    heir.run()
    last = Node(tmp_path / "last", log, 3, clock)
    last.run()

    assert kept == 2 + 2 * 3
    assert bodies(log) == [*named("a", 3), *named("b", 3)]
    assert last.commit(0, packs)["already"] is True
    assert len(bodies(log)) == 6


def test_a_leader_that_dies_before_it_moves_anything_leaves_all_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_service, "GROUP_ROWS_MAX", 5)
    log = MemoryLog()
    clock = Clock()
    dead = begun(tmp_path / "dead", log, 1, clock)
    packs = [(name, stage(log, Stage("q", 0, name), 3)) for name in "abcd"]
    dead.ask(0, packs)
    dead.turn()
    log.take()
    log.orders.clear()
    heir = Node(tmp_path / "heir", log, 2, clock)
    heir.run()

    assert bodies(log) == [row for name in "abcd" for row in named(name, 3)]


def test_a_large_batch_is_moved_in_groups_and_the_next_batch_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_service, "GROUP_ROWS_MAX", 4)
    log = MemoryLog()
    node = begun(tmp_path, log)
    packs = [(name, stage(log, Stage("q", 0, name), 3)) for name in "abc"]
    late = stage(log, Stage("q", 1, "z"), 1)
    node.ask(0, packs)
    node.turn()
    log.take()
    node.turn()
    early = node.ask(1, [("z", late)])
    node.run()

    assert "not all messages yet" in str(node.replies[early].outcome)
    assert bodies(log) == [row for name in "abc" for row in named(name, 3)]
    assert node.commit(1, [("z", late)])["already"] is False


def test_a_pack_of_more_rows_than_other_groups_may_have_is_one_group(tmp_path: Path) -> None:
    log = MemoryLog(1 << 24)
    node = begun(tmp_path, log)
    count = GROUP_RECORDS_MAX + 100
    offset = stage(log, Stage("q", 0, "a"), count)
    node.commit(0, [("a", offset)])

    assert bodies(log) == named("a", count)


@pytest.mark.parametrize(("sink", "batch", "name"), [("p", 0, "a"), ("q", 1, "a"), ("q", 0, "b")])
def test_rows_of_somebody_else_are_not_committed(
    tmp_path: Path, sink: str, batch: int, name: str
) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    offset = stage(log, Stage("q", 0, "a"), 2)

    with pytest.raises(StagedUnknownError, match="no such rows"):
        node.commit(batch, [(name, offset)], sink=sink)

    assert bodies(log) == []


def test_rows_from_under_a_leader_of_another_kind_of_address_get_the_own_one(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    row = encode_message(
        Message(topic=TOPIC, queue_id=0, body=b"row", store_host=("::1", 10_911), flag=5)
    )
    runs = [SendRun(1, 0, TOPIC.encode())]
    pack = encode_pack(20, array("I", [len(row)]).tobytes(), runs, row)
    properties = encode_properties({"STAGE": Stage("q", 0, "a").label})
    message = Message(topic=QUEUE.topic, queue_id=0, body=pack, properties=properties)
    offset = log.put(encode_message(message)).queue_offset
    node.commit(0, [("a", offset)])
    (found,) = log.messages(TOPIC)

    assert (bytes(found.body), found.flag) == (b"row", 5)
    assert ":" not in found.store_host[0]


def pack_of(row: bytes, topic: str) -> bytes:
    """A pack that says that its one row is of ``topic``."""
    pack = encode_pack(8, array("I", [len(row)]).tobytes(), [SendRun(1, 0, topic.encode())], row)
    properties = encode_properties({"STAGE": Stage("q", 0, "a").label})
    return encode_message(Message(topic=QUEUE.topic, queue_id=0, body=pack, properties=properties))


def test_rows_are_ordered_by_the_place_of_their_pack(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    offset = stage(log, Stage("q", 0, "a"), 3)
    (position,) = log.queues[QUEUE]
    orders = log.orders_of(lambda: node.commit(0, [("a", offset)]))

    assert [part for order in orders for part in order.records if isinstance(part, PackRows)] == [
        PackRows(position, len(log.records_at[position]), 3)
    ]
    assert bodies(log) == named("a", 3)


def test_a_pack_whose_row_is_of_another_topic_than_it_says_goes_by_the_row(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    node.create("other")
    row = encode_message(Message(topic="other", queue_id=0, body=b"row"))
    offset = log.put(pack_of(row, TOPIC)).queue_offset
    orders = log.orders_of(lambda: node.commit(0, [("a", offset)]))

    assert not [one for order in orders for one in order.records if isinstance(one, PackRows)]
    assert [bytes(one.body) for one in log.messages("other")] == [b"row"]


def test_a_commit_waits_for_packs_that_are_not_dispatched_yet(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    asked = node.ask(0, [("a", 0)])
    never = node.ask(0, [("x", 7)], sink="other")
    node.run()
    early = dict(node.replies)
    stage(log, Stage("q", 0, "a"), 1)
    node.run()
    told = node.replies[asked].outcome
    node.run(COMMIT_MS)

    assert early == {}
    assert not isinstance(told, LedgerError)
    assert bodies(log) == ["a-0"]
    assert "not in the queue yet" in str(node.replies[never].outcome)


def test_a_commit_needs_the_right_to_each_topic_and_the_topic(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    offset = stage(log, Stage("q", 0, "a"), 1)
    gone = stage(log, Stage("q", 0, "b"), 1, topic="gone")
    denied = node.ask(0, [("a", offset)], denied=TOPIC)
    node.run()

    assert isinstance(node.replies[denied].outcome, NoPermissionError)
    with pytest.raises(TopicUnknownError):
        node.commit(0, [("b", gone)])
    assert bodies(log) == bodies(log, "gone") == []


def test_an_abort_drops_what_was_staged_and_lets_the_log_go(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    packs = [(name, stage(log, Stage("q", 0, name), 1)) for name in "ab"]
    node.sinks.abort("q", 0, ["a"])
    node.run()
    after_one = node.floor()
    with pytest.raises(StagedUnknownError, match=r"dropped|aborted"):
        node.commit(0, packs)
    node.sinks.abort("q", 0, [])
    node.run()

    assert after_one == 1
    assert node.floor() == 2
    assert node.sinks.oldest_position() is None
    assert bodies(log) == []


def of_user(name: str, *topics: str) -> Aborter:
    return Aborter(name, lambda owner: owner in ("", name), lambda topic: topic in topics)


def test_an_abort_drops_no_rows_of_topics_that_its_user_may_not_send_to(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    packs = [("a", stage(log, Stage("q", 0, "a"), 2))]
    for stages in (["a"], []):
        node.sinks.abort("q", 0, stages, of_user("stranger", "other"))
    node.run()
    kept = node.floor()
    node.commit(0, packs)

    assert kept == 0
    assert len(bodies(log)) == 2


def test_a_sink_belongs_to_the_user_who_has_committed_its_first_batch(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    first = stage(log, Stage("q", 0, "a"), 1)
    mine, other = of_user("mine", TOPIC), of_user("other", TOPIC)
    for batch, by in ((0, mine), (1, other)):
        packs = (("a", first),) if batch == 0 else ()
        commit = SinkCommit(
            Caller(b"c", batch + 70), "q", batch, False, packs, lambda _topic: None,
            node.now_ms + COMMIT_MS, user=by.user, acts_for=by.acts_for,
        )  # fmt: skip
        if batch == 0:
            node.sinks.commit(commit)
            node.run()
        else:
            with pytest.raises(NoPermissionError, match="another user"):
                node.sinks.commit(commit)
    staged = stage(log, Stage("q", 1, "b"), 1)
    with pytest.raises(NoPermissionError, match="another user"):
        node.sinks.abort("q", 1, [], other)
    node.commit(1, [("b", staged)])
    found = node.tables.state.sinks.get("q")

    assert found is not None
    assert (found.batch, found.owner) == (1, "mine")
    assert len(bodies(log)) == 2


def test_what_is_staged_survives_a_clock_that_jumps(tmp_path: Path) -> None:
    log = MemoryLog()
    clock = Clock()
    clock.epoch_ms = log.store_timestamp
    node = begun(tmp_path, log, 1, clock)
    stage(log, Stage("q", 0, "a"), 2)
    node.sinks.notice_growth(node.now_ms)
    node.run()
    clock.epoch_ms += 60 * 86_400_000
    deadline = node.sinks.next_deadline_ms()
    assert deadline is not None
    node.run(deadline)

    assert node.floor() == 0
    assert node.sinks.oldest_position() is not None


def test_what_nobody_commits_is_dropped_after_its_time_and_not_before(tmp_path: Path) -> None:
    log = MemoryLog()
    clock = Clock()
    node = begun(tmp_path, log, 1, clock)
    orphan = stage(log, Stage("q", 0, "a"), 2)
    node.sinks.notice_growth(node.now_ms)
    node.run()
    clock.epoch_ms = log.store_timestamp + KEPT_MS - 1
    deadline = node.sinks.next_deadline_ms()
    assert deadline is not None
    node.run(deadline)
    kept = node.floor()
    held = node.sinks.oldest_position()
    clock.epoch_ms += 1
    deadline = node.sinks.next_deadline_ms()
    assert deadline is not None
    node.run(deadline)

    assert (kept, held is None) == (0, False)
    assert node.floor() == 1
    assert node.sinks.oldest_position() is None
    with pytest.raises(StagedUnknownError) as caught:
        node.commit(0, [("a", orphan)])
    assert caught.value.details["setting"] == "sinks.staged_reserved_ms"
    assert bodies(log) == []


def test_rows_that_are_committed_keep_the_log_until_they_are_moved(tmp_path: Path) -> None:
    log = MemoryLog()
    clock = Clock()
    node = begun(tmp_path, log, 1, clock)
    offset = stage(log, Stage("q", 0, "a"), 2)
    node.ask(0, [("a", offset)])
    node.turn()
    log.take()
    clock.epoch_ms += 2 * KEPT_MS
    follower = Node(tmp_path / "follower", log, 1, clock)
    follower.state.lead(Standing(FOLLOWER, 2, "n1"))
    follower.turn()
    log.orders.clear()
    held = follower.sinks.oldest_position()
    heir = Node(tmp_path / "heir", log, 2, clock)
    heir.run()

    assert held == log.queues[QUEUE][offset]
    assert bodies(log) == named("a", 2)
    assert heir.sinks.oldest_position() is None


def test_a_sink_is_forgotten_after_its_time(tmp_path: Path) -> None:
    log = MemoryLog()
    clock = Clock()
    node = begun(tmp_path, log, 1, clock)
    offset = stage(log, Stage("q", 0, "a"), 2)
    node.commit(0, [("a", offset)])
    clock.epoch_ms += 10 * KEPT_MS
    node.sinks.abort("other", 0, [])  # it looks around then
    node.run()

    assert node.tables.state.sinks.get("q") is None


def test_who_waits_is_told_when_the_rows_are_there(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    offset = stage(log, Stage("q", 0, "a"), 2)
    with pytest.raises(StagedUnknownError):
        node.sinks.wait(Caller(b"w", 100), "q", 0, 10)
    node.ask(0, [("a", offset)])
    node.turn()
    log.take()
    node.turn()
    node.sinks.wait(Caller(b"w", 101), "q", 0, 10_000)
    node.sinks.wait(Caller(b"w", 102), "q", 0, node.now_ms)
    node.turn()
    log.take(3)  # the command and the rows, and not the command that they are there
    node.turn()
    early = dict(node.replies)
    node.run(5_000)
    node.run(5_000 + RETRY_MS)

    assert 101 not in early
    assert early[102].outcome == {"done": False, "packs": 1}
    assert node.replies[101].outcome == {"done": True, "packs": 0}
    assert bodies(log) == named("a", 2)


def test_who_leads_no_more_says_so(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    asked = node.ask(0, [("a", 0)])
    node.state.lead(Standing(FOLLOWER, 2, "n1"))
    node.turn()

    assert isinstance(node.replies[asked].outcome, NotLeaderError)
    with pytest.raises(NotLeaderError):
        node.ask(0, [])
