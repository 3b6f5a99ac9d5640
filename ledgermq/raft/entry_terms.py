"""Terms of the log's entries as runs, all that consensus needs of the log.

Invariants: ``before.index < first``; runs follow one another with no gap; terms of runs increase.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ledgermq.model.ids import Index, Term
from ledgermq.raft.messages import NO_ENTRY, EntryId, LogTail, TermRun

UNKNOWN_TERM = Term(-1)
"""Term of the entry before a log whose head was deleted by somebody who left no word of it."""

TAIL_RUNS_MAX = 64
"""Runs in a refusal: more differ only after as many elections without a commit between them."""


class EntryTerms:
    """Run-length table of the terms of a log.

    Attributes:
        last_index: that of ``last``, for those who ask with each message.
        firsts, terms: first index and term of each run.
    """

    def __init__(self, before: EntryId = NO_ENTRY, runs: Iterable[TermRun] = ()) -> None:
        """``runs`` follow ``before``, whose term may be ``UNKNOWN_TERM``."""
        self._before = before
        self.firsts: list[int] = []
        self.terms: list[Term] = []
        self.last_index = before.index
        self.append(runs)

    @property
    def before(self) -> EntryId:
        """The entry before the first one."""
        return self._before

    @property
    def first(self) -> Index:
        """Index of the first entry, or of the one that will be it."""
        return Index(self._before.index + 1)

    @property
    def last(self) -> EntryId:
        """The last entry; ``before`` when there is none."""
        return EntryId(self.terms[-1], self.last_index) if self.terms else self._before

    def term_of(self, index: Index) -> Term | None:
        """Term of entry ``index``; None when it is not known, at either end."""
        if self.firsts and self.firsts[-1] <= index <= self.last_index:
            return self.terms[-1]
        if index == self._before.index and self._before.term != UNKNOWN_TERM:
            return self._before.term
        if not self._before.index < index <= self.last_index:
            return None
        return self.terms[bisect_right(self.firsts, index) - 1]

    def entry(self, index: Index) -> EntryId:
        """The entry at ``index``, with ``UNKNOWN_TERM`` when its term is not known."""
        term = self.term_of(index)
        return EntryId(UNKNOWN_TERM if term is None else term, index)

    def last_index_of(self, term: Term) -> Index | None:
        """Last index of ``term``; None when no entry is of it."""
        run = bisect_right(self.terms, term) - 1
        if run < 0 or self.terms[run] != term:
            return None
        return self._run_end(run)

    def append(self, runs: Iterable[TermRun]) -> None:
        """Add ``runs`` at the end."""
        for run in runs:
            assert run.count > 0, run
            last_term = self.terms[-1] if self.terms else None
            if run.term != last_term:
                assert run.term >= self.last.term, (run, self.last)
                self.firsts.append(self.last_index + 1)
                self.terms.append(run.term)
            self.last_index = Index(self.last_index + run.count)

    def truncate(self, after: Index) -> None:
        """Forget the entries behind ``after``."""
        assert self._before.index <= after <= self.last_index, (
            after,
            self._before,
            self.last_index,
        )
        while self.firsts and self.firsts[-1] > after:
            self.firsts.pop()
            self.terms.pop()
        self.last_index = after

    def compact(self, first: Index) -> None:
        """Forget the entries before ``first``: their file is gone."""
        if first <= self.first:
            return
        assert first <= self.last_index + 1, (first, self.last_index)
        before = self.entry(Index(first - 1))
        keep = bisect_right(self.firsts, first) - 1
        if first > self.last_index:
            keep = len(self.firsts)
        self.firsts = self.firsts[keep:]
        self.terms = self.terms[keep:]
        if self.firsts:
            self.firsts[0] = int(first)
        self._before = before

    def runs(self, first: Index, last: Index) -> tuple[TermRun, ...]:
        """Runs of the entries from ``first`` to ``last``, both included."""
        if first > last:
            return ()
        assert self._before.index < first and last <= self.last_index, (first, last, self)
        if self.firsts[-1] <= first:
            return (TermRun(self.terms[-1], last - first + 1),)
        found: list[TermRun] = []
        at = int(first)
        run = bisect_right(self.firsts, at) - 1
        while at <= last:
            end = min(self._run_end(run), int(last))
            found.append(TermRun(self.terms[run], end - at + 1))
            at = end + 1
            run += 1
        return tuple(found)

    def tail(self, above: Index) -> LogTail:
        """The entries behind ``above``, at most the last ``TAIL_RUNS_MAX`` runs of them."""
        above = Index(max(above, self._before.index))
        runs = self.runs(Index(above + 1), self.last_index)[-TAIL_RUNS_MAX:]
        count = sum(run.count for run in runs)
        return LogTail(self.entry(Index(self.last_index - count)), runs)

    def agreement(self, tail: LogTail) -> Index | None:
        """Last index at which this log and ``tail`` have the same entry.

        All entries before it are the same then (Raft paper, section 5.3, log matching).
        """
        end = tail.before.index + sum(run.count for run in tail.runs)
        for run in reversed(tail.runs):
            ours = self.last_index_of(run.term)
            if ours is not None:
                common = Index(min(ours, end))
                # ``end`` may lie before our own run of that term begins.
                if common > end - run.count and self.term_of(common) == run.term:
                    return common
            end -= run.count
        same = self.term_of(tail.before.index) == tail.before.term
        return tail.before.index if same else None

    def first_difference(self, previous: Index, runs: Sequence[TermRun]) -> Index | None:
        """First index of ``runs``, which follow ``previous``, that this log has not so.

        Entries before the first one of the log are taken for equal: they were committed.
        """
        at = int(previous) + 1
        if at > self.last_index:
            return Index(at) if runs else None
        for run in runs:
            end = at + run.count - 1
            at = max(at, min(int(self.first), end + 1))
            while at <= end:
                if self.term_of(Index(at)) != run.term:
                    return Index(at)
                at = min(end, self._run_end(bisect_right(self.firsts, at) - 1)) + 1
        return None

    def _run_end(self, run: int) -> Index:
        return Index(self.firsts[run + 1] - 1 if run + 1 < len(self.firsts) else self.last_index)
