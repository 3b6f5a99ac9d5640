"""Stores that are held, were not stopped, or are damaged."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgermq.conversion.last_backup import STREAM_NAME, LastBackup, write_last_backup
from ledgermq.daemon.store_lock import FamilyLock
from ledgermq.doctor.disk_checks import STREAM_BEHIND_MAX_S, holders_of, store_checks
from ledgermq.doctor.finding import Weight
from ledgermq.doctor.subject import Subject
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, mark_damage
from tests.unit.doctor.subjects import by_check, subject_in, verdicts

DAMAGE = LogDamage(Position(64), "00000000000000000000", "crc", Position(256), Index(4), Term(2))


def store_in(folder: Path) -> Subject:
    subject = subject_in(folder)
    subject.paths.own.mkdir(parents=True)
    return subject


@contextmanager
def held(path: Path) -> Iterator[int]:
    """A lock that another process has; its pid."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        FamilyLock.take(path, wait_ms=0)
        os.write(told, b"x")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)


def test_an_empty_store_is_well(tmp_path: Path) -> None:
    findings = by_check(store_checks, store_in(tmp_path))

    assert set(verdicts(findings).values()) == {Weight.OK}
    assert set(findings) == {
        "store.origin", "store.files", "store.lock", "store.last-stop", "store.damage",
        "store.small-files", "store.set-aside", "store.reserve", "store.backup-stream",
    }  # fmt: skip


def test_of_a_witness_no_log_is_looked_for(tmp_path: Path) -> None:
    subject = subject_in(tmp_path, node={"witness": True})
    subject.paths.own.mkdir(parents=True)
    findings = by_check(store_checks, subject)

    assert set(verdicts(findings).values()) == {Weight.OK}
    assert set(findings) == {"store.origin", "store.files", "store.lock", "store.set-aside"}
    assert "witness without bodies" in findings["store.files"].measured


def test_a_witness_with_a_log_in_its_directory_fails(tmp_path: Path) -> None:
    subject = subject_in(tmp_path, node={"witness": True})
    (subject.paths.root / "dledger-n0").mkdir(parents=True)
    (subject.paths.root / "dledger-n0" / "data").mkdir()

    assert by_check(store_checks, subject)["store.files"].verdict is Weight.FAIL


def test_a_backup_stream_that_stands_still_is_warned_of(tmp_path: Path) -> None:
    subject = store_in(tmp_path)
    now_ms = time.time_ns() // 1_000_000
    verdicts_by_age = []
    for age_s in (0, STREAM_BEHIND_MAX_S + 2):
        note = LastBackup(now_ms - age_s * 1_000, 1)
        write_last_backup(subject.paths.root, note, name=STREAM_NAME)
        verdicts_by_age.append(by_check(store_checks, subject)["store.backup-stream"].verdict)

    assert verdicts_by_age == [Weight.OK, Weight.WARN]


def test_a_store_that_another_program_holds_fails_and_names_it(tmp_path: Path) -> None:
    subject = store_in(tmp_path)
    with held(subject.paths.own / "lock") as pid:
        finding = by_check(store_checks, subject)["store.lock"]
        holders = holders_of(subject.paths.own / "lock")

    assert holders == {pid}
    assert finding.verdict is Weight.FAIL
    assert f"pid {pid}" in finding.measured
    assert by_check(store_checks, subject)["store.lock"].verdict is Weight.OK


def test_a_store_that_was_not_stopped_is_told(tmp_path: Path) -> None:
    subject = store_in(tmp_path)
    (subject.paths.root / "abort").touch()

    assert by_check(store_checks, subject)["store.last-stop"].verdict is Weight.WARN


def test_a_marked_damage_fails(tmp_path: Path) -> None:
    subject = store_in(tmp_path)
    mark_damage(damage_path(subject.paths.root), DAMAGE)
    marked = by_check(store_checks, subject)["store.damage"]
    damage_path(subject.paths.root).write_bytes(b"torn")
    torn = by_check(store_checks, subject)["store.damage"]

    assert (marked.verdict, torn.verdict) == (Weight.FAIL, Weight.FAIL)
    assert "position 64" in marked.measured


def test_a_torn_table_or_list_of_members_fails(tmp_path: Path) -> None:
    subject = store_in(tmp_path)
    (subject.paths.root / "config").mkdir()
    (subject.paths.root / "config" / "topics.json").write_text('{"half":')
    subject.paths.members.write_bytes(b"torn\n")
    finding = by_check(store_checks, subject)["store.small-files"]

    assert finding.verdict is Weight.FAIL
    assert "topics.json" in finding.measured
    assert "members" in finding.measured


def test_what_lies_aside_and_a_reserve_in_use_are_told(tmp_path: Path) -> None:
    subject = store_in(tmp_path)
    (subject.paths.own / "set-aside").mkdir()
    (subject.paths.own / "set-aside" / "queue-1").touch()
    subject.paths.reserve.write_bytes(bytes(4_096))
    found = verdicts(by_check(store_checks, subject))

    assert (found["store.set-aside"], found["store.reserve"]) == (Weight.WARN, Weight.WARN)


def test_a_folder_that_holds_another_kind_of_log_fails(tmp_path: Path) -> None:
    subject = subject_in(tmp_path)
    folder = subject.paths.root / "dledger-n5" / "data"
    folder.mkdir(parents=True)
    (folder / "0".zfill(20)).write_bytes(bytes(65_536))
    finding = by_check(store_checks, subject)["store.files"]

    assert finding.verdict is Weight.FAIL
