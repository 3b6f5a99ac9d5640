"""Stream of a node's log into a repository: what is committed and not there yet, one step a time.

Of each file of the log the rest that is committed is put as one piece: at the open end what came
since the last step, and of a file that has gone by all that is left. A file in so many pieces that
a restore would be slow by them is put once more as a whole, and its pieces are deleted then. All
records are checked first, so that what a disk has spoilt is told instead of kept.

A stream remembers nothing: what is there says what is missing. Killed at any moment it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ledgermq.conversion.stream.log_facts import facts_of
from ledgermq.conversion.stream.repository import LogPiece, Repository, TablePiece
from ledgermq.conversion.stream.table_pieces import read_tables
from ledgermq.model.errors import ConfigError
from ledgermq.store.log_family import LogPart
from ledgermq.store.log_reader import LogReader

PIECES_MAX = 16
"""Pieces of one file of the log that may be left as they are; more are put once more, as one piece.
At the full rate of a disk there are fewer, and no byte goes twice."""

Told = Callable[[int, int], None]


class Streamed(NamedTuple):
    """What a step has done: bytes put, and how far the repository has the log without a gap.

    Attributes:
        gap: bytes that are in no repository: retention had deleted them before.
    """

    size: int
    end: int
    gap: int


class LogStream:
    """Puts one log into one repository."""

    def __init__(self, repository: Repository, *, told: Told = lambda _done, _all: None) -> None:
        """Go on with what is in ``repository``, which is that of the log.

        Args:
            told: bytes that were put in a step, and how many there are to be put.
        """
        self._repository = repository
        self._told = told
        runs = repository.runs()
        self.end = runs[-1].end if runs else -1
        self._checked: tuple[int, int, int] | None = None

    def step(self, reader: LogReader, committed: int) -> Streamed:
        """Put all up to the position ``committed`` that is not there.

        Raises:
            ConfigError: the log is not the one that is in the repository.
            CorruptLogError: a record is not whole; nothing behind it was put.
            StorageError: store or repository refused, or retention has just deleted a file: the
                next step goes on.
        """
        self._check_same(reader, committed)
        if committed < self.end:
            # A member that gets its log anew has less for a while.
            return Streamed(0, self.end, 0)
        gap, size = 0, 0
        begin = max(self.end, reader.first)
        for part in reader.parts:
            file_size = part.files.file_size if part.files.starts else 0
            for start in part.files.starts:
                file_end = start + file_size
                # One that ends here may have been left before its pieces became one.
                if file_end < self.end or start >= committed:
                    continue
                if 0 <= self.end < start:
                    gap += start - self.end
                taken = max(start, self.end)
                # The blank at a file's end is there once there is an entry behind it.
                is_sealed = committed > file_end
                end = file_end if is_sealed else committed
                if taken < end:
                    size += self._put(reader, part, start, taken, end, follows=self.end)
                    self._told(end - begin, committed - begin)
                if is_sealed:
                    self._merge(reader, part, start)
        return Streamed(size, self.end, gap)

    def _put(
        self,
        reader: LogReader,
        part: LogPart,
        start: int,
        taken: int,
        end: int,
        *,
        follows: int,
    ) -> int:
        """Put positions from ``taken`` to ``end`` of the file that begins at ``start``."""
        view = part.files.view(start, part.files.file_size)
        first = max(taken, reader.first)
        facts = facts_of(view, first - start, end - start, header_size=part.header_size, base=start)
        piece = LogPiece(taken, end, folder_of(part))
        self._repository.put_log(piece, facts, view[taken - start : end - start], follows=follows)
        if end > self.end:
            self.end = end
            if facts.records:
                self._checked = facts.last_at, facts.last_size, facts.last_crc
        return end - taken

    def _merge(self, reader: LogReader, part: LogPart, start: int) -> None:
        """Have a file of the log as one piece, if it is in too many."""
        end = start + part.files.file_size
        whole = LogPiece(start, end, folder_of(part))
        within = self._repository.pieces_from(start, end)
        pieces = [piece for piece in within if piece != whole]
        if whole not in within:
            if len(pieces) <= PIECES_MAX or pieces[0].start > start:
                return
            follows = self._repository.follows(pieces[0])
            self._put(reader, part, start, start, end, follows=follows)
        self._repository.delete_log(pieces)

    def _check_same(self, reader: LogReader, committed: int) -> None:
        """Refuse a log that has not the last record that it and the repository should have."""
        last = self._checked
        if last is None or last[0] + last[1] > committed:
            last = self._last_before(committed)
        if last is None:
            return
        at, size, expected = last
        part = reader.part_with(at)
        if part is None:
            # Deleted here; what is there now does not touch it.
            return
        if part.files.room(at) < size or crc32(part.files.view(at, size)) != expected:
            raise ConfigError(
                "the log is not the one that this backup stream has: take another folder for it",
                file=self._repository.place.as_text(),
                position=at,
            )

    def _last_before(self, committed: int) -> tuple[int, int, int] | None:
        for piece in reversed(self._repository.log):
            if piece.end > committed:
                continue
            facts = self._repository.facts(piece)
            if facts.records:
                return facts.last_at, facts.last_size, facts.last_crc
        return None


def folder_of(part: LogPart) -> str:
    """Folder of the repository for the files of ``part``."""
    return "data" if part.header_size else Path(part.files.directory).name


def newest_ms(repository: Repository) -> int:
    """When the newest message of the repository was stored, epoch ms; 0 without any.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``Repository.read``.
    """
    for piece in reversed(repository.log):
        facts = repository.facts(piece)
        if facts.records:
            return facts.max_ms
    return 0


def keep_since(repository: Repository, since_ms: int, *, file_size: int) -> int:
    """Delete what is older than ``since_ms``, epoch ms; how many pieces went.

    Killed at any moment it leaves a repository that is whole, and the next call goes on.

    Args:
        file_size: bytes of a file of the log.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``Repository.read``.
    """
    old = _old_files(repository, since_ms, file_size)
    newest = read_tables(repository, repository.tables[-1]) if old and repository.tables else None
    # The later tables are, the later the log may begin with them.
    while old and not (newest is not None and _serve(newest, old[-1][0] + file_size)):
        old.pop()
    if not old:
        return 0
    begin = old[-1][0] + file_size
    for position in list(repository.tables):
        if position >= begin and _serve(read_tables(repository, position), begin):
            break
        repository.delete_tables(position)
    pieces = [piece for _, parts in old for piece in parts]
    repository.delete_log(pieces)
    return len(pieces)


def _serve(tables: TablePiece, begin: int) -> bool:
    """Whether a log that begins at ``begin`` can be restored with the tables; those that do not say
    what they need are not taken for it.
    """
    return (
        tables.manifest.end >= begin and tables.needed_from is not None and tables.serve_from(begin)
    )


def _old_files(
    repository: Repository, since_ms: int, file_size: int
) -> list[tuple[int, list[LogPiece]]]:
    """Starts and pieces of the oldest files of the log that are old, but for the last file."""
    found: list[tuple[int, list[LogPiece]]] = []
    last = repository.log[-1].file_start(file_size) if repository.log else 0
    for piece in repository.log:
        start = piece.file_start(file_size)
        if start == last or repository.facts(piece).max_ms >= since_ms:
            while found and found[-1][0] == start:
                found.pop()
            break
        if not found or found[-1][0] != start:
            found.append((start, []))
        found[-1][1].append(piece)
    return found
