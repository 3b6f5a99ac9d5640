"""Proof of a backup stream: every piece is read, every record compared, and a point restored.

A restore to the end checks each record and that it follows the one before, as it puts the log
together; so reading all pieces first is what finds the bytes that no restore needs, as those of
pieces that others have as well, and of tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ledgermq.conversion.backup_manifest import BackupManifest, Told
from ledgermq.conversion.stream.log_facts import facts_of
from ledgermq.conversion.stream.repository import LogPiece, Repository, StreamAbout
from ledgermq.conversion.stream.stream_restore import (
    RestorePoint,
    Wanted,
    find_point,
    restore_point,
)
from ledgermq.conversion.stream.table_pieces import read_tables
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.repair.log_verify import verify_log
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory


class VerifiedStream(NamedTuple):
    """What was read.

    Attributes:
        pieces: of the log; ``tables`` those of tables.
        records: in all pieces; in two of them, a record counts twice.
        gaps: where something was never streamed, for retention was faster: from one position to
            another.
    """

    pieces: int
    tables: int
    records: int
    gaps: tuple[tuple[int, int], ...]


def verify_pieces(repository: Repository, *, told: Told = lambda _count: None) -> VerifiedStream:
    """Read all that is in the repository, and check every record.

    Raises:
        ConfigError, StorageError: as ``Repository.read``.
        CorruptLogError: a piece is not what was written, or is missing; names it.
    """
    records = sum(_verify_piece(repository, piece, told) for piece in list(repository.log))
    for position in repository.tables:
        read_tables(repository, position)
    runs = repository.runs()
    for one, other in pairwise(runs):
        if repository.follows(other.pieces[0]) != one.end:
            raise CorruptLogError(
                "pieces of a backup stream are missing",
                file=repository.place.as_text(other.pieces[0].folder),
                begin=one.end,
                end=other.start,
            )
    gaps = tuple((one.end, other.start) for one, other in pairwise(runs))
    return VerifiedStream(len(repository.log), len(repository.tables), records, gaps)


def prove_point(
    repository: Repository,
    about: StreamAbout,
    scratch: Path,
    *,
    chance: random.Random,
    prepare: Callable[[Path, BackupManifest], None],
    told: Told = lambda _count: None,
) -> tuple[RestorePoint, int]:
    """Restore a point that ``chance`` takes into the empty folder ``scratch``; with its messages.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``restore_point``.
    """
    point = _drawn_point(repository, chance)
    (scratch / "ledgermq").mkdir(exist_ok=True)
    _, messages = restore_point(
        repository, about, point, scratch,
        self_id=None, cluster=None, prepare=prepare, told=told,
    )  # fmt: skip
    reader = LogReader(open_directory(scratch))
    try:
        end = verify_log(reader).end
    finally:
        reader.close()
    if end != point.end:
        raise CorruptLogError("restored log ends elsewhere", end=end, expected=point.end)
    return point, messages


def _drawn_point(repository: Repository, chance: random.Random) -> RestorePoint:
    """Any entry of the newest stretch of the log, from the first tables for it on."""
    newest = find_point(repository, Wanted())
    first = next(at for at in repository.tables if at >= newest.run.start)
    begin = min(read_tables(repository, first).manifest.index, newest.index)
    if newest.tables.manifest.log == LogKind.COMMITLOG.value:
        begin = min(first, newest.index)
    for index in (chance.randint(max(begin, 0), newest.index), newest.index):
        try:
            return find_point(repository, Wanted(index=index))
        except ConfigError:
            # In a plain log not every number is where a record ends, nor is one before the first.
            continue
    return newest


def _verify_piece(repository: Repository, piece: LogPiece, told: Told) -> int:
    facts = repository.facts(piece)
    view = repository.read_log(piece)
    told(len(view))
    header_size = HEADER_SIZE if piece.folder == "data" else 0
    begin = facts.first_at - header_size - piece.start if facts.records else 0
    found = facts_of(view, begin, len(view), header_size=header_size, base=piece.start)
    if found != facts:
        raise CorruptLogError(
            "piece of a backup stream has other records than it says",
            file=repository.place.as_text(piece.name),
        )
    return found.records
