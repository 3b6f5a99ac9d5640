"""Results of sends: where each message is stored, and how durably."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from ledgermq.formats.records.host_address import Host
from ledgermq.formats.records.message_id import offset_id_prefix
from ledgermq.model.config.settings import AckMode
from ledgermq.model.errors import ProtocolError
from ledgermq.wire.send_frame import Duplicate, SendRun, Sent, SentSpan

_ACKS = (AckMode.LOSSY_LEADER, AckMode.MAJORITY_MEMORY, AckMode.MAJORITY_FSYNC)


class SendResult(NamedTuple):
    """Where one message is stored.

    Attributes:
        queue_offset: number of the message in its queue.
        physical_offset: position of its record in the log.
        unique_id: given by the application or drawn by the producer, stored as ``UNIQ_KEY``.
        offset_message_id: names broker and position; empty when the node does not say its host.
        store_timestamp: the node's clock when it stored the message, epoch ms.
        ack: what the acknowledgement means.
        is_duplicate: nothing was stored, because the topic has a message of this unique id; the
            result says where that is, and since when.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    unique_id: str
    offset_message_id: str
    store_timestamp: int
    ack: AckMode
    is_duplicate: bool = False


class FrameResult:
    """Where the records of one frame are stored; nothing is computed before it is asked for."""

    ACK_COUNT = len(_ACKS)
    """What acknowledgements may be numbered below."""

    __slots__ = (
        "_duplicates",
        "_ends",
        "_firsts",
        "_host",
        "_records",
        "_run_ends",
        "_runs",
        "_sent",
        "_sizes",
    )

    def __init__(
        self, sent: Sent, sizes: Sequence[int], runs: Sequence[SendRun], store_host: Host | None
    ) -> None:
        """The answer to a frame.

        Raises:
            ProtocolError: the spans do not tell of every record.
        """
        first = 0
        for span_first, count, _, _ in sent.spans:
            if span_first != first or count < 1:
                break
            first += count
        self._records = records = len(sizes)
        if first != records or not 0 <= sent.ack < self.ACK_COUNT:
            raise ProtocolError(
                "SENT does not tell of every record", records=records, told=first, ack=sent.ack
            )
        self._sent = sent
        self._duplicates: dict[int, Duplicate] = {}
        for one in sent.duplicates:
            self._duplicates[one.record] = one
        self._sizes = sizes
        self._runs = runs
        self._host = store_host
        self._ends: list[int] | None = None
        self._run_ends: list[int] = []
        self._firsts: list[int] = []

    @property
    def sent(self) -> Sent:
        """The node's whole answer; its spans tell of every record of the frame."""
        return self._sent

    @property
    def store_timestamp(self) -> int:
        """The node's clock when the frame was stored, epoch ms."""
        return self._sent.store_timestamp

    @property
    def ack(self) -> AckMode:
        """What the acknowledgement means."""
        return _ACKS[self._sent.ack]

    def one(self, number: int, id_: str) -> SendResult:
        """Where record ``number`` is; ``id_`` is its unique id."""
        sent, runs = self._sent, self._runs
        spans = sent.spans
        run = runs[0] if len(runs) == 1 else self._run_of(number)
        span = spans[0] if len(spans) == 1 else self._span_of(number)
        physical_offset = span.physical_offset
        if number > span.first:
            physical_offset += self._size_before(number) - self._size_before(span.first)
        offset_id = ""
        if self._host is not None:
            offset_id = f"{offset_id_prefix(self._host)}{physical_offset:016X}"
        duplicate = self._duplicates.get(number) if self._duplicates else None
        at = run if duplicate is None else duplicate
        fields = (
            at.topic.decode(),
            at.queue_id,
            span.queue_offset + number - span.first,
            physical_offset,
            id_,
            offset_id,
            sent.store_timestamp if duplicate is None else duplicate.store_timestamp,
            _ACKS[sent.ack],
            duplicate is not None,
        )
        # For each message that is sent: half of what the names' constructor costs.
        return tuple.__new__(SendResult, fields)

    def _run_of(self, number: int) -> SendRun:
        if not self._run_ends:
            # A frame may have a run for each message: they are not gone through for each again.
            self._run_ends = list(accumulate(run.records for run in self._runs))
        return self._runs[bisect_right(self._run_ends, number)]

    def _span_of(self, number: int) -> SentSpan:
        if not self._firsts:
            self._firsts = [span.first for span in self._sent.spans]
        return self._sent.spans[bisect_right(self._firsts, number) - 1]

    def _size_before(self, number: int) -> int:
        if self._ends is None:
            self._ends = [0, *accumulate(self._sizes)]
        return self._ends[number]


class BatchResult(Sequence[SendResult]):
    """Where the messages of one batch are, in the order in which they were given."""

    __slots__ = ("_frame", "_id_of", "_records")

    def __init__(self, frame: FrameResult, records: int, id_of: Callable[[int], str]) -> None:
        self._frame = frame
        self._records = records
        self._id_of = id_of

    @property
    def store_timestamp(self) -> int:
        """The node's clock when the batch was stored, epoch ms."""
        return self._frame.store_timestamp

    @property
    def ack(self) -> AckMode:
        """What the acknowledgement means."""
        return self._frame.ack

    def __len__(self) -> int:
        return self._records

    @overload
    def __getitem__(self, number: int) -> SendResult: ...

    @overload
    def __getitem__(self, number: slice) -> list[SendResult]: ...

    def __getitem__(self, number: int | slice) -> SendResult | list[SendResult]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(self._records))]
        if number < 0:
            number += self._records
        if not 0 <= number < self._records:
            raise IndexError(number)
        return self._frame.one(number, self._id_of(number))

    def __iter__(self) -> Iterator[SendResult]:
        return map(self.__getitem__, range(self._records))

    def __repr__(self) -> str:
        return f"BatchResult(records={self._records}, ack={self.ack.value!r})"
