"""Downgrade: a DLedger log, or an upgraded one, becomes a plain CommitLog for RocketMQ 4.9.4.

RocketMQ has no way back. Here every entry becomes a record of a plain log: messages keep their
queue offsets, and get new positions, for each has lost its header; the part that was plain before
an upgrade stays as it is. ConsumeQueues and Index are built anew from that log. All of it is built
beside the store; then folders change places (``conversion/conversion_journal.py``).

What consumers have consumed is told by queue offsets, which stay. What names a message by its
position does not lead to it any more: the offset message ids that clients have kept.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ledgermq.conversion import conversion_journal as journal
from ledgermq.conversion.conversion_journal import (
    Conversion,
    ConversionKind,
    FileRename,
    Phase,
)
from ledgermq.conversion.last_backup import NAME as LAST_BACKUP
from ledgermq.conversion.log_conversion import Converted, LogConversion, PositionTable
from ledgermq.formats.arrays import BATCH_UNIT, UNIT
from ledgermq.formats.batch_unit import BATCH_FOLDER
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.dledger_entry import check_entry, decode_entry_header
from ledgermq.formats.dledger_index import (
    ITEM_SIZE,
    DLedgerIndexItem,
    decode_index_item,
    encode_index_item,
)
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.config_file import BACKUP_SUFFIX, ConfigFile
from ledgermq.store.files.disk_space import bytes_on_disk
from ledgermq.store.files.disk_sync import make_directories, sync_content, sync_directory
from ledgermq.store.files.file_names import is_topic_name, own_names, queue_folders
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.index.tag_items import are_tags_kept
from ledgermq.store.log.entry_files import first_entry_position
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.log_family import LogFamily, LogFolder, MappedLog
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder, dispatch_log
from ledgermq.store.queues.known_ends import known_queue_ends
from ledgermq.store.queues.queue_end import find_end
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_files import found_batch_file_size
from ledgermq.store.recovery.stopped_log import recover_stopped
from ledgermq.store.state_mark import NAME as STATE_MARK
from ledgermq.store.state_mark import write_state_mark
from ledgermq.store.store_directory import StoreDirectory, open_directory

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with what is done, and bytes done and to do."""

ARCHIVES = "archives.json"
"""File of ``ROOT/ledgermq`` that says up to which position of the log each archive has it."""

OF_THE_GROUP = (
    "term",
    "identity",
    "peers",
    "members",
    "log-checkpoint",
    "dispatch-checkpoint",
    ENDS_NAME,
    f"{ENDS_NAME}-told",
    "shipped",
    "replaced",
    LAST_BACKUP,
    STATE_MARK,
    ARCHIVES,
    f"{ARCHIVES}{BACKUP_SUFFIX}",
)
"""What of ``ROOT/ledgermq`` says something of the log or of the group that the store leaves."""

_SPARE = 64 * 1024 * 1024
"""Bytes beyond the estimate: index files are made at their full size, and files are rounded up."""


@dataclass(frozen=True, slots=True)
class DowngradePlan:
    """What a downgrade would do.

    Attributes:
        begin: where the plain log goes on: the division, or where the DLedger log begins.
        end: behind the last whole entry.
        last, term: that entry; of several members, the one with the highest term and then the
            highest index has everything that was acknowledged.
        committed_end: behind the last entry that the store itself says is committed.
        needed: bytes that the disk must have free, at most.
        free: bytes that it has.
    """

    directory: StoreDirectory
    begin: Position
    end: Position
    last: Index
    term: Term
    committed_end: Position
    needed: int
    free: int


@dataclass(frozen=True, slots=True)
class Downgrade:
    """What a downgrade has done; bytes are those of the records, times in seconds.

    Attributes:
        end: where the plain log ends.
        left_out: entries of our own on the system topic.
        kept_queues: queues that the log has no message of any more, which are taken over as they
            are, for their next offset.
    """

    root: Path
    end: Position
    records: int
    left_out: int
    bytes: int
    kept_queues: int
    log_seconds: float
    queue_seconds: float


def plan_downgrade(root: Path, *, self_id: str | None) -> DowngradePlan:
    """Look what a downgrade of the store in ``root`` would do; nothing is changed.

    Raises:
        ConfigError: no store, or one whose log is plain already.
        CorruptLogError: the files are not those of a log.
        StorageError: they cannot be read.
    """
    directory = open_directory(root, self_id=self_id)
    if directory.dledger is None:
        raise ConfigError("the log is a plain one already", directory=str(root))
    reader = LogReader(directory)
    try:
        data = reader.parts[-1].files
        if not data.starts:
            raise ConfigError("the DLedger log has no files", directory=str(data.directory))
        begin, end = Position(data.first), max(reader.end, Position(data.first))
        last, term = _last_entry(reader, end)
        committed = reader.committed_end()
    finally:
        reader.close()
    derived = bytes_on_disk(directory.consume_queues, directory.index)
    return DowngradePlan(
        directory,
        begin,
        end,
        last,
        term,
        committed,
        needed=end - begin + derived + _SPARE,
        free=_free_bytes(root),
    )


def downgrade(
    root: Path, store: StoreSection, *, self_id: str | None, progress: Progress
) -> Downgrade:
    """Turn the store in ``root`` into a plain one.

    Who calls holds the store's locks. A downgrade that was begun is gone on with.

    Args:
        store: sizes of the queue and index files; ``store.path_root_dir`` is ``root``.
        self_id: whose DLedger log, where there are several; None: there is one.

    Raises:
        ConfigError: no DLedger log; another conversion was begun; too little room, with numbers;
            topics with queues of batches.
        CorruptLogError: the log is damaged, or was changed since.
        StorageError: the operating system refused; to be resumed or undone.
    """
    begun = journal.read_journal(root)
    if begun is not None and not _goes_on(begun):
        journal.refuse_unfinished(root)
        if begun.kind is ConversionKind.UPGRADE:
            # What an undo of it would give back is what this gives, with all that came since.
            journal.finish(root, begun)
            begun = None
        else:
            raise ConfigError(
                f"the store was converted already: to make that final, ledgermq store downgrade"
                f" {root} --finish; to go back, ledgermq store downgrade {root} --undo",
                directory=str(root),
            )
    if begun is None or begun.phase is Phase.PREPARING:
        begun = _build(root, store, self_id=self_id, progress=progress)
    begun = journal.switch(root, begun)
    return described(root, begun)


def undo_downgrade(root: Path) -> None:
    """Give back the DLedger store as it was before the downgrade.

    Raises:
        ConfigError: there is none to undo, or messages were written since.
        CorruptLogError: a file is not as the downgrade has left it.
        StorageError: the operating system refused; to be called again.
    """
    begun = journal.read_journal(root)
    if (
        begun is None
        or begun.kind is not ConversionKind.DOWNGRADE
        or begun.phase is Phase.FINISHING
    ):
        raise ConfigError("there is no downgrade to undo", directory=str(root))
    if begun.phase is Phase.SWITCHED:
        reader = LogReader(open_directory(root))
        reader.close()
        if reader.end != begun.facts["end"]:
            raise ConfigError(
                "messages were written since the downgrade, which an undo would lose: the store"
                f" stays plain; to delete what it was, ledgermq store downgrade {root} --finish",
                end=reader.end,
                end_then=begun.facts["end"],
            )
    journal.undo(root, begun)


def described(root: Path, conversion: Conversion) -> Downgrade:
    """What the journal of a downgrade says of it."""
    facts = conversion.facts
    return Downgrade(
        root,
        end=Position(int(facts["end"])),
        records=int(facts["records"]),
        left_out=int(facts["left_out"]),
        bytes=int(facts["bytes"]),
        kept_queues=int(facts["kept_queues"]),
        log_seconds=int(facts["log_ms"]) / 1_000,
        queue_seconds=int(facts["queue_ms"]) / 1_000,
    )


def _goes_on(begun: Conversion) -> bool:
    return begun.kind is ConversionKind.DOWNGRADE and begun.phase in (
        Phase.PREPARING,
        Phase.SWITCHING,
    )


def _build(
    root: Path, store: StoreSection, *, self_id: str | None, progress: Progress
) -> Conversion:
    """Build everything new beside the store; the conversion that puts it in place."""
    plan = plan_downgrade(root, self_id=self_id)
    if plan.free < plan.needed:
        raise ConfigError(
            "too little room for the plain log beside the DLedger log, which is kept until"
            f" --finish: needs {plan.needed} bytes, the disk has {plan.free}",
            directory=str(root),
            needed=plan.needed,
            free=plan.free,
        )
    dledger = plan.directory.dledger
    assert dledger is not None
    _, end = recover_stopped(
        root, dledger, progress=lambda done, all_: progress("recovering the log", done, all_)
    )
    begun = journal.begin(
        root, ConversionKind.DOWNGRADE, {"self_id": dledger.name.partition("-")[2]}
    )
    began_ns = time.monotonic_ns()
    new_end, done = _convert_log(root, dledger, end, progress=progress)
    converted_ns = time.monotonic_ns()
    _build_queues(root, store, plan.directory, new_end, progress=progress)
    reader = LogReader(plan.directory)
    # What was plain before an upgrade keeps its positions.
    plain_end = reader.parts[1].files.first if len(reader.parts) > 1 else reader.first
    kept = _keep_queues(root, plan.directory, reader.first, Position(plain_end))
    kept += _put_ends(root, store, plan.directory, reader.parts[0].files.first, new_end)
    reader.close()
    write_state_mark(root / journal.NEW / journal.OWN / STATE_MARK, 0)
    built_ns = time.monotonic_ns()
    facts: journal.Facts = {
        **begun.facts,
        "end": new_end,
        "records": done.records,
        "left_out": done.left_out,
        "bytes": done.bytes,
        "kept_queues": kept,
        "log_ms": (converted_ns - began_ns) // 1_000_000,
        "queue_ms": (built_ns - converted_ns) // 1_000_000,
    }
    return replace(begun, facts=facts, moves=_moves(root, dledger))


def _convert_log(
    root: Path, dledger: Path, end: LogEnd, *, progress: Progress
) -> tuple[Position, Converted]:
    """The records of all entries, in ``new/commitlog``, durable; where they end."""
    data = MappedFiles(dledger / "data")
    first = first_entry_position(dledger / "data", data.first)
    folder = root / journal.NEW
    target = AppendFiles(folder / "commitlog", file_size=data.file_size, position=data.first)
    positions = PositionTable(folder)
    conversion = LogConversion(target, positions)
    # The first entry may have had others before it, which its chain of CRCs went over.
    run = LogEnd(first, NO_INDEX, Term(0), 0)
    for start in data.starts:
        begin = max(first, start)
        if begin >= end.position:
            break
        run = _convert_file(data, start, run, end, conversion)
        data.release_pages()
        progress("converting the log", run.position - first, end.position - first)
    if (run.index_, run.term) != (end.index_, end.term):
        raise CorruptLogError(
            "log was verified to another end than recovery has found",
            index=run.index_,
            expected=end.index_,
        )
    target.sync()
    new_end = Position(target.position)
    target.close()
    _translate_archives(root, positions, begin=Position(data.first), end=new_end)
    positions.delete()
    data.close()
    return new_end, conversion.done


def _translate_archives(
    root: Path, positions: PositionTable, *, begin: Position, end: Position
) -> None:
    """Have the marks of archives in ``new`` say what they say by the new positions.

    They would be said to have what lies before the old ones now, and retention waits for them.
    """
    document = ConfigFile(root / journal.OWN / ARCHIVES).load()
    if not document:
        return
    marks = document.get("archives")
    for mark in marks.values() if isinstance(marks, dict) else ():
        before = mark.get("position") if isinstance(mark, dict) else None
        if isinstance(before, int) and before > begin:
            following = positions.following(before)
            mark["position"] = end if following is None else following
    ConfigFile(root / journal.NEW / journal.OWN / ARCHIVES).save(document)


def _convert_file(
    data: MappedFiles, start: int, run: LogEnd, end: LogEnd, conversion: LogConversion
) -> LogEnd:
    """Verify and convert the file at ``start``; the end of what was converted so far."""
    view = data.view(start, data.file_size)
    items = bytearray()
    if run.index_ == NO_INDEX:
        run = _first_entry(data, run, items)
    at = max(0, run.position - start)
    reached, _, index, term, chain, number = verify_span(
        view,
        at,
        min(data.file_size, end.position - start),
        ENTRY_HEADER_SIZE,
        start + at,
        run.index_ + 1,
        run.term,
        run.chain,
        items,
        crc32,
    )
    if RecordFault(number) not in (RecordFault.END, RecordFault.BLANK):
        raise CorruptLogError(
            "entry is not whole",
            file=str(data.path(start)),
            offset=reached,
            field=RecordFault(number).field,
        )
    conversion.convert(view, Position(start), items)
    return LogEnd(Position(start + reached), Index(index - 1), Term(term), chain)


def _first_entry(data: MappedFiles, run: LogEnd, items: bytearray) -> LogEnd:
    """Take the log's first entry by itself if those before it were deleted.

    Their part of its chainCrc cannot be had any more; what it has is followed from there.
    """
    start = data.start_of(run.position)
    at = run.position - start
    view = data.view(start, data.file_size)
    file = str(data.path(start))
    if int.from_bytes(view[at + 8 : at + 16], "big", signed=True) <= 0:
        return run
    header = decode_entry_header(view, at, position=run.position, file=file)
    check_entry(view, at, header, previous_chain_crc=None, file=file)
    items += encode_index_item(
        DLedgerIndexItem(header.position, header.size, header.index, header.term)
    )
    return LogEnd(
        Position(header.position + header.size), header.index, header.term, header.chain_crc
    )


def _build_queues(
    root: Path,
    store: StoreSection,
    directory: StoreDirectory,
    end: Position,
    *,
    progress: Progress,
) -> None:
    """ConsumeQueues, Index and checkpoints of the whole plain log, in ``new``, durable."""
    folder = root / journal.NEW
    plain = [path for path in (directory.commit_log, folder / "commitlog") if path is not None]
    log = MappedLog(LogFamily(*(LogFolder(path, 0) for path in plain)).mapped())
    first = Position(log.parts[0].files.first)
    section = replace(store, path_root_dir=folder, log=LogKind.COMMITLOG)
    builder = DispatchBuilder.open(
        section,
        log_start=first,
        log_end=end,
        published=first,
        files=load_derived_files(section, published=first, batches_of=root),
        with_tags=are_tags_kept(root),
    )
    try:
        dispatch_log(
            builder, log, end, lambda done, total: progress("building queues", done, total)
        )
        builder.flush()
        sync_directory(folder)
    finally:
        builder.close()
        log.close()


def _keep_queues(
    root: Path, directory: StoreDirectory, first: Position, plain_end: Position
) -> int:
    """Take over the queues that the log has no message of any more; how many there are.

    Their units point before the log, which begins at ``first``; what counts is how many there were.
    Those of light queues, which the log does not bring back, may point anywhere before
    ``plain_end``, where it becomes another one.
    """
    sizes = {
        "consumequeue": (directory.queue_file_size, UNIT),
        BATCH_FOLDER: (found_batch_file_size(root), BATCH_UNIT),
    }
    kept = 0
    built = root / journal.NEW
    with refused_as("queues not copied", file=built):
        for queue in chain(*(queue_folders(root / name) for name in sizes)):
            target = built / queue.relative_to(root)
            file_size, unit = sizes[queue.parent.parent.name]
            if target.exists() or queue.parent.name == SYSTEM_TOPIC or file_size is None:
                continue
            end = find_end(queue, file_size, whole_below=0, unit=unit).log_end
            if end > (first if is_topic_name(queue.parent.name) else plain_end):
                logger.warning(
                    "queue not taken over, the log has no message of it: queue=%s log_end=%d",
                    queue,
                    end,
                )
                continue
            make_directories(target)
            for name in own_names(queue):
                shutil.copy2(queue / name, target / name)
                with (target / name).open("rb") as file:
                    sync_content(file.fileno())
            for made in (target, target.parent, target.parent.parent):
                sync_directory(made)
            kept += 1
    return kept


def _put_ends(
    root: Path, store: StoreSection, directory: StoreDirectory, log_start: int, end: Position
) -> int:
    """Add the queues that only the table of ends knows, and write the new log's table; how many."""
    known = known_queue_ends(root, queue_file_size=directory.queue_file_size, log_start=log_start)
    if known is None:
        return 0
    system = SYSTEM_TOPIC.encode()
    wanted = {name: at for name, at in known.ends.items() if name[0] != system}
    section = replace(store, path_root_dir=root / journal.NEW, log=LogKind.COMMITLOG)
    builder = DispatchBuilder.open(
        section,
        log_start=Position(log_start),
        log_end=end,
        published=end,
        files=load_derived_files(section, published=end, batches_of=root),
    )
    try:
        put = builder.queues.put_ends(wanted, log_start=log_start)
        builder.flush(ends=builder.all_ends(None))
    finally:
        builder.close()
    return put


def _moves(root: Path, dledger: Path) -> tuple[FileRename, ...]:
    """What is set aside, and what takes its place; what is not there is not moved."""
    aside = [dledger.name, "consumequeue", BATCH_FOLDER, "index", "checkpoint", "abort"]
    aside += [f"{journal.OWN}/{name}" for name in OF_THE_GROUP]
    moves = [FileRename(name, f"{journal.OLD}/{name}") for name in aside if (root / name).exists()]
    new = root / journal.NEW
    place: list[str]
    if (root / "commitlog").exists():
        # RocketMQ may have made an old file ahead, where the log has gone on since.
        moves += [
            FileRename(f"commitlog/{path.name}", f"{journal.OLD}/commitlog/{path.name}")
            for path in sorted((new / "commitlog").iterdir())
            if (root / "commitlog" / path.name).exists()
        ]
        place = [f"commitlog/{path.name}" for path in sorted((new / "commitlog").iterdir())]
    else:
        place = ["commitlog"]
    place += ["consumequeue", BATCH_FOLDER, "index", "checkpoint"]
    own = ("dispatch-checkpoint", ENDS_NAME, STATE_MARK, ARCHIVES)
    place += [f"{journal.OWN}/{name}" for name in own]
    moves += [FileRename(f"{journal.NEW}/{name}", name) for name in place if (new / name).exists()]
    return tuple(moves)


def _last_entry(reader: LogReader, end: Position) -> tuple[Index, Term]:
    """Index and term of the entry that ends at ``end``, or before the blank that does."""
    files, data = reader.index_files, reader.parts[-1].files
    assert files is not None
    first = max(Position(data.first), reader.first)
    last, term = NO_INDEX, Term(0)
    if end <= first:
        return last, term
    header = data.view(first, ENTRY_HEADER_SIZE)
    # Items of entries ascend; behind the last one are zeros.
    low, high = int.from_bytes(header[8:16], "big"), files.end // ITEM_SIZE
    while low < high:
        middle = (low + high) // 2
        item = decode_index_item(files.view(middle * ITEM_SIZE, ITEM_SIZE))
        if item is not None and item.position < end:
            low, last, term = middle + 1, item.index, item.term
        else:
            high = middle
    return last, term


def _free_bytes(folder: Path) -> int:
    with refused_as("disk not looked at", file=folder):
        found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
