"""Storage of a frame's missing records: those that the log does not hold already.

Either a client sends a frame again, and does not know what became of it before; or messages are for
a topic with a window of de-duplication, and have unique ids that were stored within it. All records
are answered for: those that are stored, and those that are not, with the place of the stored one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np

from ledgermq.formats.arrays import I64
from ledgermq.formats.records.delayed_message import real_queue
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.model.errors import AttemptUnknownError
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.store.index.index_lookup import NOT_ALL, WantedKeys
from ledgermq.store.log.log_writer import Span
from ledgermq.wire.send_frame import Duplicate, SendFrame, SendRun
from ledgermq.wire.session import NOT_TOLD
from ledgermq.writer.duplicates.id_files import IdFiles
from ledgermq.writer.duplicates.recent_messages import (
    CANDIDATES_MAX,
    MessageKey,
    RecentMessages,
    StoredMessage,
)
from ledgermq.writer.duplicates.stored_ids import IdsUnknownError
from ledgermq.writer.duplicates.unique_ids import Deduplication, IdSearch, LogReach, Looked
from ledgermq.writer.log.log_ids import Candidates, IdColumns
from ledgermq.writer.log.put_batch import Put

UNTOLD_MS = 3_600_000
"""Milliseconds before a message was made from where on an earlier attempt is looked for, when the
client does not tell a position: clocks differ, and most clients give a message up after 15 s."""

LOOKS_PER_TURN = 1_024
"""Most files of the Index that are looked at for messages in one turn of the writer: each look is
some random reads, while others wait."""

SAME_RECORD = 2


class AttemptReach(NamedTuple):
    """Where an earlier attempt to send a frame may stand.

    Attributes:
        first_position: see ``SendFrame``.
        recent: has looked already, from its beginning on.
        log: how far it is.
        now_ms: by the clock that stamps messages.
    """

    first_position: int
    recent: RecentMessages
    log: LogReach
    now_ms: int


class EarlierAttempts:
    """Look-up of resent messages before the last bytes of the log, by the Index.

    ``RecentMessages`` has the last bytes. A client that is cut off while others go on may repeat a
    message when that is further back: the Index knows where it stands then. Where an earlier
    attempt can be first, the client tells as a position (``first_position`` of a SEND), which needs
    no clock; a client of before protocol version 5 does not, and its messages are looked for by the
    time at which they were made. What cannot be told by a bounded search is refused: it is not
    known whether the message is stored, and it is not stored once more.
    """

    def __init__(self, files: IdFiles) -> None:
        """Nothing was looked for in this turn."""
        self._files = files
        self._left = LOOKS_PER_TURN
        self._is_first = True

    def begin_turn(self) -> None:
        """What was looked for before does not count any more."""
        self._left = LOOKS_PER_TURN

    def begin_frame(self) -> None:
        """The records of another frame are looked for next."""
        self._is_first = self._left == LOOKS_PER_TURN

    def find(
        self, record: memoryview, message: Message, attempt: AttemptReach
    ) -> StoredMessage | None:
        """Where an earlier attempt has stored a message that the last bytes of the log lack.

        Args:
            record: as the client has sent it.
            message: what it says.

        Raises:
            AttemptUnknownError: that cannot be told any more.
            IdsUnknownError: it cannot be told now.
            CorruptLogError: the log cannot be read.
        """
        recent, begin = attempt.recent, attempt.first_position
        if not message.unique_id and begin < attempt.log.end:
            raise AttemptUnknownError(
                "a message without a unique id cannot be found again",
                topic=message.topic,
                queue=message.queue_id,
            )
        since_ms = 0
        if begin == NOT_TOLD:
            since_ms = min(message.born_timestamp, attempt.now_ms) - UNTOLD_MS
            if recent.begins_before(since_ms):
                return None
            begin = 0
        if begin >= recent.begin:
            return None
        first = self._files.log.first_position
        if first < recent.begin:
            found = self._look_up(record, message, attempt, begin=begin, since_ms=since_ms)
            if found is not None:
                return found
        if begin < first and not (since_ms and self._files.log.is_older(first, since_ms)):
            raise AttemptUnknownError(
                "an earlier attempt may have been stored and deleted since",
                position=begin,
                log_begins_at=first,
            )
        return None

    def _look_up(
        self,
        record: memoryview,
        message: Message,
        attempt: AttemptReach,
        *,
        begin: int,
        since_ms: int,
    ) -> StoredMessage | None:
        """The same by the Index, as far as that goes back."""
        files, log = self._files, attempt.log
        if not files.has_index:
            raise AttemptUnknownError(
                "an earlier attempt may be further back than is looked without an index",
                bytes=log.end - begin,
                limit=log.end - attempt.recent.begin,
                setting="limits.total_window_bytes; store.message_index_enable",
            )
        if log.indexed < attempt.recent.begin:
            raise IdsUnknownError(
                "the index is behind what is to be looked up in it", indexed=log.indexed
            )
        zero = np.zeros(1, np.int64)
        columns = IdColumns.of(record, zero, zero + len(record), with_halves=False)
        since = np.array([since_ms], np.int64)
        keys = WantedKeys(record, columns.id_starts, columns.id_ends, since)
        ((_, positions),) = files.find(
            (message.topic.encode(),), keys, begin=begin, look=self._look
        )
        found = self._compare(record, columns, positions[positions >= begin], log.end)
        if found is None and (positions == NOT_ALL).any():
            raise AttemptUnknownError(
                "more messages have the key of this one in the index than are looked at",
                unique_id=message.unique_id,
            )
        return found

    def _compare(
        self, record: memoryview, columns: IdColumns, positions: I64, end: int
    ) -> StoredMessage | None:
        """The newest of some messages of the log that is the very same."""
        if len(positions) > CANDIDATES_MAX:
            raise AttemptUnknownError(
                "more messages may be the same as are compared",
                messages=len(positions),
                limit=CANDIDATES_MAX,
            )
        if not len(positions):
            return None
        candidates = Candidates(
            np.zeros(len(positions), np.int64), positions, np.zeros(len(positions), np.bool_)
        )
        found = self._files.log.compare(record, columns, candidates, end=end)
        same = np.flatnonzero(found.sameness == SAME_RECORD)
        if not len(same):
            return None
        row = int(same[np.argmax(found.positions[same])])
        return StoredMessage(
            found.topics[row].decode(),
            int(found.queue_ids[row]),
            int(found.queue_offsets[row]),
            int(found.positions[row]),
            int(found.store_times[row]),
        )

    def _look(self) -> None:
        """One more file of the Index is looked at."""
        self._files.sign_of_life()
        if not self._left:
            if self._is_first:
                raise AttemptUnknownError(
                    "an earlier attempt may be further back than is looked",
                    index_files=LOOKS_PER_TURN,
                )
            raise IdsUnknownError("more is looked up in the index than in one turn; it comes next")
        self._left -= 1


CountsIds = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Resend:
    """The missing records as a frame of their own, and where the others are.

    Attributes:
        records: number of missing records.
        numbers: their numbers in the frame that was sent.
        found: spans of the records that the log holds.
        found_timestamp: when the last of those was stored, epoch ms; 0 when none is held.
    """

    records: int
    payload: bytes
    sizes: memoryview
    runs: list[SendRun]
    numbers: Sequence[int]
    found: list[Span]
    found_timestamp: int

    @classmethod
    def of(
        cls,
        frame: SendFrame,
        payload: bytes,
        header_size: int,
        earlier: EarlierAttempts,
        attempt: AttemptReach,
        *,
        counts_ids: CountsIds,
    ) -> Self:
        """Look up the records of ``frame``, which was checked.

        Args:
            counts_ids: whether a topic leaves out what it has the unique id of.

        Raises:
            AttemptUnknownError, IdsUnknownError, CorruptLogError: see ``EarlierAttempts``.
        """
        earlier.begin_frame()
        lookup = _Lookup(payload, frame.sizes, header_size, earlier, attempt, counts_ids=counts_ids)
        sizes = array("I")
        parts: list[memoryview] = []
        runs: list[SendRun] = []
        numbers: list[int] = []
        begin = 0
        for run in frame.runs:
            end = begin + run.records
            missing = lookup.take(begin, end, run.topic)
            for number in missing:
                parts.append(lookup.piece(number, number + 1))
                sizes.append(frame.sizes[number])
            if missing:
                numbers.extend(missing)
                runs.append(SendRun(len(missing), run.queue_id, run.topic))
            begin = end
        assert sizes.itemsize == 4, sys.platform
        return cls(
            len(numbers),
            b"".join(parts),
            memoryview(sizes),
            runs,
            numbers,
            lookup.found,
            lookup.timestamp,
        )

    @classmethod
    def whole(cls, frame: SendFrame, payload: bytes) -> Self:
        """A frame of which nothing is known to be stored."""
        count = len(frame.sizes)
        return cls(count, payload, frame.sizes, frame.runs, range(count), [], 0)

    def merged(self, stored: list[Span], sizes: memoryview) -> list[Span]:
        """Spans over the frame that was sent, from those of the missing records."""
        spans = list(self.found)
        for span in stored:
            offset = span.physical_offset
            for row in range(span.first, span.first + span.records):
                queue_offset = span.queue_offset + row - span.first
                spans.append(Span(self.numbers[row], 1, offset, queue_offset))
                offset += sizes[self.numbers[row]]
        return sorted(spans)


class _Lookup:
    """Finds the records of one frame in the log.

    A record stands in the log only behind those before it in its run, whatever was cut since: one
    that was never stored is followed by none that was. But an earlier attempt may have left a
    record out, because another message had its unique id, and its topic may count ids no more, or
    count from later on: then others stand behind it.
    """

    def __init__(
        self,
        payload: bytes,
        sizes: Sequence[int],
        header_size: int,
        earlier: EarlierAttempts,
        attempt: AttemptReach,
        *,
        counts_ids: CountsIds,
    ) -> None:
        self.found: list[Span] = []
        self.timestamp = 0
        self._view = memoryview(payload)
        self._starts = [0, *accumulate(sizes)]
        self._header_size = header_size
        self._recent = attempt.recent
        self._earlier = earlier
        self._attempt = attempt
        self._counts_ids = counts_ids

    def take(self, begin: int, end: int, topic: bytes) -> list[int]:
        """Note where the records of one run are; the numbers of those that are missing."""
        at, missing = begin, list[int]()
        while at < end:
            record = self._message(at)
            message = decode_message(record, 0, check_crc=False)
            key = MessageKey(message.topic, message.unique_id)
            (stored,) = self._recent.find([key], [record])
            if stored is None:
                stored = self._earlier.find(record, message, self._attempt)
            if stored is None:
                if not self._may_be_left_out(message, topic):
                    missing.extend(range(at, end))
                    break
                missing.append(at)
                at += 1
                continue
            # One look-up finds all that were stored with it.
            count = 1 + self._recent.count_behind(
                stored, len(record), (self._message(row) for row in range(at + 1, end))
            )
            self.found.append(Span(at, count, stored.physical_offset, stored.queue_offset))
            self.timestamp = max(self.timestamp, stored.store_timestamp)
            at += count
        return missing

    def _may_be_left_out(self, message: Message, topic: bytes) -> bool:
        """Whether an earlier attempt may have stored what is behind a message, and not itself.

        Of a topic that has stopped counting ids since, the other message is looked for among the
        last bytes of the log alone.
        """
        if self._counts_ids(topic):
            return True
        real = real_queue(message.properties)
        # The other one stands in the topic, or waits for its time to get there.
        places = {message.topic, DELAY_TOPIC, TIMER_TOPIC, *(() if real is None else [real.topic])}
        keys = [MessageKey(place, message.unique_id) for place in sorted(places)]
        return any(other is not None for other in self._recent.find(keys))

    def piece(self, begin: int, end: int) -> memoryview:
        """The bytes of some records, with their headers."""
        return self._view[self._starts[begin] : self._starts[end]]

    def _message(self, number: int) -> memoryview:
        return self._view[self._starts[number] + self._header_size : self._starts[number + 1]]


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
            sent = rest, rest_payload, self._header_size
            missing = Resend.of(*sent, self._earlier, attempt, counts_ids=self._unique.counts_ids)
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
