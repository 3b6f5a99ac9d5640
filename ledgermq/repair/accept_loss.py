"""Acceptance of a loss: an operator lets a damaged log go on without what is missing, offline.

For a node that has nobody to fetch from (it refuses to start), and for a member of a group in which
too many are damaged to elect a leader: it forgets what it once had, and may lead again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_checkpoint import certain_before_ms
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode, read
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, read_damage, remove_damage
from ledgermq.store.recovery.recovery import NOTHING_KNOWN, RecoveredLog, foreign_end, recover_log
from ledgermq.store.store_directory import StoreDirectory


class Loss(NamedTuple):
    """What a store is without.

    Attributes:
        damage: where it begins, and how far the log once went.
        last: last entry that is left (with a CommitLog the position); None when that is not known
            before the log is cut.
        end: position behind it.
    """

    damage: LogDamage
    last: Index | None
    end: Position | None

    @property
    def entries(self) -> int | None:
        """How many entries are lost; with a CommitLog how many bytes."""
        return None if self.last is None else max(0, self.damage.last_index - self.last)


class _Found(Exception):  # noqa: N818 - no error: it ends a look that must change nothing
    def __init__(self, damage: LogDamage) -> None:
        super().__init__(damage)
        self.damage = damage


def find_loss(directory: StoreDirectory) -> Loss | None:
    """What the stopped store has lost; None when nothing. A torn tail is cut, as at any start.

    Raises:
        CorruptLogError: the mark of the loss is not whole, or there is no log that could be opened.
        StorageError: the operating system refused.
    """
    mark = read_damage(damage_path(directory.root))

    def end_here(damage: LogDamage) -> None:
        raise _Found(damage)

    try:
        found = _recovered(directory, mark, end_here)
    except _Found as stopped:
        return Loss(stopped.damage.merged(mark), None, None)
    found.data.close()
    if found.index is not None:
        found.index.close()
    if mark is None or mark.is_mended_by(found.end.term, found.end.index_):
        return None
    return Loss(mark, found.end.index_, found.end.position)


def accept_loss(directory: StoreDirectory) -> Loss | None:
    """Cut the stopped store's log before its damage, and forget what it once had.

    Durable on return; repeated after a crash it does the rest.

    Returns:
        What is lost now; None when there was no damage that can be told.

    Raises:
        CorruptLogError: there is no log that could be opened.
        StorageError: the operating system refused.
    """
    root = directory.root
    damages: list[LogDamage] = []
    try:
        mark = read_damage(damage_path(root))
    except CorruptLogError:
        # What it said is lost with it; the operator goes without.
        mark = None
    found = _recovered(directory, mark, damages.append)
    found.data.close()
    if found.index is not None:
        found.index.close()
    checkpoint = LogCheckpoint(found.end, found.data.file_size)
    own = root / "ledgermq"
    make_directories(own)
    replace_file(own / "log-checkpoint", encode(checkpoint))
    remove_damage(damage_path(root))
    damage = damages[0].merged(mark) if damages else mark
    return None if damage is None else Loss(damage, found.end.index_, found.end.position)


def _recovered(
    directory: StoreDirectory, mark: LogDamage | None, on_damage: Callable[[LogDamage], None]
) -> RecoveredLog:
    root, dledger = directory.root, directory.dledger
    checkpoint = read(root / "ledgermq" / "log-checkpoint")
    data = dledger / "data" if dledger is not None else root / "commitlog"
    noted = dledger / "checkpoint" if dledger is not None else None
    return recover_log(
        data,
        _index_of(dledger),
        file_size=directory.log_file_size,
        checkpoint=checkpoint,
        progress=lambda _done, _total: None,
        certain_before_ms=certain_before_ms(root),
        known=mark,
        foreign=foreign_end(root, noted) if checkpoint is None else NOTHING_KNOWN,
        on_damage=on_damage,
    )


def _index_of(dledger: Path | None) -> Path | None:
    return None if dledger is None else dledger / "index"
