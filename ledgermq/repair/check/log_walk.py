"""Walk through one log file to its last byte: whole records, damaged regions, and its end.

Where ``log_verify`` stops at the first fault, this goes on behind it: the next record is the next
place whose message says that it lies there. Nothing is known of the file before; who has both
compares the first entry here with the last one there (``FileEnds``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_entry import HEADER_SIZE, check_entry, decode_entry_header
from ledgermq.formats.findings import FROM_PEER, Finding, Severity
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.message import MAGIC, MAGIC_AT, PHYSICAL_OFFSET_AT, decode_message
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import BLANK_SIZE, is_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import CorruptLogError
from ledgermq.repair.check.file_family import first_nonzero
from ledgermq.repair.log_verify import entry_protection

WINDOW = 4 * 1024 * 1024
"""Bytes verified in one call: they stay in the processor's cache for those who look again."""

_MAGIC = MAGIC.to_bytes(4, "big")
_LOOK = 1 << 20


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
            found = content.find(_MAGIC)
            while found >= 0:
                message = begin + found - MAGIC_AT
                field_at = message + PHYSICAL_OFFSET_AT
                said = int.from_bytes(self._view[field_at : field_at + 8], "big")
                if said == rules.start + message:
                    return message - rules.header_size
                found = content.find(_MAGIC, found + 1)
            begin += _LOOK
        return None

    def _damage(self, offset: int, what: str) -> None:
        self.findings.append(
            Finding(Severity.DAMAGE, self._rules.name, offset, what, remedy=FROM_PEER)
        )
