"""Store checks: who holds it, how the last stop went, and known damage."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from ledgermq.conversion.last_backup import STREAM_NAME, read_last_backup
from ledgermq.daemon.directory_check import check_directory
from ledgermq.doctor.finding import Check, Diagnosis, fail, ok
from ledgermq.doctor.subject import Subject
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.amounts import size_text
from ledgermq.model.errors import CorruptLogError, LedgerError
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.kept_aside import FOLDER
from ledgermq.store.recovery.log_damage import damage_path, read_damage

_LOCK = re.compile(r"^\d+: (?:POSIX|FLOCK) .* (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.M)
STREAM_BEHIND_MAX_S = 120
TABLES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")


def store_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about the store's directory; nothing is locked or changed."""
    root = subject.paths.root
    if not root.is_dir():
        yield ok("store.files", f"{root} is not there yet: an empty store will be made")
        return
    yield _files(subject)
    yield _locks(subject)
    if subject.settings.node.witness:
        # No log, no tables, no reserve: its own file says at the start what is wrong with it.
        yield _aside(subject)
        return
    yield _last_stop(subject)
    yield _damage(subject)
    yield _own_files(subject)
    yield _aside(subject)
    yield _reserve(subject)
    yield _backup_stream(subject)


def _backup_stream(subject: Subject) -> Diagnosis:
    """Where one was begun, how long ago it had all that was committed."""
    check = Check("store.backup-stream", f"{STREAM_BEHIND_MAX_S} s behind")
    try:
        last = read_last_backup(subject.paths.root, name=STREAM_NAME)
    except LedgerError as error:
        return check.warn(
            str(error), "delete ledgermq/last-stream in the store; the stream writes it anew"
        )
    if last is None:
        return check.ok("none of this store")
    behind_s = max(0, time.time_ns() // 1_000_000 - last.created_ms) // 1_000
    if behind_s > STREAM_BEHIND_MAX_S:
        return check.warn(
            f"{behind_s:,} s behind",
            "start it, or see what it waits for in its journal; where none is wanted any"
            " more, delete ledgermq/last-stream in the store",
        )
    return check.ok(f"{behind_s:,} s behind")


def _files(subject: Subject) -> Diagnosis:
    try:
        found = check_directory(subject.settings)
    except LedgerError as error:
        return fail(
            "store.files",
            str(error),
            limit="files that fit the settings",
            change="correct the setting that is named, or see docs/operating/check-and-repair.md",
        )
    if subject.settings.node.witness:
        return ok("store.files", f"{found.root}: a witness without bodies, which has no log")
    return ok("store.files", f"{found.root}: {found.text.removesuffix(', left by a crash')}")


def _locks(subject: Subject) -> Diagnosis:
    """Who holds the store's locks, as the kernel lists it: to try a lock could keep a node from
    starting.
    """
    root = subject.paths.root
    holders = holders_of(root / "lock") | holders_of(subject.paths.own / "lock")
    strange = holders - set(subject.pids)
    check = Check("store.lock", "this node's" if subject.pids else "free")
    if not strange:
        return check.ok("held by this node" if holders else "free")
    names = ", ".join(_program(pid) for pid in sorted(strange))
    if subject.pids:
        return check.ok(f"held by this node, and {names}")
    return check.fail(
        f"held by {names}", "a broker, another node or what is left of one has the store: stop it"
    )


def holders_of(path: Path) -> set[int]:
    """Pids that have a lock on the file, of either kind; a family's is the one that took it."""
    try:
        status = path.stat()
    except OSError:
        return set()
    wanted = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    return {
        int(pid)
        for pid, major, minor, inode in _LOCK.findall(Path("/proc/locks").read_text())
        if (int(major, 16), int(minor, 16), int(inode)) == wanted
    }


def _program(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}, which is gone"


def _last_stop(subject: Subject) -> Diagnosis:
    is_marked = (subject.paths.root / "abort").exists()
    if subject.pids:
        return ok("store.last-stop", "the node runs")
    check = Check("store.last-stop", "no abort")
    if is_marked:
        return check.warn(
            "not in order: abort is there",
            "nothing: the next start checks the end of the log. Find out what killed it",
        )
    return check.ok("in order, or never started")


def _damage(subject: Subject) -> Diagnosis:
    check = Check("store.damage", "none")
    path = damage_path(subject.paths.root)
    try:
        mark = read_damage(path)
    except CorruptLogError as error:
        return check.fail(
            str(error), "treat it as a member with a new disk: docs/operating/group.md"
        )
    if mark is not None:
        return check.fail(
            f"the log is {mark.describe()}",
            "start it in its group, which has what it lacks; look at the disk. Alone: a"
            " backup, or ledgermq store accept-loss",
        )
    places = subject.status["damages"] if subject.status else []
    if places:
        return check.fail(
            f"{len(places)} places, as {places[0]['file']}",
            "see docs/operating/check-and-repair.md; ledgermq status lists them",
        )
    return check.ok("none is known; `ledgermq store check` reads all")


def _own_files(subject: Subject) -> Diagnosis:
    """Small files that a start needs, and that nobody else has."""
    wrong = []
    tables = [subject.paths.root / "config" / name for name in TABLES]
    for read in (
        lambda: RosterFile(subject.paths.members),
        *(ConfigFile(table).load for table in tables),
    ):
        try:
            read()
        except LedgerError as error:
            wrong.append(str(error))
    check = Check("store.small-files", "whole, or with a whole copy beside it")
    if wrong:
        return check.fail(
            "; ".join(wrong), "as the message says; docs/operating/check-and-repair.md, «Repair»"
        )
    return check.ok("members and tables can be read")


def _aside(subject: Subject) -> Diagnosis:
    folder = subject.paths.own / FOLDER
    count = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
    check = Check("store.set-aside", "nothing")
    if not count:
        return check.ok("nothing")
    return check.warn(
        f"{count} files or folders in {folder}",
        "a start or a repair found them of no use: look at them, then delete them",
    )


def _reserve(subject: Subject) -> Diagnosis:
    wanted = subject.settings.retention.reserve_bytes
    try:
        there = subject.paths.reserve.stat().st_blocks * 512
    except FileNotFoundError:
        return ok("store.reserve", "none yet: the first start makes it")
    measured, limit = size_text(there), f"retention.reserve_bytes = {size_text(wanted)}"
    check = Check("store.reserve", limit)
    if there >= wanted:
        return check.ok(measured)
    return check.warn(measured, "make room: it is being used, and filled again when there is space")
