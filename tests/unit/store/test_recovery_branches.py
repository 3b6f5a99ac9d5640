"""What recovery makes of each state that a crash, a disk or a hand can leave behind."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.kept_aside import settle_last_file
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.recovery import RecoveredLog, recover_log
from tests.unit.store.test_log_writer import FILE_SIZE, Log

STORE_TIME = 1_700
"""What ``Log.put`` stamps, epoch ms."""


@pytest.fixture(params=[True, False], ids=["dledger", "commitlog"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    return Log(tmp_path, entries=request.param)


def fill(log: Log, *, files: int) -> None:
    """Records until the log has so many files."""
    while len(log.files()) < files:
        log.put([bytes([65 + len(log.files())]) * 1_000] * 8)
        log.writer.publish()
    log.writer.sync()
    log.writer.close()


def again(log: Log, *, certain_before_ms: int | None = None) -> RecoveredLog:
    return recover_log(
        log.root / "data",
        log.root / "index" if log.entries else None,
        file_size=FILE_SIZE,
        checkpoint=None,
        progress=lambda _done, _total: None,
        certain_before_ms=certain_before_ms,
    )


@pytest.mark.parametrize("size", [20_000, FILE_SIZE - 1, FILE_SIZE + 4_096])
def test_a_last_file_of_a_wrong_size_is_kept_aside_and_its_whole_records_stay(
    log: Log, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, files=3)
    last = log.files()[-1]
    os.truncate(last, size)
    before = last.read_bytes()
    whole = log.writer.end.position

    kept = settle_last_file(log.root / "data", expected=None, aside=log.root / "aside")
    found = again(log)

    assert kept is not None
    assert kept.read_bytes() == before
    assert last.stat().st_size == FILE_SIZE
    assert found.end.position == whole
    assert "last file of the log has a wrong size" in caplog.text
    assert str(kept) in caplog.text


def test_a_last_file_that_lost_records_ends_behind_the_last_whole_one(log: Log) -> None:
    fill(log, files=3)
    last = log.files()[-1]
    os.truncate(last, 5_000)

    settle_last_file(log.root / "data", expected=FILE_SIZE, aside=log.root / "aside")
    found = again(log)

    assert int(last.name) < found.end.position <= int(last.name) + 5_000
    assert again(log).end == found.end


def test_nothing_is_kept_aside_where_nobody_knows_the_size(log: Log) -> None:
    fill(log, files=1)
    os.truncate(log.files()[0], 5_000)

    assert settle_last_file(log.root / "data", expected=None, aside=log.root / "aside") is None
    assert not (log.root / "aside").exists()


def test_a_file_that_was_just_being_made_is_made_again(log: Log) -> None:
    fill(log, files=2)
    end = log.writer.end
    (log.root / "data" / file_name(2 * FILE_SIZE)).touch()

    assert settle_last_file(log.root / "data", expected=None, aside=log.root / "aside") is None
    assert again(log).end == end


def test_an_earlier_file_of_a_wrong_size_refuses_the_start(log: Log) -> None:
    fill(log, files=3)
    os.truncate(log.files()[1], 5_000)

    settle_last_file(log.root / "data", expected=None, aside=log.root / "aside")
    with pytest.raises(CorruptLogError, match="wrong size") as caught:
        again(log)

    assert caught.value.details["file"] == str(log.files()[1])
    assert (caught.value.details["size"], caught.value.details["expected"]) == (5_000, FILE_SIZE)


@pytest.mark.parametrize("is_ahead", [False, True], ids=["", "one that is empty"])
def test_after_a_clean_stop_the_newest_file_with_a_record_is_scanned(
    log: Log, is_ahead: bool
) -> None:
    fill(log, files=5)
    end, newest = log.writer.end, int(log.files()[-1].name)
    if is_ahead:
        log.files()[-1].write_bytes(bytes(FILE_SIZE))
        newest -= FILE_SIZE

    found = again(log)

    # An entry with which a file begins is looked at before the others.
    assert newest <= found.begin < newest + 2_000
    assert is_ahead or found.end == end


def test_what_a_clean_stop_has_left_damaged_before_its_newest_file_is_left_to_readers(
    log: Log,
) -> None:
    fill(log, files=5)
    with log.files()[3].open("r+b") as file:
        file.write(b"\0\0\0\0")

    assert again(log).end == log.writer.end
    with pytest.raises(CorruptLogError, match="damaged before its durable end"):
        again(log, certain_before_ms=0)


@pytest.mark.parametrize(("certain", "everything"), [(STORE_TIME - 1, True), (STORE_TIME, False)])
def test_after_a_crash_the_scan_begins_where_the_checkpoint_was_certain(
    log: Log, certain: int, everything: bool
) -> None:
    fill(log, files=5)
    whole = again(log, certain_before_ms=0).records_scanned

    scanned = again(log, certain_before_ms=certain).records_scanned

    assert (scanned == whole) == everything


@pytest.mark.parametrize("certain", [None, 0, STORE_TIME])
def test_what_is_scanned_after_a_crash_is_written_again_before_it_is_synced(
    log: Log, certain: int | None
) -> None:
    """A sync that failed has left pages that the next one calls clean."""
    fill(log, files=5)
    folders = [log.root / "data", *([log.root / "index"] if log.entries else [])]
    paths = [sorted(folder.iterdir()) for folder in folders]
    for path in [path for folder in paths for path in folder]:
        os.utime(path, (1, 1))
    begin = 0 if certain == 0 else 5

    again(log, certain_before_ms=certain)

    written = [[path.stat().st_mtime != 1 for path in folder] for folder in paths]
    assert written[0] == [number >= begin for number in range(5)]
    assert all(all(folder) for folder in written) == (certain == 0)


@pytest.mark.parametrize("index", ["none", "first file gone"])
def test_a_dledger_index_that_is_lost_is_built_again(tmp_path: Path, index: str) -> None:
    AppendFiles(tmp_path / "index", file_size=320, position=0).close()
    log = Log(tmp_path)
    fill(log, files=4)
    end = log.writer.end
    before = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    for path in sorted((tmp_path / "index").iterdir())[: None if index == "none" else 1]:
        path.unlink()
    if index == "none":
        AppendFiles(tmp_path / "index", file_size=320, position=0).close()
    checkpoint = LogCheckpoint(end, FILE_SIZE)

    found = log.recover(checkpoint)

    assert found.end == end
    assert {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()} == before


def test_a_log_that_begins_within_its_first_file_is_found_again(tmp_path: Path) -> None:
    log = Log(tmp_path)
    fill(log, files=3)
    end = log.writer.end
    data, index = tmp_path / "data", tmp_path / "index"
    files = EntryFiles(data, index, file_size=FILE_SIZE)
    middle = files.items(Index(20), Index(20))[0]
    files.forget()
    begin = int(middle["position"])
    with log.files()[0].open("r+b") as file:
        file.write(bytes(begin))
    with (index / file_name(0)).open("r+b") as file:
        file.write(bytes(20 * 32))

    first = log.recover(LogCheckpoint(end, FILE_SIZE))
    os.truncate(log.files()[-1], 0)
    log.files()[-1].unlink()
    without_checkpoint = again(log)

    assert (first.end, first.first) == (end, begin)
    assert without_checkpoint.first == begin
    assert without_checkpoint.end.index_ < end.index_
    assert EntryFiles(data, index, file_size=FILE_SIZE).first_index() == 20


def test_a_hole_alone_is_no_first_entry(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.writer.close()

    assert again(log).end.index_ == -1


def test_records_behind_a_torn_one_are_cut_and_zeroed(log: Log) -> None:
    fill(log, files=2)
    last = log.files()[-1]
    size = struct.unpack(">I", last.read_bytes()[4:8] if log.entries else last.read_bytes()[:4])[0]
    with last.open("r+b") as file:
        file.seek(size + 100)
        file.write(b"torn")

    found = again(log)

    assert found.end.position == int(last.name) + size
    assert last.read_bytes()[size:].count(0) == FILE_SIZE - size
    assert found.bytes_dropped > 0
