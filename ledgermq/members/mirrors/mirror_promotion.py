"""Promotion of a mirror to a group, and rejoining: the old group's store becomes its mirror.

The store of a mirror that is promoted becomes that of a group, in a term of the next group epoch.
``ROOT/ledgermq/promoted`` is a checked document that says where the copy ended: by it the old log
is asked later what it had beyond that. The mark of the mirror goes last: a promotion that was
killed is done again.

The old group's store *rejoins* as a mirror of the new one. The log keeps what both have: up to
where the copy ended, or, of a member that was behind it, up to what it knows as committed. All else
moves to ``ROOT/ledgermq/set-aside/rejoin-MS/``, laid out as a store, which ``ledgermq mirror
missing`` and other readers of stores open:

    dledger-ID/                      the last files of the log, from the last entry that is kept on
    config/*.json, ledgermq/*.json   tables of topics, groups, offsets, users: they may say what
                                     only the cut entries said, and are made anew of the log
    ledgermq/members, identity, peers, mirror-told    of the membership that was
    missing                          a checked document: which messages were cut, queue by queue

From when that is durable until all is done the mark of the mirror names the folder, and nobody
opens the store. A rejoin that was killed goes on when it is run again.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ledgermq.conversion.backup_manifest import copy_file
from ledgermq.conversion.missing_messages import (
    CopyEnd,
    Missing,
    MissingQueue,
    check_same,
    common_end,
    entry_begin,
    missing_behind,
)
from ledgermq.formats.config_json import LIGHT_OFFSETS_FILE
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.members.log_replacement import replace_log, staging_folder
from ledgermq.members.mirrors.mirror_mark import (
    REJOINING,
    mirror_mark_path,
    refuse_unfinished_rejoin,
    write_mirror_mark,
)
from ledgermq.members.mirrors.mirror_report import MirrorReport, read_mirror_report
from ledgermq.members.mirrors.promotion_note import FILE, Promotion, read_promotion
from ledgermq.members.mirrors.promotion_note import FILE as PROMOTED
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.group_epoch import DRAWS, EPOCH_MAX, epoch_of, promoted_term
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.state.state_tables import FILES, OWN_FILES
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.config_file import BACKUP_SUFFIX
from ledgermq.store.files.disk_sync import make_directories, sync_directory
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.files.kept_aside import FOLDER
from ledgermq.store.files.properties_file import (
    CurrentTerm,
    DLedgerCheckpoint,
    decode_current_term,
    encode_current_term,
    encode_dledger_checkpoint,
)
from ledgermq.store.files.small_file import read_file, replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import file_size_in
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    ends_path,
    read_queue_ends,
    told_ends_path,
    write_queue_ends,
)
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode
from ledgermq.store.recovery.stopped_log import recover_stopped
from ledgermq.store.state_mark import write_state_mark
from ledgermq.store.store_directory import open_directory

LAST_WORD = "mirror-told"
"""``ROOT/ledgermq/mirror-told``: the report of the mirror, which outlives the machine's start."""

LISTING = "missing"

_ASIDE = re.compile(r"rejoin-[0-9]{1,16}")
_PARTIAL = ".partial"
_OF_THE_GROUP = ("members", "identity", "peers", LAST_WORD)


def promote_mirror(settings: Settings) -> tuple[Promotion, MirrorReport | None]:
    """Make the store of a mirror one of a group; who calls holds the store's locks.

    Returns:
        where the copy ends, and what the mirror has told last; None where that is not known.

    Raises:
        ConfigError: the store is no mirror's, or has nothing.
        CorruptLogError: the log is damaged.
        StorageError: the operating system refused.
    """
    mark = mirror_mark_path(settings)
    document = read_document(mark)
    if document is None:
        raise ConfigError("the store is no mirror's", directory=str(settings.store.path_root_dir))
    refuse_unfinished_rejoin(mark, document)
    promotion = _at_end_of_log(settings)
    paths = StorePaths.of(settings)
    assert paths.current_term is not None
    write_document(paths.own / FILE, asdict(promotion))
    # A raft process that starts takes the greater one of this and its own file. From here on the
    # store is no mirror of its source any more: that would be refused for its lesser epoch.
    replace_file(paths.current_term, encode_current_term(CurrentTerm(promotion.term, None)))
    report = last_word(paths.own)
    mark.unlink()
    sync_directory(paths.own)
    return promotion, report


def copy_end(promotion: Promotion) -> CopyEnd:
    """The last entry of the copy of which a group was made."""
    return CopyEnd(
        promotion.begin, promotion.end, promotion.index, promotion.entry_term, promotion.chain
    )


def last_word(own: Path) -> MirrorReport | None:
    """What the mirror has told last; None where nobody knows it any more.

    Args:
        own: ``ROOT/ledgermq``.
    """
    try:
        return read_mirror_report(own / LAST_WORD)
    except (OSError, json.JSONDecodeError):
        return None


def _at_end_of_log(settings: Settings) -> Promotion:
    """The log, recovered as at a start; a mirror's has nothing that was not committed."""
    paths, node = StorePaths.of(settings), settings.node
    assert paths.index is not None
    folder = paths.data.parent
    if not starts_in(paths.data):
        raise ConfigError("the mirror has nothing: no group is made of it", directory=str(folder))
    _, end = recover_stopped(paths.root, folder, progress=lambda _done, _total: None)
    if end.index_ == NO_INDEX:
        raise ConfigError("the mirror has nothing: no group is made of it", directory=str(folder))
    if epoch_of(end.term) >= EPOCH_MAX:
        raise ConfigError("no epoch is left", epoch=epoch_of(end.term), limit=EPOCH_MAX)
    begin = entry_begin(folder, end.index_)
    copied = begin, end.position, end.index_, end.term, end.chain
    term, now_ms = promoted_term(end.term, secrets.randbelow(DRAWS)), time.time_ns() // 1_000_000
    return Promotion(node.broker_cluster_name, node.group, *copied, term, now_ms)


@dataclass(frozen=True, slots=True)
class Rejoin:
    """What becomes of a store.

    Attributes:
        first: where its log begins.
        last: index of its last entry.
        kept: the last entry that stays.
        missing: messages behind it, which go.
        aside: where they go; there already where a rejoin was begun.
        is_begun: it was, and goes on.
    """

    first: Position
    last: Index
    kept: CopyEnd
    missing: Missing
    aside: Path
    is_begun: bool


def plan_rejoin(settings: Settings, promotion: Promotion) -> Rejoin:
    """What would become of the stopped store; a torn tail is cut, as at any start.

    Who calls holds the store's locks.

    Args:
        promotion: of the mirror that is the new group.

    Raises:
        ConfigError: the copy is none of this store's log, or the store is a mirror's, or that of
            the promoted group.
        CorruptLogError: the log is damaged.
        StorageError: the operating system refused.
    """
    paths, node = StorePaths.of(settings), settings.node
    if paths.index is None or not starts_in(paths.data):
        raise ConfigError(
            "the store has no log of a group: an empty one becomes a mirror by its settings",
            directory=str(paths.root),
        )
    if (promotion.cluster, promotion.group) != (node.broker_cluster_name, node.group):
        raise ConfigError(
            "what was promoted is another group than the settings name",
            promoted=(promotion.cluster, promotion.group),
            settings=(node.broker_cluster_name, node.group),
        )
    begun = _begun(settings)
    # As at a start: what was shipped whole is the log.
    replace_log(paths)
    first, end = recover_stopped(paths.root, paths.data.parent, progress=lambda _done, _total: None)
    _check_older(paths, end, promotion)
    reader = LogReader(open_directory(paths.root, self_id=node.self_id))
    try:
        kept = _kept(reader, promotion, end.index_, paths.own / PROMOTED)
        if begun is not None:
            missing = _read_listing(begun, kept)
            return Rejoin(first, end.index_, kept, missing, begun, is_begun=True)
        missing = missing_behind(reader, kept)
    finally:
        reader.close()
    aside = paths.own / FOLDER / f"rejoin-{time.time_ns() // 1_000_000}"
    return Rejoin(first, end.index_, kept, missing, aside, is_begun=False)


def carry_out_rejoin(settings: Settings, plan: Rejoin) -> None:
    """Make the store a mirror's; who calls holds the store's locks since ``plan_rejoin``.

    All is durable on return. Killed at any moment it is planned and carried out again.

    Raises:
        StorageError: the operating system refused.
    """
    paths = StorePaths.of(settings)
    with refused_as("store not made a mirror's: run the same again", directory=paths.root):
        if not plan.is_begun:
            _set_aside(paths, plan)
            write_mirror_mark(settings, rejoining=plan.aside.name)
        _cut_log(paths, plan.kept)
        _lower_ends(paths.root, plan)
        DispatchBuilder.open(
            settings.store, log_start=plan.first, log_end=plan.kept.end, published=None
        ).close()
        _move_tables(paths, plan.aside)
        # Of a log that another leader has shipped there may be a beginning.
        shutil.rmtree(staging_folder(paths), ignore_errors=True)
        # The last snapshot may have been cut: nothing is deleted before there is another one.
        write_state_mark(paths.state_mark, 0)
    write_mirror_mark(settings)


def _begun(settings: Settings) -> Path | None:
    """Where a rejoin that was begun has what it cuts.

    Raises:
        ConfigError: the store is a mirror's.
        CorruptLogError: the mark is not whole.
    """
    mark = mirror_mark_path(settings)
    document = read_document(mark)
    if document is None:
        return None
    name = document.get(REJOINING)
    if name is None:
        raise ConfigError("the store is a mirror's already", file=str(mark))
    if not isinstance(name, str) or not _ASIDE.fullmatch(name):
        raise CorruptLogError("mark of a mirror names no folder", file=str(mark), folder=name)
    return mark.parent / FOLDER / name


def _check_older(paths: StorePaths, end: LogEnd, promotion: Promotion) -> None:
    """Refuse the store of the promoted group, and that of another one which was promoted later:
    of such a one no mirror follows this group.
    """
    assert paths.current_term is not None
    content = read_file(paths.current_term)
    current = (
        None if content is None else decode_current_term(content, file=str(paths.current_term))
    )
    term = max(end.term, Term(0) if current is None else current.term)
    if term >= promotion.term:
        raise ConfigError(
            "the store is of the group that was promoted, or of one with a greater term: it is not"
            " to follow a lesser one",
            term=term,
            promoted=promotion.term,
        )


def _kept(reader: LogReader, promotion: Promotion, end: Index, own_note: Path) -> CopyEnd:
    """The last entry that both certainly have."""
    try:
        return common_end(reader, copy_end(promotion), end)
    except ConfigError:
        # Of two mirrors that were promoted this is the one that had copied less.
        own = read_promotion(own_note) if own_note.exists() else None
        if own is None or not _is_twin(own, promotion):
            raise
        check_same(reader, copy_end(own))
        return copy_end(own)


def _is_twin(own: Promotion, other: Promotion) -> bool:
    """Whether both were made of the same old group, and this one had copied no more."""
    is_one_group = (own.cluster, own.group) == (other.cluster, other.group)
    is_one_epoch = epoch_of(own.entry_term) == epoch_of(other.entry_term)
    is_before = own.end <= other.begin and own.entry_term <= other.entry_term
    return is_one_group and is_one_epoch and is_before


def _set_aside(paths: StorePaths, plan: Rejoin) -> None:
    """Have what is behind ``kept`` in the folder, durably; the log is as it was."""
    assert paths.index is not None and paths.dledger_checkpoint is not None
    make_directories(plan.aside.parent)
    for old in plan.aside.parent.glob(f"rejoin-*{_PARTIAL}"):
        shutil.rmtree(old)
    partial = plan.aside.with_name(plan.aside.name + _PARTIAL)
    # Who may not read the log is not to read it here.
    make_directories(partial, mode=0o700)
    dledger = partial / paths.data.parent.name
    kept, end = plan.kept, plan.missing.end
    _take_family(paths.data, dledger / "data", (kept.begin, kept.end, end))
    items = tuple(index * ITEM_SIZE for index in (kept.index_, kept.index_ + 1, plan.last + 1))
    _take_family(paths.index, dledger / "index", items)
    checkpoint = read_file(paths.dledger_checkpoint)
    if checkpoint is not None:
        replace_file(dledger / "checkpoint", checkpoint)
    _write_listing(partial, plan)
    for folder in (dledger / "data", dledger / "index", dledger, partial):
        sync_directory(folder)
    partial.rename(plan.aside)
    sync_directory(plan.aside.parent)


def _take_family(source: Path, target: Path, places: tuple[int, ...]) -> None:
    """Files of a family from the last kept record on: links to those that only the cut part has.

    Args:
        places: where that record begins and ends, and where the last one ends.
    """
    begin, kept_end, end = places
    make_directories(target)
    size = file_size_in(source, 0)
    for start in starts_in(source):
        path = source / file_name(start)
        if start >= kept_end:
            (target / path.name).hardlink_to(path)
        elif start + size > begin:
            used = max(0, min(size, end - start))
            copied = target / path.name
            copy_file(path, copied, used=used, size=size, told=lambda _count: None)
            copied.chmod(path.stat().st_mode & 0o777)


def _cut_log(paths: StorePaths, kept: CopyEnd) -> None:
    assert paths.index is not None and paths.dledger_checkpoint is not None
    file_size = file_size_in(paths.data, 0)
    end = LogEnd(kept.end, kept.index_, kept.term, kept.chain)
    # First: a log that ends before what these say is a damaged one.
    replace_file(paths.log_checkpoint, encode(LogCheckpoint(end, file_size)))
    checkpoint = DLedgerCheckpoint(kept.index_, kept.index_)
    replace_file(paths.dledger_checkpoint, encode_dledger_checkpoint(checkpoint))
    # Items before entries, as a writer does it: recovery gives entries the items that they lack.
    for folder, size, position in (
        (paths.index, file_size_in(paths.index, 0), (kept.index_ + 1) * ITEM_SIZE),
        (paths.data, file_size, kept.end),
    ):
        files = AppendFiles(folder, file_size=size, position=position)
        try:
            files.cut()
            files.sync()
        finally:
            files.close()


def _lower_ends(root: Path, plan: Rejoin) -> None:
    """Have the tables of ends count no message that was cut."""
    firsts = {
        (os.fsencode(one.queue.topic), one.queue.queue_id): one.first for one in plan.missing.queues
    }
    for path in (ends_path(root), told_ends_path(root)):
        try:
            table = read_queue_ends(path)
        except CorruptLogError:
            # The dispatcher passes it, and writes it anew of the queues.
            path.unlink()
            continue
        if table is not None:
            ends = {queue: min(at, firsts.get(queue, at)) for queue, at in table.ends.items()}
            left = {queue: at for queue, at in ends.items() if at > 0}
            write_queue_ends(path, QueueEnds(min(table.position, plan.kept.end), left))


def _move_tables(paths: StorePaths, aside: Path) -> None:
    """Leave no table, nor any copy of one, and nothing of the membership that was."""
    config = paths.topics.parent
    tables = [(paths.own if file in OWN_FILES else config) / file for file in FILES]
    # Alone it would count.
    tables.append(config / LIGHT_OFFSETS_FILE)
    others = [paths.own / name for name in _OF_THE_GROUP]
    backups = [path.with_name(path.name + BACKUP_SUFFIX) for path in tables]
    # The copies first: where the file is gone, what it was before would count.
    for path in (*backups, *tables, *others):
        if path.exists():
            target = aside / path.relative_to(paths.root)
            make_directories(target.parent)
            path.rename(target)
    for folder in (config, paths.own):
        for changed in (folder, aside / folder.relative_to(paths.root)):
            if changed.is_dir():
                sync_directory(changed)


def _write_listing(folder: Path, plan: Rejoin) -> None:
    missing = plan.missing
    document: dict[str, object] = {
        "kept": list(plan.kept),
        "begin": missing.begin,
        "end": missing.end,
        "queues": [[one.queue.topic, one.queue.queue_id, *one[1:]] for one in missing.queues],
    }
    write_document(folder / LISTING, document)


def _read_listing(folder: Path, kept: CopyEnd) -> Missing:
    """The listing of a rejoin that was begun.

    Raises:
        ConfigError: it was begun with another promotion.
        CorruptLogError: there is none that is whole.
    """
    path = folder / LISTING
    document = read_document(path)
    if document is None:
        raise CorruptLogError("what was cut is not there", file=str(path))
    if document.get("kept") != list(kept):
        raise ConfigError(
            "the store is being made a mirror of another group: go on with that one",
            begun=document.get("kept"),
            asked=list(kept),
            folder=str(folder),
        )
    begin, end, rows = (document.get(key) for key in ("begin", "end", "queues"))
    if type(begin) is not int or type(end) is not int or not isinstance(rows, list):
        raise CorruptLogError("listing of what was cut lacks something", file=str(path))
    queues = []
    for row in rows:
        if not isinstance(row, list) or [type(one) for one in row] != [str, *[int] * 5]:
            raise CorruptLogError("listing of what was cut has a wrong row", file=str(path))
        queues.append(MissingQueue(QueueName(row[0], row[1]), *row[2:]))
    return Missing(queues, Position(begin), Position(end))
