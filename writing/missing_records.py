"""Storage of a frame's missing records: those that the log does not hold already.

Either a client sends a frame again, and does not know what became of it before; or messages are for
a topic with a window of de-duplication, and have unique ids that were stored within it. All records
are answered for: those that are stored, and those that are not, with the place of the stored one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.model.errors import NotLeaderError, OutcomeUnknownError
from ledgermq.model.ids import Position
from ledgermq.store.log_writer import Span
from ledgermq.wire.send_frame import Duplicate, SendFrame, SendRun
from ledgermq.writing.put_batch import Put, PutBatch
from ledgermq.writing.recent_messages import RecentMessages
from ledgermq.writing.resend import Resend
from ledgermq.writing.space_gate import NoRoomError
from ledgermq.writing.unique_ids import LogState, Looked, UniqueIds


@dataclass(frozen=True, slots=True)
class Turn:
    """What is so while the frames of one turn are stored.

    Attributes:
        recent: the last messages of the log, by their unique ids.
        publish: writes what is staged, notes who is to be answered for it, and tells the log's end.
        indexed: tells up to where messages are in the Index.
    """

    batch: PutBatch
    recent: RecentMessages
    publish: Callable[[], int]
    indexed: Callable[[], int]


class Counted(NamedTuple):
    """What is to be answered for a frame, and how many of its records were there before.

    Attributes:
        resent: stored by an earlier attempt to send the frame.
        stored: records that are stored now.
    """

    put: Put
    resent: int
    stored: int


class MissingRecords:
    """Owned by the writer's ``ProduceService``."""

    def __init__(
        self,
        unique: UniqueIds,
        make_room: Callable[[PutBatch, memoryview], None],
        *,
        header_size: int,
    ) -> None:
        """Frames of one log.

        Args:
            make_room: has blocks for records of these sizes, or raises as ``SpaceGate.check``.
        """
        self._unique = unique
        self._make_room = make_room
        self._header_size = header_size

    def concerns(self, frame: SendFrame) -> bool:
        """Whether the log may hold something of ``frame``."""
        return frame.is_retry or self._unique.concerns(frame)

    def put(self, turn: Turn, identity: bytes, payload: bytes, frame: SendFrame) -> Counted | None:
        """Store what is missing of a frame, and say where all of it is.

        Returns:
            ``None`` when nothing of the frame was there: it is staged with the others.

        Raises:
            NoRoomError, NotLeaderError: nothing was stored.
            OutcomeUnknownError: an earlier attempt has stored a part, and there is no space for
                the rest.
            IdsUnknownError: unique ids cannot be looked up now; nothing was stored.
            CorruptLogError: the log cannot be read.
        """
        if frame.is_retry:
            # What was staged before must be found, too, and stored before.
            turn.recent.extend(Position(turn.publish()))
        looked = self._look_up(turn, payload, frame) if self._unique.concerns(frame) else None
        rows = np.arange(len(frame.sizes), dtype=np.int64)
        if looked is not None:
            rows = np.setdiff1d(rows, _taken(looked), assume_unique=True)
            if len(rows) == len(frame.sizes) and not frame.is_retry:
                self._make_room(turn.batch, frame.sizes)
                spans = turn.batch.stage(
                    identity, frame.request_id, payload, frame.sizes, frame.runs
                )
                self._note(turn, looked.counting, frame.sizes, spans)
                return None
        rest, rest_payload = _part(frame, payload, rows)
        resend = (
            Resend.of(rest, rest_payload, self._header_size, turn.recent)
            if frame.is_retry
            else Resend.whole(rest, rest_payload)
        )
        missing = rows[resend.numbers]
        known = _known(looked, frame)
        resent = len(rows) - resend.records + known.resent
        turn.publish()
        stored = self._store(turn, identity, frame, resend, resent) if resend.records else []
        if looked is not None and stored:
            self._note(turn, looked.counting[missing], resend.sizes, stored)
        end = turn.publish() if not stored else self._publish_one(turn)
        spans = sorted([*known.spans, *_numbered(resend.merged(stored, rest.sizes), rows, rest)])
        timestamp = (
            turn.batch.store_timestamp
            if stored
            else max(resend.found_timestamp, known.store_timestamp)
        )
        twins = looked.twins if looked is not None else {}
        told, duplicates = _with_twins(spans, twins, frame, timestamp)
        put = Put(
            identity,
            frame.request_id,
            frame.payload_size,
            told,
            end,
            timestamp,
            sorted([*known.duplicates, *duplicates]),
        )
        return Counted(put, resent, resend.records)

    def _look_up(self, turn: Turn, payload: bytes, frame: SendFrame) -> Looked:
        return self._unique.look_up(
            frame,
            memoryview(payload),
            header_size=self._header_size,
            now_ms=turn.batch.store_timestamp,
            log=LogState(int(turn.batch.published_end), turn.indexed()),
            publish=turn.publish,
        )

    def _store(
        self, turn: Turn, identity: bytes, frame: SendFrame, resend: Resend, resent: int
    ) -> list[Span]:
        """Stage what is missing."""
        try:
            self._make_room(turn.batch, resend.sizes)
        except (NoRoomError, NotLeaderError) as error:
            if not resent:
                raise
            raise OutcomeUnknownError(
                "a part of the frame is stored, and there is no space for the rest",
                cause=str(error),
            ) from error
        return turn.batch.stage(
            identity, frame.request_id, resend.payload, resend.sizes, resend.runs
        )

    def _publish_one(self, turn: Turn) -> int:
        """Write what is staged: a part of one frame, which is answered for as a whole."""
        puts = turn.batch.publish()
        assert len(puts) == 1
        return puts[0].position

    def _note(self, turn: Turn, hashes: I64, sizes: memoryview, spans: list[Span]) -> None:
        """Remember the unique ids of records that were staged."""
        lengths = np.asarray(sizes, np.int64)
        starts = np.cumsum(lengths) - lengths
        firsts = np.array([span.first for span in spans])
        shifts = np.array([span.physical_offset for span in spans]) - starts[firsts]
        positions = starts + np.repeat(shifts, [span.records for span in spans])
        self._unique.note(hashes, positions, turn.batch.store_timestamp)


class _Known(NamedTuple):
    """Records that are not to be stored, because the log has their unique ids."""

    spans: list[Span]
    duplicates: list[Duplicate]
    resent: int
    store_timestamp: int


def _known(looked: Looked | None, frame: SendFrame) -> _Known:
    if looked is None:
        return _Known([], [], 0, 0)
    stored = looked.stored
    spans: list[Span] = []
    duplicates: list[Duplicate] = []
    latest = 0
    columns = (column.tolist() for column in stored[:6])
    for (row, position, queue_id, offset, stored_ms, sameness), topic in zip(
        zip(*columns, strict=True), stored.topics, strict=True
    ):
        spans.append(Span(row, 1, position, offset))
        latest = max(latest, stored_ms)
        if sameness == 1 or not frame.is_retry:
            duplicates.append(Duplicate(row, queue_id, stored_ms, topic))
    return _Known(spans, duplicates, len(spans) - len(duplicates), latest)


def _taken(looked: Looked) -> I64:
    """Records that are not to be stored."""
    return np.concatenate(
        (looked.stored.rows, np.fromiter(looked.twins, np.int64, len(looked.twins)))
    )


def _part(frame: SendFrame, payload: bytes, rows: I64) -> tuple[SendFrame, bytes]:
    """Some records of a frame as a frame of their own."""
    if len(rows) == len(frame.sizes):
        return frame, payload
    sizes = np.asarray(frame.sizes, np.int64)
    ends = np.cumsum(sizes)
    view = memoryview(payload)
    pieces = [
        view[int(ends[first] - sizes[first]) : int(ends[last])] for first, last in _pieces(rows)
    ]
    runs: list[SendRun] = []
    begin = 0
    for run in frame.runs:
        end = begin + run.records
        count = int(np.searchsorted(rows, end) - np.searchsorted(rows, begin))
        if count:
            runs.append(run._replace(records=count))
        begin = end
    kept = memoryview(array("I", sizes[rows].tolist()))
    whole = b"".join(pieces)
    return frame._replace(sizes=kept, runs=runs, payload_size=len(whole)), whole


def _pieces(rows: I64) -> list[tuple[int, int]]:
    """First and last record of each piece without a gap."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1)
    firsts = rows[np.concatenate(([0], cuts + 1))]
    lasts = rows[np.concatenate((cuts, [len(rows) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _numbered(spans: list[Span], rows: I64, rest: SendFrame) -> list[Span]:
    """Spans over some records of a frame, by the numbers that these have there."""
    numbered: list[Span] = []
    for span in spans:
        numbers = rows[span.first : span.first + span.records]
        position, number = span.physical_offset, span.first
        for first, last in _pieces(numbers):
            count = last - first + 1
            queue_offset = span.queue_offset + number - span.first
            numbered.append(Span(first, count, position, queue_offset))
            position += sum(rest.sizes[number : number + count])
            number += count
    return numbered


def _with_twins(
    spans: list[Span], twins: dict[int, int], frame: SendFrame, timestamp: int
) -> tuple[list[Span], list[Duplicate]]:
    """Answers for records with the unique id of an earlier one of the same frame, too."""
    if not twins:
        return spans, []
    places: dict[int, tuple[int, int]] = {}
    wanted = frozenset(twins.values())
    for span in spans:
        position = span.physical_offset
        for number in range(span.first, span.first + span.records):
            if number in wanted:
                places[number] = position, span.queue_offset + number - span.first
            position += frame.sizes[number]
    told = [Span(row, 1, *places[first]) for row, first in twins.items()]
    runs = [run for run in frame.runs for _ in range(run.records)]
    duplicates = [
        Duplicate(row, runs[first].queue_id, timestamp, runs[first].topic)
        for row, first in twins.items()
    ]
    return sorted([*spans, *told]), duplicates
