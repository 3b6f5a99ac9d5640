"""What a check of a store names: each byte that something vouches for, nothing that is right."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgermq.daemon.directory_check import check_own_files
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.findings import Finding, Severity
from ledgermq.formats.index_file import IndexLayout
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.model.ids import Index
from ledgermq.repair.check.check_store import CheckedStore, CheckOptions, check_store
from ledgermq.repair.file_workers import Report, Work
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.small_store import LOG_FILE_SIZE, SIZES, dispatch, write_store

FLIP_STEP = int(os.environ.get("LEDGERMQ_FLIP_STEP", "53"))
"""Which part of all bytes a run turns over; ``make check-all`` takes every one."""

LAYOUT = IndexLayout(slots=SIZES["max_hash_slot_num"], items=SIZES["max_index_num"])

GOLDEN = ["gs1", "gs1.live", "gd0", "gd0.live", "gd1.live", "gd2", "gu0", "gu1", "g6"]


def check(root: Path, *, jobs: int = 1) -> CheckedStore:
    checked = check_store(root, CheckOptions(index_layout=LAYOUT, jobs=jobs))
    checked.findings += check_own_files(root, root / "dledger-n0")
    return checked


def serious(checked: CheckedStore) -> list[Finding]:
    return [finding for finding in checked.findings if finding.severity is not Severity.NOTE]


def first_log_file(root: Path) -> Path:
    return next(iter(sorted((root / "dledger-n0" / "data").iterdir())))


@contextmanager
def changed(path: Path, at: int, mask: int) -> Iterator[None]:
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
    yield
    path.write_bytes(content)


@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_store_that_was_not_touched_is_whole(tmp_path: Path, *, entries: bool, jobs: int) -> None:
    write_store(tmp_path, entries=entries)
    checked = check(tmp_path, jobs=jobs)

    assert checked.findings == []
    assert (checked.records, checked.units, checked.keys) == (10, 10, 10)
    assert (checked.queues, checked.index_files) == (2, 4)
    assert checked.log_files > 2
    assert checked.unprotected == (0 if entries else 10)


def is_unprotected(root: Path, path: Path, at: int) -> bool:
    """Bytes that nothing vouches for: docs/operating/check-and-repair.md names them."""
    name = str(path.relative_to(root))
    # Positions that only RocketMQ 5 goes by.
    if name == "checkpoint" and 24 <= at < 48:
        return True
    # Text of documents without a checksum; the line break behind a line with one; a process id.
    return name == "config/topics.json" or (name == "ledgermq/peers" and at == 44)


@pytest.mark.slow
@pytest.mark.long(but=1)
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_byte_that_is_turned_over_is_named(tmp_path: Path, mask: int) -> None:
    write_store(tmp_path)
    missed = []
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        size = path.stat().st_size
        # RocketMQ's checkpoint is a page of zeros behind 48 bytes.
        step = FLIP_STEP * (10 if size == 4_096 else 1)
        for at in range(mask % step % size, size, step):
            if is_unprotected(tmp_path, path, at):
                continue
            with changed(path, at, mask):
                found = check(tmp_path).findings
            if not found:
                missed.append((str(path.relative_to(tmp_path)), at))

    assert missed == []
    assert check(tmp_path).findings == []


@pytest.mark.slow
def test_of_a_plain_log_all_but_the_fields_without_a_checksum_are_named(tmp_path: Path) -> None:
    write_store(tmp_path, entries=False)
    path = next(iter(sorted((tmp_path / "commitlog").iterdir())))
    missed = []
    for at in range(120):
        with changed(path, at, 0x01):
            if not check(tmp_path).findings:
                missed.append(at)
    # Flag; a bit of sysFlag; born time and host; host; reconsume times; prepared offset.
    unprotected = {*range(16, 20), *range(36, 56), *range(64, 84)}

    assert set(missed) <= unprotected


@pytest.mark.parametrize("name", GOLDEN)
def test_what_the_real_broker_left_is_whole(golden: Any, name: str) -> None:
    checked = check_store(golden(name), CheckOptions(jobs=2))
    reader = LogReader(open_directory(golden(name)))

    assert checked.findings == []
    assert checked.end == reader.end
    assert checked.records == checked.units == sum(1 for _ in reader.iterate())
    assert checked.keys > 400


@pytest.mark.parametrize(("name", "records", "keys"), [("p551", 184, 538), ("p551v2k", 181, 495)])
def test_what_a_broker_of_version_5_left_is_whole(
    golden: Any, name: str, records: int, keys: int
) -> None:
    checked = check_store(golden(name), CheckOptions(jobs=2))

    assert {finding.what for finding in checked.findings} == {"unknown file"}
    assert all(finding.file.startswith("config/") for finding in checked.findings)
    assert (checked.records, checked.units, checked.keys) == (records, records, keys)


def test_a_beginning_that_the_disk_has_lost_is_damage_and_no_later_beginning(
    tmp_path: Path,
) -> None:
    write_store(tmp_path)
    path = first_log_file(tmp_path)
    content = path.read_bytes()
    second = int.from_bytes(content[4:8], "big")
    path.write_bytes(bytes(second) + content[second:])
    checked = check(tmp_path)

    assert checked.first == 0
    worst = serious(checked)[0]
    assert (worst.severity, worst.offset) == (Severity.DAMAGE, 0)


def test_damage_in_the_middle_hides_nothing_behind_it(tmp_path: Path) -> None:
    write_store(tmp_path)
    path = first_log_file(tmp_path)
    content = bytearray(path.read_bytes())
    second = int.from_bytes(content[4:8], "big")
    content[second + 100] ^= 0x10
    path.write_bytes(content)
    checked = check(tmp_path)
    (finding,) = serious(checked)

    assert finding.severity is Severity.DAMAGE
    assert (finding.file, finding.offset) == (str(path.relative_to(tmp_path)), second)
    assert finding.what == "record is not whole: entry body crc"
    assert checked.records == 9


def test_a_page_of_zeros_in_the_middle_is_damage_and_not_the_end(tmp_path: Path) -> None:
    write_store(tmp_path)
    path = first_log_file(tmp_path)
    content = bytearray(path.read_bytes())
    second = int.from_bytes(content[4:8], "big")
    content[second : second + 60] = bytes(60)
    path.write_bytes(content)

    assert [finding.offset for finding in serious(check(tmp_path))] == [second]


def test_files_that_are_missing_or_strange_are_named(tmp_path: Path) -> None:
    write_store(tmp_path)
    data = tmp_path / "dledger-n0" / "data"
    (data / f"{LOG_FILE_SIZE:020d}").unlink()
    (data / "stray").write_bytes(b"")
    os.truncate(tmp_path / "consumequeue" / "orders" / "0" / f"{60:020d}", 59)
    what = {(finding.file, finding.what) for finding in check(tmp_path).findings}

    assert ("dledger-n0/data/stray", "no file of the store: it is left alone") in what
    assert (
        f"dledger-n0/data/{2 * LOG_FILE_SIZE:020d}",
        "a file before this one is missing",
    ) in what
    assert (f"consumequeue/orders/0/{60:020d}", "file of another size") in what


def test_a_table_of_which_only_the_beginning_is_settled_is_an_empty_one(tmp_path: Path) -> None:
    write_store(tmp_path)
    (tmp_path / "config").mkdir(exist_ok=True)
    file = tmp_path / "config" / "delayOffset.json"
    file.write_text('{"ledgermqApplied": {"SCHEDULE": 3}}')
    settled = serious(check(tmp_path))
    file.write_text('{"ledgermqApplied": {"SCHEDULE": 3}, "offsets": {}}')

    assert settled == []
    assert [finding.what for finding in serious(check(tmp_path))] == ["no table offsetTable"]


def test_a_position_beyond_its_queue_is_told_and_no_damage(tmp_path: Path) -> None:
    write_store(tmp_path)
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(
        json.dumps({"offsetTable": {"orders@g": {"0": 5_000}, "gone@g": {"0": 1}}})
    )
    (config / "delayOffset.json").write_text('{"offsetTable": {"1": 400}}')
    found = serious(check(tmp_path))

    assert {(one.severity, one.what) for one in found} == {
        (Severity.DERIVED, "offset 5000 of 'orders@g' queue 0, which ends at 5"),
        (Severity.DERIVED, "offset 1 of 'gone@g' queue 0, which ends at 0"),
        (Severity.DERIVED, "offset 400 of '1' queue 0, which ends at 0"),
    }
    assert all("next start of the node" in one.remedy for one in found)


def test_units_of_deleted_log_files_are_stale_and_not_wrong(tmp_path: Path) -> None:
    write_store(tmp_path)
    first_log_file(tmp_path).unlink()
    checked = check(tmp_path)

    assert serious(checked) == []
    assert checked.first == LOG_FILE_SIZE
    assert checked.stale_units > 0
    assert checked.stale_units + checked.records == checked.units == 10


def test_what_a_running_node_has_not_committed_is_no_fault(tmp_path: Path) -> None:
    write_store(tmp_path)
    (tmp_path / "abort").write_bytes(b"")
    whole = LogReader(open_directory(tmp_path)).end
    last = sorted((tmp_path / "dledger-n0" / "data").iterdir())[-1]
    content = bytearray(last.read_bytes())
    at = whole - int(last.name)
    content[at : at + 60] = b"x" * 60
    last.write_bytes(content)
    checked = check(tmp_path)

    assert serious(checked) == []
    assert [finding.offset for finding in checked.findings] == [at]
    assert checked.end == whole


class Overtaken:
    """Looks at files, and a node deletes those of one folder meanwhile, so many times.

    Attributes:
        kept: so many pieces of work are done before.
    """

    def __init__(self, folder: Path, times: int, kept: int) -> None:
        self.kept = kept
        self._folder = folder
        self._times = times

    def __call__(self, work: Sequence[Work[Report]], total: int) -> list[Report]:
        """Log files are looked at first, with what is known of their bytes."""
        is_overtaken = bool(total) and self._times > 0
        self._times -= is_overtaken
        aside = self._folder.with_name("aside")
        kept = self.kept if is_overtaken else len(work)
        reports = [one(lambda _: None) for one in work[:kept]]
        if is_overtaken:
            self._folder.rename(aside)
            self._folder.mkdir()
        reports += [one(lambda _: None) for one in work[kept:]]
        if is_overtaken:
            self._folder.rmdir()
            aside.rename(self._folder)
        return reports


@pytest.mark.parametrize("kept", [0, 5], ids=["all gone", "the last ones gone"])
@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_a_node_that_deletes_faster_than_files_are_read_is_looked_at_again(
    tmp_path: Path, *, entries: bool, kept: int
) -> None:
    write_store(tmp_path, entries=entries)
    (tmp_path / "abort").write_bytes(b"")
    folder = tmp_path / "dledger-n0" / "data" if entries else tmp_path / "commitlog"
    options = CheckOptions(index_layout=LAYOUT)
    checked = check_store(tmp_path, options, runner=Overtaken(folder, 1, kept))
    with pytest.raises(StorageError, match="files at the end of the log were deleted"):
        check_store(tmp_path, options, runner=Overtaken(folder, 100, kept))

    assert serious(checked) == []
    assert checked.records == 10


@pytest.mark.parametrize("entries", [True, False], ids=["dledger", "commitlog"])
def test_index_files_that_a_node_deletes_meanwhile_are_no_fault(
    tmp_path: Path, *, entries: bool
) -> None:
    write_store(tmp_path, entries=entries)
    (tmp_path / "abort").write_bytes(b"")
    options = CheckOptions(index_layout=LAYOUT)
    runner = Overtaken(tmp_path / "index", 1, 0)
    checked = check_store(tmp_path, options, runner=runner)

    assert serious(checked) == []
    assert checked.records == 10


def test_units_that_are_not_built_yet_are_no_fault_of_a_running_node(tmp_path: Path) -> None:
    write_store(tmp_path)
    (tmp_path / "abort").write_bytes(b"")
    (tmp_path / "ledgermq" / "dispatch-checkpoint").unlink()
    newest = tmp_path / "consumequeue" / "orders" / "1" / f"{60:020d}"
    content = newest.read_bytes()
    newest.write_bytes(content[:UNIT_SIZE].ljust(60, b"\0"))
    sorted((tmp_path / "index").iterdir())[-1].unlink()

    assert serious(check(tmp_path)) == []


def test_a_stopped_node_lacks_no_unit(tmp_path: Path) -> None:
    write_store(tmp_path)
    newest = tmp_path / "consumequeue" / "orders" / "1" / f"{60:020d}"
    newest.write_bytes(newest.read_bytes()[:UNIT_SIZE].ljust(60, b"\0"))
    (finding,) = serious(check(tmp_path))

    assert finding.severity is Severity.DERIVED
    assert (finding.file, finding.offset) == (str(newest.relative_to(tmp_path)), UNIT_SIZE)
    assert finding.what == "unit of a message is missing"


def test_what_is_committed_after_the_writer_has_stopped_has_units_and_is_no_fault(
    tmp_path: Path,
) -> None:
    write_store(tmp_path)
    # The last two entries: raft commits them, the dispatcher takes them, and nobody is left to
    # write DLedger's checkpoint again.
    noted = tmp_path / "dledger-n0" / "checkpoint"
    noted.write_bytes(encode_dledger_checkpoint(DLedgerCheckpoint(Index(9), Index(7))))
    whole = check(tmp_path)
    queue = tmp_path / "consumequeue" / "orders" / "1"
    last = sorted(path for path in queue.iterdir() if any(path.read_bytes()))[-1]
    content = last.read_bytes().rstrip(b"\0")
    at = (len(content) - 1) // UNIT_SIZE * UNIT_SIZE
    last.write_bytes(content[:at].ljust(SIZES["mapped_file_size_consume_queue"], b"\0"))
    lacking = check(tmp_path)

    assert serious(whole) == []
    assert any("consumequeue/orders/1" in finding.file for finding in serious(lacking))


@pytest.mark.parametrize("committed", [2, 7, 8])
def test_a_member_that_was_stopped_with_entries_that_no_majority_had_is_whole(
    tmp_path: Path, committed: int
) -> None:
    write_store(tmp_path, committed=committed)

    assert serious(check(tmp_path)) == []


def test_lost_derived_files_are_named_by_their_folders(tmp_path: Path) -> None:
    write_store(tmp_path)
    for path in (tmp_path / "consumequeue" / "orders" / "0").iterdir():
        path.unlink()
    newest = sorted((tmp_path / "index").iterdir())[-1]
    newest.unlink()
    what = [(finding.file, finding.what) for finding in serious(check(tmp_path))]

    assert ("consumequeue/orders/0", "no queue for 5 messages") in what
    assert ("index", "1 keys of messages are in no index file") in what


@pytest.mark.parametrize("size", [0, LAYOUT.item_at(0)])
def test_an_index_file_that_is_just_being_made_is_no_fault(tmp_path: Path, size: int) -> None:
    write_store(tmp_path)
    (tmp_path / "index" / "20990101000000000").write_bytes(bytes(size))
    checked = check(tmp_path)

    assert serious(checked) == []
    assert len(checked.findings) == 1


def test_an_index_item_of_another_entry_is_named(tmp_path: Path) -> None:
    write_store(tmp_path)
    path = tmp_path / "dledger-n0" / "index" / f"{0:020d}"
    content = path.read_bytes()
    items = [content[at : at + ITEM_SIZE] for at in range(0, len(content), ITEM_SIZE)]
    items[2], items[3] = items[3], items[2]
    path.write_bytes(b"".join(items))
    found = serious(check(tmp_path))

    assert [finding.offset for finding in found] == [2 * ITEM_SIZE, 3 * ITEM_SIZE]


def test_committed_entries_that_are_gone_are_damage(tmp_path: Path) -> None:
    write_store(tmp_path)
    sorted((tmp_path / "dledger-n0" / "data").iterdir())[-1].unlink()
    found = check(tmp_path).findings

    assert any(
        finding.file == "dledger-n0/checkpoint" and finding.severity is Severity.DAMAGE
        for finding in found
    )


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a store directory"):
        check_store(tmp_path, CheckOptions())


def test_nothing_is_changed(tmp_path: Path) -> None:
    write_store(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    check(tmp_path, jobs=2)

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_was_dispatched_again_is_still_whole(tmp_path: Path) -> None:
    write_store(tmp_path)
    dispatch(tmp_path)

    assert check(tmp_path).findings == []
