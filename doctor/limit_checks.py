"""Limits of the node's processes, or of this one when the node does not run."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import psutil

from ledgermq.doctor.finding import Finding, fail, ok, warn
from ledgermq.doctor.subject import Subject
from ledgermq.model.amounts import size_text

FILES_MIN = 1_024
FILES_WISE = 65_536
LOCKED_MIN = 64 * 1024


def limit_checks(subject: Subject) -> Iterator[Finding]:
    """Findings about open files and locked memory."""
    whose = "the node" if subject.pids else "this shell; the unit sets its own"
    pid = subject.pids[0] if subject.pids else 0
    yield _files(subject, _limit(pid, resource.RLIMIT_NOFILE), whose)
    yield _locked(_limit(pid, resource.RLIMIT_MEMLOCK), whose)


def _limit(pid: int, kind: int) -> int | None:
    """Soft limit of a process, of this one for 0; None when it is none."""
    soft, _ = psutil.Process(pid or None).rlimit(kind)
    return None if soft == resource.RLIM_INFINITY else int(soft)


def _files(subject: Subject, soft: int | None, whose: str) -> Finding:
    queues = count_queues(subject.paths.consume_queues)
    measured = f"{_number(soft)} open files for {whose}; {queues} queues"
    wanted = max(FILES_WISE, 2 * queues)
    limit = f"at least {FILES_MIN}, better {wanted}"
    if soft is None or soft >= wanted:
        return ok("limits.open-files", measured, limit=limit)
    change = f"LimitNOFILE={4 * FILES_WISE} in the unit, or ulimit -n for a node of a shell"
    if soft < FILES_MIN:
        return fail("limits.open-files", measured, limit=limit, change=change)
    return warn("limits.open-files", measured, limit=limit, change=change)


def _locked(soft: int | None, whose: str) -> Finding:
    text = "unlimited" if soft is None else size_text(soft)
    measured = f"{text} of locked memory for {whose}"
    limit = f"at least {size_text(LOCKED_MIN)}, for keys; the node locks nothing else"
    if soft is None or soft >= LOCKED_MIN:
        return ok("limits.locked-memory", measured, limit=limit)
    return warn(
        "limits.locked-memory", measured, limit=limit, change="LimitMEMLOCK=64K in the unit"
    )


def count_queues(folder: Path) -> int:
    """Queues below ``consumequeue``; 0 when there is none."""
    return sum(1 for _ in folder.glob("*/*")) if folder.is_dir() else 0


def _number(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)
