"""Restore of a point of a backup stream: the log up to there, with the tables of that very entry.

The point is the last entry that is kept. By a time it is the one before the first entry that was
stored later. What stands behind it in its file is zeros, as in a log that ends there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.conversion.backup_manifest import BackupManifest, Told, digest_of_bytes
from ledgermq.conversion.backup_restore import restore_store
from ledgermq.conversion.stream.log_facts import (
    StretchFacts,
    facts_of,
    index_at,
    records_in,
    store_times,
)
from ledgermq.conversion.stream.repository import (
    LogPiece,
    LogRun,
    Repository,
    StreamAbout,
    TablePiece,
)
from ledgermq.conversion.stream.table_pieces import read_tables
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.repair.log_verify import verify_log
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.disk_sync import sync_file
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.mapped_files import MappedFile
from ledgermq.store.files.small_file import create_file, write_all, write_new_file
from ledgermq.store.log.entry_check import EntryPoint, check_entries
from ledgermq.store.log.first_entry import first_entry_offset
from ledgermq.store.log.verified_span import check_span
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory

HEADS_AT_ONCE = 16
"""Heads of pieces that are asked for at once: in a bucket each takes the way there and back."""

HEADS_AHEAD = 256
"""Heads that are asked for before it is looked whether one more is wanted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which point: the last entry, or at most one of these.

    Attributes:
        index: of the last entry; in a plain log where the last record ends.
        time_ms: entries that were stored later are left out, epoch ms.
        position: entries that end behind it are left out.
    """

    index: int | None = None
    time_ms: int | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A point that can be restored: the log from ``run.start`` to ``end``, behind that entry.

    Attributes:
        index, term: of the last entry; in a plain log ``index`` is ``end``.
        tables: from which the tables of that entry are made.
    """

    run: LogRun
    end: int
    index: int
    term: int
    tables: TablePiece

    @property
    def size(self) -> int:
        """Bytes of the log up to it."""
        return self.end - self.run.start


@dataclass(frozen=True, slots=True)
class _Cut:
    end: int
    index: int
    term: int


def find_point(repository: Repository, wanted: Wanted) -> RestorePoint:
    """The newest point that is as wanted.

    Raises:
        ConfigError: the repository goes not that far, or begins later; or as ``Repository.read``.
        CorruptLogError: a piece is not what was written.
        StorageError: the place refused.
    """
    runs = repository.runs()
    for run in reversed(runs):
        cut = _cut_of(repository, run, wanted)
        if cut is not None:
            tables = _tables_for(repository, run, cut)
            return RestorePoint(run, cut.end, cut.index, cut.term, tables)
    raise ConfigError(
        "nothing in this backup stream goes back so far",
        repository=repository.place.as_text(),
        begins=runs[0].start if runs else None,
        **{name: value for name, value in asdict(wanted).items() if value is not None},
    )


def restore_point(
    repository: Repository,
    about: StreamAbout,
    point: RestorePoint,
    root: Path,
    *,
    self_id: str | None,
    cluster: str | None,
    prepare: Callable[[Path, BackupManifest], None],
    told: Told = lambda _count: None,
) -> tuple[BackupManifest, int]:
    """Restore ``point`` into ``root``; arguments, answer and errors as of ``restore_backup``."""
    is_plain = about.log == LogKind.COMMITLOG.value
    name = self_id or about.self_id
    manifest = replace(
        point.tables.manifest,
        first=point.run.start,
        end=point.end,
        index=NO_INDEX if is_plain else point.index,
        term=0 if is_plain else point.term,
        committed=NO_INDEX if is_plain else point.index,
        current_term=0 if is_plain else point.term,
    )

    def fill(staging: Path) -> None:
        log = _RestoredLog(repository, about, staging, f"dledger-{name}", told)
        log.fill(point)
        for path, content in point.tables.documents.items():
            _write(staging, path, content)

    digest = digest_of_bytes(json.dumps([asdict(about), asdict(manifest)]).encode())
    messages = restore_store(
        root, manifest, fill, digest=digest, self_id=self_id, cluster=cluster, prepare=prepare
    )
    return manifest, messages


class _RestoredLog:
    """Files of a log that are put together from pieces, checked, and the index of entries."""

    def __init__(
        self, repository: Repository, about: StreamAbout, staging: Path, dledger: str, told: Told
    ) -> None:
        self._repository = repository
        self._about = about
        self._folders = {"commitlog": staging / "commitlog", "data": staging / dledger / "data"}
        self._index_folder = staging / dledger / "index"
        self._index: AppendFiles | None = None
        self._point: EntryPoint | None = None
        self._told = told

    def fill(self, point: RestorePoint) -> None:
        """Put the files there, durable, up to the end of ``point``."""
        size = self._about.log_file_size
        at = point.run.start
        while at < point.end:
            start = at - at % size
            end = min(start + size, point.end)
            pieces = [piece for piece in point.run.pieces if piece.end > at and piece.start < end]
            path = self._folders[pieces[0].folder] / file_name(start)
            path.parent.mkdir(parents=True, exist_ok=True)
            with create_file(path) as file:
                for piece in pieces:
                    at = self._copy(piece, file, start, at, end)
                file.truncate(size)
                sync_file(file.fileno())
            self._check(path, start, end, is_plain=pieces[0].folder == "commitlog")
        if self._index is not None:
            self._index.sync()
            self._index.close()

    def _copy(self, piece: LogPiece, file: FileIO, start: int, at: int, end: int) -> int:
        """Copy what the piece has of positions from ``at`` to ``end``; where that ends."""
        position = piece.start
        with self._repository.read(piece.name) as opened:
            for block in opened.content:
                part = memoryview(block)[max(0, at - position) : max(0, end - position)]
                if part:
                    file.seek(at - start)
                    write_all(file.fileno(), part)
                    at += len(part)
                    self._told(len(part))
                position += len(block)
        if position != piece.end:
            raise CorruptLogError(
                "piece of a backup stream has another size than its name says",
                file=self._repository.place.as_text(piece.name),
                size=position - piece.start,
            )
        return at

    def _check(self, path: Path, start: int, end: int, *, is_plain: bool) -> None:
        """Check every record, and that each follows the one before."""
        with MappedFile(path) as view:
            begin = 0 if self._point is not None else first_entry_offset(path)
            if is_plain:
                check_span(view, 0, end - start, header_size=0, base=start)
                return
            point = self._point
            if point is None:
                index, term = index_at(
                    view, begin + HEADER_SIZE, header_size=HEADER_SIZE, base=start
                )
                point = EntryPoint(Position(start + begin), Index(index), Term(term), None)
            point = replace(point, position=Position(start + begin))
            checked = check_entries(view[begin : end - start], point)
        if checked.fault not in (RecordFault.END, RecordFault.BLANK):
            raise CorruptLogError(
                "record of a backup stream is not whole",
                file=self._repository.place.as_text("data"),
                position=checked.point.position,
                field=checked.fault.field,
            )
        self._append_items(int(point.index), memoryview(checked.items))
        self._point = checked.point

    def _append_items(self, index: int, items: memoryview) -> None:
        if self._index is None:
            self._index_folder.mkdir(parents=True, exist_ok=True)
            self._index = AppendFiles(
                self._index_folder,
                file_size=self._about.index_file_size,
                position=index * ITEM_SIZE,
            )
        while items:
            if self._index.room == 0:
                self._index.roll()
            part = items[: self._index.room]
            self._index.append(part)
            items = items[len(part) :]


def _cut_of(repository: Repository, run: LogRun, wanted: Wanted) -> _Cut | None:
    """Where the log ends that is wanted; None where that is before ``run``.

    Raises:
        ConfigError: the entry that is asked for comes later than all.
    """
    beyond = _first_beyond(repository, run, wanted)
    if beyond < len(run.pieces):
        piece = run.pieces[beyond]
        within = _cut_within(repository, piece, repository.facts(piece), wanted)
        if within is not None:
            return within
    for piece in reversed(run.pieces[:beyond]):
        facts = repository.facts(piece)
        if facts.records:
            break
    else:
        return None
    is_last = beyond == len(run.pieces)
    if wanted.index is not None and is_last and facts.last_index < wanted.index:
        raise ConfigError(
            "this backup stream does not go so far", index=wanted.index, last=facts.last_index
        )
    if is_last and run.end < (wanted.position or 0):
        raise ConfigError(
            "this backup stream does not go so far", position=wanted.position, last=run.end
        )
    return _Cut(facts.last_at + facts.last_size, facts.last_index, facts.last_term)


def _heads(repository: Repository, pieces: tuple[LogPiece, ...]) -> Iterator[StretchFacts]:
    """What pieces say of themselves, in their order, several asked at once."""
    with ThreadPoolExecutor(HEADS_AT_ONCE, thread_name_prefix="heads") as pool:
        for begin in range(0, len(pieces), HEADS_AHEAD):
            yield from pool.map(repository.facts, pieces[begin : begin + HEADS_AHEAD])


def _first_beyond(repository: Repository, run: LogRun, wanted: Wanted) -> int:
    """Which piece is the first one with something that is not wanted; their number without one.

    Each look is a request to a bucket. Indexes rise, so that few looks find one; store times need
    not, where leaders' clocks differ, and the heads are read one by one.
    """
    # The plain part of a log that was upgraded has no entries.
    has_entries = any(piece.folder == "data" for piece in run.pieces)

    def is_beyond(piece: LogPiece, facts: StretchFacts) -> bool:
        is_counted = not has_entries or piece.folder == "data"
        asked = wanted if is_counted else replace(wanted, index=None)
        return facts.records > 0 and _goes_beyond(facts, asked)

    if wanted.index is None and wanted.position is None:
        if wanted.time_ms is None:
            return len(run.pieces)
        heads = enumerate(zip(run.pieces, _heads(repository, run.pieces), strict=True))
        found = (number for number, (piece, facts) in heads if is_beyond(piece, facts))
        return next(found, len(run.pieces))
    low, high = 0, len(run.pieces)
    while low < high:
        middle = at = (low + high) // 2
        facts = repository.facts(run.pieces[at])
        while not facts.records and at > low:
            # A blank has no index; what is before it tells as much.
            at -= 1
            facts = repository.facts(run.pieces[at])
        if is_beyond(run.pieces[at], facts):
            high = at
        else:
            low = middle + 1
    return low


def _goes_beyond(facts: StretchFacts, wanted: Wanted) -> bool:
    if wanted.index is not None:
        return facts.last_index > wanted.index
    if wanted.position is not None:
        return facts.last_at + facts.last_size > wanted.position
    return wanted.time_ms is not None and facts.max_ms > wanted.time_ms


def _cut_within(
    repository: Repository, piece: LogPiece, facts: StretchFacts, wanted: Wanted
) -> _Cut | None:
    """Cut behind the last record of the piece that is wanted; None when none is."""
    header_size = HEADER_SIZE if piece.folder == "data" else 0
    view = repository.read_log(piece)
    base = piece.start
    last: _Cut | None = None
    begin = facts.first_at - header_size - base
    for starts, sizes in records_in(view, begin, len(view), header_size=header_size, base=base):
        if wanted.time_ms is not None:
            later = store_times(view, starts) > wanted.time_ms
            count = int(np.argmax(later)) if later.any() else len(starts)
        elif wanted.position is not None:
            count = int(np.searchsorted(starts + sizes, wanted.position - base, side="right"))
        else:
            count = 0
            for start in starts.tolist():
                index, _ = index_at(view, start, header_size=header_size, base=base)
                if index > (wanted.index or 0):
                    break
                count += 1
        if count:
            start = int(starts[count - 1])
            index, term = index_at(view, start, header_size=header_size, base=base)
            last = _Cut(base + start + int(sizes[count - 1]), index, term)
        if count < len(starts):
            break
    return last


def _tables_for(repository: Repository, run: LogRun, cut: _Cut) -> TablePiece:
    for position in reversed(repository.tables):
        if run.start <= position <= cut.end:
            tables = repository.completed(read_tables(repository, position), run, cut.end)
            if tables.serve_from(run.start):
                return tables
    made = repository.tables_made(run, cut.end)
    if made is not None:
        return made
    raise ConfigError(
        "this backup stream has no tables of the broker that old: the first point is later",
        position=cut.end,
        first=next((at for at in repository.tables if at >= run.start), None),
    )


def _write(staging: Path, name: str, content: bytes) -> None:
    path = staging / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new_file(path, content)


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
    point: RestorePoint,
    scratch: Path,
    *,
    prepare: Callable[[Path, BackupManifest], None],
    told: Told = lambda _count: None,
) -> int:
    """Restore ``point`` into the empty folder ``scratch``; how many messages it has.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``restore_point``.
    """
    (scratch / "ledgermq").mkdir(exist_ok=True)
    _, messages = restore_point(
        repository, about, point, scratch, self_id=None, cluster=None, prepare=prepare, told=told
    )
    reader = LogReader(open_directory(scratch))
    try:
        end = verify_log(reader).end
    finally:
        reader.close()
    if end != point.end:
        raise CorruptLogError("restored log ends elsewhere", end=end, expected=point.end)
    return messages


def drawn_point(repository: Repository, chance: random.Random) -> RestorePoint:
    """Any entry of the newest stretch of the log, from the first tables for it on.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``find_point``.
    """
    newest = find_point(repository, Wanted())
    first = next((at for at in repository.tables if at >= newest.run.start), newest.end)
    begin = newest.index
    if first != newest.end:
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
