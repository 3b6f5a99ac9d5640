"""Entries on their way from one log to another: read as spans, verified, appended, taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.store.log.entry_files import EntryFiles, EntrySpan, TermStart, first_entry_position
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from tests.unit.store.test_log_writer import FILE_SIZE, Log

SPAN_MAX = 10_000


class Pair:
    """A leader's log with entries of three terms over several files, and an empty one."""

    def __init__(self, root: Path) -> None:
        self.leader = Log(root / "leader")
        self.follower = Log(root / "follower")
        for term in (1, 1, 2, 4):
            self.leader.put([bytes([64 + term]) * 900] * 60, term=term)
        self.leader.writer.publish()
        self.entries = EntryFiles(
            self.leader.root / "data", self.leader.root / "index", file_size=FILE_SIZE
        )
        self.last = self.leader.writer.end.index_

    def copy(self, last: Index) -> None:
        """Bring the follower's log up to ``last``."""
        while (end := self.follower.writer.end).index_ < last:
            span = self.entries.span(Index(end.index_ + 1), last, size_max=SPAN_MAX)
            self.append(span)

    def append(self, span: EntrySpan) -> None:
        writer = self.follower.writer
        items = bytearray()
        _, count, index, term, chain, fault = verify_span(
            memoryview(span.data),
            0,
            len(span.data),
            48,
            span.position,
            writer.end.index_ + 1,
            writer.end.term,
            writer.end.chain,
            items,
            crc32,
        )

        assert (count, fault) == (len(span.items), RecordFault.END)
        assert bytes(items) == span.items.tobytes()
        end = LogEnd(Position(span.position + len(span.data)), Index(index - 1), Term(term), chain)
        writer.append_entries(memoryview(span.data), memoryview(items), end=end)

    def content(self, log: Log, end: int) -> bytes:
        """The bytes of a log's data and index files up to ``end``, and whatever follows."""
        data = b"".join(path.read_bytes() for path in log.files())
        return data[:end] + data[end:].rstrip(b"\0")


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def items_of(log: Log) -> bytes:
    """Everything in the index files up to the last item."""
    (path,) = (log.root / "index").iterdir()
    with path.open("rb") as file:
        return file.read(1 << 20).rstrip(b"\0")


def test_a_copied_log_is_the_same_bytes(pair: Pair) -> None:
    pair.copy(pair.last)
    end = pair.leader.writer.end

    assert len(pair.leader.files()) > 3
    assert pair.follower.writer.end == end
    assert pair.content(pair.follower, end.position) == pair.content(pair.leader, end.position)
    assert items_of(pair.follower) == items_of(pair.leader)
    assert pair.follower.recover().end == end


@pytest.mark.parametrize("keep", [NO_INDEX, 0, 59, 60, 65, 130, 200])
def test_what_is_taken_back_leaves_the_log_as_if_it_had_never_been(pair: Pair, keep: int) -> None:
    pair.copy(Index(keep))
    expected = pair.content(pair.follower, 0), items_of(pair.follower)
    end = pair.entries.end_of(Index(keep))
    pair.copy(pair.last)
    pair.follower.writer.truncate(end)
    taken_back = pair.content(pair.follower, 0), items_of(pair.follower)
    recovered = pair.follower.recover()
    pair.copy(pair.last)

    assert taken_back == expected
    assert (recovered.end.index_, recovered.end.term) == (end.index_, end.term)
    assert recovered.bytes_dropped == 0
    assert pair.follower.recover().end == pair.leader.writer.end


def test_a_log_that_was_cut_takes_other_entries(pair: Pair) -> None:
    pair.copy(Index(130))
    end = pair.entries.end_of(Index(100))
    pair.leader.writer.truncate(end)
    pair.entries.forget()
    pair.leader.put([b"another future"] * 100, term=7)
    pair.leader.writer.publish()
    pair.follower.writer.truncate(end)
    pair.copy(pair.leader.writer.end.index_)

    assert pair.follower.writer.end == pair.leader.writer.end
    assert pair.follower.recover().end == pair.leader.recover().end


def test_a_span_keeps_to_one_file_and_to_its_size(pair: Pair) -> None:
    first = Index(0)
    spans = []
    while first <= pair.last:
        spans.append(pair.entries.span(first, pair.last, size_max=SPAN_MAX))
        first = Index(spans[-1].last + 1)
    files = [
        (span.position // FILE_SIZE, (span.position + len(span.data) - 1) // FILE_SIZE)
        for span in spans
    ]

    assert all(begin == end for begin, end in files)
    assert {begin for begin, _ in files} == set(range(len(pair.leader.files())))
    assert max(len(span.data) for span in spans) <= SPAN_MAX
    assert sum(len(span.items) for span in spans) == pair.last + 1


def test_an_entry_larger_than_a_span_goes_alone(pair: Pair) -> None:
    span = pair.entries.span(Index(5), Index(9), size_max=1)

    assert (span.first, span.last, len(span.items)) == (5, 5, 1)
    assert int.from_bytes(span.data[8:16], "big") == 5


def test_the_terms_of_a_log_are_runs(pair: Pair) -> None:
    assert pair.entries.term_runs(Index(0), pair.last) == [(0, 1), (120, 2), (180, 4)]
    assert pair.entries.term_runs(Index(119), Index(121)) == [(119, 1), (120, 2)]
    assert pair.entries.first_index() == 0


def test_an_index_without_an_entry_is_an_error(pair: Pair) -> None:
    with pytest.raises(CorruptLogError, match="index item of another entry"):
        pair.entries.items(pair.last, Index(pair.last + 1))
    with pytest.raises(CorruptLogError, match="index item of another entry"):
        pair.entries.end_of(Index(pair.last + 5))


def test_the_end_of_an_entry_is_the_logs_end_without_those_behind_it(pair: Pair) -> None:
    assert pair.entries.end_of(pair.last) == pair.leader.writer.end
    assert pair.entries.end_of(NO_INDEX) == LogEnd(Position(0), NO_INDEX, Term(0), 0)


def test_a_log_whose_first_files_are_gone_is_opened_and_read(tmp_path: Path) -> None:
    index_file_size = 32 * 50
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / f"{0:020d}").write_bytes(bytes(index_file_size))
    log = Log(tmp_path)
    log.put([b"x" * 900] * 300, term=3)
    log.writer.publish()
    end = log.writer.end
    for family, count in (("data", 2), ("index", 2)):
        for path in sorted((tmp_path / family).iterdir())[:count]:
            path.unlink()
    checkpoint = LogCheckpoint(end, FILE_SIZE)
    found = [log.recover(checkpoint), log.recover(None)]
    files = EntryFiles(
        tmp_path / "data", tmp_path / "index", file_size=FILE_SIZE, index_file_size=index_file_size
    )
    first = files.first_index()
    span = files.span(first, end.index_, size_max=SPAN_MAX)

    assert [(one.end, one.first, one.bytes_dropped) for one in found] == [
        (end, 2 * FILE_SIZE, 0)
    ] * 2
    assert 100 < first < 200
    assert (files.first_position(), span.position) == (2 * FILE_SIZE, 2 * FILE_SIZE)
    assert files.index_at(Position(2 * FILE_SIZE)) == first
    assert files.term_runs(first, end.index_) == [TermStart(first, Term(3))]
    with pytest.raises(CorruptLogError, match="no entry where one must begin"):
        files.index_at(Position(2 * FILE_SIZE + 48))


def lose(path: Path, begin: int, end: int) -> None:
    """Zeros, as where a disk has lost pages."""
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


@pytest.mark.parametrize("lost", [1, 48, 100, 948, 5_000, FILE_SIZE])
def test_a_lost_beginning_of_the_log_is_no_log_that_begins_later(pair: Pair, lost: int) -> None:
    lose(pair.leader.files()[0], 0, lost)

    assert pair.entries.first_index(pair.last) == 0
    assert pair.entries.first_position() == 0
    assert first_entry_position(pair.leader.root / "data", 0) == 0
    assert pair.entries.entry_before(5_000, pair.last) == pair.entries.entry_before(
        5_001, pair.last
    )


def test_whole_entries_behind_a_lost_beginning_are_not_the_first_ones(pair: Pair) -> None:
    fifth = int(pair.entries.items(Index(5), Index(5))["position"][0])
    lose(pair.leader.files()[0], 0, fifth)

    assert (pair.entries.first_index(pair.last), pair.entries.first_position()) == (0, 0)
    assert pair.entries.entry_before(0, pair.last) == 0


def test_a_log_without_files_for_its_last_entry_has_no_first_one(pair: Pair) -> None:
    files = pair.leader.files()
    for path in files:
        path.unlink()
    behind = pair.leader.root / "data" / f"{len(files) * FILE_SIZE:020d}"
    behind.write_bytes(bytes(FILE_SIZE))

    assert pair.entries.first_index(pair.last) == NO_INDEX
    assert pair.entries.first_position() == len(files) * FILE_SIZE


@pytest.mark.parametrize("index", [1, 1 << 40, (1 << 64) - 1])
def test_a_first_entry_of_another_index_is_an_error(pair: Pair, index: int) -> None:
    with pair.leader.files()[0].open("r+b") as file:
        file.seek(8)
        file.write(index.to_bytes(8, "big"))

    with pytest.raises((CorruptLogError, StorageError)):
        pair.entries.first_index()
