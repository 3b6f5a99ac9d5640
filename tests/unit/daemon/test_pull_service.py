"""Statuses of pulls whose files vanish between the look at a queue and its units."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ledgermq.broker.holds import Holds, QueueName
from ledgermq.daemon.pull_service import Answer, Held, PullService
from ledgermq.daemon.readable_store import ReadableStore
from ledgermq.ipc.cursor_page import CursorPage, Dispatched, Grant, LogCursor, RaftRole
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.model.settings import LogKind, NodeSection, ReadsSection, Settings, StoreSection
from ledgermq.store.message import Message, encode_message
from ledgermq.store.queue_end import UNIT
from ledgermq.wire.pull_frame import Pull, Pulled, PullStatus, decode_pulled

FILE_SIZE = 65_536
MESSAGES = 96
UNITS_PER_FILE = 16
QUEUE = QueueName("t", 0)


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
            self.view, Holds[bytes, Held](limit=9), lambda _queue: None
        )

    def _write(self) -> None:
        self.size = len(encode_message(Message(topic="t", queue_id=0, body=b"x" * 3_900)))
        per_file = FILE_SIZE // self.size
        files: dict[int, bytearray] = {}
        for number in range(MESSAGES):
            start = number // per_file * FILE_SIZE
            position = start + number % per_file * self.size
            content = files.setdefault(start, bytearray(FILE_SIZE))
            record = encode_message(
                Message(topic="t", queue_id=0, body=b"x" * 3_900, queue_offset=number,
                        physical_offset=position)
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

    def pull(self, offset: int, *, messages: int = 4, tags: tuple[int, ...] = ()) -> Pulled:
        answer = self.pulls.pull(b"c", Pull(1, "t", 0, offset, messages, 2**20, 0, tags), 0)
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
    [(RaftRole.LEADER, "n0", "n2"), (RaftRole.FOLLOWER, "n1", "n0"), (RaftRole.FOLLOWER, "", "")],
)
def test_readers_of_what_is_on_disk_are_told_whom_to_ask(
    tmp_path: Path, role: RaftRole, leader: str, suggested: str
) -> None:
    reads = ReadsSection(
        access_message_in_memory_max_ratio=0,
        max_transfer_count_on_message_in_disk=2,
        max_transfer_count_on_message_in_memory=9,
    )
    with CursorPage.create(tmp_path / "page") as page:
        page.publish_grant(Grant(Term(1), role is RaftRole.LEADER, role, NodeId(leader)))
        page.publish_reader(NodeId("n2"))
        pulled = Store(tmp_path / "root", page, reads).pull(0, messages=50)

    assert (pulled.suggested, len(pulled.sizes)) == (suggested, 2)


def test_readers_of_what_is_in_memory_are_told_nothing(store: Store) -> None:
    store.page.publish_grant(Grant(Term(1), True, RaftRole.LEADER, NodeId("n0")))
    store.page.publish_reader(NodeId("n2"))

    assert store.pull(0).suggested == ""


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
    (answer,) = store.pulls.end_all()

    assert answer.messages == 4
    assert store.pulls.next_deadline_ms() is None
