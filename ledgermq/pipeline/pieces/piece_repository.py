"""Place of pieces as a repository that a store can be restored from, to any entry.

    PLACE/about              whose log it is, as in a backup stream
    PLACE/tables/POSITION    the broker's tables, as in a backup stream
    PLACE/pieces/            the log; the manifest says which pieces there are

So a restore is that of a backup stream. Where no tables were put before the entry that is asked
for, and the pieces have the log from its begin on, the tables are those that the log itself tells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from ledgermq.conversion.backup_manifest import BackupManifest
from ledgermq.conversion.stream.log_facts import StretchFacts
from ledgermq.conversion.stream.piece_folder import ABOUT
from ledgermq.conversion.stream.repository import (
    LOG_FOLDERS,
    LogPiece,
    LogRun,
    Repository,
    StreamAbout,
    TablePiece,
    tables_name,
)
from ledgermq.conversion.stream.sealed_piece import OpenedPiece
from ledgermq.conversion.stream.table_pieces import read_tables
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.moments import Moment
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, PieceRow, read_manifest
from ledgermq.pipeline.pieces.piece_places import SealedPlace
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_ends import QueueEnds, decode_queue_ends, encode_queue_ends

TablesOf = Callable[[ColdQueues, Moment], dict[str, bytes] | None]

TABLES_EVERY_MS = 1_800_000
"""How old tables get before others are put, where the log goes on in the same file of it."""


class PieceRepository(Repository):
    """The pieces of one place, as its manifest was when it was read."""

    def __init__(
        self,
        place: SealedPlace,
        key: bytes | None,
        *,
        tables_of: TablesOf = lambda _queues, _moment: None,
    ) -> None:
        """Read the manifest, and list the tables.

        Args:
            key: what tables are encrypted with; None: with nothing.
            tables_of: the broker's documents at a moment, by their paths below the store's folder,
                as the log tells them; None where it does not.

        Raises:
            ConfigError: a later version wrote the manifest.
            CorruptLogError: the manifest is not what was written.
            StorageError: the place refused.
        """
        self._pieces = place
        self._tables_of = tables_of
        self._rows: dict[tuple[int, int], PieceRow] = {}
        self._by_name: dict[str, LogPiece] = {}
        self._manifest = PieceManifest(())
        super().__init__(place, key)

    def refresh(self) -> None:
        super().refresh()
        if self.log:
            raise ConfigError(
                "a backup stream is there: take another place for pieces",
                place=self.place.as_text(),
            )
        self._manifest = read_manifest(self._pieces)
        self._rows = {(row.start, row.end): row for row in self._restorable()}
        self.log = [
            LogPiece(*place, LOG_FOLDERS[row.header_size > 0]) for place, row in self._rows.items()
        ]
        self._by_name = {piece.name: piece for piece in self.log}

    def _restorable(self) -> Iterator[PieceRow]:
        """The pieces of which a log can be made: what has holes is none any more, and behind them
        it begins with one of its files.
        """
        about = self.about()
        size = 1 if about is None else about.log_file_size
        # What was sealed behind an upgrade of the log is none of what was described before.
        is_plain = about is not None and about.log == LogKind.COMMITLOG.value
        gone = {one.end for one in self._manifest.gone}
        is_cut = False
        for row in self._manifest.rows:
            is_cut = is_cut or row.start in gone
            if row.dropped or (is_plain and row.header_size) or (is_cut and row.start % size):
                is_cut = True
                continue
            is_cut = False
            yield row

    def prunable_end(self) -> int | None:
        """Where the log ends of which anything may be dropped, so that what is left has an entry to
        be restored; None where none has been.
        """
        about, end = self.about(), self._manifest.end
        usable = [at for at in self.tables if at <= end]
        if about is None:
            return None
        return (usable[-1] - 1) // about.log_file_size * about.log_file_size if usable else 0

    def about(self) -> StreamAbout | None:
        """Whose log it is; None where nothing says so, as in a place of before there was this.

        Raises:
            ConfigError, CorruptLogError, StorageError: as those of a stream.
        """
        if self._about is None and ABOUT not in self.place.names(""):
            return None
        return super().about()

    def is_of(self, manifest: BackupManifest) -> bool:
        """Whether tables that say that may be of this log; any member may have put them."""
        about = self.about()
        return (
            about is not None
            and (manifest.log, manifest.self_id) == (about.log, about.self_id)
            and manifest.log_file_size == about.log_file_size
        )

    def is_like(self, about: StreamAbout) -> bool:
        """Whether the place says that of its log, or nothing yet: then it does from now on.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``claim``.
        """
        found = self.about()
        if found is None:
            self.claim(about)
            return True
        return (found.log, found.log_file_size) == (about.log, about.log_file_size)

    def wants_tables(self, committed: int, *, file_size: int) -> bool:
        """Whether tables are to be put before the log is sealed up to ``committed``.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read``.
        """
        if not self.tables:
            return True
        last = self.tables[-1]
        if committed <= last:
            return False
        if committed // file_size > last // file_size:
            return True
        with self.read(tables_name(last)) as piece:
            put_ms = int(str(piece.header.get("time_ms", 0)))
        return abs(time.time_ns() // 1_000_000 - put_ms) >= TABLES_EVERY_MS

    def delete_useless_tables(self) -> int:
        """Have tables no more from which no point is restored, for the log before and behind them
        was dropped; how many. The newest ones stay.

        Raises:
            StorageError: the place refused.
        """
        runs = self.runs()
        last = max((at for at in self.tables if at <= self._manifest.end), default=0)
        useless = [
            at
            for at in self.tables
            if at < last and not any(run.start <= at <= run.end for run in runs)
        ]
        for position in useless:
            self.delete_tables(position)
        return len(useless)

    def as_told(self, manifest: BackupManifest) -> BackupManifest:
        """The store that a member tells of, as all members tell of it here."""
        about = self.about()
        assert about is not None
        return replace(manifest, self_id=about.self_id)

    def tables_made(self, run: LogRun, end: int) -> TablePiece | None:
        """Tables as of the position ``end``, by the last whole snapshot in the log before it.

        Where the log began before the run, nothing says how far queues went that it lacks.
        """
        if run.start > 0 or not self.tables:
            return None
        documents = self._tables_of(ColdQueues(self._pieces), Moment(before=end))
        if documents is None:
            return None
        return TablePiece(read_tables(self, self.tables[0]).manifest, 0, 0, documents)

    def completed(self, tables: TablePiece, run: LogRun, end: int) -> TablePiece:
        """The same with the ends of queues where the run begins, and the tables of the very
        position ``end``: pieces have the broker's commands from before the run, and those that were
        put may lack some of them.
        """
        if run.start == 0:
            return tables
        since = tables.ends_position
        documents, name = dict(tables.documents), f"ledgermq/{ENDS_NAME}"
        known = None if since >= run.start else self._manifest.ends_known(since, run.start)
        if known is not None:
            content = documents.get(name)
            ends = dict(decode_queue_ends(content, file=name).ends) if content else {}
            ends |= {(os.fsencode(topic), queue): at for (topic, queue), at in known.items()}
            documents[name] = encode_queue_ends(QueueEnds(run.start, ends))
            since = run.start
        needed_from = tables.needed_from
        made = self._tables_of(ColdQueues(self._pieces), Moment(before=end))
        if made is not None:
            # They lack nothing; and what waits for its time is kept as long as its topic says.
            documents |= made
            needed_from = run.start
        return replace(tables, ends_position=since, needed_from=needed_from, documents=documents)

    @contextmanager
    def read(self, name: str) -> Iterator[OpenedPiece]:
        piece = self._by_name.get(name)
        if piece is None:
            with super().read(name) as opened:
                yield opened
            return
        view = self.read_log(piece)
        header = {**asdict(self.facts(piece)), "follows": self.follows(piece), "size": len(view)}
        yield OpenedPiece(header, iter((bytes(view),)))

    def read_log(self, piece: LogPiece) -> memoryview:
        row = self._rows[piece.start, piece.end]
        with _positions_told(row):
            return self._opened_row(row).log()

    def facts(self, piece: LogPiece) -> StretchFacts:
        return self._rows[piece.start, piece.end].facts

    def follows(self, piece: LogPiece) -> int:
        """Where the repository ended before the piece was put; what was dropped since is as if it
        had never been there.

        Raises:
            ConfigError, CorruptLogError, StorageError: as ``read``.
        """
        at = self._follows(self._rows[piece.start, piece.end])
        gone = {one.end: one.follows for one in self._manifest.gone}
        partial = {
            row.end: row for row in self._manifest.rows if (row.start, row.end) not in self._rows
        }
        while at in gone or at in partial:
            at = gone[at] if at in gone else self._follows(partial[at])
        return at

    def _follows(self, row: PieceRow) -> int:
        with _positions_told(row):
            return self._opened_row(row).footer.follows

    def _opened_row(self, row: PieceRow) -> PieceFile:
        return PieceFile(self._pieces.ranges(row.name, row.size), tail=row.tail)


@contextmanager
def _positions_told(piece: LogPiece | PieceRow) -> Iterator[None]:
    """Have an error say which part of the log it is that cannot be had."""
    try:
        yield
    except CorruptLogError as error:
        told = {**error.details, "begin": piece.start, "end": piece.end}
        raise CorruptLogError(error.message, **told) from error
