"""Moves over a log in memory, cut at each place where a crash can cut them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.broker.deliveries.moves import NOBODY
from ledgermq.broker.state.state_log import PROPOSAL_MS, RETRY_MS
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import LedgerError, NotLeaderError, OutcomeUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, Moved
from ledgermq.wire.session import FOLLOWER, Standing
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog, proposal_of
from tests.unit.broker.state_node import StateNode

SOURCE = QueueName("source", 0)
OTHER = QueueName("source", 1)
STEP = 3
"""Messages that the service of these tests moves at a time."""


def message(number: int, queue: QueueName = SOURCE) -> bytes:
    properties = encode_properties({"UNIQ_KEY": f"{queue.queue_id}-{number}"})
    body = b"m%d" % number * 20
    return encode_message(
        Message(topic=queue.topic, queue_id=queue.queue_id, body=body, properties=properties)
    )


def moved_record(queue: QueueName, offset: int, record: memoryview) -> Sequence[bytes]:
    """Two records a message: where it belongs, and a note that it went there."""
    found = decode_message(record)
    note = Message(topic="notes", queue_id=0, body=b"%d/%d" % (queue.queue_id, offset))
    whole = replace(found, topic="target", queue_id=queue.queue_id, body=bytes(found.body))
    return [encode_message(whole), encode_message(note)]


class Node(StateNode):
    """The broker of one node over a log that outlives it; it moves two queues to their ends.

    Commands have no sums of what becomes of the queues ``without_sums``.
    """

    def __init__(
        self, directory: Path, log: MemoryLog, term: int, *without_sums: QueueName
    ) -> None:
        self.without_sums = without_sums
        super().__init__(directory, log)
        self.moves.register("source", moved_record)
        self.asked: set[QueueName] = set()
        self.refusals: list[LedgerError] = []
        self.lead(term)

    def turn(self) -> list[Reply]:
        apply_all(self.state)
        self.moves.turn(self.now_ms)
        for queue in (SOURCE, OTHER):
            if queue not in self.asked and self.moves.is_free(queue):
                self.ask(queue)
        self.state.turn(self.now_ms)
        return self.mailbox.take()

    def ask(self, queue: QueueName) -> None:
        def plan() -> tuple[Moved, Sequence[bytes]] | None:
            first = self.moves.source(queue).next_offset
            offsets = tuple(range(first, min(first + STEP, self.log.bounds(queue).end)))
            if not offsets:
                return None
            records = self.moves.build(queue, offsets)
            marks = {"moves": self.moves.source(queue).marks.get("moves", 0) + 1}
            has_sums = queue not in self.without_sums
            end = offsets[-1] + 1
            return Moved(queue, offsets, len(records), end, marks, has_sums=has_sums), records

        def refused(error: LedgerError) -> None:
            self.asked.discard(queue)
            self.refusals.append(error)

        self.asked.add(queue)
        self.moves.request(
            queue,
            plan,
            done=lambda: self.asked.discard(queue),
            refused=refused,
            now_ms=self.now_ms,
        )

    def begin(self) -> None:
        """Have the first command of a term in the log, and its snapshot; the first move is asked
        for.
        """
        for _ in range(2):
            self.turn()
            self.log.take()
        self.turn()

    def run(self, until_ms: int = 0) -> None:
        """Have the writer take whatever comes, until nothing does."""
        self.now_ms = until_ms
        idle = 0
        for _ in range(100):
            self.turn()
            idle = 0 if self.log.orders else idle + 1
            if idle == 3:
                return
            while self.log.orders:
                self.log.take()
        raise AssertionError("it moves for ever")


def filled(count: int, file_size: int = 1 << 20) -> MemoryLog:
    log = MemoryLog(file_size)
    for number in range(count):
        log.put(message(number))
        log.put(message(number, OTHER))
    return log


def assert_moved_once(log: MemoryLog, count: int) -> None:
    for queue in (SOURCE, OTHER):
        bodies = [bytes(one.body) for one in log.messages("target", queue.queue_id)]
        assert bodies == [b"m%d" % number * 20 for number in range(count)]
    notes = [bytes(one.body) for one in log.messages("notes")]
    assert sorted(notes) == sorted(b"%d/%d" % (q, n) for q in (0, 1) for n in range(count))


def test_messages_move_once_and_in_order(tmp_path: Path) -> None:
    log = filled(7)
    node = Node(tmp_path, log, 1)
    node.run()

    assert_moved_once(log, 7)
    assert node.moves.source(SOURCE).next_offset == 7
    assert node.moves.source(SOURCE).marks == {"moves": 3}
    assert node.moves.source(SOURCE).open_at is None


@pytest.mark.long(but=14)
@pytest.mark.parametrize("file_size", [1 << 20, 1500])
@pytest.mark.parametrize("cut", range(15))
def test_the_next_leader_finishes_what_a_crash_has_cut(
    tmp_path: Path, cut: int, file_size: int
) -> None:
    log = filled(5, file_size)
    dead = Node(tmp_path / "dead", log, 1)
    dead.begin()
    kept = log.take(cut)
    next_one = Node(tmp_path / "next", log, 2)
    # Somebody sends between the cut and the next leader's first command.
    log.put(encode_message(Message(topic="target", queue_id=9, body=b"of a producer")))
    next_one.run()
    heir = Node(tmp_path / "heir", log, 3)
    heir.run()

    assert kept == 2 + 2 * 2 * STEP
    assert_moved_once(log, 5)
    assert heir.moves.source(SOURCE).next_offset == 5


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_group_of_which_nobody_knows_how_much_is_there_is_left_alone(
    tmp_path: Path, cut: int
) -> None:
    log = filled(5)
    dead = Node(tmp_path / "dead", log, 1, SOURCE)
    dead.begin()
    log.take(cut)
    # Without its messages nobody knows the sums of the first move, nor where the second begins.
    log.hidden.add(SOURCE)
    blind = Node(tmp_path / "blind", log, 2, SOURCE)
    notes = len(log.messages("notes"))
    blind.run()
    notes_when_blind = len(log.messages("notes"))
    log.hidden.clear()
    blind.run(RETRY_MS)

    assert notes_when_blind == notes
    assert_moved_once(log, 5)


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_move_that_waits_in_line_does_not_pass_one_that_was_cut(tmp_path: Path, cut: int) -> None:
    log = filled(8)
    dead = Node(tmp_path / "dead", log, 1)
    dead.begin()
    log.take(cut)
    heir = Node(tmp_path / "heir", log, 2)
    heir.begin()
    for queue in (SOURCE, OTHER):
        heir.ask(queue)
    # The rest is asked for again, behind what waits.
    heir.state.take_refusal(proposal_of(log.orders.pop()).sequence)
    heir.run()
    heir.run(RETRY_MS)
    heir.run(2 * RETRY_MS)

    assert_moved_once(log, 8)


@pytest.mark.parametrize("cut", range(15))
def test_the_same_leader_finishes_what_its_writer_has_cut(tmp_path: Path, cut: int) -> None:
    log = filled(5)
    node = Node(tmp_path, log, 1)
    node.begin()
    log.take(cut)
    begun = len(log.messages("notes"))
    node.run()
    node.run(PROPOSAL_MS)

    assert begun == max(0, min(cut - 1, 12)) // 2
    assert_moved_once(log, 5)
    assert all(isinstance(error, OutcomeUnknownError) for error in node.refusals)
    # With the command that ends the group all of it is there, and nobody has to wait.
    assert len(node.refusals) == (0 if cut == 14 else 2)


def test_a_group_that_comes_late_is_not_appended_twice(tmp_path: Path) -> None:
    log = filled(5)
    node = Node(tmp_path, log, 1)
    node.begin()
    node.now_ms = PROPOSAL_MS
    node.turn()
    kinds = [len(proposal_of(order).records) for order in log.orders]
    node.run(PROPOSAL_MS)

    # Only a command alone was proposed meanwhile: it comes behind the late group, and shows it.
    assert kinds == [14, 1]
    assert_moved_once(log, 5)


def test_a_refused_group_is_asked_for_again(tmp_path: Path) -> None:
    log = filled(5)
    node = Node(tmp_path, log, 1)
    node.begin()
    order = proposal_of(log.orders.pop())
    node.state.take_refusal(order.sequence)
    node.run(RETRY_MS)

    assert [type(error) for error in node.refusals] == [NotLeaderError, NotLeaderError]
    assert_moved_once(log, 5)


def test_who_leads_no_more_moves_nothing(tmp_path: Path) -> None:
    log = filled(5)
    node = Node(tmp_path, log, 1)
    node.turn()
    log.take()
    node.state.lead(Standing(FOLLOWER, 2, "n1"))
    node.turn()

    assert log.orders == []
    assert not node.moves.is_free(SOURCE)


def test_records_without_a_source_follow_their_command(tmp_path: Path) -> None:
    log = MemoryLog()
    node = Node(tmp_path, log, 1)
    node.run()
    told: list[str] = []
    records = [bytes(48) + message(number) for number in range(3)]
    node.state.submit(
        StateRequest(
            NOBODY,
            tuple,
            frozenset({"anything"}),
            lambda: told.append("done"),
            lambda: records,
        ),
        0,
    )
    node.state.turn(0)
    order = log.orders[0]
    log.take(4)
    apply_all(node.state)
    early = list(told)
    log.put(proposal_of(order).records[4][48:])
    apply_all(node.state)

    bodies = [bytes(one.body) for one in log.messages("source")]
    assert bodies == [b"m%d" % number * 20 for number in range(3)]
    assert (early, told) == ([], ["done"])


def test_a_group_is_bounded_and_the_rest_comes_with_the_next(tmp_path: Path) -> None:
    log = MemoryLog()
    node = Node(tmp_path, log, 1)
    node.run()
    half = GROUP_RECORDS_MAX // 2 + 1
    told: list[int] = []
    for number in range(2):
        records = [bytes(48) + message(one) for one in range(half)]
        node.state.submit(
            StateRequest(
                NOBODY,
                tuple,
                frozenset({str(number)}),
                lambda number=number: told.append(number),  # type: ignore[misc]
                lambda records=records: records,  # type: ignore[misc]
            ),
            0,
        )
    sizes = []
    node.state.turn(0)
    while log.orders:
        sizes.append(log.take())
        apply_all(node.state)
        node.state.turn(0)

    assert sizes == [half + 2, half + 2]
    assert told == [0, 1]
