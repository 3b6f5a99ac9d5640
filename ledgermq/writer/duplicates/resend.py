"""Resent frames: records that the log holds already, and those that it lacks."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from ledgermq.formats.records.delayed_message import real_queue
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.store.log.log_writer import Span
from ledgermq.wire.send_frame import SendFrame, SendRun
from ledgermq.writer.duplicates.earlier_attempts import AttemptReach, EarlierAttempts
from ledgermq.writer.duplicates.recent_messages import MessageKey

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
