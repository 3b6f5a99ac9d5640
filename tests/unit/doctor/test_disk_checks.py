"""Real directories that cannot be used, and a disk that is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.doctor.disk_checks import SYNCS, disk_checks, measure_syncs, mount_of
from ledgermq.doctor.finding import Weight
from tests.unit.doctor.subjects import by_check, subject_in

NOBODY = 65_534


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Run as an account without rights."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another account")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_folders_that_are_not_there_can_be_made_and_are_not(tmp_path: Path) -> None:
    findings = by_check(disk_checks, subject_in(tmp_path))

    assert findings["disk.store"].verdict is Weight.OK
    assert "it can be made" in findings["disk.store"].measured
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails_and_is_named(
    tmp_path: Path, as_nobody: None
) -> None:
    findings = by_check(disk_checks, subject_in(tmp_path))
    store = findings["disk.store"]

    assert (store.verdict, findings["disk.runtime"].verdict) == (Weight.FAIL, Weight.FAIL)
    assert "Permission denied" in store.measured
    assert "store.path_root_dir" in store.change
    assert "disk.sync" not in findings


def test_files_of_another_account_fail(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text("{}")
    # Root's, and nobody's fault, where the store has a file system of its own.
    (root / "lost+found").mkdir()
    os.chown(root, NOBODY, NOBODY)
    findings = by_check(disk_checks, subject_in(tmp_path))

    assert findings["disk.owner"].verdict is Weight.FAIL
    assert "2 files of others" in findings["disk.owner"].measured
    assert f"chown -R nobody {root}" in findings["disk.owner"].change


@pytest.mark.slow
def test_syncs_are_measured_and_nothing_is_left(tmp_path: Path) -> None:
    times_ms = measure_syncs(tmp_path)
    findings = by_check(disk_checks, subject_in(tmp_path))

    assert len(times_ms) == SYNCS
    assert min(times_ms) > 0
    assert findings["disk.sync"].measured.startswith(f"{SYNCS} syncs of 4 KiB: median ")
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_takes_as_long_as_a_sick_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgermq.doctor.disk_checks.measure_syncs", lambda _: [1.0, 5_000.0])
    findings = by_check(disk_checks, subject_in(tmp_path))

    assert findings["disk.sync"].verdict is Weight.FAIL
    assert "raft.disk_sick_after_ms" in findings["disk.sync"].limit


@pytest.mark.slow
def test_a_disk_beyond_the_watermark_fails(tmp_path: Path) -> None:
    full = {"clean_above": "999TiB", "refuse_above": "998TiB"}
    high = {"clean_above": "999TiB", "refuse_above": "100%"}
    failing = by_check(disk_checks, subject_in(tmp_path, retention=full))["disk.space"]
    warning = by_check(disk_checks, subject_in(tmp_path, retention=high))["disk.space"]

    assert (failing.verdict, warning.verdict) == (Weight.FAIL, Weight.WARN)
    assert "retention.bytes_max" in failing.change


def test_memory_is_no_disk() -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir() or mount_of(folder).system != "tmpfs":
        pytest.skip("no tmpfs at /dev/shm")
    finding = by_check(disk_checks, subject_in(folder / "ledgermq-missing"))["disk.file-system"]

    assert finding.verdict is Weight.WARN
    assert finding.measured.startswith("tmpfs at /dev/shm")


def test_the_innermost_mount_counts(tmp_path: Path) -> None:
    assert mount_of(Path("/proc/self")).system == "proc"
    assert str(tmp_path).startswith(mount_of(tmp_path).point)
