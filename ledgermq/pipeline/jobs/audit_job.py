"""``audit`` job: the replicas of a group against each other, and each against itself.

Each replica is checked as ``ledgermq store check`` does it, with its files spread over the workers:
CRCs, positions, contiguity, queues and index against the log. Then digests of stretches of all logs
are compared. What of the first follows from the second is told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.findings import FROM_PEER, Finding, Severity
from ledgermq.pipeline.jobs.job_session import Job
from ledgermq.pipeline.jobs.log_digests import (
    FINE_GRID,
    LogRange,
    ReplicaLog,
    StretchState,
    cells_between,
    compare,
    digest_tasks,
    digests_of,
    grid_size,
    joined,
    log_files,
)
from ledgermq.pipeline.jobs.receipt_faults import AuditedReceipts
from ledgermq.repair.check.check_store import CheckedStore, CheckOptions, check_store
from ledgermq.repair.file_workers import Report, Work

_REFINED_BYTES_MAX = 1 << 30
"""Most bytes of all logs that are read once more, to say where in a stretch they differ."""


class Fault(NamedTuple):
    """One row of the table.

    Attributes:
        replica: its name.
        kind: ``divergent``, ``missing``, or the severity of what the replica itself told.
        first, end: positions of the log, None where it is about another file.
        file: below the replica's folder, empty where it is about positions.
        findings: how many of the check it stands for.
    """

    replica: str
    kind: str
    first: int | None
    end: int | None
    file: str
    what: str
    remedy: str
    findings: int

    def as_text(self) -> str:
        """One line for people."""
        place = self.file or f"positions {self.first:,} to {self.end:,}"
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.kind:<9} {self.replica}: {place}: {self.what}{remedy}"


@dataclass(frozen=True)
class AuditedReplica:
    """One replica: what its check has counted, and its log from the group's first position on."""

    name: str
    root: Path
    checked: CheckedStore
    ranges: tuple[LogRange, ...]


@dataclass(frozen=True)
class Audit:
    """The outcome.

    Attributes:
        first, end: positions that were compared.
        receipts: what the comparison with checkpoints has found; None where none was asked for.
    """

    replicas: tuple[AuditedReplica, ...]
    faults: tuple[Fault, ...]
    first: int
    end: int
    grid: int
    receipts: AuditedReceipts | None = None


def audit(job: Job, roots: Sequence[Path], options: CheckOptions, *, split_bytes: int) -> Audit:
    """Compare the stores in ``roots``, if there are any; nothing in them is changed.

    Raises:
        ConfigError: one is no store.
        StorageError: something cannot be read.
        JobFailedError: Spark gave up.
    """
    if not roots:
        return Audit((), (), 0, 0, FINE_GRID)
    runner = _SparkRunner(job, split_bytes)
    with ThreadPoolExecutor(len(roots)) as pool:
        checked = list(pool.map(lambda root: check_store(root, options, runner=runner), roots))
    names = _names(roots)
    files = [log_files(root, self_id=options.self_id) for root in roots]
    logs = [
        ReplicaLog(found, one.first, one.end) for found, one in zip(files, checked, strict=True)
    ]
    first = min(log.first for log in logs)
    end = min(max(one.committed_end for one in checked), max(log.end for log in logs))
    end = max(first, end)
    grid = grid_size(first, end)
    suspects = [_suspects(one.findings) for one in checked]
    cells = cells_between(logs, first, end, grid=grid)
    comparison = _Comparison(job, logs, suspects, split_bytes)
    states = comparison.states(cells)
    differing = [
        cell
        for number, cell in enumerate(cells)
        if any(replica[number] is StretchState.DIVERGENT for replica in states)
    ]
    if differing and sum(b - a for a, b in differing) * len(logs) <= _REFINED_BYTES_MAX:
        cells, states = comparison.refined(cells, states)
    replicas = tuple(
        AuditedReplica(name, root, one, tuple(joined(cells, replica)))
        for name, root, one, replica in zip(names, roots, checked, states, strict=True)
    )
    faults = [fault for replica in replicas for fault in _faults(replica, len(replicas))]
    return Audit(replicas, tuple(faults), first, end, grid)


class _SparkRunner:
    """Work of a check, done by Spark's workers."""

    def __init__(self, job: Job, split_bytes: int) -> None:
        self._job = job
        self._split_bytes = split_bytes

    def __call__(self, work: Sequence[Work[Report]], total: int) -> list[Report]:
        return self._job.each(work, _run, size=total, split_bytes=self._split_bytes)


def _run(work: Work[Report]) -> Report:
    return work(_untold)


def _untold(count: int) -> None:
    """Progress is told by tasks."""
    del count


@dataclass(frozen=True)
class _Comparison:
    """The logs of all replicas, compared by Spark's workers; ``suspects`` as in ``compare``."""

    job: Job
    logs: Sequence[ReplicaLog]
    suspects: Sequence[frozenset[int]]
    split_bytes: int

    def states(self, cells: Sequence[tuple[int, int]]) -> list[list[StretchState]]:
        tasks = digest_tasks(self.logs, cells, split_bytes=self.split_bytes)
        size = sum(end - first for task in tasks for first, end in task.cells)
        digests = self.job.each(tasks, digests_of, size=size, split_bytes=self.split_bytes)
        return compare(self.logs, cells, tasks, digests, self.suspects)

    def refined(
        self, cells: Sequence[tuple[int, int]], states: Sequence[Sequence[StretchState]]
    ) -> tuple[list[tuple[int, int]], list[list[StretchState]]]:
        """The same, with the stretches in which logs differ divided further."""
        fine: list[tuple[int, int]] = []
        columns: dict[tuple[int, int], list[StretchState]] = {}
        for number, cell in enumerate(cells):
            column = [replica[number] for replica in states]
            if StretchState.DIVERGENT in column:
                fine += cells_between(self.logs, *cell, grid=FINE_GRID)
            else:
                columns[cell] = column
        found = self.states(fine)
        for number, cell in enumerate(fine):
            columns[cell] = [replica[number] for replica in found]
        ordered = sorted(columns)
        return ordered, [
            [columns[cell][number] for cell in ordered] for number in range(len(self.logs))
        ]


def _suspects(findings: Sequence[Finding]) -> frozenset[int]:
    positions = [_position(finding) for finding in findings if finding.severity is Severity.DAMAGE]
    return frozenset(position for position in positions if position is not None)


def _position(finding: Finding) -> int | None:
    """Position of what a finding is about, None if that is no place in the log."""
    start = _file_start(finding)
    return None if start is None or finding.offset is None else start + finding.offset


def _file_start(finding: Finding) -> int | None:
    """Where the log file that a finding is about begins, None if it is about another one."""
    folder, _, name = finding.file.rpartition("/")
    is_log = folder == "commitlog" or folder.endswith("/data")
    return int(name) if is_log and name.isdecimal() else None


def _faults(replica: AuditedReplica, count: int) -> list[Fault]:
    """Ranges of the log with the findings that follow from them, then what else was found."""
    left = [one for one in replica.checked.findings if one.severity is not Severity.NOTE]
    faults: list[Fault] = []
    for range_ in replica.ranges:
        if range_.state not in (StretchState.MISSING, StretchState.DIVERGENT):
            continue
        own = [finding for finding in left if _follows(finding, range_)]
        left = [finding for finding in left if finding not in own]
        text = {
            StretchState.MISSING: "not there, and another replica has it",
            StretchState.DIVERGENT: f"differs from the other replicas, of {count}",
        }[range_.state]
        faults.append(
            Fault(
                replica.name,
                range_.state.value,
                range_.first,
                range_.end,
                "",
                "; ".join([text, *dict.fromkeys(finding.what for finding in own)]),
                FROM_PEER,
                len(own),
            )
        )
    by_file: dict[tuple[str, Severity], list[Finding]] = {}
    for finding in left:
        by_file.setdefault((finding.file, finding.severity), []).append(finding)
    for (file, severity), findings in by_file.items():
        positions = [at for one in findings if (at := _position(one)) is not None]
        faults.append(
            Fault(
                replica.name,
                severity.value,
                min(positions, default=None),
                max(positions, default=-1) + 1 if positions else None,
                file,
                "; ".join(dict.fromkeys(_placed(finding) for finding in findings)),
                findings[0].remedy,
                len(findings),
            )
        )
    return faults


def _placed(finding: Finding) -> str:
    return finding.what if finding.offset is None else f"{finding.what} at {finding.offset}"


def _follows(finding: Finding, range_: LogRange) -> bool:
    """Whether a finding is what a check of this replica alone says of ``range_``."""
    position = _position(finding)
    if position is not None:
        # A record may begin before the bytes of it that differ.
        return range_.first - FINE_GRID <= position < range_.end
    if range_.state is not StretchState.MISSING:
        return False
    start = _file_start(finding)
    if start is not None:
        # A file that was cut has not its size.
        return isinstance(finding.expected, int) and 0 <= range_.first - start < finding.expected
    # What a log that was cut leaves behind: its index, and promises of what it had.
    folder, _, name = finding.file.rpartition("/")
    return name in ("checkpoint", "dispatch-checkpoint", "log-checkpoint") or (
        folder.startswith("dledger-") and folder.endswith("/index")
    )


def _names(roots: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    for depth in range(1, max(len(root.parts) for root in roots) + 1):
        names = ["/".join(root.parts[-depth:]) for root in roots]
        if len(set(names)) == len(names):
            return names
    return [f"{number}:{root}" for number, root in enumerate(roots)]
