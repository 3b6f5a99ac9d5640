"""Walk through one log file to its last byte: whole records, damaged regions, and its end.

Where ``log_verify`` stops at the first fault, this goes on behind it: the next record is the next
place whose message says that it lies there. Nothing is known of the file before; who has both
compares the first entry here with the last one there (``FileEnds``).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import (
    HEADER_SIZE,
    chain_checksum,
    check_entry,
    decode_entry_header,
)
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.findings import FROM_PEER, START_MENDS, Finding, Severity
from ledgermq.formats.index_file import IndexLayout
from ledgermq.formats.java_hash import index_key_hash
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import ScanStatus, verify_span
from ledgermq.formats.records.message import MAGIC_AT, MAGICS, PHYSICAL_OFFSET_AT, decode_message
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import BLANK_SIZE, is_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.repair.check.check_index import IndexSummary, KeyComparison
from ledgermq.repair.check.check_units import ComparedUnits, UnitComparison
from ledgermq.repair.check.file_family import FileFamily, FoundFile, first_nonzero, read_padded
from ledgermq.repair.log_verify import entry_protection
from ledgermq.store.index.tag_items import tag_key
from ledgermq.store.queues.dispatch_tables import DispatchTables

WINDOW = 4 * 1024 * 1024
"""Bytes verified in one call: they stay in the processor's cache for those who look again."""

_MAGICS = frozenset(magic.to_bytes(4, "big") for magic in MAGICS)
(_MAGICS_BEGIN,) = {magic[:3] for magic in _MAGICS}
_LOOK = 1 << 20
_ITEMS_FOUND_MAX = 100


class Region(NamedTuple):
    """Whole records, one behind the other: offsets in the file, and what their index items are."""

    start: int
    end: int
    items: bytearray


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkRules:
    """What is known of the file before it is read.

    Attributes:
        start: position of its first byte.
        file_size: as it should be.
        header_size: 48 in a DLedger log, 0 in a plain one.
        begin: offset of the first record, where the log begins within the file.
        settled_end: position behind the last entry that is known to be committed; of a plain log
            behind the last message that was dispatched.
        open_end: whether the store was not stopped, so that what lies behind may be torn, or is
            being written at this moment.
        name: of the file, in findings.
    """

    start: int
    file_size: int
    header_size: int
    begin: int
    settled_end: int
    open_end: bool
    name: str


@dataclass(slots=True)
class FileEnds:
    """What the neighbours of a file have to know.

    Attributes:
        first: header of its first whole entry, where that begins the file.
        index, term, chain: of its last whole entry; ``chain`` is None behind damage.
        end: position behind the last whole record, or behind the blank.
        closed: whether a blank, or a record, ends the file.
        records, unprotected: how many there are; of the latter, nothing but RocketMQ's own checks
            vouches for.
        damaged: spans of positions that hold no whole record.
    """

    first: bytes = b""
    index: int = -1
    term: int = 0
    chain: int | None = None
    end: int = 0
    closed: bool = False
    records: int = 0
    unprotected: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)


class LogFileWalk:
    """One walk through ``view``; ``ends`` and ``findings`` are complete when it is over."""

    def __init__(self, view: memoryview, fd: int, rules: WalkRules) -> None:
        """Nothing is read yet.

        Args:
            view: the whole file.
            fd: the same file, to look for holes.
        """
        self.ends = FileEnds(end=rules.start)
        self.findings: list[Finding] = []
        self._view = view
        self._fd = fd
        self._rules = rules
        self._is_joined = rules.header_size == 0
        self._items = bytearray()
        self._fault = ""

    def regions(self) -> Iterator[Region]:
        """The whole records of the file, in order."""
        at = self._rules.begin
        while at < len(self._view):
            self._items = bytearray()
            reached = self._step(at)
            if reached > at:
                self._count(at, reached)
                yield Region(at, reached, self._items)
            at = reached
            if not self._fault:
                continue
            if self._is_blank(at):
                self._close(at)
                return
            resumed = self._behind_fault(at)
            if resumed is None:
                return
            at = resumed
        self.ends.closed = len(self._view) == self._rules.file_size

    def _step(self, at: int) -> int:
        """The offset behind some verified records from ``at`` on; ``_fault`` is what follows."""
        self._fault = ""
        if not self._is_joined:
            return self._join(at)
        rules, ends = self._rules, self.ends
        room = WINDOW
        while True:
            end = min(at + room, len(self._view))
            reached, count, index, term, chain, number = verify_span(
                self._view,
                at,
                end,
                rules.header_size,
                rules.start + at,
                ends.index + 1 if rules.header_size else -1,
                ends.term,
                ends.chain or 0,
                self._items,
                crc32,
            )
            fault = RecordFault(number)
            is_cut = end < len(self._view) and fault in (RecordFault.END, RecordFault.SIZE)
            if is_cut and reached == at and room < len(self._view):
                # An entry larger than the window, or a size that is wrong.
                room *= 4
                continue
            break
        if rules.header_size and count:
            ends.index, ends.term, ends.chain = index - 1, term, chain
        ends.records += count
        if not (is_cut and reached > at) and not (fault is RecordFault.END and reached == end):
            self._fault = fault.field
        return reached

    def _join(self, at: int) -> int:
        """Take the entry at ``at`` as it comes: the header's CRC was begun by one not seen here."""
        view, rules, ends = self._view, self._rules, self.ends
        position = rules.start + at
        try:
            header = decode_entry_header(view, at, position=position)  # type: ignore[arg-type]
            check_entry(view, at, header, previous_chain_crc=None)
            end = at + header.size
            message = decode_message(view, at + HEADER_SIZE, end=end)
        except CorruptLogError as error:
            self._fault = str(error.details["field"])
            return at
        if message.size != header.body_size or header.term < ends.term:
            self._fault = "size" if message.size != header.body_size else "term"
            return at
        if message.physical_offset != position + HEADER_SIZE:
            self._fault = "physical_offset"
            return at
        if at == rules.begin:
            ends.first = bytes(view[:HEADER_SIZE])
        self._items += view[at : at + 4]
        self._items += view[at + 24 : at + 32]
        self._items += view[at + 4 : at + 24]
        ends.index, ends.term, ends.chain = header.index, header.term, header.chain_crc
        ends.records += 1
        self._is_joined = True
        return end

    def _count(self, at: int, reached: int) -> None:
        rules, ends = self._rules, self.ends
        ends.end = rules.start + reached
        if not rules.header_size:
            ends.unprotected = ends.records
            return
        items = np.frombuffer(self._items, ENTRY_ITEM)
        protected = entry_protection(self._view, rules.start, items)
        ends.unprotected += len(protected) - int(np.count_nonzero(protected))

    def _is_blank(self, at: int) -> bool:
        kind = LogKind.DLEDGER if self._rules.header_size else LogKind.COMMITLOG
        try:
            return is_blank(self._view, at, log=kind)
        except CorruptLogError:
            self._fault = "remaining bytes of the blank"
            return False

    def _close(self, at: int) -> None:
        """A blank at ``at`` ends the file; RocketMQ's plain log leaves what was there behind it."""
        rules = self._rules
        self.ends.end = rules.start + rules.file_size
        self.ends.closed = True
        if rules.header_size:
            stray = first_nonzero(self._fd, at + BLANK_SIZE, len(self._view))
            if stray is not None:
                self._damage(stray, "bytes behind the blank that ends the file")

    def _behind_fault(self, at: int) -> int | None:
        """Where the next record begins behind what is none at ``at``; None where the log ends."""
        rules = self._rules
        position = rules.start + at
        stray = first_nonzero(self._fd, at, len(self._view))
        if stray is None:
            return None
        if rules.open_end and position >= rules.settled_end:
            # Not looked at any further: a writer may have gone on in the meantime.
            text = "bytes behind the last whole record, as a crash or a copy in use leaves them"
            self.findings.append(Finding(Severity.NOTE, rules.name, stray, text))
            return None
        resumed = self._next_record(at)
        if stray - at >= HEADER_SIZE and resumed is None:
            self._damage(stray, "bytes behind the end of the log")
            return None
        self._damage(at, f"record is not whole: {self._fault}")
        end = rules.file_size if resumed is None else resumed
        self.ends.damaged.append((position, rules.start + end))
        self.ends.chain = None
        self._is_joined = rules.header_size == 0
        return resumed

    def _next_record(self, at: int) -> int | None:
        """The first place behind ``at`` where a message says that it lies there."""
        rules = self._rules
        begin = at + rules.header_size + MAGIC_AT + 1
        while begin < len(self._view):
            # Searched in bytes: what a map's own search reads may be behind its end.
            content = bytes(self._view[begin : begin + _LOOK + 3])
            found = content.find(_MAGICS_BEGIN)
            while found >= 0:
                message = begin + found - MAGIC_AT
                field_at = message + PHYSICAL_OFFSET_AT
                said = int.from_bytes(self._view[field_at : field_at + 8], "big")
                is_message = content[found : found + 4] in _MAGICS
                if is_message and said == rules.start + message:
                    return message - rules.header_size
                found = content.find(_MAGICS_BEGIN, found + 1)
            begin += _LOOK
        return None

    def _damage(self, offset: int, what: str) -> None:
        self.findings.append(
            Finding(Severity.DAMAGE, self._rules.name, offset, what, remedy=FROM_PEER)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFileTask:
    """What a worker is given; all of it can be sent to another process.

    Attributes:
        items: the DLedger index files, None in a plain log.
        queues: the folder ``consumequeue``; its files have ``queue_file_size`` bytes.
        of_batches: topics whose queues are elsewhere, with other units.
        with_tags: whether the index has items of tags, as RocketMQ 5 writes them.
        required_end, keys_end: messages before it must have units, and keys.
    """

    root: Path
    file: FoundFile
    rules: WalkRules
    items: FileFamily | None
    queues: Path
    queue_file_size: int
    of_batches: frozenset[bytes]
    has_extensions: bool
    index: list[IndexSummary]
    layout: IndexLayout
    with_keys: bool
    with_tags: bool
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
        self._tables = DispatchTables(
            task.delays_ms, with_keys=task.with_keys, with_tags=task.with_tags
        )
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
            is_tag_item=self._is_tag_item,
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

    def _is_tag_item(self, position: int, key_hash: int) -> bool:
        """Whether an item is that of the tag of the message at a position."""
        at = position - self._task.rules.start
        if not 0 <= at < len(self._view):
            return False
        try:
            message = decode_message(self._view, at, check_crc=False)
        except CorruptLogError:
            return False
        return bool(message.tags) and key_hash == index_key_hash(
            tag_key(message.topic, message.tags)
        )

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
            found = read_padded(file.path, at - file.start, size)
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
                    if is_file_name(block.topic) and block.topic not in task.of_batches:
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
