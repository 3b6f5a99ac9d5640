"""Limit checks: resource limits of the node's processes, or of this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledgermq.doctor.finding import Diagnosis, fail, ok, warn
from ledgermq.doctor.subject import Subject
from ledgermq.model.config.amounts import size_text

FILES_MIN = 1_024
FILES_WISE = 65_536
LOCKED_MIN = 64 * 1024
_NAME_WIDTH = 25
"""Characters of the first column in ``/proc/PID/limits``."""


def limit_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about open files and locked memory."""
    whose = "the node" if subject.pids else "this shell; the unit sets its own"
    pid = subject.pids[0] if subject.pids else 0
    limits = _soft_limits(pid)
    yield _files(subject, limits["Max open files"], whose)
    yield _locked(limits["Max locked memory"], whose)


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
    limit = f"at least {FILES_MIN}, better {wanted}"
    if soft is None or soft >= wanted:
        return ok("limits.open-files", measured, limit=limit)
    change = f"LimitNOFILE={4 * FILES_WISE} in the unit, or ulimit -n for a node of a shell"
    if soft < FILES_MIN:
        return fail("limits.open-files", measured, limit=limit, change=change)
    return warn("limits.open-files", measured, limit=limit, change=change)


def _locked(soft: int | None, whose: str) -> Diagnosis:
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
