"""Finding the end of the log when its writer starts: load, verify the tail, cut what is not whole.

Both logs, after clean and unclean stops (``DLedgerMmapFileStore.recover``,
``CommitLog.recoverNormally``). Better than the reference: the scan begins at our own checkpoint
when there is one, checks every CRC that an entry has, and what a crash left behind the end is
zeroed, so that it can never be taken for records later.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.append_files import AppendFiles, file_name
from ledgermq.store.crc32 import crc32
from ledgermq.store.disk_sync import sync_content, sync_directory
from ledgermq.store.first_entry import first_entry_offset
from ledgermq.store.kernel import verify_span
from ledgermq.store.log_checkpoint import LogCheckpoint
from ledgermq.store.log_writer import ENTRY_HEADER_SIZE, INDEX_ITEM_SIZE, LogEnd
from ledgermq.store.record_fault import RecordFault

logger = logging.getLogger(__name__)

COMMIT_LOG_FILE_SIZE = 1_073_741_824
INDEX_FILE_SIZE = 167_772_160
_ENTRY = Struct(">iIqqqiIII")
_ITEM = Struct(">4xqIqq")
_ITEM_FULL = Struct(">iqIqq")
_BLANK = Struct(">II")
_ZEROS_STEP = 1 << 20
_SYS_FLAG, _STORE_TIME, _STORE_TIME_V6 = 36, 56, 68
"""Offsets in a message: its flags, and its store time behind a born host of 8 or 20 bytes."""

_BORN_HOST_V6 = 0x10
FILES_SCANNED = 3
"""As the reference: without a checkpoint the last three files are scanned."""


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


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What recovery found, and the files, open for appending at the end."""

    end: LogEnd
    first: Position
    data: AppendFiles
    index: AppendFiles | None
    records_scanned: int
    bytes_dropped: int


def load_files(directory: Path, *, file_size: int | None, default_size: int) -> LogFiles:
    """The files of a family, all of one size and without a gap.

    Args:
        file_size: what the settings say, None to take the size that the files have.
        default_size: size for a family without files and without a setting.

    Raises:
        CorruptLogError: a stray name, a size that differs, a gap; names file, size and expected.
    """
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    if paths and paths[-1].stat().st_size == 0:
        # It is just being made; or a crash came before its first size, and it is made again.
        del paths[-1]
    if not paths:
        return LogFiles(directory, (), file_size or default_size)
    expected = file_size or paths[0].stat().st_size
    starts: list[int] = []
    for path in paths:
        if not (path.name.isdigit() and len(path.name) == 20):
            raise CorruptLogError("stray file among the files of the log", file=str(path))
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


def recover_log(
    data_directory: Path,
    index_directory: Path | None,
    *,
    file_size: int | None,
    checkpoint: LogCheckpoint | None,
    progress: Callable[[int, int], None],
    certain_before_ms: int | None = None,
) -> RecoveredLog:
    """Find the log's end, make durable what is before it, and open its files there.

    What a writer that was killed had written and not synced is in the page cache alone: who opens
    the log takes it for durable, and may never have a reason to sync the files before the last one.

    Args:
        index_directory: DLedger's ``index/``; None with a plain CommitLog.
        file_size: size of a log file by the settings, None for that of the files.
        checkpoint: our own, when it could be read.
        progress: called with bytes done and bytes to do while the scan runs.
        certain_before_ms: after a crash of another broker, store time up to which that had synced
            the log (``StoreCheckpoint``): the scan begins at a file that begins before. None when
            the log was closed in order.

    Raises:
        CorruptLogError: what is there cannot be a log that a crash left behind.
        StorageError: the operating system refused.
    """
    files = load_files(data_directory, file_size=file_size, default_size=COMMIT_LOG_FILE_SIZE)
    index_files = (
        load_files(index_directory, file_size=None, default_size=INDEX_FILE_SIZE)
        if index_directory is not None
        else None
    )
    first = _first_position(files, entries=index_files is not None)
    scan = _begin(files, index_files, checkpoint, first, certain_before_ms)
    begin = scan.end.position
    first_item = max(0, scan.first_index)
    if files.starts:
        scan = _scan(files, scan, entries=index_files is not None, progress=progress)
    end = scan.end
    data = AppendFiles(data_directory, file_size=files.file_size, position=end.position)
    dropped = _dropped(files, end.position)
    if dropped:
        logger.warning(
            "log cut behind its last whole record: position=%d bytes=%d fault=%s",
            end.position,
            dropped,
            scan.fault.field,
        )
        data.cut()
    index = None
    if index_files is not None:
        index = _mended_index(index_files, scan)
        _sync(index_directory, index.file_size, first_item * INDEX_ITEM_SIZE)
    _sync(data_directory, files.file_size, begin)
    return RecoveredLog(
        end, first if files.starts else end.position, data, index, scan.records, dropped
    )


def _sync(directory: Path | None, file_size: int, begin: int) -> None:
    """Make the files of ``directory`` durable that hold ``begin`` or a later position."""
    assert directory is not None
    path = directory
    try:
        for path in sorted(directory.iterdir()):
            if path.name.isdigit() and int(path.name) + file_size > begin:
                with path.open("rb") as file:
                    sync_content(file.fileno())
        sync_directory(directory)
    except OSError as error:
        raise StorageError(
            "recovered log not durable", errno=error.errno, file=str(path), reason=error.strerror
        ) from error


@dataclass(slots=True)
class _Scan:
    """The scan's state: where it is, and the index items of the entries that it has passed."""

    end: LogEnd
    records: int
    first_index: int
    items: bytearray
    fault: RecordFault


class _MappedFile:
    """Read-only view of one file of the log, for the time of a scan."""

    def __init__(self, files: LogFiles, start: int) -> None:
        with files.path(start).open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.view = memoryview(self._map)

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(self, *_: object) -> None:
        self.view.release()
        self._map.close()


def _first_position(files: LogFiles, *, entries: bool) -> Position:
    """Where the first record begins; within the first file, after a rebase of RocketMQ's."""
    if not files.starts:
        return Position(0)
    start = files.starts[0]
    return Position(start + (first_entry_offset(files.path(start)) if entries else 0))


def _begin(
    files: LogFiles,
    index_files: LogFiles | None,
    checkpoint: LogCheckpoint | None,
    first: Position,
    certain_before_ms: int | None,
) -> _Scan:
    """Where the scan begins: our checkpoint if it fits the files, else the reference's rule.

    At the log's first record when DLedger's index does not reach back to it: all is built again.
    """
    entries = index_files is not None
    if not files.starts:
        end = LogEnd(Position(0), Index(-1 if entries else 0), Term(0), 0)
        return _Scan(end, 0, 0, bytearray(), RecordFault.END)
    tried = files.starts[: max(1, len(files.starts) - FILES_SCANNED + 1)]
    if index_files is not None and not _reaches_back(index_files, files, first):
        logger.warning("index of the log does not reach back to its first entry: built again")
        tried = files.starts[:1]
    elif checkpoint is not None and _fits(files, index_files, checkpoint):
        end = checkpoint.end
        return _Scan(end, 0, end.index_ + 1, bytearray(), RecordFault.END)
    for start in reversed(tried):
        begin = first if start == files.starts[0] else Position(start)
        with _MappedFile(files, start) as whole, whole[begin - start :] as view:
            if begin != first and not _is_certain(view, certain_before_ms, entries=entries):
                continue
            found = _first_record(view, begin, entries=entries)
        if found is not None:
            return found
    end = LogEnd(first, Index(-1 if entries else first), Term(0), 0)
    return _Scan(end, 0, 0, bytearray(), RecordFault.END)


def _is_certain(view: memoryview, before_ms: int | None, *, entries: bool) -> bool:
    """Whether the first message is as old as ``before_ms`` (``isMappedFileMatchedRecover``)."""
    if before_ms is None:
        return True
    at = ENTRY_HEADER_SIZE if entries else 0
    flags = int.from_bytes(view[at + _SYS_FLAG : at + _SYS_FLAG + 4], "big")
    at += _STORE_TIME_V6 if flags & _BORN_HOST_V6 else _STORE_TIME
    return 0 < int.from_bytes(view[at : at + 8], "big", signed=True) <= before_ms


def _reaches_back(index_files: LogFiles, files: LogFiles, first: Position) -> bool:
    """Whether DLedger's index has the item of the log's first entry; true without an entry."""
    start = files.starts[0]
    with _MappedFile(files, start) as view:
        magic, _, index, _, position, *_ = _ENTRY.unpack_from(view, first - start)
    if (magic, position) != (1, first) or index < 0:
        return True
    at = index * INDEX_ITEM_SIZE
    item_start = at - at % index_files.file_size
    if item_start not in index_files.starts:
        return False
    with _MappedFile(index_files, item_start) as view:
        item_magic, found, _, item_index, _ = _ITEM_FULL.unpack_from(view, at - item_start)
    return bool((item_magic, found, item_index) == (1, first, index))


def _fits(files: LogFiles, index_files: LogFiles | None, checkpoint: LogCheckpoint) -> bool:
    """Whether the log still is the one of the checkpoint: another broker may have had it since."""
    end = checkpoint.end
    if checkpoint.file_size != files.file_size:
        return False
    if not files.starts[0] <= end.position <= files.end:
        return False
    if index_files is None:
        return True
    if end.index_ < 0:
        return end.position == files.starts[0]
    at = end.index_ * INDEX_ITEM_SIZE
    start = at - at % index_files.file_size
    if start not in index_files.starts:
        return False
    with _MappedFile(index_files, start) as view:
        item = bytes(view[at - start : at - start + INDEX_ITEM_SIZE])
    position, size, index, term = _ITEM.unpack(item)
    # A blank may stand between the entry's end and the checkpoint's position.
    ends = (position + size, files.file_size - position % files.file_size + position)
    return end.position in ends and (index, term) == (end.index_, end.term)


def _first_record(view: memoryview, start: int, *, entries: bool) -> _Scan | None:
    """A scan that begins with the file at ``start``; None when its first record is not whole.

    The chain of CRCs goes over file ends. What the entry before had is not looked up: the file's
    first entry is taken by its own CRC, and the chain is followed from there.
    """
    if not entries:
        end = LogEnd(Position(start), Index(start), Term(0), 0)
        size = int.from_bytes(view[:4], "big")
        good = _verify(view, 0, min(size, len(view)), end, header_size=0)[1]
        return _Scan(end, 0, 0, bytearray(), RecordFault.END) if good else None
    magic, size, index, term, position, channel, chain, body_crc, body_size = _ENTRY.unpack_from(
        view
    )
    whole = ENTRY_HEADER_SIZE < size == body_size + ENTRY_HEADER_SIZE <= len(view)
    if not (whole and (magic, position, channel) == (1, start, 0)):
        return None
    if (chain or body_crc) and crc32(view[ENTRY_HEADER_SIZE:size], 0) != body_crc:
        return None
    if index == 0:
        end = LogEnd(Position(start), Index(-1), Term(0), 0)
        return _Scan(end, 0, 0, bytearray(), RecordFault.END)
    end = LogEnd(Position(start + size), Index(index), Term(term), chain)
    item = bytearray(_ITEM_FULL.pack(magic, position, size, index, term))
    return _Scan(end, 1, index, item, RecordFault.END)


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


def _scan(
    files: LogFiles, scan: _Scan, *, entries: bool, progress: Callable[[int, int], None]
) -> _Scan:
    """Verify from the scan's beginning until the first record that is not one."""
    header_size = ENTRY_HEADER_SIZE if entries else 0
    total = files.end - scan.end.position
    begun = scan.end.position
    while scan.end.position < files.end:
        start = scan.end.position - scan.end.position % files.file_size
        start = max(start, files.starts[0])
        with _MappedFile(files, start) as view:
            at = scan.end.position - start
            end, count, items, fault = _verify(
                view, at, len(view), scan.end, header_size=header_size
            )
            remaining = start + files.file_size - end.position
            blank = fault is RecordFault.BLANK and _is_whole_blank(
                view, end.position - start, remaining, entries=entries
            )
        scan.end = end
        scan.records += count
        scan.items += items
        scan.fault = fault
        progress(end.position - begun, total)
        if not (blank or remaining == 0):
            return scan
        position = Position(start + files.file_size)
        scan.end = end._replace(
            position=position, index_=end.index_ if entries else Index(position)
        )
        scan.fault = RecordFault.END
    return scan


def _is_whole_blank(view: memoryview, at: int, remaining: int, *, entries: bool) -> bool:
    """Whether the blank at ``at`` says that exactly the rest of the file is blank."""
    first, second = _BLANK.unpack_from(view, at)
    said: int = second if entries else first
    return said == remaining


def _dropped(files: LogFiles, position: int) -> int:
    """Bytes behind ``position`` up to the last that is not zero; 0 in an ordinary log.

    Raises:
        CorruptLogError: more than a file would be dropped; no crash does that.
    """
    last = position
    for start in files.starts:
        if start + files.file_size <= position:
            continue
        low = max(0, position - start)
        used = _used(files.path(start), low)
        if used > low:
            last = start + used
    dropped = last - position
    if dropped > files.file_size:
        raise CorruptLogError(
            "log ends in the middle: more than a file would have to be dropped",
            file=str(files.path(max(s for s in files.starts if s <= position))),
            offset=position % files.file_size,
            bytes=dropped,
            limit=files.file_size,
        )
    return dropped


def _used(path: Path, low: int) -> int:
    """Offset behind the last byte at or after ``low`` that is not zero; ``low`` when all are.

    Holes and blocks that were reserved and never written are not read.
    """
    used = low
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        at = low
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                raise StorageError(
                    "log file not read", errno=error.errno, file=str(path), reason=error.strerror
                ) from error
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < end:
                part = os.pread(file.fileno(), min(_ZEROS_STEP, end - at), at)
                filled = len(part.rstrip(b"\0"))
                if filled:
                    used = at + filled
                at += len(part)
    return used


def _mended_index(files: LogFiles, scan: _Scan) -> AppendFiles:
    """DLedger's index files, open behind the last item, with the scanned entries' items right."""
    position = scan.first_index * INDEX_ITEM_SIZE
    if not scan.items:
        position = (scan.end.index_ + 1) * INDEX_ITEM_SIZE
    index = AppendFiles(files.directory, file_size=files.file_size, position=position)
    items = memoryview(scan.items)
    while items.nbytes:
        if index.room == 0:
            index.roll()
        part = items[: index.room]
        index.append(part)
        items = items[part.nbytes :]
    index.cut()
    return index
