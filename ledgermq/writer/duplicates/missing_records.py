"""Storage of a frame's missing records: those that the log does not hold already.

Either a client sends a frame again, and does not know what became of it before; or messages are for
a topic with a window of de-duplication, and have unique ids that were stored within it. All records
are answered for: those that are stored, and those that are not, with the place of the stored one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.store.log.log_writer import Span
from ledgermq.wire.send_frame import Duplicate, SendFrame, SendRun
from ledgermq.writer.duplicates.earlier_attempts import AttemptReach, EarlierAttempts
from ledgermq.writer.duplicates.recent_messages import RecentMessages
from ledgermq.writer.duplicates.resend import Resend
from ledgermq.writer.duplicates.unique_ids import Deduplication, IdSearch, LogReach, Looked
from ledgermq.writer.log.put_batch import Put


class KnownRecords(NamedTuple):
    """Records that are not to be stored, because the log has their unique ids."""

    spans: list[Span]
    duplicates: list[Duplicate]
    resent: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class FramePlan:
    """What is to be stored of a frame, and what the log has of it.

    Attributes:
        looked: what its unique ids have found; None when none of them counts.
        known: records that are not stored again, because the log has their unique ids.
        rows: the others, without those that have the unique id of one before them in the frame.
        rest: these as a frame.
        missing: those of the rest that are to be stored.
    """

    frame: SendFrame
    looked: Looked | None
    known: KnownRecords
    rows: I64
    rest: SendFrame
    missing: Resend

    @property
    def is_new(self) -> bool:
        """Whether it is stored as it came: nothing of it was there, and it was not sent before."""
        return not self.frame.is_retry and len(self.rows) == len(self.frame.sizes)

    @property
    def resent(self) -> int:
        """Records that an earlier attempt to send the frame has stored."""
        return len(self.rows) - self.missing.records + self.known.resent


class MissingRecords:
    """Owned by the writer's ``ProduceService``. Nothing here writes: in this order,

    1. ``search`` looks in memory for the unique ids of a frame. What it finds may be staged only,
       and is then to be written before;
    2. ``plan`` reads what was found, and says what is missing;
    3. what is missing is staged; ``note`` has the frames behind it find it;
    4. ``finish`` puts together the answer, when all of it is written.
    """

    def __init__(self, unique: Deduplication, *, header_size: int) -> None:
        """Frames of one log."""
        self._unique = unique
        self._earlier = EarlierAttempts(unique.files)
        self._header_size = header_size

    def begin_turn(self) -> None:
        """The writer takes frames: a bounded number is looked up in this turn."""
        self._earlier.begin_turn()

    def concerns(self, frame: SendFrame) -> bool:
        """Whether the log may hold something of ``frame``."""
        return frame.is_retry or self._unique.concerns(frame)

    def search(
        self, frame: SendFrame, payload: bytes, *, now_ms: int, log: LogReach
    ) -> IdSearch | None:
        """What memory has of the unique ids of a frame; None when none of them counts.

        Raises:
            IdsUnknownError: they cannot be looked up now.
            CorruptLogError: the log cannot be read.
        """
        if not self._unique.concerns(frame):
            return None
        return self._unique.search(
            frame, memoryview(payload), header_size=self._header_size, now_ms=now_ms, log=log
        )

    def plan(
        self,
        frame: SendFrame,
        payload: bytes,
        search: IdSearch | None,
        *,
        recent: RecentMessages,
        log: LogReach,
        now_ms: int,
    ) -> FramePlan:
        """What is missing of a frame.

        Args:
            recent: the last messages of the log, by their unique ids.
            log: how far it is; all that was found is written before its end.
            now_ms: by the clock that stamps messages.

        Raises:
            IdsUnknownError: unique ids cannot be looked up now.
            AttemptUnknownError: it cannot be told whether an earlier attempt was stored.
            CorruptLogError: the log cannot be read.
        """
        looked = None
        rows = np.arange(len(frame.sizes), dtype=np.int64)
        if search is not None:
            looked = self._unique.compare(frame, memoryview(payload), search, log.end)
            rows = np.setdiff1d(rows, _taken(looked), assume_unique=True)
        rest, rest_payload = _part(frame, payload, rows)
        if frame.is_retry:
            attempt = AttemptReach(frame.first_position, recent, log, now_ms)
            missing = Resend.of(
                rest, rest_payload, self._header_size, self._earlier, attempt,
                counts_ids=self._unique.counts_ids,
            )  # fmt: skip
        else:
            missing = Resend.whole(rest, rest_payload)
        return FramePlan(frame, looked, _known(looked, frame), rows, rest, missing)

    def note(self, plan: FramePlan, spans: list[Span], store_timestamp: int) -> None:
        """What was missing is staged: remember its unique ids."""
        if plan.looked is None:
            return
        lengths = np.asarray(plan.missing.sizes, np.int64)
        starts = np.cumsum(lengths) - lengths
        firsts = np.array([span.first for span in spans])
        shifts = np.array([span.physical_offset for span in spans]) - starts[firsts]
        positions = starts + np.repeat(shifts, [span.records for span in spans])
        hashes = plan.looked.counting
        if not plan.is_new:
            hashes = hashes[plan.rows[plan.missing.numbers]]
        self._unique.note(hashes, positions, store_timestamp)

    def finish(self, plan: FramePlan, identity: bytes, stored: Put | None, *, end: int) -> Put:
        """What is to be answered for all of a frame.

        Args:
            stored: what was missing of it; None when nothing was.
            end: of the log; all of the frame is written before it.
        """
        frame, missing, known, rest = plan.frame, plan.missing, plan.known, plan.rest
        own = missing.merged([] if stored is None else stored.spans, rest.sizes)
        spans = sorted([*known.spans, *_numbered(own, plan.rows, rest)])
        if stored is None:
            timestamp = max(missing.found_timestamp, known.store_timestamp)
        else:
            end, timestamp = stored.position, stored.store_timestamp
        twins = {} if plan.looked is None else plan.looked.twins
        told, duplicates = _with_twins(spans, twins, frame, timestamp)
        return Put(
            identity,
            frame.request_id,
            frame.payload_size,
            told,
            end,
            timestamp,
            sorted([*known.duplicates, *duplicates]),
        )


def _known(looked: Looked | None, frame: SendFrame) -> KnownRecords:
    if looked is None:
        return KnownRecords([], [], 0, 0)
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
    return KnownRecords(spans, duplicates, len(spans) - len(duplicates), latest)


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
