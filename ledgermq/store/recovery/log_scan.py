"""Verification scan of a log's end, while nobody writes it: where it is whole, and up to where.

RocketMQ compares magic numbers, sizes and the CRC of the body. A disk writes sectors: of a record
that was not synced yet, the sectors with its head and its body may be there, and those with the end
of its topic or its properties may be what they were before, zeros. Sizes and body are right then,
and the kernel's ``walk_records`` finds it, where a record may be torn at all: behind the end that
is known to be durable.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE as INDEX_ITEM_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span, walk_records
from ledgermq.formats.records.message import TIMESTAMP, store_fields_at
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import BLANK
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.file_names import file_name, own_names
from ledgermq.store.files.mapped_files import MappedFile
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log.first_entry import first_entry_offset
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.log_damage import LogDamage

logger = logging.getLogger(__name__)

_ENTRY = Struct(">iIqqqiIII")
_ITEM_FULL = Struct(">iqIqq")

FILES_SCANNED = 3
"""Last files of the log that are scanned where a checkpoint is not believed, or a damage is
marked."""

LOOK_BACK = 8 << 20
"""Bytes before its checkpoint that a start verifies: a tenth of a second on a slow disk."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one family, oldest first, and their size."""

    directory: Path
    starts: tuple[int, ...]
    file_size: int

    @property
    def end(self) -> int:
        """Position behind the last file."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def path(self, start: int) -> Path:
        """Path of the file that begins at ``start``."""
        return self.directory / file_name(start)


def load_files(directory: Path, *, file_size: int | None, default_size: int) -> LogFiles:
    """The files of a family, all of one size and without a gap.

    Args:
        file_size: what the settings say, None to take the size that the files have.
        default_size: size for a family without files and without a setting.

    Raises:
        CorruptLogError: a size that differs, a gap; names file, size and expected.
    """
    paths = [directory / name for name in own_names(directory)]
    if paths and paths[-1].stat().st_size == 0:
        # It is just being made; or a crash came before its first size, and it is made again.
        del paths[-1]
    if not paths:
        return LogFiles(directory, (), file_size or default_size)
    expected = file_size or paths[0].stat().st_size
    starts: list[int] = []
    for path in paths:
        size = path.stat().st_size
        if size != expected:
            raise CorruptLogError(
                "log file of a wrong size", file=str(path), size=size, expected=expected
            )
        start = int(path.name)
        if starts and start != starts[-1] + expected:
            raise CorruptLogError(
                "gap before a file of the log", file=str(path), expected=starts[-1] + expected
            )
        starts.append(start)
    return LogFiles(directory, tuple(starts), expected)


@dataclass(slots=True)
class LogScan:
    """A scan's state: where it is, and the index items of the entries that it has passed.

    Attributes:
        first_index: of the first entry in ``items``.
        fault: of the record at its end.
        latest: largest store timestamp, epoch ms; 0 without a record.
        young_at: where the first record begins that is younger than what is certain; None without.
        blank_at: where the blank begins that the scan ends with; None when it ends otherwise.
    """

    end: LogEnd
    records: int
    first_index: int
    items: bytearray
    fault: RecordFault
    latest: int = 0
    young_at: Position | None = None
    blank_at: Position | None = None


def first_position(files: LogFiles, index_files: LogFiles | None) -> Position:
    """Where the first record begins; within the first file, after a rebase of RocketMQ's.

    Zeros at the beginning of a file may also be a page that a disk has lost. After a rebase there
    stands an entry behind them, and the index has none before it.
    """
    if not files.starts:
        return Position(0)
    start = files.starts[0]
    if index_files is None:
        return Position(start)
    offset = first_entry_offset(files.path(start))
    if not offset or offset + ENTRY_HEADER_SIZE > files.file_size:
        return Position(start)
    with MappedFile(files.path(start)) as view:
        magic, _, index, _, position, *_ = _ENTRY.unpack_from(view, offset)
    if (magic, position) != (1, start + offset) or index <= 0:
        return Position(start)
    return Position(start if item_of(index_files, index - 1)[0] >= 0 else start + offset)


def begin_scan(
    files: LogFiles,
    index_files: LogFiles | None,
    *,
    first: Position,
    checkpoint: LogCheckpoint | None,
    known: LogDamage | None,
    certain_before_ms: int | None,
) -> tuple[LogScan, bool]:
    """Where the scan begins, and whether that is by our checkpoint.

    A little before the checkpoint, if that fits the files. Where there is none, with the newest
    file that has a record: who has begun one had filled the one before, and what was stopped in
    order has synced both; after a crash that file's first record has to be certain, as in the
    reference. A known damage is looked at again, from the file before it. At the log's first record
    when DLedger's index does not reach back to it: all is built again.

    Args:
        first: where the log's first record begins.
        certain_before_ms: see ``recover_log``.
    """
    entries = index_files is not None
    if not files.starts:
        end = LogEnd(Position(0), Index(-1 if entries else 0), Term(0), 0)
        return LogScan(end, 0, 0, bytearray(), RecordFault.END), False
    is_foreign = checkpoint is None and known is None
    newest = max(0, len(files.starts) - (1 if is_foreign else FILES_SCANNED))
    if index_files is not None and not _reaches_back(index_files, files, first):
        logger.warning("index of the log does not reach back to its first entry: built again")
        newest = 0
    elif known is not None and files.starts[0] <= known.position < files.end:
        newest = min(newest, _file_before(files, known.position))
    elif checkpoint is not None and files.starts[0] <= checkpoint.end.position <= files.end:
        begin = _near(files, index_files, checkpoint)
        if begin is not None:
            return LogScan(begin, 0, begin.index_ + 1, bytearray(), RecordFault.END), True
        newest = min(newest, _file_before(files, checkpoint.end.position - LOOK_BACK))
    for start in reversed(files.starts[: newest + 1]):
        begins = first if start == files.starts[0] else Position(start)
        with MappedFile(files.path(start)) as whole, whole[begins - start :] as view:
            if begins != first and not _is_certain(view, certain_before_ms, entries=entries):
                continue
            found = _first_record(view, begins, entries=entries)
        if found is not None and _is_plausible(index_files, found, is_first=0 < begins == first):
            return found, False
    end = LogEnd(first, Index(-1 if entries else first), Term(0), 0)
    return LogScan(end, 0, 0, bytearray(), RecordFault.END), False


def _is_certain(view: memoryview, before_ms: int | None, *, entries: bool) -> bool:
    """Whether the first message is as old as ``before_ms`` (``isMappedFileMatchedRecover``)."""
    if before_ms is None:
        return True
    at = ENTRY_HEADER_SIZE if entries else 0
    store_time: int = TIMESTAMP.unpack_from(view, at + store_fields_at(view[at:])[0])[0]
    return 0 < store_time <= before_ms


def _reaches_back(index_files: LogFiles, files: LogFiles, first: Position) -> bool:
    """Whether DLedger's index has the item of the log's first entry; true without an entry."""
    start = files.starts[0]
    with MappedFile(files.path(start)) as view:
        magic, size, index, _, position, *_ = _ENTRY.unpack_from(view, first - start)
    if (magic, position) != (1, first) or index < 0:
        return True
    return bool(item_of(index_files, index)[0] == position + size)


def _file_before(files: LogFiles, position: int) -> int:
    """Number of the file before the one with ``position``, 0 when there is none."""
    return max(0, (position - files.starts[0]) // files.file_size - 1)


def _near(
    files: LogFiles, index_files: LogFiles | None, checkpoint: LogCheckpoint
) -> LogEnd | None:
    """Where a scan begins that passes the checkpoint; None when the log is another one's.

    It begins up to ``LOOK_BACK`` before, so that each start compares the checksums of what readers
    and a new leader need first, and of the checkpoint's own last entry.
    """
    end = checkpoint.end
    target = max(files.starts[0], end.position - LOOK_BACK)
    if index_files is None:
        start = end.position - end.position % files.file_size
        if start < target or start not in files.starts:
            return end
        return LogEnd(Position(start), Index(start), Term(0), 0)
    if end.index_ < 0:
        return end if end.position == files.starts[0] else None
    behind, *named = item_of(index_files, end.index_)
    # A blank may stand between the entry's end and the checkpoint's position.
    fits = end.position in (behind, -(-behind // files.file_size) * files.file_size)
    if named != [end.index_, end.term] or not fits:
        return None
    return _entry_near(files, index_files, target, end.index_)


def _entry_near(files: LogFiles, index_files: LogFiles, target: int, last: Index) -> LogEnd | None:
    """The log's end before the entry at ``target``, at most ``last``; None when it is not read."""
    reader = EntryFiles(
        files.directory,
        index_files.directory,
        file_size=files.file_size,
        index_file_size=index_files.file_size,
    )
    try:
        begin = Index(reader.index_at(reader.entry_before(target, last)) - 1)
        if begin < 0:
            # The first entry of a log that a store was upgraded to does not stand at 0.
            return reader.end_of(Index(-1))
        # Before the log's first entry there is none to begin with.
        return reader.end_of(max(begin, reader.first_index(last)))
    except (CorruptLogError, StorageError) as error:
        # What is wrong there is found by a scan from the beginning of a file.
        logger.warning("log not read before its checkpoint: %s", error)
        return None
    finally:
        reader.forget()


def item_of(index_files: LogFiles, index: int) -> tuple[int, int, int]:
    """Position behind the entry that the item of ``index`` is for, its index and its term.

    All -1 where there is no such item.
    """
    at = index * INDEX_ITEM_SIZE
    start = at - at % index_files.file_size
    if start not in index_files.starts:
        return -1, -1, -1
    with MappedFile(index_files.path(start)) as view:
        magic, position, size, found, term = _ITEM_FULL.unpack_from(view, at - start)
    if magic != 1 or found != index:
        return -1, -1, -1
    return position + size, found, term


def _first_record(view: memoryview, start: int, *, entries: bool) -> LogScan | None:
    """A scan that begins with the file at ``start``; None when its first record is not whole.

    The chain of CRCs goes over file ends. What the entry before had is not looked up: the file's
    first entry is taken by its own CRC, and the chain is followed from there.
    """
    if not entries:
        end = LogEnd(Position(start), Index(start), Term(0), 0)
        size = int.from_bytes(view[:4], "big")
        good = _verify(view, 0, min(size, len(view)), end, header_size=0)[1]
        return LogScan(end, 0, 0, bytearray(), RecordFault.END) if good else None
    magic, size, index, term, position, channel, chain, body_crc, body_size = _ENTRY.unpack_from(
        view
    )
    whole = ENTRY_HEADER_SIZE < size == body_size + ENTRY_HEADER_SIZE <= len(view)
    if not (whole and index >= 0 and (magic, position, channel) == (1, start, 0)):
        return None
    # RocketMQ computes neither, and leaves both 0.
    if (chain or body_crc) and crc32(view[ENTRY_HEADER_SIZE:size], 0) != body_crc:
        return None
    if index == 0:
        end = LogEnd(Position(start), Index(-1), Term(0), 0)
        return LogScan(end, 0, 0, bytearray(), RecordFault.END)
    end = LogEnd(Position(start + size), Index(index), Term(term), chain)
    item = bytearray(_ITEM_FULL.pack(magic, position, size, index, term))
    return LogScan(end, 1, index, item, RecordFault.END)


def _is_plausible(index_files: LogFiles | None, found: LogScan, *, is_first: bool) -> bool:
    """Whether the entry with which a scan begins is the one that belongs there.

    The checksum of its header goes over the entry before, which is not read: its index says.

    Args:
        is_first: it is the log's first one, and others were before it.
    """
    if index_files is None or found.end.index_ < 0:
        return True
    behind, _, term = item_of(index_files, found.end.index_)
    if (behind, term) == (found.end.position, found.end.term):
        return True
    # Items may be lost, and are made again: then somebody must vouch for the entry by its chain.
    return behind < 0 and is_first


def _verify(
    view: memoryview, at: int, end_at: int, end: LogEnd, *, header_size: int
) -> tuple[LogEnd, int, bytearray, RecordFault]:
    """Verify from ``end`` (at ``at`` in ``view``) on; the new end, records, index items, fault."""
    items = bytearray()
    reached, count, index, term, chain, fault = verify_span(
        view,
        at,
        end_at,
        header_size,
        end.position,
        end.index_ + 1 if header_size else -1,
        end.term if header_size else 0,
        end.chain,
        items,
        crc32,
    )
    position = Position(end.position + reached - at)
    if header_size:
        return (
            LogEnd(position, Index(index - 1), Term(term), chain),
            count,
            items,
            RecordFault(fault),
        )
    return LogEnd(position, Index(position), Term(0), 0), count, items, RecordFault(fault)


def scan_log(
    files: LogFiles,
    scan: LogScan,
    *,
    entries: bool,
    tearable_from: int,
    progress: Callable[[int, int], None],
    certain_before_ms: int = 0,
) -> LogScan:
    """Verify from the scan's beginning until the first record that is not one.

    Args:
        tearable_from: from this position on, where a record begins, one may be torn so that its own
            checks do not see it.
        certain_before_ms: store time up to which records are known to be durable.
    """
    header_size = ENTRY_HEADER_SIZE if entries else 0
    total = files.end - scan.end.position
    begun = scan.end.position
    while scan.end.position < files.end:
        start = scan.end.position - scan.end.position % files.file_size
        start = max(start, files.starts[0])
        with MappedFile(files.path(start), advice=mmap.MADV_SEQUENTIAL) as view:
            at = scan.end.position - start
            end, count, items, fault = _verify(
                view, at, len(view), scan.end, header_size=header_size
            )
            torn_at, latest, young_at = walk_records(
                view,
                at,
                end.position - start,
                header_size,
                tearable_from - start,
                certain_before_ms,
            )
            scan.latest = max(scan.latest, latest)
            if scan.young_at is None and young_at >= 0:
                scan.young_at = Position(start + young_at)
            if torn_at >= 0:
                end, count, items, _ = _verify(view, at, torn_at, scan.end, header_size=header_size)
                fault = RecordFault.PROPERTIES
            remaining = start + files.file_size - end.position
            blank = fault is RecordFault.BLANK and _is_whole_blank(
                view, end.position - start, remaining, entries=entries
            )
        scan.end = end
        scan.records += count
        scan.items += items
        scan.fault = fault
        progress(end.position - begun, total)
        if count:
            scan.blank_at = None
        if not (blank or remaining == 0):
            return scan
        if blank:
            scan.blank_at = end.position
        position = Position(start + files.file_size)
        scan.end = end._replace(
            position=position, index_=end.index_ if entries else Index(position)
        )
        scan.fault = RecordFault.END
    return scan


def _is_whole_blank(view: memoryview, at: int, remaining: int, *, entries: bool) -> bool:
    """Whether the blank at ``at`` says that exactly the rest of the file is blank."""
    first, second = BLANK.unpack_from(view, at)
    said: int = second if entries else first
    return said == remaining
