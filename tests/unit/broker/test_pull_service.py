"""Statuses of pulls whose files vanish between the look at a queue and its units."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from ledgermq.broker.pulls import pull_service
from ledgermq.broker.pulls.pull_answers import Answer, Held, Holds
from ledgermq.broker.pulls.pull_service import ANSWERS_NS, TAKEN_AT_ONCE, PullService
from ledgermq.broker.reading import property_scan, readable_store
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.arrays import UNIT
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.ipc.counters import BrokerCounter, no_counts
from ledgermq.ipc.cursor_page import CursorPage, Dispatched, Grant, LogCursor, PublishedRole
from ledgermq.model.config.settings import (
    LogKind,
    NodeSection,
    ReadsSection,
    Settings,
    StoreSection,
)
from ledgermq.model.errors import DamagedLogError, FilterIllegalError, NotLeaderError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.model.names.queue_name import QueueName
from ledgermq.wire.pull_frame import Pull, Pulled, PullStatus, decode_pulled
from tests.unit.broker.still_clock import STILL

FILE_SIZE = 65_536
MESSAGES = 96
UNITS_PER_FILE = 16
QUEUE = QueueName("t", 0)


def properties_of(number: int) -> bytes:
    """Of equal size for all messages."""
    return encode_properties({"number": f"{number:03d}"})


class Store:
    """A plain log of equal messages in several files, its queue, and a broker's view of both."""

    def __init__(self, root: Path, page: CursorPage, reads: ReadsSection) -> None:
        self.root = root
        self.page = page
        self.positions: list[int] = []
        self.damaged: list[int] = []
        self._write()
        settings = Settings(
            node=NodeSection(self_id="n0"),
            store=StoreSection(path_root_dir=root, log=LogKind.COMMITLOG),
            reads=reads,
        )
        end = self.positions[-1] + self.size
        cursor = LogCursor(Position(end), Index(end), Term(1))
        page.publish_written(cursor, 0)
        page.publish_committed(cursor)
        page.publish_dispatched(Dispatched(Position(end), MESSAGES, 0, 0, 0))
        self.view = ReadableStore(page, settings, self.damaged.append)
        self.view.look()
        self.pulls: PullService = PullService(
            self.view, Holds[bytes, Held](limit=9), lambda _queue: None, clock=STILL
        )

    def _write(self) -> None:
        self.size = len(encode_message(Message(topic="t", queue_id=0, body=b"x" * 3_900,
                                               properties=properties_of(0))))  # fmt: skip
        per_file = FILE_SIZE // self.size
        files: dict[int, bytearray] = {}
        for number in range(MESSAGES):
            start = number // per_file * FILE_SIZE
            position = start + number % per_file * self.size
            content = files.setdefault(start, bytearray(FILE_SIZE))
            record = encode_message(
                Message(topic="t", queue_id=0, body=b"x" * 3_900, queue_offset=number,
                        physical_offset=position, properties=properties_of(number))
            )  # fmt: skip
            content[position - start : position - start + self.size] = record
            self.positions.append(position)
        log, queue = self.root / "commitlog", self.root / "consumequeue" / "t" / "0"
        for folder in (log, queue):
            folder.mkdir(parents=True)
        for start, content in files.items():
            (log / f"{start:020d}").write_bytes(content)
        units = np.zeros(MESSAGES, UNIT)
        units["position"], units["size"] = self.positions, self.size
        size = UNITS_PER_FILE * UNIT.itemsize
        for start in range(0, MESSAGES * UNIT.itemsize, size):
            (queue / f"{start:020d}").write_bytes(units.tobytes()[start : start + size])

    def delete_log_files(self, count: int) -> int:
        """Delete the oldest; where the log begins then."""
        paths = sorted((self.root / "commitlog").iterdir())
        for path in paths[:count]:
            path.unlink()
        return int(paths[count].name)

    def delete_queue_file(self) -> None:
        min((self.root / "consumequeue" / "t" / "0").iterdir()).unlink()

    def dispatch(self, count: int) -> None:
        """Let the broker see so many messages."""
        end = self.positions[count - 1] + self.size
        self.page.publish_dispatched(Dispatched(Position(end), count, 0, 0, 0))
        self.view.look()

    def pull(
        self, offset: int, *, messages: int = 4, tags: tuple[int, ...] = (), sql: str = ""
    ) -> Pulled:
        pull = Pull(1, "t", 0, offset, messages, 2**20, 0, tags, expression=sql)
        answer = self.pulls.pull(b"c", pull, 0)
        assert isinstance(answer, Answer)
        assert answer.error is None
        return decode_pulled(answer.head, records_size=len(answer.payload))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with CursorPage.create(tmp_path / "page") as page:
        yield Store(tmp_path / "root", page, ReadsSection())


def test_a_log_file_that_vanishes_makes_its_messages_removed_ones(store: Store) -> None:
    store.view.bounds(QUEUE)
    first = store.delete_log_files(2)
    pulled = store.pull(0)
    later = store.pull(pulled.next_offset - 1)
    kept = next(number for number, at in enumerate(store.positions) if at >= first)

    assert (pulled.status, pulled.next_offset) == (PullStatus.MESSAGE_WAS_REMOVING, MESSAGES) or (
        pulled.status is PullStatus.FOUND and pulled.next_offset > kept
    )
    # The queue begins behind them from now on.
    assert (later.status, later.begin) in (
        (PullStatus.OFFSET_TOO_SMALL, kept),
        (PullStatus.FOUND, kept),
    )
    assert store.pull(0).next_offset == kept


def test_an_answer_that_had_only_removed_messages_says_so(store: Store) -> None:
    bounds = store.view.bounds(QUEUE)
    store.delete_log_files(5)
    store.view.log.refresh()
    held = Held(Pull(1, "t", 0, 0, 4, 2**20, 0), 0)
    # As a turn of the loop that has looked at the queue before the files were deleted.
    answer = store.pulls._look(
        b"c", held, QUEUE, bounds._replace(end=8), may_hold=False, may_wait=False
    )

    assert isinstance(answer, Answer)
    pulled = decode_pulled(answer.head, records_size=0)
    assert (pulled.status, pulled.next_offset) == (PullStatus.MESSAGE_WAS_REMOVING, 8)


def test_a_queue_file_that_vanishes_leads_to_the_next_one(store: Store) -> None:
    bounds = store.view.bounds(QUEUE)
    store.view._reader(QUEUE).files.close()
    store.delete_queue_file()
    held = Held(Pull(1, "t", 0, 3, 4, 2**20, 0), 3)
    answer = store.pulls._look(b"c", held, QUEUE, bounds, may_hold=False, may_wait=False)

    assert isinstance(answer, Answer)
    pulled = decode_pulled(answer.head, records_size=0)
    assert (pulled.status, pulled.next_offset) == (PullStatus.OFFSET_FOUND_NULL, UNITS_PER_FILE)
    assert store.pull(3).status is PullStatus.OFFSET_TOO_SMALL
    assert store.pull(UNITS_PER_FILE).status is PullStatus.FOUND


@pytest.mark.parametrize(
    ("role", "leader", "suggested"),
    [
        (PublishedRole.LEADER, "n0", "n2"),
        (PublishedRole.FOLLOWER, "n1", "n0"),
        (PublishedRole.FOLLOWER, "", ""),
    ],
)
def test_readers_of_what_is_on_disk_are_told_whom_to_ask(
    tmp_path: Path, role: PublishedRole, leader: str, suggested: str
) -> None:
    reads = ReadsSection(
        access_message_in_memory_max_ratio=0,
        max_transfer_count_on_message_in_disk=2,
        max_transfer_count_on_message_in_memory=9,
    )
    with CursorPage.create(tmp_path / "page") as page:
        page.publish_grant(Grant(Term(1), role is PublishedRole.LEADER, role, NodeId(leader)))
        page.publish_reader(NodeId("n2"))
        pulled = Store(tmp_path / "root", page, reads).pull(0, messages=50)

    assert (pulled.suggested, len(pulled.sizes)) == (suggested, 2)


def test_readers_of_what_is_in_memory_are_told_nothing(store: Store) -> None:
    store.page.publish_grant(Grant(Term(1), True, PublishedRole.LEADER, NodeId("n0")))
    store.page.publish_reader(NodeId("n2"))

    assert store.pull(0).suggested == ""


def test_who_may_lead_no_more_sends_nobody_back_to_where_its_queue_ends(store: Store) -> None:
    """It stood still while another one led, and was given messages that it does not know of."""
    store.view._has_terms = True
    store.page.publish_grant(Grant(Term(1), True, PublishedRole.LEADER, NodeId("n0")))
    with pytest.raises(NotLeaderError, match="another node may lead"):
        store.pull(MESSAGES + 9)
    store.page.publish_alone(STILL.monotonic_ns() + 1)

    assert store.pull(MESSAGES + 9).status is PullStatus.OFFSET_OVERFLOW_BADLY


class Waits:
    """What the store says how long each read has to wait, one after the other."""

    def __init__(self, store: Store, patch: pytest.MonkeyPatch, *waits_ms: int) -> None:
        self.left = list(waits_ms)
        patch.setattr(store.view, "old_read_wait_ms", self.next)

    def next(self, first: int, end: int) -> int:
        assert 0 <= first < end
        return self.left.pop(0)


OLD_READ = Pull(7, "t", 0, 0, 4, 2**20, 0)


def test_an_old_read_is_answered_when_its_turn_comes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Waits(store, monkeypatch, 30, 20, 0)
    pulls = store.pulls

    assert pulls.pull(b"c", OLD_READ, 1_000) is None
    assert pulls.next_deadline_ms() == 1_030
    assert list(pulls.due(1_029)) == []
    assert list(pulls.due(1_030)) == []
    assert pulls.next_deadline_ms() == 1_050
    (answer,) = pulls.due(1_050)
    assert (answer.client, answer.request_id, answer.messages) == (b"c", 7, 4)
    assert pulls.next_deadline_ms() is None


def test_old_reads_of_one_millisecond_keep_their_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Waits(store, monkeypatch, 5, 5, 5, 0, 0)
    for number in range(3):
        assert store.pulls.pull(b"%d" % number, OLD_READ, 1_000) is None
    store.pulls.cancel(b"1")

    assert [answer.client for answer in store.pulls.due(1_005)] == [b"0", b"2"]


def test_a_stop_answers_old_reads_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Waits(store, monkeypatch, 5_000, 5_000)
    assert store.pulls.pull(b"c", OLD_READ, 1_000) is None
    answers: list[Answer] = []
    store.pulls.send = answers.extend
    store.pulls.end_all()
    (answer,) = answers

    assert answer.messages == 4
    assert store.pulls.next_deadline_ms() is None


def offsets_in(answer: Answer) -> list[int]:
    """Queue offsets of the messages that an answer gives."""
    pulled = decode_pulled(answer.head, records_size=len(answer.payload))
    payload = memoryview(answer.payload)
    return [decode_message(payload, at, check_crc=True).queue_offset for at in pulled.starts]


def sql_pull(expression: str, offset: int = 0, *, messages: int = 9, hold_ms: int = 0) -> Pull:
    return Pull(1, "t", 0, offset, messages, 2**20, hold_ms, expression=expression)


def test_an_expression_is_given_what_fulfils_it_and_goes_on_behind_what_was_left_out(
    store: Store,
) -> None:
    answer = store.pulls.pull(b"c", sql_pull("number BETWEEN 3 AND 5 OR number >= 90"), 0)
    assert isinstance(answer, Answer)
    pulled = decode_pulled(answer.head, records_size=len(answer.payload))

    # An answer has records of one file of the log, and looks no further.
    assert offsets_in(answer) == [3, 4, 5]
    assert pulled.next_offset == FILE_SIZE // store.size

    later = store.pull(pulled.next_offset, sql="number >= 90", messages=3)

    assert (later.status, len(later.starts), later.next_offset) == (PullStatus.FOUND, 3, 93)


def test_a_message_that_a_filter_fails_for_is_passed_over_counted_and_named_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def decode_with_a_bug(data: memoryview) -> dict[str, str]:
        if bytes(data) == properties_of(4):
            raise RecursionError("what nobody has thought of")
        return decode_properties(data)

    monkeypatch.setattr(property_scan, "decode_properties", decode_with_a_bug)
    counts = no_counts()
    pulls: PullService = PullService(
        store.view,
        Holds[bytes, Held](limit=9),
        lambda _queue: None,
        counts=counts,
        clock=STILL,
    )
    for _ in range(2):
        answer = pulls.pull(b"c", sql_pull("number BETWEEN 3 AND 5"), 0)
        assert isinstance(answer, Answer)
        assert offsets_in(answer) == [3, 5]

    assert counts[BrokerCounter.POISON_MESSAGES] == 2
    (named,) = caplog.records
    assert f"position={store.positions[4]}" in named.getMessage()
    assert named.exc_info is not None


def test_an_answer_by_expression_keeps_its_count(store: Store) -> None:
    pulled = store.pull(0, messages=2, sql="number > 1")

    assert (len(pulled.starts), pulled.next_offset) == (2, 4)


def test_an_expression_that_nothing_fulfils_says_how_far_it_looked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_service, "SQL_SCANNED_UNITS_MAX", 40)
    monkeypatch.setattr(pull_service, "SQL_STEP_UNITS", 10)
    pulled = store.pull(0, sql="number = 'none'")
    at_end = store.pull(60, sql="number = 'none'")

    assert pulled.status is PullStatus.NO_MATCHED_MESSAGE
    # Whole steps, each within one file of the log.
    assert 40 <= pulled.next_offset < 50
    assert (at_end.status, at_end.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, MESSAGES)


def test_a_long_expression_is_looked_for_in_fewer_messages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_service, "SQL_SCANNED_UNITS_MAX", 40)
    short = store.pull(0, sql="number = 'none'")
    long = store.pull(0, sql="number = 'none'" + " OR number = 'nothing'" * 28)
    longest = store.pull(0, sql="number = 'none'" + " OR number = 'nothing'" * 280)

    assert short.next_offset >= 40
    assert 1 <= long.next_offset <= 4
    assert longest.next_offset == 1


def test_what_is_due_waits_for_the_next_turn_when_one_has_looked_enough(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_service, "SQL_TURN_UNITS_MAX", MESSAGES)
    clients = [b"%d" % number for number in range(6)]
    store.pulls.pull(b"first", sql_pull("number = 'none'"), 0)
    for client in clients:
        assert store.pulls.pull(client, sql_pull("number = 'none'"), 0) is None
    turns = []
    for now_ms in range(1, 7):
        turns.append([answer.client for answer in store.pulls.due(now_ms)])
        assert store.pulls.next_deadline_ms() is None or now_ms < 6

    assert turns == [[client] for client in clients]


def test_a_hold_by_expression_ends_with_the_message_that_fulfils_it(store: Store) -> None:
    store.dispatch(20)
    held = store.pulls.pull(b"c", sql_pull("number = 50", hold_ms=1_000), 0)
    store.dispatch(40)
    store.pulls.notice_growth(0)
    in_vain = list(store.pulls.grown(1))
    store.dispatch(60)
    store.pulls.notice_growth(0)
    answers = list(store.pulls.grown(2))

    assert held is None
    assert in_vain == []
    assert [offsets_in(answer) for answer in answers] == [[50]]


def test_a_hold_by_expression_that_ends_in_vain_says_how_far_it_looked(store: Store) -> None:
    store.dispatch(20)
    held = store.pulls.pull(b"c", sql_pull("number = 'none'", hold_ms=1_000), 0)
    (answer,) = store.pulls.due(1_000)
    pulled = decode_pulled(answer.head, records_size=0)

    assert held is None
    assert (pulled.status, pulled.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 20)


def test_a_turn_looks_at_a_bounded_number_of_properties(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_service, "SQL_TURN_UNITS_MAX", MESSAGES)
    first = store.pulls.pull(b"a", sql_pull("number = 'none'"), 0)
    second = store.pulls.pull(b"b", sql_pull("number = 1"), 0)
    others = store.pulls.pull(b"c", Pull(1, "t", 0, 0, 4, 2**20, 0), 0)
    deadline_ms = store.pulls.next_deadline_ms()
    (later,) = store.pulls.due(1)

    assert first is not None
    assert others is not None
    assert (second, deadline_ms) == (None, 1)
    assert (later.client, offsets_in(later)) == (b"b", [1])


def test_a_damaged_message_is_not_judged_by_its_properties(store: Store) -> None:
    path = min((store.root / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[store.positions[3] + 200] ^= 1
    path.write_bytes(content)
    before = store.pulls.pull(b"c", sql_pull("number < 90"), 0)
    assert isinstance(before, Answer)

    assert offsets_in(before) == [0, 1, 2]
    with pytest.raises(DamagedLogError):
        store.pulls.pull(b"c", sql_pull("number = 5", 3), 0)
    assert store.damaged == [store.positions[3]]


def test_removed_messages_are_passed_over_by_an_expression(store: Store) -> None:
    store.view.bounds(QUEUE)
    store.delete_log_files(2)
    store.view.log.refresh()
    first = store.pull(0, sql="number > 0")
    kept = 2 * (FILE_SIZE // store.size)
    pulled = store.pull(kept, sql="number > 0", messages=3)

    assert (first.status, first.next_offset) == (PullStatus.OFFSET_TOO_SMALL, kept)
    assert (len(pulled.starts), pulled.next_offset) == (3, kept + 3)


def test_an_expression_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(FilterIllegalError, match="position=7"):
        store.pulls.pull(b"c", sql_pull("number LIKE 'x'"), 0)


def test_expressions_can_be_switched_off(store: Store) -> None:
    pulls = PullService(
        store.view,
        Holds[bytes, Held](limit=9),
        lambda _queue: None,
        filters_properties=False,
        clock=STILL,
    )

    with pytest.raises(FilterIllegalError, match="enable_property_filter"):
        pulls.pull(b"c", sql_pull("number = 1"), 0)


BATCHES = 3
HOLDS = 10 * TAKEN_AT_ONCE


class Ticking:
    """A clock by which a turn ends after some batches of answers."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += -(-ANSWERS_NS // BATCHES)
        return self._now_ns


def holding(store: Store) -> PullService:
    """One that answers some pulls a turn; 48 messages of two queues are seen."""
    queues = store.root / "consumequeue" / "t"
    shutil.copytree(queues / "0", queues / "1")
    store.dispatch(48)
    return PullService(
        store.view,
        Holds[bytes, Held](limit=1_000),
        lambda _queue: None,
        clock=cast("Any", Ticking()),
    )


def hold(pulls: PullService, count: int, *, queue_id: int = 0, offset: int = 48) -> None:
    for number in range(count):
        pull = Pull(number, "t", queue_id, offset, 1, 2**20, 1_000)
        assert pulls.pull(b"%d" % queue_id, pull, 0) is None


def test_thousands_that_wait_for_one_message_are_answered_some_a_turn_and_others_between(
    store: Store,
) -> None:
    pulls = holding(store)
    hold(pulls, HOLDS)
    hold(pulls, 1, queue_id=1)
    store.dispatch(MESSAGES)
    pulls.notice_growth(0)

    first, second = list(pulls.grown(0)), list(pulls.grown(0))

    assert len(first) == BATCHES * TAKEN_AT_ONCE
    assert {answer.client for answer in first} == {b"0"}
    assert second[0].client == b"1"
    assert pulls.is_behind
    answers = [*first, *second]
    while pulls.is_behind:
        # That messages come all the time does not make those wait longer who are due.
        pulls.notice_growth(0)
        some = list(pulls.grown(0))
        assert len(some) <= BATCHES * TAKEN_AT_ONCE
        answers += some
    assert [one.request_id for one in answers if one.client == b"0"] == list(range(HOLDS))
    assert pulls.held == 0


def test_those_that_find_nothing_are_looked_at_once_for_each_growth(store: Store) -> None:
    pulls = holding(store)
    hold(pulls, HOLDS, offset=90)
    tagged = Pull(7, "t", 0, 48, 1, 2**20, 1_000, tag_hashes=(5,))
    for _ in range(HOLDS):
        assert pulls.pull(b"tagged", tagged, 0) is None
    store.dispatch(60)
    pulls.notice_growth(0)

    turns = 0
    while pulls.is_behind:
        assert list(pulls.grown(0)) == []
        turns += 1

    assert turns == -(-2 * HOLDS // (BATCHES * TAKEN_AT_ONCE))
    assert pulls.held == 2 * HOLDS


def test_holds_that_end_together_are_answered_some_a_turn(store: Store) -> None:
    pulls = holding(store)
    hold(pulls, HOLDS)

    assert list(pulls.due(999)) == []
    turns = []
    while pulls.held:
        deadline = pulls.next_deadline_ms()
        assert deadline is not None
        assert deadline <= 1_000
        turns.append(len(list(pulls.due(1_000))))

    assert sum(turns) == HOLDS
    assert max(turns) == BATCHES * TAKEN_AT_ONCE


def test_long_holds_end_together_and_none_before_its_time(store: Store) -> None:
    pulls = holding(store)
    asked = ((0, 15_000), (1, 15_000), (37, 15_000), (63, 15_000))
    for number, (now_ms, hold_ms) in enumerate(asked):
        pull = Pull(number, "t", 0, 48, 1, 2**20, hold_ms)
        assert pulls.pull(b"c", pull, now_ms) is None

    assert [one.request_id for one in pulls.due(15_000)] == [0]
    assert pulls.next_deadline_ms() == 15_200
    assert list(pulls.due(15_199)) == []
    assert [one.request_id for one in pulls.due(15_200)] == [1, 2, 3]


def test_units_are_there_also_when_nobody_asked_for_the_bounds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable_store, "READERS_MAX", 1)
    never_asked = store.view.units(QUEUE, 3, 4)
    # Another queue takes the place of its reader.
    store.view.bounds(QueueName("t", 1))
    taken = store.view.units(QUEUE, 3, 4)

    assert [units is not None and len(units) for units in (never_asked, taken)] == [4, 4]
