"""Cold reads at the broker: each pull is answered once, whoever answers, or nobody."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ledgermq.broker.pulls import asked_once
from ledgermq.broker.pulls.asked_once import AskedOnce
from ledgermq.broker.pulls.cold_reads import (
    ASKED_AFTER_MS,
    BEHIND_ALL,
    STRETCHES_MAX,
    ColdAnswer,
    ColdReads,
    ColdSocket,
    ColdStretch,
)
from ledgermq.broker.pulls.pull_answers import Answer, Held, Holds
from ledgermq.broker.pulls.pull_service import PullService
from ledgermq.formats.records.message import QUEUE_OFFSET_AT
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import ColdSection, ReadsSection
from ledgermq.model.errors import BusyError, ColdAwayError, DamagedLogError, StorageError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import MachineClock
from ledgermq.wire.cold_frames import (
    AnyQuestion,
    ColdBegins,
    ColdGreeting,
    ColdHits,
    ColdMessage,
    ColdNothing,
    ColdOffset,
    ColdQuestion,
    ColdRecords,
    ColdRefusal,
    ColdSearch,
    ColdSince,
    decode_question,
    encode_answer,
)
from ledgermq.wire.pull_frame import Pull, PullStatus
from tests.suite.patience import PATIENCE_S
from tests.unit.broker.still_clock import STILL
from tests.unit.broker.test_pull_service import Store

ONE, OTHER = b"one", b"other"
QUEUE = QueueName("orders", 3)
STORED = QueueName("t", 0)
SETTINGS = ColdSection(place="/srv/pieces", pulls_max=3, pulls_per_client=2, wait_ms=500)


class Ends:
    """Both ends: the pulls of a broker, and who is asked."""

    def __init__(self, folder: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.page = CursorPage.create(folder / "page")
        self.page.enter_process(Role.COLD)
        self.asked: zmq.Socket[bytes] = self.context.socket(zmq.ROUTER)
        self.asked.setsockopt(zmq.RCVTIMEO, round(PATIENCE_S * 1_000))
        self.asked.bind(f"ipc://{folder}/cold")
        self.line = ColdSocket(self.context, folder / "cold", self.page, waiting=8)
        self.pulls = ColdReads(self.line, SETTINGS, MachineClock())
        self._asker = b""

    def ask(self, client: bytes, offset: int = 7, *, now_ms: int = 0) -> None:
        pull = Pull(1, QUEUE.topic, QUEUE.queue_id, offset, 32, 1 << 20, 0)
        self.pulls.ask(client, QUEUE, Held(pull, offset), floor=0, now_ms=now_ms)

    def heard(self) -> AnyQuestion | ColdGreeting:
        self._asker, *parts = self.asked.recv_multipart()
        return decode_question(parts)

    def question(self) -> ColdQuestion:
        heard = self.heard()
        assert isinstance(heard, ColdQuestion), heard
        return heard

    def greeting(self) -> ColdGreeting:
        heard = self.heard()
        assert isinstance(heard, ColdGreeting), heard
        return heard

    def tell(self, answer: ColdMessage) -> None:
        self.asked.send_multipart([self._asker, *encode_answer(answer)])
        assert self.line.socket.poll(round(PATIENCE_S * 1_000))

    def taken(self, now_ms: int = 0) -> list[ColdAnswer]:
        return list(self.pulls.take(now_ms))

    def close(self) -> None:
        self.context.destroy(0)
        self.page.close()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    assert made.taken() == []
    yield made
    made.close()


def test_a_pull_is_asked_and_its_answer_is_given_once(ends: Ends) -> None:
    assert ends.greeting().serial > 0
    ends.ask(ONE, 7)
    question = ends.question()
    assert (question.topic, question.queue_id, question.offset) == ("orders", 3, 7)
    found = ColdRecords(question.number, 9, 48, b"1234", b"5678", b"records")
    ends.tell(found)
    (answer,) = ends.taken()
    assert answer.found == found
    assert answer.pull.client == ONE
    ends.tell(found)
    assert ends.taken() == []
    assert ends.pulls.next_deadline_ms() is None


def test_too_many_are_refused_by_client_and_together(ends: Ends) -> None:
    ends.ask(ONE)
    ends.ask(ONE)
    with pytest.raises(BusyError, match=r"cold\.pulls_per_client"):
        ends.ask(ONE)
    ends.ask(OTHER)
    with pytest.raises(BusyError, match=r"cold\.pulls_max"):
        ends.ask(OTHER)
    assert ends.pulls.cancel(ONE) == 2
    ends.ask(ONE)
    assert [one.client for one in ends.pulls.take_all()] == [OTHER, ONE]
    assert ends.taken(10_000) == []


def test_without_an_answer_in_time_the_place_is_named(ends: Ends) -> None:
    ends.ask(ONE, now_ms=1_000)
    assert ends.taken(1_499) == []
    (answer,) = ends.taken(1_500)
    assert isinstance(answer.found, ColdAwayError)
    assert answer.found.details["place"] == "/srv/pieces"
    assert "away since 20" in answer.found.message


def test_the_next_life_of_the_process_is_asked_again(ends: Ends) -> None:
    ends.greeting()
    ends.ask(ONE)
    first = ends.question()
    ends.page.enter_process(Role.COLD)
    assert ends.taken() == []
    assert ends.greeting().serial > 0
    assert ends.question() == first
    ends.tell(ColdRefusal(first.number, StorageError("disk is gone", file="x")))
    (answer,) = ends.taken()
    assert isinstance(answer.found, StorageError)
    assert "disk is gone" in str(answer.found)


def test_where_a_queue_begins_is_said_for_sure_by_a_manifest_read_since(ends: Ends) -> None:
    serial = ends.greeting().serial
    assert ends.pulls.known_begin_of(QUEUE, 40) == 40
    ends.tell(ColdBegins(serial, {}))
    assert ends.taken() == []
    with pytest.raises(ColdAwayError, match="not told yet"):
        ends.pulls.begin_of(QUEUE, 40, 1_000)
    serial = ends.greeting().serial
    # By a manifest that was read before.
    ends.tell(ColdBegins(0, {}))
    assert ends.taken() == []
    with pytest.raises(ColdAwayError):
        ends.pulls.begin_of(QUEUE, 40, 1_000)
    ends.tell(ColdBegins(serial, {}))
    assert ends.taken() == []
    assert ends.pulls.begin_of(QUEUE, 40, 1_000) == 40
    # The log has lost more since, which may have been sealed before.
    ends.pulls.note_deleted(2_000)
    with pytest.raises(ColdAwayError):
        ends.pulls.begin_of(QUEUE, 50, 2_000)
    later = ends.greeting().serial
    assert later > serial
    ends.tell(ColdBegins(later, {QUEUE: 45}))
    assert ends.taken() == []
    assert ends.pulls.begin_of(QUEUE, 50, 2_000) == 45
    assert ends.pulls.begin_of(QUEUE, 60, 3_000) == 45
    assert ends.pulls.known_begin_of(QUEUE, 20) == 20


def test_the_offset_of_a_time_is_told_to_who_asks_again(ends: Ends) -> None:
    ends.greeting()
    for _ in range(2):
        with pytest.raises(ColdAwayError, match="not told yet what is of that time"):
            ends.pulls.first_since(QUEUE, 1_000, 40)
    asked = ends.heard()
    assert isinstance(asked, ColdSince)
    assert asked[1:] == (*QUEUE, 1_000)
    ends.tell(ColdRefusal(asked.number, ColdAwayError("away")))
    assert ends.taken() == []
    with pytest.raises(ColdAwayError, match="away"):
        ends.pulls.first_since(QUEUE, 1_000, 40)
    again = ends.heard()
    assert isinstance(again, ColdSince)
    ends.tell(ColdOffset(again.number, 12))
    assert ends.taken() == []
    assert ends.pulls.first_since(QUEUE, 1_000, 40) == 12
    with pytest.raises(ColdAwayError):
        ends.pulls.first_since(QUEUE, 9_000, 40)
    later = ends.heard()
    assert isinstance(later, ColdSince)
    ends.tell(ColdOffset(later.number, -1))
    assert ends.taken() == []
    assert ends.pulls.first_since(QUEUE, 9_000, 40) is None


def test_what_is_no_answer_is_passed_over(ends: Ends) -> None:
    ends.ask(ONE)
    question = ends.greeting() and ends.question()
    for parts in ([b"{}"], [b"no JSON"], [b'{"kind":"found","number":1,"next":1,"header_size":0}']):
        ends.asked.send_multipart([ends._asker, *parts])
    ends.tell(ColdNothing(question.number, 12, False))
    answers: list[ColdAnswer] = []
    while not answers:
        assert ends.line.socket.poll(round(PATIENCE_S * 1_000))
        answers += ends.taken()
    assert answers[0].found == ColdNothing(question.number, 12, False)


@pytest.fixture
def store(tmp_path: Path, ends: Ends) -> Iterator[Store]:
    """A log, whose first messages are in pieces when they have gone."""
    with CursorPage.create(tmp_path / "other page") as page:
        made = Store(tmp_path / "root", page, ReadsSection())
        made.pulls = PullService(
            made.view,
            Holds(limit=9),
            lambda _queue: None,
            cold=ends.pulls,
            clock=STILL,
        )
        yield made


@pytest.mark.parametrize("sql", ["", "number > 0"])
def test_files_that_vanish_during_a_pull_pass_nothing_over(
    store: Store, ends: Ends, sql: str
) -> None:
    answers: list[Answer] = []
    store.pulls.send = answers.extend
    bounds = store.view.bounds(STORED)
    store.delete_log_files(2)
    store.view.log.refresh()
    pull = Pull(1, "t", 0, 3, 4, 2**20, 0, expression=sql)
    # As a turn of the loop that has looked at the queue before the files were deleted.
    looked = store.pulls._look(ONE, Held(pull, 3), STORED, bounds, may_hold=False, may_wait=False)
    assert isinstance(looked, Answer)
    assert (looked.status, looked.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 3)
    assert store.pulls.pull(ONE, pull, 0) is None
    ends.greeting()
    question = ends.question()
    assert (question.offset, question.floor, question.expression) == (3, 0, sql)
    ends.tell(ColdNothing(question.number, -1, True))
    store.pulls.turn(0)
    # Nobody has it: as without pieces.
    (gone,) = answers
    first = store.view.bounds(STORED).first
    assert (gone.status, gone.next_offset) == (PullStatus.OFFSET_TOO_SMALL, first)


def test_a_queue_file_that_vanishes_passes_nothing_over(store: Store, ends: Ends) -> None:
    bounds = store.view.bounds(STORED)
    store.view._reader(STORED).files.close()
    store.delete_queue_file()
    held = Held(Pull(1, "t", 0, 3, 4, 2**20, 0), 3)
    looked = store.pulls._look(ONE, held, STORED, bounds, may_hold=False, may_wait=False)
    assert isinstance(looked, Answer)
    assert (looked.status, looked.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 3)


def test_a_stop_answers_who_waits_for_old_messages(store: Store, ends: Ends) -> None:
    answers: list[Answer] = []
    store.pulls.send = answers.extend
    store.view.bounds(STORED)
    store.delete_log_files(2)
    store.view.log.refresh()
    assert store.pulls.pull(ONE, Pull(1, "t", 0, 3, 4, 2**20, 0), 0) is None
    assert store.pulls.next_deadline_ms() is not None
    store.pulls.end_all()
    (answer,) = answers
    assert (answer.status, answer.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 3)
    assert store.pulls.next_deadline_ms() is None


def record(offset: int) -> bytes:
    """As much of a record as says its queue offset."""
    return bytes(QUEUE_OFFSET_AT) + offset.to_bytes(8, "big") + b"rest" * offset


def records_of(number: int, *offsets: int, next_offset: int) -> ColdRecords:
    """An answer with records of these offsets, without headers."""
    records = list(map(record, offsets))
    sizes = array("I", map(len, records))
    starts = array("I", itertools.accumulate(sizes[:-1], initial=0)) if records else array("I")
    return ColdRecords(number, next_offset, 0, starts.tobytes(), sizes.tobytes(), b"".join(records))


def test_a_stretch_is_given_to_who_asks_again_and_what_follows_is_asked_for(ends: Ends) -> None:
    ends.greeting()

    def asked(offset: int) -> ColdStretch:
        return ends.pulls.stretch(QUEUE, offset, floor=2, log_first=9)

    with pytest.raises(ColdAwayError) as refused:
        asked(5)
    assert refused.value.details["retry_after_ms"] == ASKED_AFTER_MS
    question = ends.question()
    assert (question.offset, question.floor) == (5, 2)
    with pytest.raises(ColdAwayError):
        asked(5)
    ends.tell(records_of(question.number, 5, 6, next_offset=7))
    assert ends.taken() == []
    found = asked(6)
    assert (found.first, found.end, list(map(bytes, found.records))) == (
        5,
        7,
        [record(5), record(6)],
    )
    # It was asked once, and so is what comes behind.
    assert asked(5) == found
    ahead = ends.question()
    assert ahead.offset == 7
    ends.tell(records_of(ahead.number, 7, 8, next_offset=9))
    assert ends.taken() == []
    assert list(map(bytes, asked(8).records)) == [record(7), record(8)]
    # From 9 on the log has them: a greeting to the next life is all that is heard.
    ends.page.enter_process(Role.COLD)
    assert ends.taken() == []
    ends.greeting()


def test_a_stretch_ends_where_offsets_do_and_one_answer_serves_all_of_them(ends: Ends) -> None:
    ends.greeting()

    def asked(offset: int) -> tuple[int, int, list[bytes]]:
        found = ends.pulls.stretch(QUEUE, offset, floor=2, log_first=20)
        return found.first, found.end, list(map(bytes, found.records))

    with pytest.raises(ColdAwayError):
        asked(5)
    ends.tell(records_of(ends.question().number, 6, 7, 10, 12, 13, next_offset=15))
    assert ends.taken() == []
    assert asked(5) == (5, 6, [])
    assert asked(6) == (6, 8, [record(6), record(7)])
    assert asked(7) == (7, 8, [record(7)])
    assert asked(8) == (8, 10, [])
    assert asked(10) == (10, 11, [record(10)])
    assert asked(12) == (12, 14, [record(12), record(13)])
    assert asked(14) == (14, 15, [])
    # What comes behind the answer is asked for once, and what is in it never again.
    assert ends.question().offset == 15
    with pytest.raises(ColdAwayError):
        asked(15)


def test_what_is_in_no_piece_is_a_stretch_without_messages(ends: Ends) -> None:
    ends.greeting()
    for answer, end in ((12, 12), (-1, BEHIND_ALL)):
        with pytest.raises(ColdAwayError):
            ends.pulls.stretch(QUEUE, end % 100, floor=0, log_first=99)
        ends.tell(ColdNothing(ends.question().number, answer, True))
        assert ends.taken() == []
        found = ends.pulls.stretch(QUEUE, end % 100, floor=0, log_first=99)
        assert (found.end, found.records) == (end, [])


def test_a_refusal_is_told_once_and_asked_anew(ends: Ends) -> None:
    ends.greeting()
    with pytest.raises(ColdAwayError):
        ends.pulls.stretch(QUEUE, 5, floor=0, log_first=9)
    number = ends.question().number
    ends.tell(ColdRefusal(number, DamagedLogError("part of a piece", part="group 0")))
    assert ends.taken() == []
    with pytest.raises(DamagedLogError):
        ends.pulls.stretch(QUEUE, 5, floor=0, log_first=9)
    with pytest.raises(ColdAwayError):
        ends.pulls.stretch(QUEUE, 5, floor=0, log_first=9)
    assert ends.question().number > number


def test_the_next_life_is_asked_for_stretches_and_searches_by_who_asks_again(ends: Ends) -> None:
    ends.greeting()
    wanted = ColdSearch(0, 100, topic="orders", key="k", end_ms=9)
    for _ in range(2):
        with pytest.raises(ColdAwayError):
            ends.pulls.stretch(QUEUE, 5, floor=0, log_first=9)
        with pytest.raises(ColdAwayError, match="what it has found in pieces"):
            ends.pulls.search(wanted)
        ends.question()
        search = ends.heard()
        assert isinstance(search, ColdSearch)
        assert search == wanted._replace(number=search.number)
        ends.page.enter_process(Role.COLD)
        assert ends.taken() == []
        ends.greeting()
    with pytest.raises(ColdAwayError):
        ends.pulls.search(wanted)
    search = ends.heard()
    hits = ColdHits(search.number, True, b"1234", b"records")  # type: ignore[union-attr]
    ends.tell(hits)
    assert ends.taken() == []
    assert ends.pulls.search(wanted) == hits
    # It is given once: what was dropped since is not shown for ever.
    with pytest.raises(ColdAwayError):
        ends.pulls.search(wanted)


def test_of_too_many_stretches_those_that_nobody_uses_make_way(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_once, "KEPT_MS", 0)
    ends.greeting()
    for number in range(STRETCHES_MAX + 1):
        queue = QueueName("orders", number)
        with pytest.raises(ColdAwayError):
            ends.pulls.stretch(queue, 5, floor=0, log_first=6)
        asked = ends.question()
        ends.tell(records_of(asked.number, 5, next_offset=6))
        assert ends.taken() == []
        assert ends.pulls.stretch(queue, 5, floor=0, log_first=6).records
    with pytest.raises(ColdAwayError):
        ends.pulls.stretch(QueueName("orders", 0), 5, floor=0, log_first=6)
    assert ends.question().queue_id == 0


def test_of_more_askers_than_there_is_room_for_each_ones_turn_comes() -> None:
    """Each asks for its own again and again, in the same order, and wants what follows, too."""
    now_ms, numbers = 0, itertools.count(1)
    waiting: list[int] = []

    def ask(_make: object) -> int:
        waiting.append(next(numbers))
        return waiting[-1]

    questions: AskedOnce[tuple[int, int]] = AskedOnce(
        ask, ColdAwayError, lambda: now_ms, most=8, reason="not yet"
    )

    def make(number: int) -> ColdSince:
        return ColdSince(number, "orders", 0, 0)

    served: set[int] = set()
    for _ in range(2_000):
        now_ms += 50
        for number in waiting:
            assert questions.take(ColdOffset(number, number), number)
        waiting.clear()
        for asker in range(30):
            try:
                found = questions.get((asker, 0), make, 10_000)
            except ColdAwayError:
                continue
            # It is there for who uses it once more in the same turn.
            assert questions.get((asker, 0), make, 10_000) == found
            questions.want((asker, 1), make, 10_000)
            served.add(asker)
        assert len(list(questions.answers())) <= 8
    assert served == set(range(30))


def test_what_was_asked_and_never_answered_makes_way_after_its_time() -> None:
    now_ms, numbers = 0, itertools.count(1)
    questions: AskedOnce[int] = AskedOnce(
        lambda _make: next(numbers), ColdAwayError, lambda: now_ms, most=1, reason="not yet"
    )

    def ask(key: int) -> int:
        """The number of the last question then."""
        with pytest.raises(ColdAwayError, match="not yet"):
            questions.get(key, lambda number: ColdSince(number, "orders", 0, 0), 500)
        return max(questions._keys)

    assert ask(1) == 1
    assert ask(2) == 1
    now_ms = 500
    assert ask(2) == 2
    assert ask(1) == 2
