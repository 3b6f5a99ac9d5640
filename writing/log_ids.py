"""The unique ids of messages: in a frame, and in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ledgermq.formats.kernel import ScanStatus, compare_ids, scan_entries, scan_ids, text_hash
from ledgermq.formats.message import queue_of
from ledgermq.model.errors import CorruptLogError, DamagedLogError
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.model.transactions import HALF_TOPIC
from ledgermq.process.log_view import LogFile, LogView
from ledgermq.process.record_parts import sound_count

I64 = npt.NDArray[np.int64]

DELAYED_TOPICS = (DELAY_TOPIC.encode(), TIMER_TOPIC.encode())
HALF = HALF_TOPIC.encode()
WAITING_TOPICS = frozenset({*DELAYED_TOPICS, HALF})
"""Their messages are for another topic."""

ROWS = 16_384
_SIZE_WORD = np.arange(4)
_SIZE = np.dtype(">u4")


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
            self.starts, self.ends, self.id_starts, self.id_ends, self.topic_starts, self.topic_ends
        )  # fmt: skip
        return np.ascontiguousarray(np.stack([column[rows] for column in columns], axis=1)).ravel()


class Stored(NamedTuple):
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

    def take(self, rows: npt.NDArray[np.intp]) -> Stored:
        """Some of them."""
        columns = [column[rows] for column in self[:6]]
        return Stored._make([*columns, [self.topics[row] for row in rows.tolist()]])


NOTHING = Stored._make([*[np.empty(0, np.int64)] * 6, []])
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
        starts, sizes = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)
        while at < end:
            file = self._view.file_of(at)
            if file is None:
                raise CorruptLogError("no file of the log has a written position", position=at)
            high = min(end, file.end) - file.start
            count, reached, status = scan_entries(
                file.view, at - file.start, high, file.header_size, file.start,
                starts.data, sizes.data,
            )  # fmt: skip
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

    def compare(
        self, payload: memoryview, columns: IdColumns, rows: I64, positions: I64, *, end: int
    ) -> Stored:
        """Which messages of the log have the unique ids of a frame's messages.

        Args:
            columns: of the frame in ``payload``.
            rows: numbers of its messages, and beside each one in
            positions: where a message may stand that has its id.
            end: of what is written.

        Raises:
            CorruptLogError: a message is not what was written.
        """
        within = (positions >= self._view.first_position) & (positions < end)
        order = np.argsort(positions[within], kind="stable")
        rows, positions = rows[within][order], positions[within][order]
        found: list[Stored] = []
        at = 0
        while at < len(positions):
            file = self._view.file_of(int(positions[at]))
            if file is None:
                # Retention has just taken it.
                at += 1
                continue
            upto = int(np.searchsorted(positions, file.end))
            found.append(_compare(file, payload, columns, rows[at:upto], positions[at:upto]))
            at = upto
        self._view.release_pages()
        return _joined(found)


def _compare(
    file: LogFile, payload: memoryview, columns: IdColumns, rows: I64, positions: I64
) -> Stored:
    content = np.frombuffer(file.view, np.uint8)
    starts = positions - file.start
    if int(starts[-1]) + _SIZE.itemsize > len(content):
        raise DamagedLogError("no message where one must begin", position=int(positions[-1]))
    sizes = content[starts[:, None] + _SIZE_WORD].view(_SIZE)[:, 0].astype(np.int64)
    ends = starts + sizes
    if int(ends.max()) > len(content):
        raise DamagedLogError("message is damaged", position=int(positions[ends.argmax()]))
    sound = sound_count(file, positions, sizes)
    if sound < len(positions):
        raise DamagedLogError("message is damaged", position=int(positions[sound]))
    own = IdColumns.of(file.view, starts, ends, with_halves=False)
    told = [np.empty(len(rows), np.int64) for _ in range(4)]
    compare_ids(
        payload, columns.places(rows).data, file.view,
        own.places(np.arange(len(rows), dtype=np.int64)).data,
        *(column.data for column in told),
    )  # fmt: skip
    same = told[3] > 0
    topics = [
        queue_of(file.view[start:end])[0]
        for start, end in zip(starts[same].tolist(), ends[same].tolist(), strict=True)
    ]
    queue_ids, queue_offsets, store_times, sameness = (column[same] for column in told)
    return Stored(
        rows[same], positions[same], queue_ids, queue_offsets, store_times, sameness, topics
    )


def _joined(parts: list[Stored]) -> Stored:
    if not parts:
        return NOTHING
    columns = [np.concatenate(column) for column in list(zip(*parts, strict=True))[:6]]
    return Stored._make([*columns, [topic for part in parts for topic in part.topics]])
