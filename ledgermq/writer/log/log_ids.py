"""Unique ids of messages, in a frame and in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import I64
from ledgermq.formats.kernels.kernel import (
    SCAN_ROWS,
    ScanStatus,
    compare_ids,
    scan_entries,
    scan_ids,
    text_hash,
)
from ledgermq.formats.records.message import (
    MAGIC,
    MAGIC_AT,
    MAGIC_V2,
    MAGICS,
    PHYSICAL_OFFSET_AT,
    SIZE_MIN,
    TIMESTAMP,
    WORD,
    queue_of,
    store_fields_at,
)
from ledgermq.model.errors import CorruptLogError, DamagedLogError
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.store.log_family import LogSpan
from ledgermq.store.log_view import LogView
from ledgermq.store.record_parts import sound_count
from ledgermq.writer.admission.writable_topics import HALF

DELAYED_TOPICS = (DELAY_TOPIC.encode(), TIMER_TOPIC.encode())
WAITING_TOPICS = frozenset({*DELAYED_TOPICS, HALF})
"""Their messages are for another topic."""

_HEAD = np.dtype([("size", ">i4"), ("magic", ">u4"), ("position", ">i8")])
_HEAD_BYTES = np.concatenate((np.arange(8), np.arange(PHYSICAL_OFFSET_AT, PHYSICAL_OFFSET_AT + 8)))


def topic_hash(topic: bytes) -> int:
    """The hash that ``IdColumns.topics`` has of a topic."""
    return text_hash(memoryview(topic), 0, len(topic))


_DELAYED_HASHES = np.array([topic_hash(topic) for topic in DELAYED_TOPICS], np.int64)
_WAITING_HASHES = np.array([topic_hash(topic) for topic in sorted(WAITING_TOPICS)], np.int64)


class IdColumns(NamedTuple):
    """What some messages are known by; all columns are int64, one row a message.

    Attributes:
        starts, ends: where the messages lie in their span, without entry headers.
        topics: hash of the topic that each is for.
        ids: hash of that topic and the unique id; 0 of a message that has none.
        id_starts, id_ends, topic_starts, topic_ends: where both lie in the span.
    """

    starts: I64
    ends: I64
    topics: I64
    ids: I64
    id_starts: I64
    id_ends: I64
    topic_starts: I64
    topic_ends: I64

    @classmethod
    def of(cls, span: memoryview, starts: I64, ends: I64, *, with_halves: bool) -> IdColumns:
        """Those of whole messages.

        Args:
            with_halves: half messages count as of the topic that they are for; else they are of
                the topic of half messages.
        """
        topics, ids, id_starts, id_ends, topic_starts, topic_ends = (
            np.zeros(len(starts), np.int64) for _ in range(6)
        )
        scan_ids(
            span,
            starts.data,
            ends.data,
            (_WAITING_HASHES if with_halves else _DELAYED_HASHES).data,
            topics.data,
            ids.data,
            id_starts.data,
            id_ends.data,
            topic_starts.data,
            topic_ends.data,
            np.zeros(4, np.int64).data,
        )
        return cls(starts, ends, topics, ids, id_starts, id_ends, topic_starts, topic_ends)

    def places(self, rows: I64) -> I64:
        """Message, unique id and topic of some rows, each with its end, as the kernel compares."""
        columns = (
            self.starts,
            self.ends,
            self.id_starts,
            self.id_ends,
            self.topic_starts,
            self.topic_ends,
        )
        return np.ascontiguousarray(np.stack([column[rows] for column in columns], axis=1)).ravel()


class Candidates(NamedTuple):
    """Messages of a frame, and where one may stand in the log that has its unique id.

    Attributes:
        rows: of the frame's messages; one may have several.
        certain: whether a message stands there for certain.
    """

    rows: I64
    positions: I64
    certain: npt.NDArray[np.bool_]

    def take(self, which: npt.NDArray[np.intp] | slice) -> Candidates:
        """Some of them."""
        return Candidates(self.rows[which], self.positions[which], self.certain[which])


class FoundMessages(NamedTuple):
    """Messages of the log that have the unique ids of messages of a frame.

    Attributes:
        rows: of the frame's messages.
        sameness: 1: another message of that id; 2: the same record, stored before.
        topics: names of the topics where they stand.
    """

    rows: I64
    positions: I64
    queue_ids: I64
    queue_offsets: I64
    store_times: I64
    sameness: I64
    topics: list[bytes]

    def take(self, rows: npt.NDArray[np.intp]) -> FoundMessages:
        """Some of them."""
        columns = [column[rows] for column in self[:6]]
        return FoundMessages._make([*columns, [self.topics[row] for row in rows.tolist()]])


NOTHING = FoundMessages._make([*[np.empty(0, np.int64)] * 6, []])
"""No message."""


class LogIds:
    """Reads what the log holds of unique ids; owned by the writer, whose log it is."""

    def __init__(self, view: LogView, sign_of_life: Callable[[], None]) -> None:
        self._view = view
        self._sign_of_life = sign_of_life

    def scan(self, begin: int, end: int) -> Iterator[tuple[IdColumns, I64]]:
        """Columns and positions of the messages between two positions where entries begin.

        Raises:
            CorruptLogError: the log cannot be read there.
        """
        at = begin
        starts, sizes = np.empty(SCAN_ROWS, np.int64), np.empty(SCAN_ROWS, np.int64)
        while at < end:
            file = self._view.file_of(at)
            if file is None:
                raise CorruptLogError("no file of the log has a written position", position=at)
            high = min(end, file.end) - file.start
            count, reached, status = scan_entries(
                file.view,
                at - file.start,
                high,
                file.header_size,
                file.start,
                starts.data,
                sizes.data,
            )
            if reached + file.start == at or ScanStatus(status).corrupt:
                raise DamagedLogError("no entry where one must begin", position=at)
            if count:
                positions = starts[:count] + file.start
                if sound_count(file, positions, sizes[:count]) < count:
                    raise DamagedLogError("message is damaged", position=at)
                ends = starts[:count] + sizes[:count]
                yield (
                    IdColumns.of(file.view, starts[:count].copy(), ends, with_halves=False),
                    positions,
                )
            at = reached + file.start
            self._sign_of_life()

    @property
    def first_position(self) -> int:
        """Where the log begins."""
        return self._view.first_position

    def is_older(self, position: int, time_ms: int) -> bool:
        """Whether the message whose entry begins at ``position`` was stored before a time.

        False where there is no message.
        """
        file = self._view.file_of(position)
        if file is None:
            return False
        at = position - file.start + file.header_size
        return is_older(file.view, at, time_ms)

    def compare(
        self, payload: memoryview, columns: IdColumns, candidates: Candidates, *, end: int
    ) -> FoundMessages:
        """Which messages of the log have the unique ids of a frame's messages.

        Args:
            columns: of the frame in ``payload``.
            end: of what is written.

        Raises:
            CorruptLogError: a message is not what was written.
        """
        positions = candidates.positions
        within = np.flatnonzero((positions >= self._view.first_position) & (positions < end))
        order = within[np.argsort(positions[within], kind="stable")]
        candidates = candidates.take(order)
        positions = candidates.positions
        found: list[FoundMessages] = []
        at = 0
        while at < len(positions):
            file = self._view.file_of(int(positions[at]))
            if file is None:
                # Retention has just taken it.
                at += 1
                continue
            upto = int(np.searchsorted(positions, file.end))
            found.append(_compare(file, payload, columns, candidates.take(slice(at, upto))))
            at = upto
        self._view.release_pages()
        return _joined(found)


def is_older(view: memoryview, at: int, time_ms: int) -> bool:
    """Whether the message at ``at`` was stored before a time; false where there is none."""
    if at + SIZE_MIN > len(view) or WORD.unpack_from(view, at + MAGIC_AT)[0] not in MAGICS:
        return False
    store_timestamp, _ = store_fields_at(view[at:])
    return bool(TIMESTAMP.unpack_from(view, at + store_timestamp)[0] < time_ms)


def _compare(
    file: LogSpan, payload: memoryview, columns: IdColumns, candidates: Candidates
) -> FoundMessages:
    rows, positions = _messages(file, candidates)
    if not len(rows):
        return NOTHING
    starts = positions - file.start
    ends = starts + _heads(file, starts)["size"]
    sound = sound_count(file, positions, ends - starts)
    if sound < len(positions):
        raise DamagedLogError("message is damaged", position=int(positions[sound]))
    own = IdColumns.of(file.view, starts, ends, with_halves=False)
    told = [np.empty(len(rows), np.int64) for _ in range(4)]
    compare_ids(
        payload,
        columns.places(rows).data,
        file.view,
        own.places(np.arange(len(rows), dtype=np.int64)).data,
        *(column.data for column in told),
    )
    same = told[3] > 0
    topics = [
        queue_of(file.view[start:end])[0]
        for start, end in zip(starts[same].tolist(), ends[same].tolist(), strict=True)
    ]
    queue_ids, queue_offsets, store_times, sameness = (column[same] for column in told)
    return FoundMessages(
        rows[same], positions[same], queue_ids, queue_offsets, store_times, sameness, topics
    )


def _messages(file: LogSpan, candidates: Candidates) -> tuple[I64, I64]:
    """Those of the candidates where a message begins.

    Raises:
        DamagedLogError: one begins no more where the writer has put it. What the Index says alone
            may be of a log that was longer.
    """
    rows, positions, certain = candidates
    starts = positions - file.start
    fits = starts + SIZE_MIN <= len(file.view)
    # Where no head fits, that of the file stands in; it does not count.
    heads = _heads(file, np.where(fits, starts, 0))
    fits &= (heads["magic"] == MAGIC) | (heads["magic"] == MAGIC_V2)
    fits &= heads["position"] == positions
    fits &= (heads["size"] >= SIZE_MIN) & (starts + heads["size"] <= len(file.view))
    if (certain & ~fits).any():
        at = int(positions[np.flatnonzero(certain & ~fits)[0]])
        raise DamagedLogError("no message where one must begin", position=at)
    return rows[fits], positions[fits]


def _heads(file: LogSpan, starts: I64) -> npt.NDArray[np.void]:
    content = np.frombuffer(file.view, np.uint8)
    heads: npt.NDArray[np.void] = content[starts[:, None] + _HEAD_BYTES].view(_HEAD)[:, 0]
    return heads


def _joined(parts: list[FoundMessages]) -> FoundMessages:
    if not parts:
        return NOTHING
    columns = [np.concatenate(column) for column in list(zip(*parts, strict=True))[:6]]
    return FoundMessages._make([*columns, [topic for part in parts for topic in part.topics]])
