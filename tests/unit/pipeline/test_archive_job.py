"""An archive has each message of the queues once, whatever happens between and within its runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.errors import ConfigError, CorruptLogError, StoreLockedError
from ledgermq.pipeline.archive import archive_job, archive_writer
from ledgermq.pipeline.archive.archive_folder import ArchiveFolder, check_archive
from ledgermq.pipeline.archive.archive_layout import day_of, day_text
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.source.store_source import StoreSource
from ledgermq.store.files.checked_document import read_document, write_document
from tests.row_batches import batches_of
from tests.small_store import BEGIN_MS, write_store
from tests.unit.pipeline.archives import TasksHere, archived, places, visible_files, visible_rows

ROOT = Path(__file__).resolve().parents[3]
EVERYTHING = {"subscribePattern": ".*"}
MANIFEST = "_ledgermq/manifest"
STAGING = "_ledgermq/staging"


def grown(root: Path, messages: int, *, entries: bool = True) -> Path:
    """The small store with so many messages; the first ones are those of a smaller one."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    write_store(root, entries=entries, messages=messages)
    return root


def expected(messages: int) -> list[tuple[str, int, int]]:
    return sorted(("orders", number % 2, number // 2) for number in range(messages))


def check(target: Path) -> list[str]:
    checked = check_archive(TasksHere(), FolderStore(target), split_bytes=1 << 20)
    return [fault.as_text() for fault in checked.faults]


def source_rows(root: Path) -> list[dict[str, Any]]:
    source = StoreSource(root)
    bounds = source.bounds(source.queues())
    ranges = [range_ for range_ in bounds.values() if range_.first < range_.end]
    read = source.read(ranges, fail_on_data_loss=True)
    rows = [
        row
        for batch in batches_of(read, COLUMNS, RowFilter(), inflate=True)
        for row in batch.to_pylist()
    ]
    source.close()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gs1", "gd0", "gu0", "g6"])
def test_rows_are_those_of_the_source(
    golden: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(archive_job, "PART_BYTES_MIN", 1 << 16)
    found = archived(golden(name), tmp_path, **EVERYTHING)
    rows = {row["physicalOffset"]: row for row in visible_rows(tmp_path)}
    wanted = {row["physicalOffset"]: row for row in source_rows(golden(name))}

    assert found.tasks > 1
    assert found.rows == len(rows) == len(wanted) > 200
    for position, row in wanted.items():
        escaped = row["topic"].replace("%", "%25")

        assert rows[position] == {**row, "topic": escaped}
    assert check(tmp_path) == []
    assert archived(golden(name), tmp_path, **EVERYTHING).run is None
    assert len(visible_files(tmp_path)) == len(found.run.files) if found.run else 0


def test_files_stand_in_folders_of_topic_and_day(tmp_path: Path) -> None:
    found = archived(grown(tmp_path / "store", 10), tmp_path / "archive")
    folders = {
        str(path.parent.relative_to(tmp_path / "archive")) for path in visible_files(tmp_path)
    }

    assert folders == {f"topic=orders/day={day_text(day_of(BEGIN_MS))}"}
    assert found.run is not None
    assert found.run.marks["orders", 0].end == 5


@pytest.mark.parametrize("entries", [True, False])
def test_a_run_adds_what_came_since_the_last_one(tmp_path: Path, entries: bool) -> None:
    target = tmp_path / "archive"
    runs = [
        archived(grown(tmp_path / "store", count, entries=entries), target)
        for count in (6, 6, 7, 30, 10)
    ]
    rows = visible_rows(target)

    assert [run.rows for run in runs] == [6, 0, 1, 23, 0]
    assert places(rows) == expected(30)
    assert len({row["physicalOffset"] for row in rows}) == 30
    assert check(target) == []


def test_what_retention_deleted_before_is_a_gap(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    archived(grown(store, 4), target)
    grown(store, 40)
    files = sorted((store / "dledger-n0" / "data").iterdir())
    for path in files[:4]:
        path.unlink()
    shutil.rmtree(store / "dledger-n0" / "index")
    found = archived(store, target)
    rows = visible_rows(target)

    assert found.run is not None
    assert found.missing > 0
    assert found.missing + len(rows) == 40
    assert {gap.first for gap in found.run.gaps} == {2}
    assert places(rows)[-1] == ("orders", 1, 19)
    assert check(target) == []


def test_a_topic_that_was_deleted_keeps_what_is_archived(tmp_path: Path) -> None:
    store, target = grown(tmp_path / "store", 10), tmp_path / "archive"
    archived(store, target, subscribe="orders")
    shutil.rmtree(store / "consumequeue" / "orders")
    again = archived(store, target, subscribe="orders")

    assert again.rows == 0
    assert places(visible_rows(target)) == expected(10)
    with pytest.raises(ConfigError, match="no such topic"):
        archived(store, tmp_path / "other", subscribe="orders")


def test_a_topic_that_was_made_again_begins_anew(tmp_path: Path) -> None:
    store, target = grown(tmp_path / "store", 10), tmp_path / "archive"
    archived(store, target)
    old = visible_rows(target)
    renumbered(store, 10, 40)
    found = archived(store, target)
    rows = [row for row in visible_rows(target) if row not in old]

    assert sorted(found.made_anew) == [("orders", 0), ("orders", 1)]
    assert places(rows) == expected(30)
    assert {found.run.marks["orders", 0].generation for _ in [0] if found.run} == {1}
    assert found.missing == 0
    assert check(target) == []
    assert archived(store, target).run is None


def renumbered(root: Path, kept: int, messages: int) -> None:
    """A plain-numbered store whose queues begin once more behind message ``kept``.

    So RocketMQ leaves it when a topic is deleted and made again: queue files of the new one only.
    """
    grown(root, messages)
    units = {
        number: (root / "consumequeue" / "orders" / str(number)).rglob("0*") for number in (0, 1)
    }
    for number, paths in units.items():
        content = b"".join(path.read_bytes() for path in sorted(paths))
        folder = root / "consumequeue" / "orders" / str(number)
        shutil.rmtree(folder)
        folder.mkdir()
        rest = content[kept // 2 * 20 :]
        for start in range(0, len(rest), 60):
            (folder / f"{start:020d}").write_bytes(rest[start : start + 60].ljust(60, b"\0"))
    magic = (0xDAA320A7).to_bytes(4, "big")
    for path in sorted((root / "dledger-n0" / "data").iterdir()):
        data = bytearray(path.read_bytes())
        at = data.find(magic)
        while at >= 0:
            offset = int.from_bytes(data[at + 16 : at + 24], "big")
            if offset >= kept // 2:
                data[at + 16 : at + 24] = (offset - kept // 2).to_bytes(8, "big")
            at = data.find(magic, at + 1)
        path.write_bytes(data)


def test_another_store_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    archived(grown(tmp_path / "store", 10), target)
    with pytest.raises(ConfigError, match="of another store"):
        # Plain records have no headers: everything stands further in front.
        archived(grown(tmp_path / "other", 40, entries=False), target)

    assert places(visible_rows(target)) == expected(10)


def test_what_cannot_be_archived_is_refused(tmp_path: Path) -> None:
    store, target = grown(tmp_path / "store", 10), tmp_path / "archive"
    archived(store, target)
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").write_bytes(b"")
    with pytest.raises(ConfigError, match="not empty, and no archive"):
        archived(store, full)
    with pytest.raises(ConfigError, match="begun otherwise") as found:
        archived(store, target, inflateBodies="false")
    with pytest.raises(ConfigError, match="begun otherwise"):
        archived(store, target, subscribePattern="o.*")
    with pytest.raises(ConfigError, match="no such level"):
        archived(store, target, level="20")
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(ConfigError, match="has no queues"):
        archived(store, target)

    assert found.value.details["option"] == "--stored-bodies"
    assert check(target) == []


def test_two_runs_do_not_write_at_once(tmp_path: Path) -> None:
    store, target = grown(tmp_path / "store", 10), tmp_path / "archive"
    archived(store, target)
    with (target / "_ledgermq" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreLockedError, match="another run"):
            archived(store, target)


def test_a_damaged_manifest_is_told(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    archived(grown(store, 6), target)
    archived(grown(store, 10), target)
    first, second = sorted((target / MANIFEST).iterdir())
    content = second.read_bytes()
    second.write_bytes(content.replace(b'"rows":', b'"rows":1', 1))
    with pytest.raises(CorruptLogError, match="checksum"):
        archived(store, target)
    second.write_bytes(content)
    first.unlink()
    with pytest.raises(CorruptLogError, match="lacks a document"):
        ArchiveFolder(FolderStore(target))


@pytest.mark.parametrize(
    "path", ["../outside.parquet", "/tmp/x.parquet", "topic=a//b", "a/./b", ""]
)
def test_a_manifest_names_no_file_outside_of_the_archive(tmp_path: Path, path: str) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    archived(grown(store, 6), target)
    outside = tmp_path / "archive" / "_ledgermq" / "outside.parquet"
    outside.write_bytes(b"of somebody else")
    (file,) = (target / MANIFEST).iterdir()
    document = read_document(file)
    assert document is not None
    document["files"][0]["path"] = path  # type: ignore[index]
    write_document(file, document)

    with pytest.raises(CorruptLogError, match="outside of it"):
        archived(store, target)
    assert outside.read_bytes() == b"of somebody else"


def test_a_damaged_body_is_kept_and_counted(tmp_path: Path) -> None:
    store, target = grown(tmp_path / "store", 10), tmp_path / "archive"
    path = min((store / "dledger-n0" / "data").iterdir())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"body of message 0", b"body of message X"))
    found = archived(store, target)
    rows = [row for row in visible_rows(target) if not row["crcOk"]]

    assert found.damaged == 1
    assert [row["body"] for row in rows] == [b"body of message X"]
    assert check(target) == []


@pytest.mark.slow
def test_few_files_are_open_however_many_topics_there_are(
    golden: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_writer, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(archive_writer, "PENDING_BYTES_MAX", 2_000)
    monkeypatch.setattr(archive_writer, "GROUP_BYTES", 1_000)
    found = archived(golden("gd0"), tmp_path, **EVERYTHING)
    rows = visible_rows(tmp_path)

    assert len({row["topic"] for row in rows}) > 5
    assert len(rows) == found.rows == len(source_rows(golden("gd0")))
    assert check(tmp_path) == []


def fault_after(target: Path, change: Any) -> list[str]:
    """What ``archive-verify`` finds when a copy is changed."""
    copy = target.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(target, copy)
    change(copy)
    return check(copy)


def test_what_is_changed_in_the_files_is_found(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    archived(grown(tmp_path / "store", 6), target)
    archived(grown(tmp_path / "store", 10), target)
    first, second = visible_files(target)
    at = str(first.relative_to(target))

    def flip(copy: Path) -> None:
        content = bytearray((copy / at).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / at).write_bytes(content)

    def cut(copy: Path) -> None:
        (copy / at).write_bytes((copy / at).read_bytes()[:-1])

    def add(copy: Path) -> None:
        shutil.copy(second, copy / "topic=orders" / "strange.parquet")

    assert fault_after(target, lambda copy: None) == []
    assert [fault.partition(": has ")[2][:11] for fault in fault_after(target, flip)] == [
        "other bytes"
    ]
    assert "bytes, and not" in fault_after(target, cut)[0]
    assert fault_after(target, lambda copy: (copy / at).unlink()) == [f"{at}: missing"]
    assert fault_after(target, add)[0].startswith("topic=orders/strange.parquet: not of this")


DEATHS = [
    *(("rename", call, moment) for moment in ("before", "after") for call in range(1, 9)),
    *(("mkdir,open,write,unlink,rmdir", call, "before") for call in range(2, 60, 6)),
]


def deaths_of(store: Path, targets: list[Path]) -> list[str]:
    """What became of a run into each of the archives."""
    plans = "".join(
        f"{target} {names} {call} {moment}\n"
        for target, (names, call, moment) in zip(targets, DEATHS, strict=True)
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.pipeline.archive_dying", str(store)],
        input=plans,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_dies_anywhere_leaves_nothing_twice(tmp_path: Path) -> None:
    """Meanwhile readers see no row twice, and none of half a run; the next run puts it right."""
    store, begun = tmp_path / "store", tmp_path / "begun"
    archived(grown(store, 6), begun)
    grown(store, 30)
    targets = [tmp_path / f"archive-{number}" for number in range(len(DEATHS))]
    for target in targets:
        shutil.copytree(begun, target)
    outcomes = deaths_of(store, targets)
    left = set()
    for target, death in zip(targets, DEATHS, strict=True):
        seen = places(visible_rows(target))
        state = ArchiveFolder(FolderStore(target)).state
        left.add((state.runs, len(visible_files(target)) - 1, (target / STAGING).exists()))

        assert len(seen) == len(set(seen)), death
        assert state.runs == 2 or seen == expected(6), death
        assert set(seen) <= set(expected(30)), death

        archived(store, target)

        assert places(visible_rows(target)) == expected(30), death
        assert check(target) == [], death
        assert not (target / STAGING).exists(), death

    # Before the document, between it and the files, among the files, and behind the last one.
    files = max(published for _, published, _ in left)
    assert {(1, 0, True), (2, 0, True), (2, 1, True), (2, files, True)} <= left
    assert set(outcomes) <= {"died", "ended"}
    assert outcomes.count("died") > 18
