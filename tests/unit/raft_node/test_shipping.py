"""Files on their way between a shipper and a receiver: whole, verified, resumed, bounded."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.model.ids import Index, NodeId, Position, QueueOffset, Term
from ledgermq.raft_node.shipping.file_receiver import (
    PAUSE_NS,
    RETRY_NS,
    WINDOW_SLICES,
    FileReceiver,
)
from ledgermq.raft_node.shipping.file_shipper import ASKS_MAX, SLICE_SIZE_MAX, FileShipper
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.recovery.log_checkpoint import decode
from ledgermq.store.recovery.recovery import recover_log
from ledgermq.wire.ship_frames import (
    Ask,
    AskDigest,
    AskEnds,
    Gone,
    Offer,
    Slice,
    decode_ship_frame,
)
from tests.process.conftest import wait_until
from tests.unit.store.records import frame_of, record
from tests.unit.store.test_log_writer import HOST

FILE_SIZE = 3 * SLICE_SIZE_MAX - 4_096
LEADER, LATE = NodeId("n0"), NodeId("n1")
TERM = Term(3)


def make_log(root: Path, *, files: int) -> LogEnd:
    """A log of so many closed files and one that was begun; its end."""
    found = recover_log(
        root / "data", root / "index", file_size=FILE_SIZE, checkpoint=None,
        progress=lambda _done, _total: None,
    )  # fmt: skip
    assert found.index is not None
    writer = LogWriter(found.data, found.index, end=found.end, store_host=HOST)
    number = 0
    while writer.end.position < files * FILE_SIZE + 50_000:
        records = [record(bytes([number % 251]) * 30_000, number=number + n) for n in range(9)]
        payload, sizes = frame_of(records)
        runs = [StampedRun(9, QueueOffset(number))]
        term = Term(1 + number // 200)
        writer.put(payload, sizes, runs, term=term, store_timestamp=1_700)
        number += 9
    writer.publish()
    writer.close()
    return writer.end


@dataclass
class Follower:
    """What the consensus of the receiving node says."""

    lacks: bool = True

    def lacks_before(self, source: NodeId, term: Term, first: Index) -> bool:
        return self.lacks and source == LEADER and term == TERM and first > 0


@dataclass
class Link:
    """A shipper, a receiver, and what is on its way between them."""

    data: Path
    folder: Path
    follower: Follower = field(default_factory=Follower)
    to_late: deque[list[bytes]] = field(default_factory=deque)
    to_leader: deque[list[bytes]] = field(default_factory=deque)
    now_ns: int = 0
    change: Callable[[list[bytes]], list[bytes] | None] = lambda parts: parts
    refused: list[str] = field(default_factory=list)
    slices: int = 0
    in_flight_max: int = 0

    def __post_init__(self) -> None:
        self.shipper = FileShipper(
            self.data,
            self.data.parent / "queue-ends",
            self._send_late,
            bytes_per_s=1 << 40,
            wake=lambda: None,
        )
        self.receiver = FileReceiver(
            self.folder, self.follower, self._send_leader, file_size=FILE_SIZE, wake=lambda: None
        )

    def offer(self, offer: Offer) -> None:
        self.shipper.offer(LATE, offer, self.now_ns)

    def step(self) -> None:
        """Let both have a turn, and ten milliseconds pass."""
        self.now_ns += 10_000_000
        self.in_flight_max = max(self.in_flight_max, len(self.to_leader))
        while self.to_leader:
            frame = decode_ship_frame(self.to_leader.popleft()[0])
            assert isinstance(frame, Ask | AskDigest | AskEnds)
            self.shipper.take(LATE, frame)
        while self.to_late:
            parts = self.change(self.to_late.popleft())
            if parts is not None:
                self._receive(parts)
        self.shipper.turn(self.now_ns)
        self.receiver.turn(self.now_ns)

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self.step()
            return condition()

        wait_until(is_so, what)

    def run(self, offer: Offer) -> None:
        """Offer until all is there."""
        self.offer(offer)
        self.run_until(lambda: self.receiver.is_complete, "the files")

    def close(self) -> None:
        self.shipper.close()
        self.receiver.close()

    def _receive(self, parts: list[bytes]) -> None:
        frame = decode_ship_frame(parts[0])
        try:
            if isinstance(frame, Offer):
                self.receiver.take_offer(self.now_ns, LEADER, frame)
                return
            assert not isinstance(frame, Ask | AskDigest | AskEnds)
            data = memoryview(parts[1]) if len(parts) == 2 else None
            self.slices += isinstance(frame, Slice)
            self.receiver.take(LEADER, frame, data)
        except ProtocolError as error:
            self.refused.append(str(error))

    def _send_late(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        assert peer == LATE
        self.to_late.append(list(parts))
        return True

    def _send_leader(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        assert peer == LEADER
        self.to_leader.append(list(parts))
        return True


class Shortened:
    """A leader's log that lacks its first file, and what it offers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.end = make_log(root, files=4)
        (root / "data" / f"{0:020d}").unlink()
        files = EntryFiles(root / "data", root / "index", file_size=FILE_SIZE)
        self.first = files.first_index()
        self.last = Index(files.index_at(Position(4 * FILE_SIZE)) - 1)
        self.offer = Offer(
            TERM, Position(FILE_SIZE), Position(4 * FILE_SIZE), self.first, self.last, FILE_SIZE
        )


@pytest.fixture
def leader(tmp_path: Path) -> Shortened:
    return Shortened(tmp_path / "leader")


@pytest.fixture
def make_link(tmp_path: Path, leader: Shortened) -> Iterator[Callable[[], Link]]:
    made: list[Link] = []

    def make() -> Link:
        (tmp_path / "late").mkdir(exist_ok=True)
        made.append(Link(leader.root / "data", tmp_path / "late" / "shipped"))
        return made[-1]

    yield make
    for link in made:
        link.close()


def check_arrived(link: Link, leader: Shortened, *, files: int = 3) -> None:
    """Files, index items and checkpoint are what the leader has."""
    names = sorted(path.name for path in (link.folder / "data").iterdir())
    assert names == [f"{FILE_SIZE * n:020d}" for n in range(1, 1 + files)]
    for name in names:
        shipped = (link.folder / "data" / name).read_bytes()
        assert shipped == (leader.root / "data" / name).read_bytes()
    checkpoint = decode((link.folder / "log-checkpoint").read_bytes())
    assert checkpoint is not None
    assert (checkpoint.end.index_, checkpoint.end.position) == (leader.last, leader.offer.end)
    theirs = EntryFiles(leader.root / "data", leader.root / "index", file_size=FILE_SIZE)
    ours = EntryFiles(link.folder / "data", link.folder / "index", file_size=FILE_SIZE)
    assert ours.first_index() == leader.first
    expected = theirs.items(leader.first, leader.last).tobytes()
    assert ours.items(leader.first, leader.last).tobytes() == expected


def test_all_files_arrive_whole_with_their_index_items(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.run(leader.offer)

    assert link.refused == []
    assert link.in_flight_max <= WINDOW_SLICES + 1
    assert link.receiver.bytes_received == 3 * FILE_SIZE
    check_arrived(link, leader)


def test_the_arrived_files_are_a_log_that_recovery_opens(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.run(leader.offer)
    checkpoint = decode((link.folder / "log-checkpoint").read_bytes())
    for known in (checkpoint, None):
        found = recover_log(
            link.folder / "data", link.folder / "index", file_size=FILE_SIZE, checkpoint=known,
            progress=lambda _done, _total: None,
        )  # fmt: skip

        # Before the blank that closes the last file: the next entry may come from another leader.
        last = EntryFiles(leader.root / "data", leader.root / "index", file_size=FILE_SIZE)
        assert found.end == last.end_of(leader.last)
        assert (found.first, found.bytes_dropped) == (FILE_SIZE, 0)


def test_a_file_that_still_grows_is_taken_as_far_as_it_was_offered(
    leader: Shortened, make_link: Callable[[], Link], tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        (leader.root / "data" / f"{FILE_SIZE * number:020d}").unlink()
    files = EntryFiles(leader.root / "data", leader.root / "index", file_size=FILE_SIZE)
    begin = Position(4 * FILE_SIZE)
    first = files.index_at(begin)
    offer = Offer(TERM, begin, leader.end.position, first, leader.end.index_, FILE_SIZE)
    link = make_link()
    link.run(offer)
    checkpoint = decode((link.folder / "log-checkpoint").read_bytes())

    assert checkpoint is not None
    assert checkpoint.end == leader.end
    assert (link.folder / "data" / f"{begin:020d}").stat().st_size == FILE_SIZE


def flip(parts: list[bytes], *, part: int, at: int) -> list[bytes]:
    changed = bytearray(parts[part])
    changed[at] ^= 0x40
    return [*parts[:part], bytes(changed), *parts[part + 1 :]]


@pytest.mark.slow
def test_a_slice_with_a_flipped_byte_is_refused_and_asked_for_again(
    leader: Shortened, make_link: Callable[[], Link], caplog: pytest.LogCaptureFixture
) -> None:
    link = make_link()
    changed: list[int] = []

    def change(parts: list[bytes]) -> list[bytes]:
        if len(parts) == 2 and link.slices in (0, 4) and link.slices not in changed:
            changed.append(link.slices)
            return flip(parts, part=1, at=77_777)
        return parts

    link.change = change
    link.run(leader.offer)
    lines = [record.getMessage() for record in caplog.records]

    assert len(changed) == 2
    assert sum("slice is not what was sent" in line for line in lines) == 2
    check_arrived(link, leader)


@pytest.mark.slow
def test_a_file_that_changed_on_the_disk_before_its_digest_came_is_taken_again(
    leader: Shortened, make_link: Callable[[], Link], caplog: pytest.LogCaptureFixture
) -> None:
    link = make_link()
    part = link.folder / f"{FILE_SIZE:020d}.part"
    done: list[bool] = []

    def change(parts: list[bytes]) -> list[bytes]:
        if not done and decode_ship_frame(parts[0])[2:3] == (FILE_SIZE,) and len(parts) == 1:
            done.append(True)
            with part.open("r+b") as file:
                file.seek(1_000_000)
                file.write(b"\0\0\0")
        return parts

    link.change = change
    link.run(leader.offer)

    assert done == [True]
    assert any("file is not what the leader has" in r.getMessage() for r in caplog.records)
    check_arrived(link, leader)


@pytest.mark.slow
def test_entries_that_do_not_follow_are_refused_until_the_leader_has_repaired_them(
    leader: Shortened, make_link: Callable[[], Link], caplog: pytest.LogCaptureFixture
) -> None:
    damaged = leader.root / "data" / f"{2 * FILE_SIZE:020d}"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:700_000] + b"?" + whole[700_001:])
    link = make_link()
    link.offer(leader.offer)
    link.run_until(
        lambda: any("shipped bytes refused" in r.getMessage() for r in caplog.records),
        "the refusal",
    )
    arrived = sorted(path.name for path in (link.folder / "data").iterdir())
    damaged.write_bytes(whole)
    link.run(leader.offer)

    assert arrived == [f"{FILE_SIZE:020d}"]
    check_arrived(link, leader)


@pytest.mark.slow
@pytest.mark.parametrize("slices", [1, 2, 4, 7])
def test_a_receiver_that_starts_again_goes_on_from_what_is_there(
    leader: Shortened, make_link: Callable[[], Link], slices: int
) -> None:
    first = make_link()
    first.offer(leader.offer)
    first.run_until(lambda: first.receiver.bytes_received >= slices * (FILE_SIZE // 3), "some")
    first.close()
    before = first.receiver.bytes_received
    second = make_link()
    second.run(leader.offer)

    # The slices that were written when the first one ended, and not yet counted, are there too.
    again = before + second.receiver.bytes_received - 3 * FILE_SIZE
    assert again <= 0
    check_arrived(second, leader)


def test_a_part_that_is_not_the_leaders_is_begun_anew(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    first = make_link()
    first.offer(leader.offer)
    first.run_until(lambda: first.receiver.bytes_received >= SLICE_SIZE_MAX, "a slice")
    first.close()
    part = next(first.folder.glob("*.part"))
    part.write_bytes(part.read_bytes()[:-10] + bytes(10))
    second = make_link()
    second.run(leader.offer)

    assert second.refused == []
    check_arrived(second, leader)


def test_what_was_lost_on_the_way_is_asked_for_again(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    lost: list[int] = []

    def change(parts: list[bytes]) -> list[bytes] | None:
        if isinstance(decode_ship_frame(parts[0]), Offer) or len(lost) == 8:
            return parts
        lost.append(len(parts))
        # Time passes until the receiver has enough of waiting; the leader repeats its offer.
        link.now_ns += RETRY_NS
        link.offer(leader.offer)
        return None

    link.change = change
    link.run(leader.offer)

    assert len(lost) == 8
    check_arrived(link, leader)


def test_a_later_begin_throws_away_what_it_does_not_follow(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    first = make_link()
    first.offer(leader.offer)
    first.run_until((first.folder / "data" / f"{FILE_SIZE:020d}").exists, "a file")
    first.close()
    for number in (1, 2):
        (leader.root / "data" / f"{FILE_SIZE * number:020d}").unlink()
    files = EntryFiles(leader.root / "data", leader.root / "index", file_size=FILE_SIZE)
    second = make_link()
    second.run(leader.offer._replace(begin=Position(3 * FILE_SIZE), first=files.first_index()))
    names = [path.name for path in (second.folder / "data").iterdir()]

    assert names == [f"{3 * FILE_SIZE:020d}"]


def test_a_file_that_is_deleted_while_it_is_shipped_waits_for_the_next_offer(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.offer(leader.offer)
    (leader.root / "data" / f"{FILE_SIZE:020d}").unlink()
    link.run_until(lambda: not link.receiver.is_receiving and link.now_ns > 50_000_000, "the news")
    files = EntryFiles(leader.root / "data", leader.root / "index", file_size=FILE_SIZE)
    link.run(leader.offer._replace(begin=Position(2 * FILE_SIZE), first=files.first_index()))
    names = sorted(path.name for path in (link.folder / "data").iterdir())

    assert names == [f"{2 * FILE_SIZE:020d}", f"{3 * FILE_SIZE:020d}"]


def test_files_are_taken_no_more_once_the_leader_sends_entries(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.offer(leader.offer)
    link.run_until(lambda: link.receiver.bytes_received > 0, "a slice")
    link.follower.lacks = False
    link.run_until(lambda: not link.receiver.is_receiving, "the end")
    link.receiver.forget()
    wait_until(lambda: not link.folder.exists(), "the end of the folder")

    assert not link.receiver.is_complete


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"file_size": 4_096}, "mapped_file_size_commit_log", id="file size"),
        pytest.param({"begin": Position(77)}, "cannot be a log's", id="begin within a file"),
        pytest.param({"end": Position(FILE_SIZE)}, "cannot be a log's", id="nothing"),
        pytest.param({"last": Index(1 << 40)}, "more entries than", id="entries"),
        pytest.param({"end": Position(1 << 61)}, "no room for", id="room"),
    ],
)
def test_an_offer_that_cannot_be_taken_is_refused_with_the_reason(
    leader: Shortened, make_link: Callable[[], Link], change: dict[str, int], reason: str
) -> None:
    link = make_link()
    for _ in range(3):
        link.offer(leader.offer._replace(**change))  # type: ignore[arg-type]
        link.step()

    assert len(link.refused) == 1 and reason in link.refused[0]
    assert not link.folder.exists()


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(Ask(TERM, Position(0), 100), id="before the log"),
        pytest.param(Ask(TERM, Position(4 * FILE_SIZE), 100), id="behind the offer"),
        pytest.param(Ask(TERM, Position(2 * FILE_SIZE - 50), 100), id="over a file's end"),
        pytest.param(Ask(TERM, Position(FILE_SIZE), SLICE_SIZE_MAX + 1), id="too large"),
        pytest.param(Ask(TERM, Position(FILE_SIZE), 0), id="nothing"),
        pytest.param(Ask(Term(2), Position(FILE_SIZE), 100), id="another term"),
        pytest.param(AskDigest(TERM, Position(FILE_SIZE + 1), 100), id="digest within a file"),
    ],
)
def test_nothing_is_read_that_was_not_offered(
    leader: Shortened, make_link: Callable[[], Link], ask: Ask | AskDigest
) -> None:
    link = make_link()
    link.offer(leader.offer)
    link.to_late.clear()
    link.shipper.take(LATE, ask)

    assert [decode_ship_frame(parts[0]) for parts in link.to_late] == [Gone(ask.term, ask.position)]


def test_a_receiver_that_asks_for_too_much_gets_no_more_than_its_share(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.offer(leader.offer)
    link.to_late.clear()
    for _ in range(10 * ASKS_MAX):
        link.shipper.take(LATE, Ask(TERM, Position(FILE_SIZE), 1_000))

    def all_answered() -> bool:
        link.shipper.turn(link.now_ns)
        link.now_ns += 1_000_000
        return len(link.to_late) >= ASKS_MAX and link.shipper.sleep_ms(link.now_ns) is None

    wait_until(all_answered, "the answers")

    assert len(link.to_late) == ASKS_MAX


def test_slices_leave_at_the_rate_that_is_set(leader: Shortened) -> None:
    sent: list[int] = []

    def send(_peer: NodeId, parts: Sequence[bytes]) -> bool:
        sent.append(len(parts))
        return True

    shipper = FileShipper(
        leader.root / "data",
        leader.root / "queue-ends",
        send,
        bytes_per_s=100_000,
        wake=lambda: None,
    )
    shipper.offer(LATE, leader.offer, 0)
    for _ in range(2):
        shipper.take(LATE, Ask(TERM, Position(FILE_SIZE), 10_000))

    def turn_until(count: int, now_ns: int) -> None:
        def is_sent() -> bool:
            shipper.turn(now_ns)
            return sent.count(2) >= count

        wait_until(is_sent, "the slice")

    turn_until(1, 1_000)
    wait_ms = shipper.sleep_ms(1_000)
    turn_until(2, 101_000_000)
    shipper.close()

    assert wait_ms == 100


@pytest.mark.slow
def test_a_disk_that_takes_nothing_is_told_and_tried_again(
    leader: Shortened, make_link: Callable[[], Link], caplog: pytest.LogCaptureFixture
) -> None:
    link = make_link()
    # With a file in the place of the folder, nothing can be written.
    link.folder.parent.joinpath("shipped").write_bytes(b"")
    with caplog.at_level(logging.ERROR):
        link.offer(leader.offer)
        link.run_until(lambda: bool(caplog.records), "the error")
    link.folder.unlink()
    link.now_ns += 10 * PAUSE_NS
    link.run(leader.offer)

    assert "shipped files cannot be kept now" in caplog.records[0].getMessage()
    check_arrived(link, leader)


def test_a_slice_of_another_size_is_refused(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.change = lambda parts: [parts[0], parts[1][:-1]] if len(parts) == 2 else parts
    link.offer(leader.offer)
    link.run_until(lambda: bool(link.refused), "the refusal")

    assert "slice of another size" in link.refused[0]
    assert link.receiver.bytes_received == 0


def test_the_end_stays_where_it_was_offered_first_though_the_log_grows(
    leader: Shortened, make_link: Callable[[], Link]
) -> None:
    link = make_link()
    link.offer(leader.offer._replace(end=Position(3 * FILE_SIZE)))
    link.run_until(lambda: link.receiver.bytes_received > 0, "a slice")
    link.run(leader.offer)
    names = sorted(path.name for path in (link.folder / "data").iterdir())

    assert names == [f"{FILE_SIZE:020d}", f"{2 * FILE_SIZE:020d}"]
