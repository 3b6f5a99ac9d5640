"""De-duplication of messages by unique id, within the window of their topic.

A topic may have a window (``Topic.deduplication_window_ms``). The newest ids of all such topics are
in memory, by their hash; what lies behind that is looked up in the Index. Whatever is found is read
from the log, and compared. So a writer that was just started, or leads since a moment, knows what
its predecessors have stored: it only has to read what the Index does not have yet.

An id counts for the topic that its message is for, in all of its queues, from when the message was
stored: a delayed one from when it began to wait, and once more from its delivery. A half message
does not count before its transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.ipc.orders import WritableTopic
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.index.index_lookup import WantedKeys
from ledgermq.wire.send_frame import SendFrame
from ledgermq.writer.admission.writable_topics import HALF, WritableTopics
from ledgermq.writer.duplicates.id_files import IdFiles
from ledgermq.writer.duplicates.stored_ids import IdsUnknownError, StoredIds
from ledgermq.writer.log.log_ids import (
    DELAYED_TOPICS,
    NOTHING,
    WAITING_TOPICS,
    Candidates,
    FoundMessages,
    IdColumns,
    topic_hash,
)

RETRY_MS = 60_000
"""Milliseconds by which the window is longer in which an earlier attempt to send a frame is looked
for."""


class LogReach(NamedTuple):
    """How far the log is.

    Attributes:
        end: of what is written and can be read.
        indexed: messages before it are in the Index.
    """

    end: int
    indexed: int


class IdSearch(NamedTuple):
    """What is looked for of a frame, and what memory has of it.

    Attributes:
        columns: of all messages.
        wanted: hashes of unique ids, 0 where none is looked for.
        counting: those of them that count from when they are stored, 0 of the others.
        since: oldest store time that counts.
        searched: the same with earlier attempts to send the frame.
        positions: where memory has each, -1 for nothing.
        log: what the Index has, and up to where the log could be read.
    """

    columns: IdColumns
    wanted: I64
    counting: I64
    since: I64
    searched: I64
    positions: I64
    log: LogReach

    @property
    def is_written(self) -> bool:
        """Whether all that memory has can be read: what is staged cannot."""
        return int(self.positions.max()) < self.log.end


class Looked(NamedTuple):
    """What was found out about the messages of a frame.

    Attributes:
        columns: of all messages.
        counting: hashes of the unique ids that count from when they are stored, 0 of the others.
        stored: those that the log has, one row each, ascending.
        twins: messages of the frame with the unique id of an earlier one in it, and which one.
    """

    columns: IdColumns
    counting: I64
    stored: FoundMessages
    twins: dict[int, int]


class Deduplication:
    """Owned by the writer; it costs nothing while no topic has a window.

    Attributes:
        files: in which ids are looked up.
    """

    def __init__(
        self, topics: WritableTopics, settings: Settings, sign_of_life: Callable[[], None]
    ) -> None:
        """An empty memory.

        Args:
            sign_of_life: called again and again while the log is read.
        """
        self.files = IdFiles(settings, sign_of_life)
        self._topics = topics
        self._table = StoredIds(settings.limits.deduplication_memory_bytes)
        self._windows: Mapping[bytes, WritableTopic] = {}
        self._begins: dict[tuple[bytes, int], int] = {}
        self._hashes = np.empty(0, np.int64)
        self._windows_ms = np.empty(0, np.int64)
        self._is_begun = False

    @property
    def is_used(self) -> bool:
        """Whether ids are in memory, which have to be completed by what the node itself stores."""
        return self._is_begun and bool(self._topics.windows)

    def concerns(self, frame: SendFrame) -> bool:
        """Whether messages of ``frame`` may be for a topic with a window."""
        windows = self._topics.windows
        if not windows:
            return False
        return any(run.topic in windows or run.topic in WAITING_TOPICS for run in frame.runs)

    def counts_ids(self, topic: bytes) -> bool:
        """Whether messages in a topic may be left out now, for another one has their id."""
        windows = self._topics.windows
        return topic in windows or (bool(windows) and topic in WAITING_TOPICS)

    def forget(self) -> None:
        """The log may be another one than before: read again what the Index does not have."""
        self._is_begun = False
        self.let_go()

    def let_go(self) -> None:
        """Files of log and Index may be deleted: keep none of them mapped."""
        self.files.let_go()

    def search(
        self,
        frame: SendFrame,
        payload: memoryview,
        *,
        header_size: int,
        now_ms: int,
        log: LogReach,
    ) -> IdSearch:
        """Look in memory for the messages of a frame that was checked.

        Args:
            now_ms: epoch, by the clock that stamps messages.

        Raises:
            IdsUnknownError: the Index lacks what is not in memory; nothing was changed.
            CorruptLogError: the log cannot be read.
        """
        self._begin(now_ms, log)
        ends = np.fromiter(accumulate(frame.sizes), np.int64, len(frame.sizes))
        starts = ends - np.asarray(frame.sizes, np.int64) + header_size
        columns = IdColumns.of(payload, starts, ends, with_halves=True)
        is_half = np.repeat(
            [run.topic == HALF for run in frame.runs], [run.records for run in frame.runs]
        )
        windows_ms = self._windows_of(columns.topics)
        wanted = np.where(windows_ms > 0, columns.ids, 0)
        since = now_ms - windows_ms
        searched = since - RETRY_MS if frame.is_retry else since
        self._table.make_room(
            int(np.count_nonzero(wanted)),
            # Where there is no Index, nothing is gained by keeping in memory what it lacks.
            indexed=log.indexed if self.files.has_index else log.end,
            oldest_ms=now_ms - int(self._windows_ms.max()) - RETRY_MS,
        )
        positions = self._table.find(wanted)
        counting = np.where(is_half, 0, wanted)
        return IdSearch(columns, wanted, counting, since, searched, positions, log)

    def compare(self, frame: SendFrame, payload: memoryview, search: IdSearch, end: int) -> Looked:
        """Read what may be the same messages, here and by the Index, and compare.

        Args:
            end: of the log; all that memory has is before it.

        Raises:
            IdsUnknownError: the Index lacks what is not in memory.
            CorruptLogError: the log cannot be read.
        """
        stored = NOTHING
        candidates = self._candidates(payload, search)
        if len(candidates.rows):
            same = self.files.log.compare(payload, search.columns, candidates, end=end)
            stored = _newest(self._of_these(same), search.since, is_retry=frame.is_retry)
        twins = _twins(search.counting, stored.rows)
        return Looked(search.columns, search.counting, stored, twins)

    def note(self, counting: I64, positions: I64, now_ms: int) -> None:
        """Messages were staged behind all others, with these hashes, at these positions."""
        self._table.put(counting, positions, now_ms)

    def note_own(self, begin: int, end: int, now_ms: int) -> None:
        """The node itself has stored messages between two positions.

        Raises:
            CorruptLogError: the log cannot be read.
        """
        if not self.is_used:
            return
        for columns, positions in self.files.log.scan(begin, end):
            counting = np.where(self._windows_of(columns.topics) > 0, columns.ids, 0)
            self._table.put(counting, positions, now_ms)

    def _begin(self, now_ms: int, log: LogReach) -> None:
        """Know the windows that there are now, and what the Index does not have."""
        windows = self._topics.windows
        if windows is not self._windows:
            if any(topic is not self._windows.get(name) for name, topic in windows.items()):
                # Nothing is in memory of what came while a topic had no window: also of one that
                # had one when this was looked at last, and has another, or the same again.
                self._is_begun = False
            self._windows = windows
            by_hash = sorted((topic_hash(name), topic.window_ms) for name, topic in windows.items())
            self._begins = {
                (name, queue_id): offset
                for name, topic in windows.items()
                for queue_id, offset in topic.first_offsets.items()
            }
            self._hashes = np.array([row[0] for row in by_hash], np.int64)
            self._windows_ms = np.array([row[1] for row in by_hash], np.int64)
        if self._is_begun:
            return
        self._table.begin(min(log.indexed, log.end), now_ms)
        # Before it is completed: ``note_own`` puts nothing into a table that was not begun.
        self._is_begun = True
        try:
            self.note_own(min(log.indexed, log.end), log.end, now_ms)
        except CorruptLogError:
            self._is_begun = False
            raise

    def _of_these(self, stored: FoundMessages) -> FoundMessages:
        """Those that are not of topics that were deleted, and made again with the same name."""
        if not self._begins:
            return stored
        places = zip(stored.topics, stored.queue_ids.tolist(), strict=True)
        begins = np.array([self._begins.get(place, 0) for place in places], np.int64)
        return stored.take(np.flatnonzero(stored.queue_offsets >= begins))

    def _windows_of(self, topics: I64) -> I64:
        """Milliseconds of each topic's window, 0 where it has none."""
        at = np.searchsorted(self._hashes, topics)
        at[at == len(self._hashes)] = 0
        return np.where(self._hashes[at] == topics, self._windows_ms[at], 0)

    def _candidates(self, payload: memoryview, search: IdSearch) -> Candidates:
        """What memory has found, and where it does not reach, what the Index says."""
        positions, since = search.positions, search.searched
        rows = np.flatnonzero(positions >= 0)
        known = Candidates(rows, positions[rows], np.ones(len(rows), np.bool_))
        if not self.files.has_index or int(since.min()) >= self._table.complete_since_ms:
            return known
        behind = np.flatnonzero(
            (search.wanted != 0) & (positions < 0) & (since < self._table.complete_since_ms)
        )
        if not len(behind):
            return known
        if search.log.indexed < self._table.complete_from:
            raise IdsUnknownError("the index is behind what it had: it is being put right")
        found, places = self._in_index(payload, search.columns, behind, since)
        return Candidates(
            np.concatenate((known.rows, found)),
            np.concatenate((known.positions, places)),
            np.concatenate((known.certain, np.zeros(len(found), np.bool_))),
        )

    def _in_index(
        self, payload: memoryview, columns: IdColumns, rows: I64, since: I64
    ) -> tuple[I64, I64]:
        """Messages that may have the ids of some rows.

        Raises:
            IdsUnknownError: the Index is not whole now.
        """
        found: list[tuple[I64, I64]] = []
        topics = columns.topics[rows]
        for topic in np.unique(topics):
            some = rows[topics == topic]
            one = int(some[0])
            name = bytes(payload[int(columns.topic_starts[one]) : int(columns.topic_ends[one])])
            keys = WantedKeys(payload, columns.id_starts[some], columns.id_ends[some], since[some])
            # The Index has a message that waited by the topic in which it waited, too.
            for numbers, positions in self.files.find((name, *DELAYED_TOPICS), keys):
                found.append((some[numbers], positions))
        return (
            np.concatenate([one[0] for one in found]),
            np.concatenate([one[1] for one in found]),
        )


def _newest(stored: FoundMessages, since: I64, *, is_retry: bool) -> FoundMessages:
    """The newest message of each row that counts; rows ascending.

    The very same record is an earlier attempt to send it, however long ago.
    """
    counts = stored.store_times >= since[stored.rows]
    if is_retry:
        counts |= stored.sameness == 2
    kept = np.flatnonzero(counts)
    kept = kept[np.lexsort((stored.positions[kept], stored.rows[kept]))]
    rows = stored.rows[kept]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = rows[1:] != rows[:-1]
    return stored.take(kept[is_last])


def _twins(counting: I64, known: I64) -> dict[int, int]:
    """Messages of a frame with the id of an earlier one that is to be stored."""
    rows = np.flatnonzero(counting)
    if len(known):
        rows = np.setdiff1d(rows, known, assume_unique=True)
    _, first, group = np.unique(counting[rows], return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return {}
    firsts = rows[first][group]
    later = firsts != rows
    return dict(zip(rows[later].tolist(), firsts[later].tolist(), strict=True))
