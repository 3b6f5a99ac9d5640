"""Ends of a log's damage: entries that a member sent take its place, or an operator goes without.

An operator accepts a loss of a stopped node that has nobody to fetch from (it refuses to start),
and of a member of a group in which too many are damaged to elect a leader: it forgets what it once
had, and may lead again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.repair.log_scrub import Damage
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_checkpoint import certain_before_ms
from ledgermq.store.log.entry_check import check_entries
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode, read
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, read_damage, remove_damage
from ledgermq.store.recovery.recovery import NOTHING_KNOWN, RecoveredLog, foreign_end, recover_log
from ledgermq.store.store_directory import StoreDirectory


class Repair(NamedTuple):
    """Bytes that belong at ``position`` of the data files, up to entry ``last``.

    Attributes:
        chain: chainCrc stored in the last entry; the one behind it begins with it.
        ends_damage: nothing of the damage is left behind them.
    """

    position: Position
    data: memoryview
    last: Index
    chain: int
    ends_damage: bool


def accept_entries(
    damage: Damage,
    data: memoryview,
    *,
    file_size: int,
    term_of: Callable[[Index], Term | None],
) -> Repair:
    """What to write of ``data``, whole entries from the first damaged one on.

    They must have the indexes and the terms that the log has there, follow the entry before, and
    fill the place exactly where it is known how much that is. Raft sees to it that entries of the
    same index and term are the same.

    Raises:
        ProtocolError: they are not what is missing.
    """
    point = damage.point
    position = int.from_bytes(data[24:32], "big") if len(data) >= 32 else -1
    following = point.position - point.position % file_size + file_size
    if position not in (point.position, following):
        raise ProtocolError(
            "entries of a peer are not of this place", position=position, expected=point.position
        )
    checked = check_entries(data, replace(point, position=Position(position)))
    if checked.fault is not RecordFault.END or checked.size != len(data):
        raise ProtocolError(
            f"entry of a peer refused because of its {checked.fault.field}",
            index=checked.point.index,
        )
    behind = checked.point
    last = Index(behind.index - 1)
    if last > damage.last:
        raise ProtocolError(
            "entries of a peer are more than what is damaged", last=last, expected=damage.last
        )
    wrong = check_item_terms(checked.items, point.index, term_of)
    if wrong is not None:
        raise ProtocolError(
            "entry of a peer has another term", index=wrong, expected=term_of(wrong)
        )
    ends = last == damage.last
    end = damage.end
    if end is not None and (behind.position > end or (ends and behind.position != end)):
        raise ProtocolError(
            "entries of a peer do not fill the place", position=behind.position, expected=end
        )
    if position // file_size != (behind.position - 1) // file_size:
        raise ProtocolError("entries of a peer are not of one file", position=behind.position)
    assert behind.chain is not None
    return Repair(Position(position), data, last, behind.chain, ends)


def check_item_terms(
    items: bytes | bytearray, first: Index, term_of: Callable[[Index], Term | None]
) -> Index | None:
    """The first of the index items, from that of ``first`` on, whose term is not the log's."""
    for number, term in enumerate(np.frombuffer(items, ENTRY_ITEM)["term"].tolist(), first):
        if term != term_of(Index(number)):
            return Index(number)
    return None


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
