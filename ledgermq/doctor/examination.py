"""Examination: all checks in their order; one that cannot be made is a finding, too."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ledgermq.doctor.disk_checks import disk_checks, store_checks
from ledgermq.doctor.finding import PARTS, Check, Diagnosis, fail, ok, warn
from ledgermq.doctor.host_checks import asked, host_checks, port_checks
from ledgermq.doctor.peer_checks import peer_checks
from ledgermq.doctor.settings_checks import key_checks, read_checked, settings_checks
from ledgermq.doctor.subject import Subject, way_in
from ledgermq.hosts.accounts import account_name
from ledgermq.members.reports import read_levels
from ledgermq.model.config.amounts import size_text
from ledgermq.model.errors import LedgerError
from ledgermq.model.features import MemberLevel, described, holding_back, version_of
from ledgermq.process.runtime_paths import RuntimePaths

FILES_MIN = 1_024
FILES_WISE = 65_536
LOCKED_MIN = 64 * 1024
_NAME_WIDTH = 25
"""Characters of the first column in ``/proc/PID/limits``."""

ERROR_MAX_MS = 1_000
_TIME_ERROR = 5
_STA_UNSYNC = 0x40
Checks = Callable[[Subject], Iterator[Diagnosis]]


def limit_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about open files and locked memory."""
    whose = "the node" if subject.pids else "this shell; the unit sets its own"
    pid = subject.pids[0] if subject.pids else 0
    yield asked(
        "limits.open-files",
        "its limits",
        lambda: _files(subject, _soft_limits(pid)["Max open files"], whose),
    )
    yield asked(
        "limits.locked-memory",
        "its limits",
        lambda: _locked(_soft_limits(pid)["Max locked memory"], whose),
    )


def _soft_limits(pid: int) -> dict[str, int | None]:
    """Soft limits of a process, of this one for 0, by the kernel's names; None: there is none.

    Not prlimit(2), which tells of other accounts' processes only whom may change them, too: root of
    a container may not.
    """
    lines = Path(f"/proc/{pid or 'self'}/limits").read_text().splitlines()[1:]
    return {
        line[:_NAME_WIDTH].strip(): None if soft == "unlimited" else int(soft)
        for line in lines
        if (soft := line[_NAME_WIDTH:].split()[0])
    }


def _files(subject: Subject, soft: int | None, whose: str) -> Diagnosis:
    queues = count_queues(subject.paths.consume_queues)
    measured = f"{_number(soft)} open files for {whose}; {queues} queues"
    wanted = max(FILES_WISE, 2 * queues)
    check = Check("limits.open-files", f"at least {FILES_MIN}, better {wanted}")
    if soft is None or soft >= wanted:
        return check.ok(measured)
    change = f"LimitNOFILE={4 * FILES_WISE} in the unit, or ulimit -n for a node of a shell"
    if soft < FILES_MIN:
        return check.fail(measured, change)
    return check.warn(measured, change)


def _locked(soft: int | None, whose: str) -> Diagnosis:
    text = "unlimited" if soft is None else size_text(soft)
    measured = f"{text} of locked memory for {whose}"
    check = Check(
        "limits.locked-memory",
        f"at least {size_text(LOCKED_MIN)}, for keys; the node locks nothing else",
    )
    if soft is None or soft >= LOCKED_MIN:
        return check.ok(measured)
    return check.warn(measured, "LimitMEMLOCK=64K in the unit")


def count_queues(folder: Path) -> int:
    """Queues below ``consumequeue``; 0 when there is none."""
    return sum(1 for _ in folder.glob("*/*")) if folder.is_dir() else 0


def _number(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def level_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Two findings: what the members know, and what the log needs."""
    if subject.status is None:
        yield ok("levels.members", "not known: the node does not run")
        return
    if subject.settings.node.witness:
        yield ok("levels.members", "not known to a witness: ask doctor of a member with messages")
        return
    counters = subject.status["counters"].get("broker", {})
    members = read_levels(RuntimePaths(subject.settings.listen.runtime_dir).levels)
    if "feature_level" not in counters or not members:
        yield ok("levels.members", "not known: the node runs a version from before them")
        return
    yield _members(members, counters["feature_level"])
    yield _log(counters)


def _members(members: list[MemberLevel], in_force: int) -> Diagnosis:
    measured = f"{described(members)}; level {in_force} is in force"
    newest = max(one["level"] or 0 for one in members)
    check = Check("levels.members", f"all know level {newest}")
    reasons = holding_back(members, newest)
    if reasons:
        return check.warn(measured, f"{'; '.join(reasons)}: see docs/operating/new-version.md")
    if newest > in_force:
        measured += ": the next step is `ledgermq cluster features --enable`"
    return check.ok(measured)


def _log(counters: Mapping[str, int]) -> Diagnosis:
    check = Check("levels.log", "every command in it is understood")
    needed = counters["level_needed"]
    if not needed:
        return check.ok("what it has is known to this version")
    return check.fail(
        f"its next command needs level {needed}: the tables stand still, and this node does"
        " not lead",
        f"install version {version_of(needed)}, and restart the node",
    )


class _Timex(ctypes.Structure):
    """``struct timex`` of Linux on 64-bit machines, up to what is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock_checks(_subject: Subject) -> Iterator[Diagnosis]:
    """One finding: synchronised, and how far off the clock may be."""
    yield asked("clock.synchronised", "its clock", _clock)


def _clock() -> Diagnosis:
    state, error_ms, is_unsynced = kernel_clock()
    check = Check("clock.synchronised", f"synchronised, at most {ERROR_MAX_MS} ms off")
    change = (
        "install chrony or systemd-timesyncd and let it run: the times of messages, delays and"
        " retention are those of the leader's clock"
    )
    if state == _TIME_ERROR or is_unsynced:
        return check.warn("nothing synchronises it", change)
    if error_ms > ERROR_MAX_MS:
        return check.warn(f"up to {error_ms} ms off", change)
    return check.ok(f"synchronised, at most {error_ms} ms off")


def kernel_clock() -> tuple[int, int, bool]:
    """State of the clock, its largest error in ms, and whether the kernel calls it unsynchronised.

    Raises:
        OSError: the kernel does not tell.
    """
    asked = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return state, asked.maxerror // 1_000, bool(asked.status & _STA_UNSYNC)


_CHECKS: tuple[Checks, ...] = (
    *(host_checks, limit_checks, disk_checks, clock_checks, port_checks, key_checks),
    *(peer_checks, level_checks, settings_checks, store_checks),
)
GROUPS = dict(zip(PARTS, _CHECKS, strict=True))
"""What is run for each part."""


def examine(path: Path, groups: tuple[str, ...] = PARTS) -> Iterator[Diagnosis]:
    """What is found with the node of a settings file, which may run or not.

    Writes a file of 128 KiB into the store's folder, which has no name and is gone at the end;
    binds ports for a moment when the node does not run; connects to each member, and says nothing.

    Args:
        path: the settings file.
        groups: which parts; without settings that can be used there are none but the first finding.
    """
    settings, about_file = read_checked(path)
    yield about_file
    if settings is None:
        return
    subject = Subject.of(settings)
    yield _state(subject)
    for group in groups:
        yield from _guarded(group, subject)


def _state(subject: Subject) -> Diagnosis:
    barrier = subject.barrier
    if subject.status is None and barrier is not None:
        return warn(
            "node.state",
            f"not asked: {account_name(os.geteuid())} may not open {barrier}",
            limit="an account that may use the node's sockets",
            change=way_in(barrier),
        )
    if subject.status is None:
        return ok("node.state", f"does not run, or cannot be asked: {subject.silence}")
    raft = subject.status["raft"]
    value = f"{subject.status['state']}, {raft['role']} in term {raft['term']}"
    # A node that was started by an earlier version tells no health.
    health = subject.status.get("health")
    reasons = health["reasons"] if health else []
    if not reasons:
        return ok("node.state", value)
    return warn(
        "node.state",
        f"{value}: {'; '.join(reason['text'] for reason in reasons)}",
        limit="ready",
        change=f"see {', '.join(reason['see'] for reason in reasons)}",
    )


def _guarded(group: str, subject: Subject) -> Iterator[Diagnosis]:
    try:
        yield from GROUPS[group](subject)
    except (LedgerError, OSError) as error:
        yield fail(
            f"{group}.checks",
            f"not finished: {error}",
            limit="all of them made",
            change="run doctor as root or as the node's account",
        )
