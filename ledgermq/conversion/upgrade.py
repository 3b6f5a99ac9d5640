"""Upgrade: a plain CommitLog becomes the old part of a DLedger log, as RocketMQ's broker does it.

What ``DLedgerCommitLog.recover`` does when a broker is started with DLedger for the first time: the
old log is recovered, the rest of its last file is filled by a blank, and the first DLedger file
begins where the next plain file would (``dividedCommitlogOffset``). Old messages stay where they
are, at their positions; what is new goes behind. Better than there: nothing is begun in a store
that is not whole, and a crash at any moment can be resumed or undone
(``conversion/conversion_journal.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ledgermq.conversion import conversion_journal as journal
from ledgermq.conversion.conversion_journal import (
    Conversion,
    ConversionKind,
    FileRename,
    Patch,
    Phase,
)
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.store_markers import BLANK_SIZE, encode_blank
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.ids import NodeId, Position
from ledgermq.repair.rebuild import put_queue_ends
from ledgermq.store.files.disk_sync import make_directories, sync_directory, sync_file
from ledgermq.store.files.file_names import file_name, own_names
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.log_family import LogFamily, LogFolder, MappedLog
from ledgermq.store.queues.derived_files import load_derived_files
from ledgermq.store.queues.dispatch_build import DispatchBuilder, dispatch_log
from ledgermq.store.queues.known_ends import known_queue_ends
from ledgermq.store.queues.queue_files import found_file_size
from ledgermq.store.queues.unsure_queues import unsure_queues
from ledgermq.store.recovery.stopped_log import recover_stopped

Progress = Callable[[str, int, int], None]
"""Called with what is done, and bytes done and to do."""

OF_ONE_NODE = ("term", "identity", "peers", "members", "log-checkpoint")
"""Files below ``ROOT/ledgermq`` that say what a node was; the copies of a directory share them."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade does, or has done.

    Attributes:
        end: position behind the last record of the old log.
        divided: first position of the DLedger log.
        file_size: bytes of a log file, of both logs.
        old_files: how many files the old log has.
        blank_size: bytes at the end of the last old file that the blank fills; 0: it is there.
    """

    root: Path
    group: str
    self_id: NodeId
    end: Position
    divided: Position
    file_size: int
    old_files: int
    blank_size: int


def check_upgradable(root: Path) -> None:
    """Refuse what is no stopped plain store, before anything is touched.

    Raises:
        ConfigError: no old log, or a DLedger log beside it; names what to do instead.
        CorruptLogError: files that do not belong where they are, or differ in size.
        StorageError: the directory cannot be read.
    """
    dledger = sorted(path.name for path in root.glob("dledger-*"))
    if dledger:
        raise ConfigError(
            "the store has a DLedger log already: there is nothing to upgrade",
            directory=str(root),
            found=dledger,
        )
    if not MappedFiles(root / "commitlog").starts:
        raise ConfigError(
            "no files of a plain CommitLog: a new DLedger log needs no upgrade, start the node",
            directory=str(root / "commitlog"),
        )


def upgrade(
    root: Path, store: StoreSection, *, group: str, self_id: NodeId, progress: Progress
) -> Upgrade:
    """Turn the plain store in ``root`` into one that a member of a DLedger group goes on with.

    Who calls holds the store's locks. What was begun is gone on with, under the names that it was
    begun with.

    Args:
        store: sizes of the queue and index files; ``store.path_root_dir`` is ``root``.
        group, self_id: the member's names, already checked.

    Raises:
        ConfigError: no plain store, another conversion, or one of another member, was begun.
        CorruptLogError: the old log is damaged, or was changed since the upgrade was begun.
        StorageError: the operating system refused; to be resumed or undone.
    """
    begun = journal.read_journal(root)
    if begun is not None:
        begun = _continued(root, begun, group=group, self_id=self_id)
    if begun is None or begun.phase is Phase.PREPARING:
        check_upgradable(root)
        plan = _recover(root, store, group=group, self_id=self_id, progress=progress)
        begun = journal.begin(root, ConversionKind.UPGRADE, _facts(plan))
        begun = replace(begun, patches=_patches(plan), moves=_moves(plan))
        _make_dledger(plan)
    if begun.phase is not Phase.SWITCHED:
        begun = journal.switch(root, begun)
    return described(root, begun)


def undo_upgrade(root: Path) -> None:
    """Give back the plain store as it was before the upgrade.

    Raises:
        ConfigError: there is none to undo, or entries were written since: then a downgrade is
            what gives a plain store.
        CorruptLogError: a file is not as the upgrade has left it.
        StorageError: the operating system refused; to be called again.
    """
    begun = journal.read_journal(root)
    if begun is None or begun.kind is not ConversionKind.UPGRADE or begun.phase is Phase.FINISHING:
        raise ConfigError("there is no upgrade to undo", directory=str(root))
    if begun.phase is Phase.SWITCHED and was_used(described(root, begun)):
        raise ConfigError(
            "the group has written entries since the upgrade, which an undo would lose:"
            f" ledgermq store downgrade {root}",
            directory=str(root),
        )
    journal.undo(root, begun)


def was_used(done: Upgrade) -> bool:
    """Whether the DLedger log that ``done`` has made holds anything, or has lost its first file."""
    data = done.root / _dledger(done.self_id) / "data"
    with refused_as("log not read", file=data):
        names = own_names(data)
        if names != [file_name(done.divided)]:
            return True
        with (data / names[0]).open("rb", buffering=0) as file:
            return any(file.read(HEADER_SIZE) or b"")


def described(root: Path, conversion: Conversion) -> Upgrade:
    """What the journal of an upgrade says of it."""
    facts = conversion.facts
    return Upgrade(
        root,
        group=str(facts["group"]),
        self_id=NodeId(str(facts["self_id"])),
        end=Position(int(facts["end"])),
        divided=Position(int(facts["divided"])),
        file_size=int(facts["file_size"]),
        old_files=int(facts["old_files"]),
        blank_size=int(facts["blank_size"]),
    )


def planned(root: Path, end: Position, *, group: str, self_id: NodeId) -> Upgrade:
    """The upgrade of an old log that ends at ``end``, behind its last record or blank.

    Raises:
        CorruptLogError: the log ends where no blank fits in: RocketMQ leaves room for one.
    """
    files = MappedFiles(root / "commitlog")
    starts = [start for start in files.starts if start <= end]
    divided = Position(starts[-1] + files.file_size)
    blank_size = divided - end
    if 0 < blank_size < BLANK_SIZE:
        raise CorruptLogError(
            "no room for the blank behind the last record of the old log",
            file=str(files.path(starts[-1])),
            offset=end - starts[-1],
            room=blank_size,
            needed=BLANK_SIZE,
        )
    return Upgrade(root, group, self_id, end, divided, files.file_size, len(starts), blank_size)


def _continued(root: Path, begun: Conversion, *, group: str, self_id: NodeId) -> Conversion | None:
    """The conversion to go on with; None when an older one was done with, and is forgotten."""
    if begun.kind is ConversionKind.UPGRADE and begun.phase in (Phase.PREPARING, Phase.SWITCHING):
        names = (begun.facts["group"], begun.facts["self_id"])
        if names != (group, self_id):
            raise ConfigError(
                "an upgrade with other names was begun: go on with those, or undo it",
                directory=str(root),
                begun=names,
                asked=(group, self_id),
            )
        return begun
    journal.refuse_unfinished(root)
    raise ConfigError(
        f"the store was converted already: to make that final, ledgermq store {begun.kind} {root}"
        f" --finish; to go back, ledgermq store {begun.kind} {root} --undo",
        directory=str(root),
    )


def _recover(
    root: Path, store: StoreSection, *, group: str, self_id: NodeId, progress: Progress
) -> Upgrade:
    """What the start of a plain node does: cut what a crash left, dispatch the rest, be durable."""
    make_directories(root / journal.OWN)
    first, last = recover_stopped(
        root, None, progress=lambda done, total: progress("recovering the old log", done, total)
    )
    end = last.position
    family = LogFamily(LogFolder(root / "commitlog", 0))
    log = MappedLog(family.mapped())
    log_start = log.first_position
    size = store.mapped_file_size_consume_queue or found_file_size(root / "consumequeue")
    ends = known_queue_ends(root, queue_file_size=size, log_start=log_start)
    found = load_derived_files(store, published=None, unsure=unsure_queues(root, family))
    builder = DispatchBuilder.open(
        store, log_start=first, log_end=end, published=None, files=found, log=family
    )
    try:
        dispatch_log(
            builder, log, end, lambda done, total: progress("building queues", done, total)
        )
        put_queue_ends(builder.queues, ends, end=end, log_start=log_start)
        builder.flush()
    finally:
        builder.close()
        log.close()
    with refused_as("mark of a crash not deleted", file=root / "abort"):
        # All that the mark of a crash asks for is done.
        (root / "abort").unlink(missing_ok=True)
        sync_directory(root)
    return planned(root, end, group=group, self_id=self_id)


def _facts(plan: Upgrade) -> journal.Facts:
    return {
        "group": plan.group,
        "self_id": plan.self_id,
        "end": plan.end,
        "divided": plan.divided,
        "file_size": plan.file_size,
        "old_files": plan.old_files,
        "blank_size": plan.blank_size,
    }


def _patches(plan: Upgrade) -> tuple[Patch, ...]:
    if not plan.blank_size:
        return ()
    path = Path("commitlog", file_name(plan.divided - plan.file_size))
    offset = plan.file_size - plan.blank_size
    old = plan.root / path
    with refused_as("log not read", file=old), old.open("rb", buffering=0) as file:
        before = os.pread(file.fileno(), BLANK_SIZE, offset)
    after = encode_blank(LogKind.COMMITLOG, plan.blank_size)
    return (Patch(str(path), offset, before, after),)


def _moves(plan: Upgrade) -> tuple[FileRename, ...]:
    own = [f"{journal.OWN}/{name}" for name in OF_ONE_NODE]
    # RocketMQ makes the next file ahead; it would lie where the DLedger log's first one is to be.
    ahead = MappedFiles(plan.root / "commitlog").starts[plan.old_files :]
    names = [*own, *(f"commitlog/{file_name(start)}" for start in ahead)]
    aside = [
        FileRename(name, f"{journal.OLD}/{name}") for name in names if (plan.root / name).exists()
    ]
    folder = _dledger(plan.self_id)
    return (*aside, FileRename(f"{journal.NEW}/{folder}", folder))


def _make_dledger(plan: Upgrade) -> None:
    """An empty DLedger log that begins at the division, in the folder ``new``, durable."""
    folder = plan.root / journal.NEW / _dledger(plan.self_id)
    path = folder / "data" / file_name(plan.divided)
    with refused_as("DLedger log not made", file=path):
        (folder / "data").mkdir(parents=True)
        (folder / "index").mkdir()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, plan.file_size)
            sync_file(fd)
        finally:
            os.close(fd)
        for made in (path.parent, folder / "index", folder, folder.parent):
            sync_directory(made)


def _dledger(self_id: NodeId) -> str:
    return f"dledger-{self_id}"
