"""Check of one log file, in a worker process: records, index items, queue units and keys.

What crosses to the parent is small: findings, the ends of the file, and which units were right.
The parent compares the ends of neighbours (``check_seams``).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import chain_checksum
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.findings import FROM_PEER, START_MENDS, Finding, Severity
from ledgermq.formats.index_file import IndexLayout
from ledgermq.formats.kernels.kernel import ScanStatus
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.repair.check.check_index import IndexSummary, KeyComparison
from ledgermq.repair.check.check_units import ComparedUnits, UnitComparison
from ledgermq.repair.check.file_family import FileFamily, FoundFile, first_nonzero
from ledgermq.repair.check.log_walk import FileEnds, LogFileWalk, Region, WalkRules
from ledgermq.store.queues.dispatch_tables import DispatchTables

_ITEMS_FOUND_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFileTask:
    """What a worker is given; all of it can be sent to another process.

    Attributes:
        items: the DLedger index files, None in a plain log.
        queues: the folder ``consumequeue``; its files have ``queue_file_size`` bytes.
        required_end, keys_end: messages before it must have units, and keys.
    """

    root: Path
    file: FoundFile
    rules: WalkRules
    items: FileFamily | None
    queues: Path
    queue_file_size: int
    has_extensions: bool
    index: list[IndexSummary]
    layout: IndexLayout
    with_keys: bool
    delays_ms: Sequence[int]
    required_end: int
    keys_end: int


@dataclass(slots=True)
class LogFileReport:
    """What became of one file; ``gone`` when it was deleted before it could be read.

    Attributes:
        last_unit: position and store time of the last message that has a queue unit and is to be
            dispatched, (-1, 0) without one.
        malformed: messages that dispatch passes over.
        keys_missing: keys that no item has.
    """

    file: FoundFile
    ends: FileEnds
    findings: list[Finding]
    units: ComparedUnits
    last_unit: tuple[int, int] = (-1, 0)
    malformed: int = 0
    keys: int = 0
    keys_missing: int = 0
    gone: bool = False


def check_log_file(task: LogFileTask, told: Callable[[int], None]) -> LogFileReport:
    """Check one file.

    Args:
        told: called with the bytes that were looked at since the last call.
    """
    try:
        fd = os.open(task.file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        nothing = ComparedUnits({}, [])
        return LogFileReport(task.file, FileEnds(end=task.rules.start), [], nothing, gone=True)
    try:
        size = min(os.fstat(fd).st_size, task.rules.file_size)
        if not size:
            nothing = ComparedUnits({}, [])
            return LogFileReport(task.file, FileEnds(end=task.rules.start), [], nothing)
        map_ = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        map_.madvise(mmap.MADV_SEQUENTIAL)
        return _Worker(task, memoryview(map_), fd).run(told)
    finally:
        os.close(fd)


class _Worker:
    def __init__(self, task: LogFileTask, view: memoryview, fd: int) -> None:
        self._task = task
        self._view = view
        self._walk = LogFileWalk(view, fd, task.rules)
        self._tables = DispatchTables(task.delays_ms, with_keys=task.with_keys)
        self._units = UnitComparison(
            task.queues,
            file_size=task.queue_file_size,
            required_end=task.required_end,
            has_extensions=task.has_extensions,
        )
        self._keys = KeyComparison(
            task.index,
            task.layout,
            first=task.rules.start,
            required_end=task.keys_end,
            damaged=self._walk.ends.damaged,
        )
        self._report = LogFileReport(task.file, self._walk.ends, [], ComparedUnits({}, []))
        self._item_findings = 0

    def run(self, told: Callable[[int], None]) -> LogFileReport:
        done = 0
        for region in self._walk.regions():
            if self._task.items is not None:
                self._compare_items(region)
            self._dispatch(region)
            told(region.end - done)
            done = region.end
        told(len(self._view) - done)
        report = self._report
        report.units = self._units.finish()
        if self._task.with_keys:
            self._keys.finish(self._task.rules.start + self._task.rules.file_size)
        report.keys_missing = self._keys.missing
        report.findings += self._walk.findings + self._keys.findings
        return report

    def _compare_items(self, region: Region) -> None:
        """The index items of the region's entries, where they must stand."""
        family = self._task.items
        assert family is not None
        wanted = memoryview(region.items)
        rules = self._task.rules
        if rules.open_end:
            # A writer puts an entry first and its item then.
            positions = np.frombuffer(wanted, ENTRY_ITEM)["position"]
            settled = int(np.searchsorted(positions, rules.settled_end))
            wanted = wanted[: settled * ITEM_SIZE]
            if not wanted:
                return
        at = int.from_bytes(wanted[16:24], "big") * ITEM_SIZE
        while wanted:
            file = family.file_at(at)
            if file is None:
                self._item_wrong(str(family.directory), None, "no index file for entries", at)
                return
            size = min(len(wanted), file.start + family.file_size - at)
            found = _read(file.path, at - file.start, size)
            if found != wanted[:size]:
                self._name_items(file, at, found, bytes(wanted[:size]))
            wanted = wanted[size:]
            at += size

    def _name_items(self, file: FoundFile, at: int, found: bytes, wanted: bytes) -> None:
        for number in range(0, len(wanted), ITEM_SIZE):
            if found[number : number + ITEM_SIZE] != wanted[number : number + ITEM_SIZE]:
                offset = at - file.start + number
                self._item_wrong(file.path, offset, "index item is not that of its entry", None)

    def _item_wrong(self, path: str, offset: int | None, what: str, found: object) -> None:
        self._item_findings += 1
        if self._item_findings > _ITEMS_FOUND_MAX:
            return
        name = str(Path(path).relative_to(self._task.root))
        self._report.findings.append(
            Finding(Severity.DAMAGE, name, offset, what, None, found, FROM_PEER)
        )

    def _dispatch(self, region: Region) -> None:
        task, tables, base = self._task, self._tables, self._task.rules.start
        at, status = region.start, ScanStatus.FULL
        while status is ScanStatus.FULL:
            count, at, status = tables.scan(
                self._view, at, region.end, header_size=task.rules.header_size, base=base
            )
            for portion in tables.portions(self._view, base, count):
                self._report.malformed += portion.malformed
                for block in tables.blocks(self._view, portion):
                    if is_file_name(block.topic):
                        self._units.add(block)
                if task.with_keys:
                    self._report.keys += len(portion.keys.hashes)
                    self._keys.add(portion.keys)
                row = tables.last_unit_row(portion, before=task.required_end)
                if row >= 0:
                    self._report.last_unit = (
                        int(tables.positions[row]),
                        int(tables.store_times[row]),
                    )


def check_seams(reports: Sequence[LogFileReport], root: Path) -> list[Finding]:
    """Whether each file of one part of the log goes on where the one before ended."""
    findings: list[Finding] = []
    # Before the first entry of all there is none, and its CRC begins with zero.
    before = FileEnds(index=-1, chain=0, closed=True)
    is_first = True
    for number, report in enumerate(reports):
        ends = report.ends
        if report.gone or not ends.records:
            # Deleted since it was listed, and all before it.
            is_first = is_first or report.gone
            continue
        name = str(Path(report.file.path).relative_to(root))
        previous = reports[number - 1] if number else None
        if previous is not None and not previous.ends.closed and not previous.gone:
            lost = Path(previous.file.path).relative_to(root)
            findings.append(
                Finding(
                    Severity.DAMAGE,
                    str(lost),
                    previous.ends.end - previous.file.start,
                    "the log ends here although the next file goes on",
                    remedy=FROM_PEER,
                )
            )
        if ends.first:
            findings += _check_seam(before, ends, name, is_first=is_first)
        before, is_first = ends, False
    return findings


def _check_seam(before: FileEnds, ends: FileEnds, name: str, *, is_first: bool) -> list[Finding]:
    header = ends.first
    index = int.from_bytes(header[8:16], "big", signed=True)
    term = int.from_bytes(header[16:24], "big", signed=True)
    chain = int.from_bytes(header[36:40], "big")
    protected = any(header[36:44])
    if is_first and index != 0:
        # Those before were deleted.
        return []
    faults: list[tuple[int, str, object, object]] = []
    if index != before.index + 1:
        faults.append((8, "index does not follow the file before", before.index + 1, index))
    if term < before.term:
        faults.append((16, "term is below that of the file before", before.term, term))
    if protected and before.chain is not None:
        expected = chain_checksum(header, before.chain)
        if expected != chain:
            faults.append((36, "header's CRC does not follow the file before", expected, chain))
    return [
        Finding(Severity.DAMAGE, name, at, what, expected, found, FROM_PEER)
        for at, what, expected, found in faults
    ]


def check_items_behind(family: FileFamily, root: Path, *, last_index: int) -> list[Finding]:
    """Whether the index files hold nothing behind the item of the last entry."""
    findings = []
    end = (last_index + 1) * ITEM_SIZE
    for file in family.files:
        start = max(end - file.start, 0)
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            stray = first_nonzero(fd, start, file.size)
        finally:
            os.close(fd)
        if stray is not None:
            name = str(Path(file.path).relative_to(root))
            text = "index items behind the last entry"
            findings.append(Finding(Severity.DERIVED, name, stray, text, remedy=START_MENDS))
    return findings


def _read(path: str, at: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return bytes(size)
    try:
        return os.pread(fd, size, at).ljust(size, b"\0")
    finally:
        os.close(fd)
