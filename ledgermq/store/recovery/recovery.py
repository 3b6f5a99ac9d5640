"""Recovery of the log at a start: load, verify the tail, cut a torn end.

Both logs, after clean and unclean stops (``DLedgerMmapFileStore.recover``,
``CommitLog.recoverNormally``). Better than the reference: the scan begins at our own checkpoint
when there is one, checks every CRC that an entry has, and what a crash left behind the end is
zeroed, so that it can never be taken for records later.

Where the records that are whole end, one of three things has happened (``Verdict``; the rules are
in docs/decisions/0009):

* nothing before the durable end is lacking: what follows is a *torn tail*, and is cut;
* the log ends before its durable end: it is *damaged*. Whoever opens it decides, by ``on_damage``,
  whether that is an error, or is noted and cut;
* the checkpoint is of another log than the one that is there: it is *not believed*, and more is
  scanned.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_index import FILE_SIZE as INDEX_FILE_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE as INDEX_ITEM_SIZE
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import CorruptLogError, StorageError, refused_as
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.disk_sync import sync_content, sync_directory
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.files.mapped_files import MappedFile
from ledgermq.store.files.properties_file import decode_dledger_checkpoint
from ledgermq.store.files.small_file import read_file
from ledgermq.store.files.store_checkpoint import read_checkpoint
from ledgermq.store.log.first_entry import ZEROS_STEP
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.log_damage import LogDamage
from ledgermq.store.recovery.log_scan import (
    FILES_SCANNED,
    LogFiles,
    LogScan,
    begin_scan,
    first_position,
    item_of,
    load_files,
    scan_log,
)

logger = logging.getLogger(__name__)

COMMIT_LOG_FILE_SIZE = 1_073_741_824
_COPY_STEP = 1 << 20


class Verdict(StrEnum):
    """What a recovery has found at the log's end."""

    WHOLE = "nothing behind its end"
    TORN_TAIL = "a torn tail, cut"
    DAMAGED = "damage before its durable end, cut there"


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What recovery found, and the files, open for appending at the end.

    Attributes:
        begin: where the scan began: all from there to ``end`` is what was written.
        believed: the scan began at the checkpoint; false also where there was none.
        damage: set when the verdict is ``DAMAGED``.
    """

    end: LogEnd
    first: Position
    data: AppendFiles
    index: AppendFiles | None
    begin: Position
    records_scanned: int
    bytes_dropped: int
    verdict: Verdict = Verdict.WHOLE
    believed: bool = False
    damage: LogDamage | None = None


class ForeignEnd(NamedTuple):
    """How far a log was durable once, as RocketMQ has noted.

    Attributes:
        committed: DLedger's ``committedIndex``; -1 when it says nothing.
        store_timestamp: store time of the last message on disk, epoch ms; 0 when it says nothing.
    """

    committed: Index
    store_timestamp: int


NOTHING_KNOWN = ForeignEnd(Index(-1), 0)


def foreign_end(root: Path, dledger_checkpoint: Path | None) -> ForeignEnd:
    """What RocketMQ has noted in the store at ``root`` of how far the log is durable.

    Args:
        dledger_checkpoint: DLedger's ``checkpoint``; None with a plain log.

    Raises:
        StorageError: a file is there and cannot be read.
    """
    committed = NO_INDEX
    content = None if dledger_checkpoint is None else read_file(dledger_checkpoint)
    if content is not None:
        try:
            committed = decode_dledger_checkpoint(content, file=str(dledger_checkpoint)).committed
        except CorruptLogError as error:
            logger.warning("checkpoint of DLedger not used: %s", error)
    return ForeignEnd(committed, read_checkpoint(root / "checkpoint").log_timestamp)


def refuse_damage(damage: LogDamage) -> NoReturn:
    """The ``on_damage`` of who has nobody to fetch from.

    Raises:
        CorruptLogError: always; says what an operator can do.
    """
    raise CorruptLogError(
        "log is damaged before its durable end: restore the store from a backup, look at it with"
        " 'ledgermq store check', or go on without what is lost ('ledgermq store accept-loss')",
        file=damage.file,
        position=damage.position,
        field=damage.field,
        durable_position=damage.last_position,
        durable_index=damage.last_index,
    )


def _index_files(directory: Path | None) -> LogFiles | None:
    if directory is None:
        return None
    return load_files(directory, file_size=None, default_size=INDEX_FILE_SIZE)


def recover_log(
    data_directory: Path,
    index_directory: Path | None,
    *,
    file_size: int | None,
    checkpoint: LogCheckpoint | None,
    progress: Callable[[int, int], None],
    certain_before_ms: int | None = None,
    known: LogDamage | None = None,
    foreign: ForeignEnd = NOTHING_KNOWN,
    on_damage: Callable[[LogDamage], None] = refuse_damage,
) -> RecoveredLog:
    """Find the log's end, make durable what is before it, and open its files there.

    What a writer that was killed had written and not synced is in the page cache alone: who opens
    the log takes it for durable, and may never have a reason to sync the files before the last one.
    Nor would a sync do it when one before had failed: then the page cache calls it clean. So what
    is behind the checkpoint is written once more before it is synced; without a checkpoint, and
    after a crash, what is younger than ``certain_before_ms``.

    Args:
        index_directory: DLedger's ``index/``; None with a plain CommitLog.
        file_size: size of a log file by the settings, None for that of the files.
        checkpoint: our own, when it could be read.
        progress: called with bytes done and bytes to do while the scan runs.
        certain_before_ms: after a crash, ours or another broker's, store time up to which the log
            had been synced (``StoreCheckpoint``): without a checkpoint the scan begins at a file
            that begins before. None when the log was closed in order.
        known: the mark of a damage: the scan begins before it.
        foreign: what RocketMQ has noted; counts where there is no checkpoint of ours.
        on_damage: called before anything is cut or written, when the log ends before its durable
            end. When it returns, the log is cut behind its last good record; it may raise instead.

    Raises:
        CorruptLogError: what is there cannot be a log that a crash left behind, or ``on_damage``
            refuses it.
        StorageError: the operating system refused.
    """
    files = load_files(data_directory, file_size=file_size, default_size=COMMIT_LOG_FILE_SIZE)
    index_files = _index_files(index_directory)
    if checkpoint is not None and checkpoint.file_size != files.file_size:
        checkpoint = None
    first = first_position(files, index_files)
    scan, believed = begin_scan(
        files,
        index_files,
        first=first,
        checkpoint=checkpoint,
        known=known,
        certain_before_ms=certain_before_ms,
    )
    begin = scan.end.position
    first_item = max(0, scan.first_index)
    if files.starts:
        checked_from = checkpoint.end.position if believed and checkpoint else begin
        entries = index_files is not None
        scan = scan_log(
            files,
            scan,
            entries=entries,
            tearable_from=checked_from,
            progress=progress,
            certain_before_ms=certain_before_ms or 0,
        )
    dropped = _dropped(files, scan.end.position)
    end = _end_of(scan, entries=index_files is not None)
    data = AppendFiles(data_directory, file_size=files.file_size, position=end.position)
    damage = _damage(
        files, index_files, scan, dropped=dropped, checkpoint=checkpoint, foreign=foreign
    )
    if damage is not None:
        on_damage(damage)
    if dropped:
        logger.warning(
            "log cut behind its last whole record: position=%d bytes=%d fault=%s verdict=%s",
            end.position,
            dropped,
            scan.fault.field,
            "torn tail" if damage is None else "damage",
        )
    if dropped or end != scan.end:
        data.cut()
    # After a clean stop all of it is on the disk.
    unsure, unsure_item = end.position, end.index_ + 1
    if believed and checkpoint is not None:
        unsure, unsure_item = checkpoint.end.position, checkpoint.end.index_ + 1
    elif certain_before_ms is not None:
        unsure_item = first_item
        if scan.young_at is not None:
            unsure = scan.young_at
    index = None
    if index_files is not None:
        index = _mended_index(index_files, scan)
        items = [number * INDEX_ITEM_SIZE for number in (unsure_item, end.index_ + 1, first_item)]
        _make_durable(index_directory, index.file_size, *items)
    # A broker that was stopped in order has synced all; asked again, that costs nothing.
    synced = min([begin, *files.starts[-FILES_SCANNED:]])
    _make_durable(data_directory, files.file_size, unsure, end.position, synced)
    if not files.starts:
        first = end.position
    torn = Verdict.TORN_TAIL if dropped else Verdict.WHOLE
    return RecoveredLog(
        end=end,
        first=first,
        data=data,
        index=index,
        begin=begin,
        records_scanned=scan.records,
        bytes_dropped=dropped,
        verdict=torn if damage is None else Verdict.DAMAGED,
        believed=believed,
        damage=damage,
    )


def _end_of(scan: LogScan, *, entries: bool) -> LogEnd:
    """Where the log ends that was scanned.

    With entries, before a blank that nothing follows: what its writer had behind it nobody has, and
    an entry of another leader may belong where the blank stands.
    """
    if entries and scan.blank_at is not None:
        return scan.end._replace(position=scan.blank_at)
    return scan.end


def _make_durable(
    directory: Path | None, file_size: int, unsure: int, end: int, begin: int
) -> None:
    """Sync all from ``begin`` on, and write from ``unsure`` to ``end`` once more before."""
    assert directory is not None
    _write_again(directory, file_size, unsure, end)
    _sync(directory, file_size, begin)


def _write_again(directory: Path, file_size: int, begin: int, end: int) -> None:
    """Have the pages with positions from ``begin`` to ``end`` be written by the next sync.

    A sync that fails leaves them as if they were written: the next one says that all is well.
    """
    for start in range(begin - begin % file_size, end, file_size):
        path = directory / file_name(start)
        at, last = max(begin - start, 0), min(end - start, file_size)
        with (
            refused_as("recovered log not written", file=path),
            path.open("r+b", buffering=0) as file,
        ):
            while at < last:
                size = min(last - at, _COPY_STEP)
                at += os.pwrite(file.fileno(), os.pread(file.fileno(), size, at), at)


def _sync(directory: Path, file_size: int, begin: int) -> None:
    """Make the files of ``directory`` durable that hold ``begin`` or a later position."""
    path = directory
    try:
        for start in starts_in(directory):
            path = directory / file_name(start)
            if start + file_size > begin:
                with path.open("rb") as file:
                    sync_content(file.fileno())
        sync_directory(directory)
    except OSError as error:
        raise StorageError.of("recovered log not durable", error, file=path) from error


def _dropped(files: LogFiles, position: int) -> int:
    """Bytes behind ``position`` up to the last that is not zero; 0 in an ordinary log."""
    last = position
    for start in files.starts:
        if start + files.file_size <= position:
            continue
        low = max(0, position - start)
        used = _used(files.path(start), low)
        if used > low:
            last = start + used
    return last - position


def _damage(
    files: LogFiles,
    index_files: LogFiles | None,
    scan: LogScan,
    *,
    dropped: int,
    checkpoint: LogCheckpoint | None,
    foreign: ForeignEnd,
) -> LogDamage | None:
    """What is lacking before the durable end; None when nothing is (docs/decisions/0009)."""
    end = scan.end
    durable = [] if checkpoint is None else [checkpoint.end]
    if index_files is None:
        lacks = any(end.position < one.position for one in durable)
        if checkpoint is None:
            lacks = scan.latest < foreign.store_timestamp and scan.records > 0
    else:
        lacks = any((end.term, end.index_) < (one.term, one.index_) for one in durable)
        if checkpoint is None:
            lacks = end.index_ < foreign.committed
    # No crash leaves more than a file that nobody had called durable.
    if not lacks and dropped <= files.file_size:
        return None
    traces = [end, *durable, *_traces(files, index_files, scan, checkpoint)]
    last = max(traces, key=lambda one: (one.term, one.index_))
    file = max((start for start in files.starts if start <= end.position), default=0)
    return LogDamage(
        end.position,
        file_name(file),
        scan.fault.field,
        Position(max(one.position for one in traces)),
        last.index_,
        last.term,
    )


def _traces(
    files: LogFiles, index_files: LogFiles | None, scan: LogScan, checkpoint: LogCheckpoint | None
) -> list[LogEnd]:
    """How far the log went behind its damage: whole records behind the checkpoint, index items.

    What this node has promised others it held is among them.
    """
    found: list[LogEnd] = []
    if checkpoint is not None and files.starts and files.starts[0] <= checkpoint.end.position:
        behind = LogScan(checkpoint.end, 0, 0, bytearray(), RecordFault.END)
        behind = scan_log(
            files,
            behind,
            entries=index_files is not None,
            tearable_from=checkpoint.end.position,
            progress=lambda done, total: None,
        )
        found.append(behind.end)
    if index_files is None:
        return found
    end = scan.end
    while True:
        position, index, term = item_of(index_files, end.index_ + 1)
        if index < 0 or position <= end.position or term < end.term:
            found.append(end)
            return found
        end = LogEnd(Position(position), Index(index), Term(term), 0)


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
                part = os.pread(file.fileno(), min(ZEROS_STEP, end - at), at)
                filled = len(part.rstrip(b"\0"))
                if filled:
                    used = at + filled
                at += len(part)
    return used


def _mended_index(files: LogFiles, scan: LogScan) -> AppendFiles:
    """DLedger's index files, open behind the last item, with the scanned entries' items right."""
    position = scan.first_index * INDEX_ITEM_SIZE
    if not scan.items:
        position = (scan.end.index_ + 1) * INDEX_ITEM_SIZE
    items = memoryview(scan.items)
    right = _right_items(files, position, items)
    position += right
    index = AppendFiles(files.directory, file_size=files.file_size, position=position)
    index.append_over(items[right:])
    index.cut()
    return index


def _right_items(files: LogFiles, position: int, items: memoryview) -> int:
    """Bytes of ``items``, which belong at ``position``, that stand there already."""
    right = 0
    while right < items.nbytes:
        start = (position + right) - (position + right) % files.file_size
        if start not in files.starts:
            break
        with MappedFile(files.path(start)) as view:
            at = position + right - start
            wanted = np.frombuffer(items[right : right + len(view) - at], ENTRY_ITEM)
            found = np.frombuffer(view[at : at + wanted.nbytes], ENTRY_ITEM)
            wrong = np.flatnonzero(wanted != found)
            # It is a view of the map, which cannot be closed while there is one.
            del found
        if len(wrong):
            return right + int(wrong[0]) * INDEX_ITEM_SIZE
        right += wanted.nbytes
    return right
