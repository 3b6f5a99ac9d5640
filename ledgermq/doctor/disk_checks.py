"""Disk and store checks: whether the store's directory can be written, and what is known of it.

Of the disk: free space, and the time of a sync. Of the store: who holds it, how the last stop went,
and known damage.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from ledgermq.conversion.last_backup import STREAM_NAME, read_last_backup
from ledgermq.daemon.directory_check import found_store
from ledgermq.doctor.finding import Check, Diagnosis, fail, ok, warn
from ledgermq.doctor.host_checks import asked
from ledgermq.doctor.subject import Subject, nearest
from ledgermq.hosts.accounts import account_name
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.amounts import amount, size_text
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError
from ledgermq.process.store_kind import check_origin
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.disk_space import measure
from ledgermq.store.files.file_names import is_of_others
from ledgermq.store.files.kept_aside import FOLDER
from ledgermq.store.files.offsets_file import OffsetsFile
from ledgermq.store.recovery.log_damage import damage_path, read_damage

RUNTIME_FREE_MIN = 25 * 1024 * 1024
INODES_MIN = 10_000
SYNCS = 32
SYNC_SIZE = 4_096
SYNC_MEDIAN_MAX_MS = 20.0
SYNC_MEDIAN_MIN_MS = 0.01
"""Nothing that outlives a power failure is written so fast."""

GOOD_SYSTEMS = frozenset({"ext4", "xfs", "btrfs", "zfs", "ext3", "f2fs"})

MEMORY_SYSTEMS = frozenset({"tmpfs", "ramfs"})
REMOTE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs"})
_OCTAL = re.compile(r"\\([0-7]{3})")
_LOCK = re.compile(r"^\d+: (?:POSIX|FLOCK) .* (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.M)
STREAM_BEHIND_MAX_S = 120
TABLES = ("topics.json", "subscriptionGroup.json")


class Mount(NamedTuple):
    """Where a path is mounted."""

    point: str
    system: str
    options: str


def disk_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about the store's directory and the runtime directory."""
    root, runtime = subject.paths.root, subject.settings.listen.runtime_dir
    store_findings = [_writable("disk.store", root, "store.path_root_dir")]
    yield from store_findings
    yield from _owners(subject)
    yield asked("disk.file-system", "its mounts", lambda: _system(nearest(root)))
    if not subject.settings.node.witness:
        # Two sectors that are there already are all that a witness without bodies ever writes.
        yield _space(subject)
        yield _inodes(nearest(root))
    if all(not finding.change for finding in store_findings):
        yield _sync_latency(subject)
    yield _writable("disk.runtime", runtime, "listen.runtime_dir")
    yield _runtime_space(subject)


def _writable(name: str, folder: Path, setting: str) -> Diagnosis:
    """Whether files can be made in ``folder``: one is made and removed; the folder itself is not
    made.
    """
    there = nearest(folder)
    check = Check(name, f"files can be made in {setting}")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return check.fail(
            f"{there}: {error.strerror}",
            f"let the node's account write there, or name another folder in {setting}",
        )
    if there == folder:
        return check.ok(f"{folder} can be written")
    return check.ok(f"{folder} is not there; it can be made in {there}")


def _owners(subject: Subject) -> Iterator[Diagnosis]:
    """That no other account's files lie where the node has to write its own."""
    root, owner = subject.paths.root, subject.account
    if nearest(root) != root or owner == 0:
        return
    found = [root, *root.iterdir(), *(root / "config").glob("*"), *subject.paths.own.glob("*")]
    looked_at = [path for path in found if not is_of_others(path.name)]
    strange = [path for path in looked_at if _owner(path) not in (None, owner)]
    check = Check("disk.owner", f"all of it belongs to {account_name(owner)}")
    if strange:
        yield check.fail(
            f"{len(strange)} files of others, as {strange[0]}",
            f"chown -R {account_name(owner)} {root} while the node is stopped",
        )
    else:
        yield check.ok(f"{len(looked_at)} files looked at")


def _owner(path: Path) -> int | None:
    """None for what has gone meanwhile."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None


def _system(folder: Path) -> Diagnosis:
    mount = mount_of(folder)
    measured = f"{mount.system} at {mount.point} ({mount.options})"
    check = Check("disk.file-system", "ext4 or xfs, on a disk of its own, with barriers")
    if mount.system in REMOTE_SYSTEMS:
        return check.fail(
            measured, "move the store to a local disk: locks, mapped files and syncs need one"
        )
    if mount.system in MEMORY_SYSTEMS:
        return check.warn(
            measured, "move the store to a disk: this one is empty after a restart of the machine"
        )
    if {"nobarrier", "barrier=0"} & set(mount.options.split(",")):
        return check.fail(
            measured, "mount it with barriers: without, a sync that returned is lost in a power cut"
        )
    if mount.system not in GOOD_SYSTEMS:
        return check.warn(measured, "use ext4 or xfs: others are not tested")
    return check.ok(measured)


def mount_of(path: Path) -> Mount:
    """The mount that ``path`` is in: the one with the longest mount point, the last of several."""
    best = Mount("/", "unknown", "")
    real = str(path.resolve())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (system, _, options) = left.split(), right.split(" ", 2)
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        is_above = point in ("/", real) or real.startswith(f"{point}/")
        if is_above and len(point) >= len(best.point):
            both = dict.fromkeys([*fields[5].split(","), *options.split(",")])
            best = Mount(point, system, ",".join(both))
    return best


def _space(subject: Subject) -> Diagnosis:
    retention = subject.settings.retention
    disk = measure(nearest(subject.paths.root))
    measured = f"{size_text(disk.free)} of {size_text(disk.total)} free, {disk.used_percent} % used"
    check = Check(
        "disk.space",
        f"retention.clean_above = {retention.clean_above}, refuse_above = {retention.refuse_above}",
    )
    if amount(retention.refuse_above).is_passed(disk):
        return check.fail(
            measured,
            "make room, or keep less (retention.file_reserved_time, retention.bytes_max):"
            " producers are refused",
        )
    if amount(retention.clean_above).is_passed(disk):
        return check.warn(
            measured, "keep less, or give the store a larger disk, before producers are refused"
        )
    return check.ok(measured)


def _inodes(folder: Path) -> Diagnosis:
    found = os.statvfs(folder)
    check = Check("disk.inodes", f"at least {INODES_MIN}")
    if not found.f_files:
        return check.ok("this file system has no fixed number")
    measured = f"{found.f_favail} of {found.f_files} files can still be made"
    if found.f_favail >= INODES_MIN:
        return check.ok(measured)
    return check.warn(
        measured, "each queue has a file: remove files of others, or make the file system anew"
    )


def _sync_latency(subject: Subject) -> Diagnosis:
    times_ms = measure_syncs(nearest(subject.paths.root))
    median, longest = statistics.median(times_ms), max(times_ms)
    sick_ms = subject.settings.raft.disk_sick_after_ms
    measured = f"{SYNCS} syncs of 4 KiB: median {median:.2f} ms, longest {longest:.2f} ms"
    check = Check(
        "disk.sync",
        f"median at most {SYNC_MEDIAN_MAX_MS:.0f} ms,"
        f" none of raft.disk_sick_after_ms = {sick_ms} ms",
    )
    if longest >= sick_ms:
        return check.fail(
            measured, "the disk hangs: look at the kernel's log, at SMART, at other users of it"
        )
    if median > SYNC_MEDIAN_MAX_MS:
        return check.warn(
            measured, "every acknowledgement waits for a sync: take a disk with a protected cache"
        )
    if median < SYNC_MEDIAN_MIN_MS:
        return warn(
            "disk.sync",
            measured,
            limit=f"at least {SYNC_MEDIAN_MIN_MS} ms",
            change="so short a sync is none: see what the hypervisor or the file system does",
        )
    return check.ok(measured)


def measure_syncs(folder: Path) -> list[float]:
    """Milliseconds of each sync of a file in ``folder`` that nobody else sees, and that is removed.

    Raises:
        OSError: it cannot be written.
    """
    times_ms = []
    block = os.urandom(SYNC_SIZE)
    with tempfile.TemporaryFile(dir=folder, prefix=".ledgermq-doctor-") as file:
        for number in range(SYNCS):
            os.pwrite(file.fileno(), block, number * SYNC_SIZE)
            began_ns = time.monotonic_ns()
            os.fdatasync(file.fileno())
            times_ms.append((time.monotonic_ns() - began_ns) / 1_000_000)
    return times_ms


def _runtime_space(subject: Subject) -> Diagnosis:
    there = nearest(subject.settings.listen.runtime_dir)
    free = measure(there).free
    check = Check("disk.runtime-space", f"at least {size_text(RUNTIME_FREE_MIN)}")
    measured = f"{size_text(free)} free at {there}"
    if free >= RUNTIME_FREE_MIN or subject.status is not None:
        return check.ok(measured)
    return check.fail(
        measured, "make room there, or name another folder in listen.runtime_dir: no start without"
    )


def store_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about the store's directory; nothing is locked or changed."""
    root = subject.paths.root
    if not root.is_dir():
        yield ok("store.files", f"{root} is not there yet: an empty store will be made")
        return
    yield _origin(subject)
    yield _files(subject)
    yield asked("store.lock", "its locks", lambda: _locks(subject))
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


def _origin(subject: Subject) -> Diagnosis:
    check = Check("store.origin", "nothing that would be lost")
    try:
        check_origin(subject.paths, subject.settings)
    except ConfigError as error:
        return check.fail(error.message, "see docs/operating/rocketmq5.md")
    except LedgerError as error:
        return check.fail(str(error), "let the node's account read the directory")
    return check.ok("a store that a node goes on with")


def _files(subject: Subject) -> Diagnosis:
    try:
        found = found_store(subject.settings)
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
    config = subject.paths.root / "config"
    tables = [config / name for name in TABLES]
    for read in (
        lambda: RosterFile(subject.paths.members),
        lambda: OffsetsFile(config).load(),
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
