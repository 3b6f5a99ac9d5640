"""A frame that is sent again: which of its records the log holds already, and which it lacks."""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from typing import Self

from ledgermq.daemon.recent_messages import MessageKey, RecentMessages
from ledgermq.store.log_writer import Span
from ledgermq.store.message import Message, decode_message
from ledgermq.wire.send_frame import SendFrame, SendRun


@dataclass(frozen=True, slots=True)
class Resend:
    """The missing records as a frame of their own, and where the others are.

    Attributes:
        records: number of missing records.
        numbers: their numbers in the frame that was sent.
        found: one span of one record for each that the log holds.
        found_timestamp: when the last of those was stored, epoch ms; 0 when none is held.
    """

    records: int
    payload: bytes
    sizes: memoryview
    runs: list[SendRun]
    numbers: list[int]
    found: list[Span]
    found_timestamp: int

    @classmethod
    def of(cls, frame: SendFrame, payload: bytes, header_size: int, recent: RecentMessages) -> Self:
        """Look up the records of ``frame``, which was checked."""
        view = memoryview(payload)
        messages: list[Message] = []
        at = 0
        for size in frame.sizes:
            messages.append(decode_message(view, at + header_size, check_crc=False))
            at += size
        held = recent.find([MessageKey(one.topic, one.unique_id) for one in messages])
        sizes = array("I")
        parts: list[memoryview] = []
        runs: list[SendRun] = []
        numbers: list[int] = []
        found: list[Span] = []
        found_timestamp = 0
        at = 0
        number = 0
        for run in frame.runs:
            missing = 0
            for _ in range(run.records):
                size = frame.sizes[number]
                stored = held[number]
                if stored is not None and stored.queue_id == messages[number].queue_id:
                    found.append(Span(number, 1, stored.physical_offset, stored.queue_offset))
                    found_timestamp = max(found_timestamp, stored.store_timestamp)
                else:
                    parts.append(view[at : at + size])
                    sizes.append(size)
                    numbers.append(number)
                    missing += 1
                at += size
                number += 1
            if missing:
                runs.append(SendRun(missing, run.queue_id, run.topic))
        assert sizes.itemsize == 4, sys.platform
        return cls(
            len(numbers), b"".join(parts), memoryview(sizes), runs, numbers, found, found_timestamp
        )

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
