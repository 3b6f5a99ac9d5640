"""Batches in the log: split where files end, numbered without a gap, whole or not at all."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.disk_sync import watched
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log.log_writer import LogEnd, LogWriter, Span, StampedRun
from ledgermq.store.recovery import log_scan
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, decode, encode
from ledgermq.store.recovery.recovery import RecoveredLog, recover_log
from tests.unit.store.records import frame_of, record

FILE_SIZE = 65_536
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


class Log:
    """A log in a directory, opened by recovery, as the writer process does."""

    def __init__(self, root: Path, *, entries: bool = True) -> None:
        self.root = root
        self.entries = entries
        self.header_size = 48 if entries else 0
        self.recovered = self.recover()
        self.writer = LogWriter(
            self.recovered.data, self.recovered.index, end=self.recovered.end, store_host=HOST
        )
        self.next_offset = 0

    def recover(
        self, checkpoint: LogCheckpoint | None = None, *, certain_before_ms: int | None = None
    ) -> RecoveredLog:
        return recover_log(
            self.root / "data",
            self.root / "index" if self.entries else None,
            file_size=FILE_SIZE,
            checkpoint=checkpoint,
            progress=lambda _done, _total: None,
            certain_before_ms=certain_before_ms,
        )

    def put(self, bodies: list[bytes], *, term: int = 1) -> list[Span]:
        payload, sizes = frame_of(
            [record(body, number=n, header_size=self.header_size) for n, body in enumerate(bodies)]
        )
        runs = [StampedRun(len(bodies), QueueOffset(self.next_offset))]
        spans = self.writer.put(payload, sizes, runs, term=Term(term), store_timestamp=1_700)
        self.next_offset += len(bodies)
        return spans

    def files(self) -> list[Path]:
        return sorted((self.root / "data").iterdir())


@pytest.fixture(params=[True, False], ids=["dledger", "commitlog"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    return Log(tmp_path, entries=request.param)


def test_what_was_published_is_found_again(log: Log) -> None:
    log.put([b"a", b"b" * 100])
    log.put([b"c"])
    log.writer.publish()
    found = log.recover()

    assert found.end == log.writer.end
    assert (found.records_scanned, found.bytes_dropped) == (3, 0)


def test_a_file_that_a_crash_left_unfinished_is_made_again(log: Log) -> None:
    log.put([b"a" * 900] * 60)
    log.writer.publish()
    end = log.writer.end
    fresh = log.root / "data" / f"{FILE_SIZE:020d}"
    fresh.touch()
    found = log.recover()
    log.put([b"b" * 900] * 30)
    log.writer.publish()

    assert found.end == end
    assert fresh.stat().st_size == FILE_SIZE
    assert log.recover().end == log.writer.end


def fresh(log: Log, first: int, last: int, size_max: int = FILE_SIZE) -> bytes | None:
    """What the writer still has of these entries, after a look whether it is what the file has."""
    found = log.writer.fresh(Index(first), Index(last), size_max=size_max)
    if found is None:
        return None
    at, data = found
    file = log.root / "data" / f"{at - at % FILE_SIZE:020d}"
    assert file.read_bytes()[at % FILE_SIZE :][: len(data)] == data
    return data


def test_what_was_just_written_is_had_without_a_read(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put([b"a", b"b" * 100])
    log.writer.publish()
    both = fresh(log, 0, 1)
    log.put([b"c"])
    while_staged = fresh(log, 0, 1)
    log.writer.publish()

    assert both
    assert while_staged is None
    assert fresh(log, 2, 2)
    assert [fresh(log, *wanted) for wanted in [(0, 2), (0, 1), (1, 2), (2, 3), (3, 2)]] == [
        None
    ] * 5
    assert fresh(log, 2, 2, size_max=10) is None


def test_what_was_just_written_is_none_behind_a_roll_and_a_cut(tmp_path: Path) -> None:
    log = Log(tmp_path)
    spans = log.put([bytes(1_000)] * 100)
    log.writer.publish()
    second = spans[0].records
    in_second = fresh(log, second, 99)
    whole = fresh(log, 0, 99)
    files = EntryFiles(log.root / "data", log.root / "index", file_size=FILE_SIZE)
    log.writer.truncate(files.end_of(Index(98)))
    files.forget()

    assert in_second is not None
    assert whole is None
    assert [fresh(log, second, last) for last in (98, 99)] == [None, None]


def test_a_write_that_fails_leaves_nothing_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.put([b"a" * 50])
    log.writer.publish()
    log.put([b"b" * 50])

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError):
            log.writer.publish()

    # The buffer has another entry by now.
    assert fresh(log, 0, 0) is None


def test_what_was_only_staged_is_not_in_the_log(log: Log) -> None:
    before = log.writer.end
    log.put([b"a"])

    assert log.recover().end == before


def test_a_batch_that_crosses_a_files_end_has_a_span_in_each_file(log: Log) -> None:
    spans = log.put([bytes(1_000)] * 100)
    log.writer.publish()
    found = log.recover()

    assert [span.first for span in spans] == [0, spans[0].records]
    assert sum(span.records for span in spans) == 100
    assert spans[1].physical_offset == FILE_SIZE + log.header_size
    assert spans[1].queue_offset == spans[0].records
    assert len(log.files()) == 2
    assert (found.end, found.records_scanned) == (log.writer.end, spans[1].records)


def test_a_log_that_ends_where_its_file_does_asks_for_no_more_blocks_than_it_needs(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path, entries=False)
    log.put([bytes(1_000)] * 100)
    log.writer.publish()
    # Killed when the blank was written, and nothing of the next file.
    os.truncate(log.files()[1], 0)
    os.truncate(log.files()[1], FILE_SIZE)
    found = Log(tmp_path, entries=False)
    _, sizes = frame_of([record(bytes(1_000), number=0, header_size=0)])
    found.writer.reserve(sizes)
    made = len(found.files())
    (span,) = found.put([bytes(1_000)])

    assert found.recovered.end.position == FILE_SIZE
    assert made == 2
    assert span.physical_offset == FILE_SIZE


def test_the_blank_says_how_much_of_the_file_is_blank(log: Log) -> None:
    spans = log.put([bytes(1_000)] * 100)
    log.writer.publish()
    size = len(record(bytes(1_000), header_size=log.header_size))
    at = spans[0].records * size
    blank = log.files()[0].read_bytes()[at : at + 8]
    room = FILE_SIZE - at
    expected = struct.pack(">iI", -1, room) if log.entries else struct.pack(">II", room, 0xCBD43194)

    assert blank == expected


def test_a_torn_tail_is_cut_and_zeroed(log: Log) -> None:
    log.put([b"kept"])
    log.writer.publish()
    kept = log.writer.end
    log.put([b"torn" * 100])
    log.writer.publish()
    path = log.files()[0]
    with path.open("r+b") as file:
        file.seek(kept.position + log.header_size + 120)
        file.write(b"\xff\xff")
    found = log.recover()
    content = path.read_bytes()

    assert found.end == kept
    assert found.bytes_dropped > 0
    assert not any(content[kept.position :])
    assert len(content) == FILE_SIZE


def test_writing_goes_on_behind_a_recovered_end(log: Log) -> None:
    log.put([b"a"] * 3)
    log.writer.publish()
    again = Log(log.root, entries=log.entries)
    again.put([b"b"] * 2, term=2)
    again.writer.publish()
    found = log.recover()

    assert found.end == again.writer.end
    assert found.records_scanned == 5


def test_a_checkpoint_spares_the_scan_of_what_it_covers(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_scan, "LOOK_BACK", 0)
    log.put([b"a"] * 10)
    log.writer.publish()
    checkpoint = decode(encode(LogCheckpoint(log.writer.end, FILE_SIZE)))
    log.put([b"b"] * 2)
    log.writer.publish()
    found = log.recover(checkpoint)

    # Of a log of entries the last one before the checkpoint is verified, too.
    assert (found.end, found.records_scanned) == (log.writer.end, 3 if log.entries else 2)


def test_a_checkpoint_of_another_log_is_not_believed(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put([b"a"] * 10)
    log.writer.publish()
    end = log.writer.end
    strange = LogCheckpoint(LogEnd(Position(end.position - 1), Index(5), Term(1), 7), FILE_SIZE)

    assert log.recover(strange).end == end


def test_index_items_that_a_crash_lost_are_written_again(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put([b"a"] * 5)
    log.writer.publish()
    path = tmp_path / "index" / f"{0:020d}"
    with path.open("r+b") as file:
        good = file.read(5 * 32)
        file.seek(2 * 32)
        file.write(bytes(3 * 32))
    log.recover()
    with path.open("rb") as file:
        assert file.read(6 * 32) == good + bytes(32)


def test_a_full_disk_leaves_the_end_where_it_was(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.put([b"a"])
    log.writer.publish()
    before = log.writer.end

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log.put([b"b"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError) as caught:
            log.writer.publish()

    assert caught.value.errno == errno.ENOSPC
    assert log.writer.end == before
    log.put([b"c"])
    log.writer.publish()
    assert log.recover().records_scanned == 2


def test_files_that_are_no_log_are_refused_by_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / f"{0:020d}").write_bytes(bytes(100))
    with pytest.raises(CorruptLogError, match="wrong size") as caught:
        Log(tmp_path)

    assert caught.value.details["file"] == str(data / f"{0:020d}")
    assert (caught.value.details["size"], caught.value.details["expected"]) == (100, FILE_SIZE)


def test_a_stray_name_is_passed_and_a_gap_is_refused(tmp_path: Path) -> None:
    AppendFiles(tmp_path / "data", file_size=FILE_SIZE, position=0).close()
    (tmp_path / "data" / "note.txt").write_text("x")
    Log(tmp_path)
    (tmp_path / "data" / "note.txt").rename(tmp_path / "data" / f"{2 * FILE_SIZE:020d}")
    os.truncate(tmp_path / "data" / f"{2 * FILE_SIZE:020d}", FILE_SIZE)
    with pytest.raises(CorruptLogError, match="gap"):
        Log(tmp_path)


def test_more_than_a_file_is_never_dropped(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(5):
        log.put([bytes(1_000)] * 50)
    log.writer.publish()
    assert len(log.files()) > 3
    with log.files()[2].open("r+b") as file:
        file.write(b"\0\0\0\0")
    with pytest.raises(CorruptLogError, match="damaged before its durable end"):
        log.recover(certain_before_ms=0)


class SyncedPaths:
    """Paths that were made durable."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()

    def synced(self, fd: int) -> None:
        self.paths.add(Path(f"/proc/self/fd/{fd}").readlink())


def test_who_opens_the_log_makes_durable_what_a_killed_writer_had_not_synced(log: Log) -> None:
    # More than a file: a sync of the file at the end would leave those before it out.
    log.put([b"x" * 20_000 for _ in range(5)])
    log.writer.publish()
    log.writer.close()
    watcher = SyncedPaths()

    with watched(watcher):
        log.recover()

    assert len(log.files()) == 2
    assert set(log.files()) <= watcher.paths
    assert not log.entries or set((log.root / "index").iterdir()) <= watcher.paths
