"""Source of a backup: a store, of a running node up to what is committed at this moment.

An understudy that follows a RocketMQ master is asked in the same way: its folder is its runtime
directory, too, and committed is what is on its disk, and confirmed where masters are elected.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ledgermq.conversion.backup_manifest import BackupManifest
from ledgermq.conversion.understudy_note import UnderstudyNote, read_note
from ledgermq.formats.dledger_entry import decode_entry_header
from ledgermq.formats.kernels.kernel import SCAN_ROWS, ScanStatus, scan_entries
from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.members.peer_identity import cluster_id, draw_identity, identity_of
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.settings import LogKind, NodeSection, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError, NotLeaderError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Position, Term
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.raft.term_slots import decode_slots
from ledgermq.store.files.properties_file import decode_current_term, decode_dledger_checkpoint
from ledgermq.store.files.small_file import read_file
from ledgermq.store.log_reader import LogReader
from ledgermq.store.recovery.log_damage import damage_path, read_damage
from ledgermq.store.store_directory import StoreDirectory
from ledgermq.understudy.followed_settings import is_elected, section_of
from ledgermq.understudy.understudy_status import read_status


def describe_stopped(directory: StoreDirectory, section: StoreSection) -> BackupManifest:
    """Everything that a stopped store has, up to its last whole record.

    After a crash that may be more than is committed; it is what the next start would find, too.

    Raises:
        CorruptLogError: the files are not those of a log, or it has lost entries.
        StorageError: they cannot be read.
    """
    reader = LogReader(directory)
    try:
        index, term = _last_entry(reader)
        return _manifest(
            directory,
            section,
            first=reader.first,
            end=reader.end,
            index=index,
            term=term,
            committed=_committed(directory, index),
        )
    finally:
        reader.close()


def describe_running(directory: StoreDirectory, runtime: Path) -> BackupManifest:
    """What is committed on the node in ``runtime`` now.

    Raises:
        ConfigError: another node's runtime directory, or another understudy's.
        CorruptLogError: the node has lost entries, and not got them back yet.
        NotLeaderError: the node does not know yet what is committed; try again.
        StorageError: no node runs there.
    """
    section = _section_of(directory, runtime)
    queue_file_size = section.mapped_file_size_consume_queue or directory.queue_file_size
    section = replace(section, mapped_file_size_consume_queue=queue_file_size)
    committed = _committed_now(runtime)
    is_plain = directory.log is LogKind.COMMITLOG
    reader = LogReader(directory)
    try:
        first = reader.first
    finally:
        reader.close()
    return _manifest(
        directory,
        section,
        first=first,
        end=committed.position,
        index=NO_INDEX if is_plain else committed.index,
        term=0 if is_plain else committed.term,
        committed=NO_INDEX if is_plain else committed.index,
    )


def committed_position(directory: StoreDirectory, runtime: Path) -> int:
    """Position up to which the log of the node in ``runtime`` is committed now.

    Raises:
        ConfigError, NotLeaderError, StorageError: as ``describe_running``.
        StaleGenerationError: the node has never run, or is of another version.
    """
    _section_of(directory, runtime)
    return _committed_now(runtime).position


def committed_end(runtime: Path) -> int:
    """The same of whichever node is in ``runtime``, by its cursors alone: to look often.

    Raises:
        NotLeaderError, StaleGenerationError: as ``committed_position``.
    """
    return _committed_now(runtime).position


def prepare_member(staging: Path, manifest: BackupManifest) -> None:
    """Let a restored store be that of the same member, on a disk that the others do not know.

    It may have promised things since the backup that it does not remember, so the others must not
    take it for the one that it was before somebody says so (``ledgermq raft forget``).
    """
    members = staging / "ledgermq" / "members"
    if members.exists():
        RosterFile(members).cut_behind(Index(manifest.index))
    if manifest.cluster is not None:
        node = NodeId(manifest.self_id or "")
        draw_identity(staging / "ledgermq" / "identity", bytes.fromhex(manifest.cluster), node)


def prepare_group(
    node: NodeSection,
) -> Callable[[Path, BackupManifest], None]:
    """Let a restored store begin a group of another name, which no member of the old one joins."""

    def prepare(staging: Path, manifest: BackupManifest) -> None:
        cluster = cluster_id(node)
        if manifest.cluster == cluster.hex():
            raise ConfigError(
                "the new group has the names of the old one, whose members may still run",
                cluster_name=node.broker_cluster_name,
                group=node.group,
            )
        # Who belongs to the group, its settings say: the old members are not asked.
        (staging / "ledgermq" / "members").unlink(missing_ok=True)
        draw_identity(staging / "ledgermq" / "identity", cluster, NodeId(node.self_id))

    return prepare


def _section_of(directory: StoreDirectory, runtime: Path) -> StoreSection:
    note = read_note(runtime)
    if note is not None and note.promoted_at_ms is None:
        section = section_of(note, runtime)
    else:
        section = load_settings(runtime / "settings.toml").store
    if section.path_root_dir.resolve() != directory.root.resolve():
        raise ConfigError(
            "the node in that runtime directory has another store",
            runtime_dir=str(runtime),
            found=str(section.path_root_dir),
            store=str(directory.root),
        )
    return section


def _committed_now(runtime: Path) -> LogCursor:
    note = read_note(runtime)
    if note is not None and note.promoted_at_ms is None:
        return _followed_now(runtime, note)
    with CursorPage.attach(runtime / "cursors") as page:
        if not page.has_committed():
            raise NotLeaderError("the node does not know yet what is committed: try again")
        return page.read_committed()


def _followed_now(root: Path, note: UnderstudyNote) -> LogCursor:
    """What an understudy has for ever, as it said within the last second."""
    status = read_status(root)
    if status is None:
        raise NotLeaderError("the understudy has not followed yet: ledgermq understudy run")
    end = status.durable
    if is_elected(note):
        # What is behind may be taken back, when another master is elected.
        end = min(end, status.confirmed)
    if end < 0:
        raise NotLeaderError("the master does not say what is confirmed: nothing is for ever yet")
    return LogCursor(Position(end), NO_INDEX, Term(0))


def _manifest(
    directory: StoreDirectory,
    section: StoreSection,
    *,
    first: int,
    end: int,
    index: int,
    term: int,
    committed: int,
) -> BackupManifest:
    damage = read_damage(damage_path(directory.root))
    if damage is not None:
        raise CorruptLogError(
            "the log lacks what it once had durable: back up another member, or start this one and"
            " wait until it was filled",
            found=damage.describe(),
        )
    identity = identity_of(directory.root / "ledgermq" / "identity")
    return BackupManifest(
        created_ms=time.time_ns() // 1_000_000,
        log=directory.log.value,
        self_id=directory.self_id,
        cluster=None if identity is None else identity[0].hex(),
        first=first,
        end=end,
        index=index,
        term=term,
        committed=committed,
        current_term=_current_term(directory),
        log_file_size=directory.log_file_size or 0,
        queue_file_size=section.mapped_file_size_consume_queue,
        hash_slots=section.max_hash_slot_num,
        index_items=section.max_index_num,
        with_index=section.message_index_enable,
        delay_levels=section.message_delay_level,
    )


def _current_term(directory: StoreDirectory) -> int:
    content = read_file(directory.root / "ledgermq" / "term")
    stored = decode_slots(content) if content else None
    term = 0 if stored is None else int(stored.state.term)
    if directory.dledger is not None:
        path = directory.dledger / "currterm"
        text = read_file(path)
        if text:
            term = max(term, decode_current_term(text, file=str(path)).term)
    return term


def _committed(directory: StoreDirectory, last: int) -> int:
    if directory.dledger is None:
        return NO_INDEX
    path = directory.dledger / "checkpoint"
    content = read_file(path)
    if not content:
        return NO_INDEX
    return min(last, decode_dledger_checkpoint(content, file=str(path)).committed)


def _last_entry(reader: LogReader) -> tuple[int, int]:
    """Index and term of the last entry; (-1, 0) where the log ends in its plain part."""
    if reader.end <= reader.first:
        return NO_INDEX, 0
    part = reader.part_of(reader.end - 1)
    if not part.header_size:
        return NO_INDEX, 0
    start = part.files.start_of(reader.end - 1)
    begin = max(start, reader.first)
    view = part.files.view(start, part.files.file_size)
    starts, sizes = np.empty(SCAN_ROWS, np.int64), np.empty(SCAN_ROWS, np.int64)
    at, last, status = begin - start, -1, ScanStatus.FULL
    while status is ScanStatus.FULL:
        count, at, number = scan_entries(
            view, at, reader.end - start, part.header_size, start, starts.data, sizes.data
        )
        status = ScanStatus(number)
        last = int(starts[count - 1]) - part.header_size if count else last
    header = decode_entry_header(view, last)
    return header.index, header.term
