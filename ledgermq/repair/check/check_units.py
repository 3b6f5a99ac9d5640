"""Check of ConsumeQueues: names, sizes and order of files, units that no message accounts for.

Whether each message has its unit, the workers compare that read the log (``compare_units``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import UNIT, Units
from ledgermq.formats.findings import FINDINGS_MAX, REBUILD, START_MENDS, Finding, Severity
from ledgermq.formats.java_hash import HASH_MIN
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.repair.check.file_family import (
    FileFamily,
    FoundFile,
    derived,
    find_family,
    first_nonzero,
    read_padded,
)
from ledgermq.store.files.file_names import own_names
from ledgermq.store.queues.dispatch_tables import QueueBlock
from ledgermq.store.queues.queue_end import PREFILL_SIZE

UNITS_HELD_MAX = 200_000
"""Units collected before they are compared: few large reads are better than many small ones."""


QueueKey = tuple[bytes, int]
Offsets = npt.NDArray[np.int64]


class WrongUnits(NamedTuple):
    """Units side by side that are not those of their messages.

    Attributes:
        offset: queue offset of the first one.
        units: how many.
        missing: whether nothing was put there at all.
        expected, found: position, size and tags code of the first one.
    """

    key: QueueKey
    offset: int
    units: int
    missing: bool
    expected: tuple[int, int, int]
    found: tuple[int, int, int]


class ComparedUnits(NamedTuple):
    """What one file's comparison came to.

    Attributes:
        matched: queue offsets whose units are right, by queue, as half-open ranges.
        wrong: those that are not.
    """

    matched: dict[QueueKey, list[tuple[int, int]]]
    wrong: list[WrongUnits]


class UnitComparison:
    """Compares the blocks that it is given with the queue files below ``root``."""

    def __init__(
        self, root: Path, *, file_size: int, required_end: int, has_extensions: bool
    ) -> None:
        """Nothing is read yet.

        Args:
            root: the folder ``consumequeue``.
            file_size: bytes of a queue file; 0 where there is none.
            required_end: messages from this position on need not have a unit yet.
            has_extensions: whether there is a ``consumequeue_ext``.
        """
        self._root = root
        self._file_size = file_size
        self._required_end = required_end
        self._has_extensions = has_extensions
        self._held: dict[QueueKey, list[tuple[Offsets, Units]]] = {}
        self._held_count = 0
        self._matched: dict[QueueKey, list[tuple[int, int]]] = {}
        self._wrong: list[WrongUnits] = []

    def add(self, block: QueueBlock) -> None:
        """Take the units that some messages of one queue must have."""
        key = (block.topic, block.queue_id)
        self._held.setdefault(key, []).append((block.queue_offsets.copy(), block.units))
        self._held_count += len(block.units)
        if self._held_count >= UNITS_HELD_MAX:
            self._compare_held()

    def finish(self) -> ComparedUnits:
        """Compare what is left; the outcome of all."""
        self._compare_held()
        return ComparedUnits(self._matched, self._wrong)

    def _compare_held(self) -> None:
        for key, blocks in self._held.items():
            offsets = np.concatenate([offsets for offsets, _ in blocks])
            # Numpy joins records field by field, and would give them the machine's byte order.
            units = np.frombuffer(b"".join(units.tobytes() for _, units in blocks), UNIT)
            starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
            for first, last in pairwise(starts):
                self._compare(key, int(offsets[first]), units[first:last])
        self._held = {}
        self._held_count = 0

    def _compare(self, key: QueueKey, first: int, units: Units) -> None:
        content = self._read(key, first, len(units))
        if content == units.tobytes():
            self._match(key, first, first + len(units))
            return
        found = np.frombuffer(content, UNIT)
        same = (found["position"] == units["position"]) & (found["size"] == units["size"])
        # Below all hashes are addresses of units in consumequeue_ext.
        is_address = (found["tags"] < HASH_MIN) & self._has_extensions
        same &= (found["tags"] == units["tags"]) | is_address
        missing = (found["position"] == 0) & (found["size"] == 0) & (found["tags"] == 0)
        due = units["position"] < self._required_end
        # 0: right, 1: missing, 2: wrong, 3: missing and not due
        kinds = np.where(same, 0, np.where(missing, np.where(due, 1, 3), 2))
        starts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for begin, end in pairwise(starts):
            kind = int(kinds[begin])
            if kind == 0:
                self._match(key, first + begin, first + end)
            elif kind != 3:
                self._wrong.append(
                    WrongUnits(
                        key,
                        first + begin,
                        end - begin,
                        kind == 1,
                        units[begin].item(),
                        found[begin].item(),
                    )
                )

    def _match(self, key: QueueKey, first: int, end: int) -> None:
        ranges = self._matched.setdefault(key, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))

    def _read(self, key: QueueKey, first: int, count: int) -> bytes:
        """``count`` units from ``first`` on, zeros where there is no file."""
        if not self._file_size or first < 0:
            return bytes(count * UNIT_SIZE)
        parts = []
        at, end = first * UNIT_SIZE, (first + count) * UNIT_SIZE
        folder = f"{self._root}/{os.fsdecode(key[0])}/{key[1]}"
        while at < end:
            start = at - at % self._file_size
            size = min(end, start + self._file_size) - at
            parts.append(read_padded(f"{folder}/{start:020d}", at - start, size))
            at += size
        return b"".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTask:
    """One queue to be looked at.

    Attributes:
        matched: queue offsets whose units are those of their messages, half-open, ascending.
        log_first, log_end: the log's first position, and the one behind its last whole record.
        damaged: spans of the log without a whole record: units that point there are not judged.
        judged_end: units of messages from this position on may just have been put.
        open_end: whether the store was not stopped: units may be younger than the log's copy.
    """

    root: Path
    folder: Path
    file_size: int
    matched: Sequence[tuple[int, int]]
    log_first: int
    log_end: int
    judged_end: int
    damaged: Sequence[tuple[int, int]]
    open_end: bool


@dataclass(slots=True)
class QueueReport:
    """What one queue holds.

    Attributes:
        end: queue offset behind its last unit.
        log_end: position behind the message of its last unit, -1 without one.
        stale: units of messages that were deleted with their log files.
    """

    findings: list[Finding]
    units: int = 0
    stale: int = 0
    end: int = 0
    log_end: int = -1


def check_queue(task: QueueTask) -> QueueReport:
    """Look at all files of one queue."""
    family, findings = find_family(
        task.folder,
        root=task.root,
        file_size=task.file_size,
        severity=Severity.DERIVED,
        remedy=REBUILD,
    )
    report = QueueReport(findings)
    ended: int | None = None
    for file in family.files:
        if file.size != family.file_size:
            continue
        ended = _check_file(task, family, file, report, ended)
    return report


def _check_file(
    task: QueueTask, family: FileFamily, file: FoundFile, report: QueueReport, ended: int | None
) -> int | None:
    """Check one file; the queue offset where the queue ended, if it has."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ended
    try:
        name = str(Path(file.path).relative_to(task.root))
        first = file.start // UNIT_SIZE
        used = 0
        if ended is None:
            units = np.frombuffer(os.pread(fd, file.size, 0), UNIT)
            valid = (units["size"] > 0) & (units["position"] >= 0)
            used = int(np.argmin(valid)) if not valid.all() else len(valid)
            _check_units(task, report, name, first, units[:used])
            ended = first + used if used < len(units) else None
        stray = first_nonzero(fd, used * UNIT_SIZE, file.size)
        if stray is not None:
            _add(task, report, name, stray, "bytes behind the last unit of the queue")
        report.end = max(report.end, first + used)
        return ended
    finally:
        os.close(fd)


def _check_units(
    task: QueueTask, report: QueueReport, name: str, first: int, units: npt.NDArray[np.void]
) -> None:
    positions = units["position"].astype(np.int64)
    sizes = units["size"].astype(np.int64)
    prefill = (sizes == PREFILL_SIZE) & (positions == 0)
    leading = int(np.argmin(prefill)) if not prefill.all() else len(prefill)
    stray = np.flatnonzero(prefill[leading:]) + leading
    wrong_tags = np.flatnonzero(prefill & (units["tags"] != 0))
    for number in np.union1d(stray, wrong_tags)[:FINDINGS_MAX].tolist():
        _add(task, report, name, number * UNIT_SIZE, "a unit that stands for none is out of place")
    down = np.flatnonzero((np.diff(positions) <= 0) & ~prefill[:-1] & ~prefill[1:]) + 1
    for number in down[:FINDINGS_MAX].tolist():
        _add(task, report, name, number * UNIT_SIZE, "unit points before the one before it")
    offsets = np.arange(first, first + len(units))
    stale = (positions < task.log_first) & ~prefill
    accounted = prefill | stale
    for begin, end in task.matched:
        accounted |= (offsets >= begin) & (offsets < end)
    for begin, end in task.damaged:
        accounted |= (positions >= begin) & (positions < end)
    behind = ~accounted & (positions >= task.log_end)
    lost = ~accounted & ~behind & (positions < task.judged_end)
    for number in np.flatnonzero(lost)[:FINDINGS_MAX].tolist():
        text = "unit points to no message of its queue"
        _add(task, report, name, number * UNIT_SIZE, text, found=units[number].item())
    found = np.flatnonzero(behind)
    if len(found):
        severity = Severity.NOTE if task.open_end else Severity.DERIVED
        text = f"{len(found)} units point behind the end of the log"
        offset = int(found[0]) * UNIT_SIZE
        report.findings.append(
            Finding(severity, name, offset, text, task.log_end, int(positions[found[0]]), REBUILD)
        )
    report.units += len(units) - int(np.count_nonzero(prefill))
    report.stale += int(np.count_nonzero(stale))
    if len(units) and not prefill[-1]:
        report.log_end = int(positions[-1]) + int(sizes[-1])


def queue_log_end(folder: Path, file_size: int) -> int:
    """Position behind the message of a queue's last unit, -1 without one; nothing is judged."""
    for path in (folder / name for name in reversed(own_names(folder))):
        try:
            with path.open("rb") as file:
                content = file.read(file_size)
        except FileNotFoundError:
            continue
        units = np.frombuffer(content[: len(content) // UNIT_SIZE * UNIT_SIZE], UNIT)
        used = np.flatnonzero((units["size"] > 0) & (units["size"] != PREFILL_SIZE))
        if len(used):
            return int(units["position"][used[-1]]) + int(units["size"][used[-1]])
    return -1


def describe_wrong_units(
    wrong: Sequence[WrongUnits],
    matched: Mapping[QueueKey, Sequence[tuple[int, int]]],
    *,
    queues: Path,
    root: Path,
    file_size: int,
    live_topics: frozenset[str] | None,
) -> list[Finding]:
    """Findings for units that are not those of their messages.

    Args:
        live_topics: what ``topics.json`` names, None if there is none: a deleted topic's queues
            are deleted before its messages are.
    """
    findings: list[Finding] = []
    folders: dict[QueueKey, int] = {}
    for one in wrong:
        topic = os.fsdecode(one.key[0])
        folder = queues / topic / str(one.key[1])
        if one.missing and not own_names(folder):
            folders[one.key] = folders.get(one.key, 0) + one.units
            continue
        at = one.offset * UNIT_SIZE
        start = at - at % file_size if file_size else 0
        name = str((folder / f"{max(start, 0):020d}").relative_to(root))
        many = f" ({one.units} units)" if one.units > 1 else ""
        if one.missing:
            text = f"unit of a message is missing{many}"
            findings.append(derived(name, at - start, text, one.expected, None))
            continue
        twice = any(first <= one.offset < end for first, end in matched.get(one.key, ()))
        if twice and one.found[0] < one.expected[0]:
            text = f"message with a queue offset that an earlier one has: not in its queue{many}"
            findings.append(Finding(Severity.NOTE, name, at - start, text, one.expected, one.found))
            continue
        text = f"unit is not that of its message{many}"
        findings.append(derived(name, at - start, text, one.expected, one.found))
    for key, count in folders.items():
        topic = os.fsdecode(key[0])
        name = str((queues / topic / str(key[1])).relative_to(root))
        if live_topics is not None and topic not in live_topics:
            text = f"no queue for {count} messages of a topic that was deleted"
            findings.append(Finding(Severity.NOTE, name, None, text))
        else:
            findings.append(derived(name, None, f"no queue for {count} messages", None, None))
    return findings


def _add(
    task: QueueTask,
    report: QueueReport,
    name: str,
    offset: int,
    what: str,
    *,
    found: object = None,
) -> None:
    severity = Severity.NOTE if task.open_end and "behind" in what else Severity.DERIVED
    remedy = START_MENDS if severity is Severity.NOTE else REBUILD
    report.findings.append(Finding(severity, name, offset, what, None, found, remedy))
