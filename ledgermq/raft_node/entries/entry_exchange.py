"""Entries between nodes: read for the peers, and verified when they come in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.formats.dledger_index import FILE_SIZE as INDEX_FILE_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import NO_INDEX, Index, Position, Term
from ledgermq.raft.entry_terms import UNKNOWN_TERM, EntryTerms
from ledgermq.raft.messages import NO_ENTRY, EntryId, TermRun
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_check import EntryPoint, check_entries
from ledgermq.store.log.entry_files import EntryFiles, EntrySpan, Items, LogPlaces, file_size_in
from ledgermq.store.log.following_entries import Verified, verify_following
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery.recovery import COMMIT_LOG_FILE_SIZE

ENTRIES_READ_MAX = 4_096


class LogExtent(NamedTuple):
    """A part of the log: positions, and the indexes of its first and its last entry."""

    begin: Position
    end: Position
    first: Index
    last: Index
    file_size: int


class EntryExchange:
    """The raft process's view of the log's entries; it never writes them."""

    def __init__(self, paths: StorePaths, file_size: int | None) -> None:
        """Nothing is read yet.

        Args:
            file_size: of the log's files by the settings; None: that of the files that are there.
        """
        assert paths.index is not None
        self.end = LogEnd(Position(0), NO_INDEX, Term(0), 0)
        self._data = paths.data
        self._index = paths.index
        self._configured = file_size
        self._files: EntryFiles | None = None
        self._cached: tuple[Index, Index, int, EntrySpan] | None = None

    def open_at(self, last: Index, position: Position) -> None:
        """The log ends with entry ``last`` and at ``position``: after a start, or after a cut.

        Raises:
            CorruptLogError: there is no such entry.
            StorageError: the log cannot be read.
        """
        if self._files is not None:
            self._files.forget()
        self._files = EntryFiles(
            self._data,
            self._index,
            file_size=self._configured or file_size_in(self._data, COMMIT_LOG_FILE_SIZE),
            index_file_size=file_size_in(self._index, INDEX_FILE_SIZE),
        )
        self._cached = None
        # A file may have been closed by a blank since: what comes next begins at ``position``.
        self.end = self._files.end_of(last)._replace(position=position)

    def grown_to(self, last: Index, position: Position) -> None:
        """The log has grown, and ends with entry ``last`` and at ``position``.

        Raises:
            CorruptLogError: there is no such entry.
            StorageError: the log cannot be read.
        """
        if last != self.end.index_:
            self.end = self._opened().end_of(last)._replace(position=position)

    def terms(self, last: EntryId) -> EntryTerms:
        """The terms of all entries up to ``last``.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        files = self._opened()
        first = files.first_index(last.index)
        if last.index < 0 or first < 0:
            # The log begins behind it: what is not there was committed, and deleted since.
            return EntryTerms(last if last.index >= 0 else NO_ENTRY)
        before = NO_ENTRY if first == 0 else EntryId(UNKNOWN_TERM, Index(first - 1))
        runs = files.term_runs(first, last.index)
        ends = [*(run.first for run in runs[1:]), last.index + 1]
        return EntryTerms(
            before,
            [TermRun(run.term, end - run.first) for run, end in zip(runs, ends, strict=True)],
        )

    def items(self, first: Index, last: Index) -> Items:
        """The index items of the entries from ``first`` to ``last``.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        return self._opened().items(first, last)

    def position_behind(self, index: Index) -> tuple[Position, Term]:
        """Position behind entry ``index``, and its term.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        item = self._opened().items(index, index)[0]
        return Position(int(item["position"]) + int(item["size"])), Term(int(item["term"]))

    def position_after(self, index: Index) -> Position:
        """Where the entry behind ``index`` begins, or the log, when that is later.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        files = self._opened()
        if index < files.first_index(self.end.index_):
            return files.first_position()
        return self.position_behind(index)[0]

    def forget_before(self, position: Position) -> Index:
        """Read no file any more that ends before ``position``; index of the first entry left.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        files = self._opened()
        # A file that is open keeps its blocks, also when it is deleted.
        files.forget()
        self._cached = None
        begin = max(files.first_position(), position - position % files.file_size)
        return files.index_at(Position(begin))

    def extent(self, last: Index) -> LogExtent | None:
        """The log from its first file up to where a file ends with entry ``last`` or before it.

        While there is but one file: up to ``last`` itself. None when the log lacks that much.

        Raises:
            CorruptLogError, StorageError: the log cannot be read.
        """
        files = self._opened()
        first = files.first_index(last)
        if first < 0 or last < first:
            return None
        begin = files.first_position()
        end = self.position_behind(last)[0]
        start = Position(end - end % files.file_size)
        if begin < start < end:
            end, last = start, Index(files.index_at(start) - 1)
        return LogExtent(begin, end, first, last, files.file_size)

    def read(self, first: Index, until: Index, *, size_max: int, committed: Index) -> EntrySpan:
        """Entries from ``first`` on; the same bytes for all peers that are equally far.

        What is committed was written a while ago, and is verified: no entry that is given is
        damaged. What is not was just written, and whoever gets it verifies it.

        Raises:
            CorruptLogError: the first entry, or what leads to it, is damaged.
            StorageError: the log cannot be read.
        """
        if until >= first + ENTRIES_READ_MAX:
            until = Index(first + ENTRIES_READ_MAX - 1)
        cached = self._cached
        if cached is not None and cached[:3] == (first, until, size_max):
            return cached[3]
        span = self._opened().span(first, until, size_max=size_max)
        if first <= committed:
            span = _whole_part(span, self.chain_before(first))
        self._cached = (first, until, size_max, span)
        return span

    def will_need(self, begin: Position, end: Position) -> None:
        """Entries between these positions, which are committed, are read soon.

        Raises:
            StorageError: the log cannot be read.
        """
        self._opened().will_need(begin, end)

    def chain_before(self, first: Index) -> int | None:
        """chainCrc of the entry before ``first``; None when that can be read no more.

        Without it a disk could turn the first entry's own link, and who gets it would refuse it
        for ever.
        """
        if first == 0:
            return 0
        try:
            return self._opened().end_of(Index(first - 1)).chain
        except (CorruptLogError, StorageError):
            return None

    def verify(self, data: memoryview, first: Index, last: Index) -> Verified:
        """The entries ``first`` to ``last`` of ``data``, which must follow ``end``.

        Raises:
            ProtocolError, ConfigError: see ``verify_following``.
        """
        return verify_following(data, first, last, end=self.end, size=self._opened().file_size)

    @property
    def places(self) -> LogPlaces:
        """Where the log is."""
        files = self._opened()
        return LogPlaces(self._data, self._index, files.file_size, files.index_file_size)

    def close(self) -> None:
        """Close the files."""
        if self._files is not None:
            self._files.forget()

    def _opened(self) -> EntryFiles:
        assert self._files is not None, "no log before the writer has recovered it"
        return self._files


def _whole_part(span: EntrySpan, chain: int | None) -> EntrySpan:
    """The entries of ``span`` before the first damaged one.

    Args:
        chain: of the entry before it, None when that is not known.
    """
    point = EntryPoint(span.position, span.first, Term(0), chain)
    checked = check_entries(memoryview(span.data), point)
    if checked.items == span.items.tobytes():
        return span
    count = len(checked.items) // ITEM_SIZE
    if not count:
        raise CorruptLogError("entry is not whole", index=span.first, position=span.position)
    return EntrySpan(
        span.first,
        Index(span.first + count - 1),
        span.position,
        span.data[: checked.size],
        np.frombuffer(checked.items, ENTRY_ITEM),
    )
