"""Opening of the log for writing: recovery, and the queue offsets behind what is dispatched."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledgermq.formats.dledger_index import FILE_SIZE as INDEX_FILE_SIZE
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.host_address import encode_host
from ledgermq.members.log_trouble import LogDamagedError, has_others, note_damage
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.process.store_kind import check_kind
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.file_names import own_names, tell_foreign
from ledgermq.store.files.kept_aside import FOLDER, keep_aside, settle_last_file
from ledgermq.store.files.mapped_files import MappedFile
from ledgermq.store.files.small_file import read_file
from ledgermq.store.files.store_checkpoint import certain_before_ms
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log.log_writer import LogEnd, LogWriter
from ledgermq.store.log.verified_span import check_span
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_ends import Queue, ends_path, read_queue_ends
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, decode
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, read_damage
from ledgermq.store.recovery.log_scan import LogFiles, load_files
from ledgermq.store.recovery.recovery import (
    NOTHING_KNOWN,
    RecoveredLog,
    Verdict,
    foreign_end,
    recover_log,
    refuse_damage,
)

logger = logging.getLogger(__name__)

_LARGE = 256 * 1024
"""Bytes of a message from which on only its ends are read where bodies are not looked at."""


@dataclass(frozen=True, slots=True)
class OpenLog:
    """The log, open at its end, and what recovery found.

    Attributes:
        noted: queue offsets behind a part of the log, by that part and the log's end then. A start
            asks for the same several times.
    """

    writer: LogWriter
    recovered: RecoveredLog
    paths: StorePaths
    store_host: bytes
    noted: dict[tuple[Position, Position, LogEnd], dict[Queue, int]] = field(default_factory=dict)


def open_log(settings: Settings, *, is_in_use: bool, sign_of_life: Callable[[], None]) -> OpenLog:
    """Recover the log that the settings name, and open it for appending.

    A damaged log is refused where nobody else has it. A member of a group notes the damage and goes
    on with what is before it (docs/decisions/0010).

    Args:
        is_in_use: other processes of the node have read the log already.
        sign_of_life: called again and again while a long scan runs.

    Raises:
        ConfigError: the directory holds another kind of log than the settings say.
        LogDamagedError: a damage was noted, and nothing cut yet: the others must end first.
        CorruptLogError, StorageError: see ``recover_log``.
    """
    paths = StorePaths.of(settings)
    check_kind(paths, settings)
    make_directories(paths.own)

    def report(done: int, total: int) -> None:
        logger.info("recovering the log: bytes=%d of=%d", done, total)
        sign_of_life()

    def decide(damage: LogDamage) -> None:
        if not has_others(settings):
            refuse_damage(damage)
        note_damage(settings, damage)
        is_cut = (
            known is not None
            and checkpoint is not None
            and (damage.position >= checkpoint.end.position)
        )
        # What an earlier life of the node has cut already nobody counts on.
        if is_in_use and not is_cut:
            raise LogDamagedError("log damaged while it is in use: the node is opened anew")

    known = read_damage(damage_path(paths.root))
    checkpoint = _read_checkpoint(paths.log_checkpoint)
    settle_log_files(paths, settings, checkpoint)
    recovered = recover_log(
        paths.data,
        paths.index,
        file_size=settings.store.mapped_file_size_commit_log,
        checkpoint=checkpoint,
        progress=report,
        certain_before_ms=certain_before_ms(paths.root),
        known=known,
        foreign=foreign_end(paths.root, paths.dledger_checkpoint)
        if checkpoint is None
        else NOTHING_KNOWN,
        on_damage=decide,
    )
    store_host = encode_host((settings.node.broker_ip, settings.node.listen_port))
    writer = LogWriter(recovered.data, recovered.index, end=recovered.end, store_host=store_host)
    logger.info(
        "log recovered: position=%d index=%d term=%d records_scanned=%d",
        recovered.end.position,
        recovered.end.index_,
        recovered.end.term,
        recovered.records_scanned,
        extra={"event": Event.LOG_RECOVERED},
    )
    if recovered.verdict is not Verdict.WHOLE:
        logger.warning(
            "log recovered with a loss: %s",
            recovered.verdict.value,
            extra={"event": Event.LOG_LOST_ENTRIES},
        )
    return OpenLog(writer, recovered, paths, store_host)


def settle_log_files(
    paths: StorePaths, settings: Settings, checkpoint: LogCheckpoint | None
) -> None:
    """Keep aside what of the log's files no recovery can read, where a start is possible without.

    A last file of a wrong size: its whole records are taken over. DLedger's index, if its files are
    not those of an index: it is built again.

    Raises:
        StorageError: the operating system refused.
    """
    foreign: list[Path] = []
    for folder in (paths.old, paths.data, paths.index):
        if folder is not None:
            own_names(folder, foreign=foreign)
    tell_foreign(foreign)
    aside = paths.own / FOLDER
    expected = checkpoint.file_size if checkpoint is not None else None
    configured = settings.store.mapped_file_size_commit_log
    # A setting that fits no file is refused by recovery, with its name.
    if None in (configured, expected) or configured == expected:
        settle_last_file(paths.data, expected=expected, aside=aside)
    if paths.index is None:
        return
    try:
        load_files(paths.index, file_size=None, default_size=INDEX_FILE_SIZE)
    except CorruptLogError as error:
        keep_aside(paths.index, aside, reason=f"index of the log is built again: {error}")


def open_queue_offsets(
    log: OpenLog,
    settings: Settings,
    *,
    begin: Position,
    end: Position,
    sign_of_life: Callable[[], None],
) -> QueueOffsets:
    """The table of next queue offsets.

    Args:
        begin: everything in the log before it is in the ConsumeQueues.
        end: the log's end.
        sign_of_life: called again and again while much of the log is read.

    Raises:
        CorruptLogError: a record between the two is not whole, but for its body, which who
            dispatches it compares; names its position.
    """
    part = (begin, end, log.writer.end)
    offsets = QueueOffsets(
        log.paths.consume_queues,
        file_size=_queue_file_size(settings),
        log_end=end,
        ends=known_ends(log.paths.root),
        batch_topics=batch_topics(log.paths.root),
    )
    if part in log.noted:
        offsets.note(log.noted[part])
        return offsets
    data = load_files(log.paths.data, file_size=log.recovered.data.file_size, default_size=0)
    if log.paths.old is not None and begin < log.recovered.first:
        # Dispatch stands in the part of the log that the store was taken over with.
        old = load_files(log.paths.old, file_size=None, default_size=0)
        _note(offsets, old, (begin, log.recovered.first), 0, sign_of_life)
    begin = max(begin, log.recovered.first)
    _note(offsets, data, (begin, end), log.writer.header_size, sign_of_life)
    log.noted.clear()
    log.noted[part] = offsets.noted
    return offsets


def known_ends(root: Path) -> Mapping[Queue, int]:
    """What the table of queue ends says; nothing where it cannot be read, and is written anew."""
    try:
        table = read_queue_ends(ends_path(root))
    except CorruptLogError as error:
        logger.error("table of queue ends passed: %s", error)
        return {}
    return {} if table is None else table.ends


def _note(
    offsets: QueueOffsets,
    files: LogFiles,
    part: tuple[Position, Position],
    header_size: int,
    sign_of_life: Callable[[], None],
) -> None:
    """Count the messages of ``files`` in a half-open ``part`` of the log."""
    for start in files.starts:
        low = max(start, part[0])
        high = min(start + files.file_size, part[1])
        if low >= high:
            continue
        at, behind = low - start, high - start
        file = MappedFile(files.path(start))

        def looked(
            records: int, size: int, advise: Callable[[int], None] = file.map.madvise
        ) -> None:
            sign_of_life()
            # What is read ahead of a large message is its body.
            advise(mmap.MADV_RANDOM if size > _LARGE * records else mmap.MADV_NORMAL)

        with file as view, view[at:behind] as span:
            sign_of_life()
            check_span(
                view,
                at,
                behind,
                header_size=header_size,
                base=start,
                heads_alone=True,
                looked=looked,
            )
            sign_of_life()
            offsets.note_span(span, base=low, header_size=header_size, sign_of_life=sign_of_life)


def entry_files(log: OpenLog) -> EntryFiles | None:
    """A reader of the log's entries, the caller's to ``forget``; None with a plain log."""
    data, index = log.recovered.data, log.recovered.index
    if index is None:
        return None
    return EntryFiles(
        data.directory,
        index.directory,
        file_size=data.file_size,
        index_file_size=index.file_size,
    )


def entry_before(log: OpenLog, position: int) -> int:
    """Where an entry begins, at or before ``position``; in a plain log, where the file begins."""
    files = entry_files(log)
    if files is None:
        file_size = log.recovered.data.file_size
        return max(int(log.recovered.first), position - position % file_size)
    try:
        return files.entry_before(position, log.writer.end.index_)
    finally:
        files.forget()


def _queue_file_size(settings: Settings) -> int | None:
    """Size of a ConsumeQueue file by the settings, if they say it."""
    configured = settings.store.mapped_file_size_consume_queue
    return None if configured is None else -(-configured // UNIT_SIZE) * UNIT_SIZE


def _read_checkpoint(path: Path) -> LogCheckpoint | None:
    content = read_file(path)
    if content is None:
        return None
    checkpoint = decode(content)
    if checkpoint is None:
        logger.warning("checkpoint not whole, more of the log is scanned: file=%s", path)
    return checkpoint
