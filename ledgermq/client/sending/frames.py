"""Frames of a producer: messages gathered by queue, closed, and kept until they are answered."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from itertools import chain

from ledgermq.client.core.results import BatchResult, FrameResult, SendResult
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.record_encoder import EncodedRecords, Form, LoneRecord
from ledgermq.client.sending.send_future import SendFuture, Waiter
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import join_frame
from ledgermq.model.errors import LedgerError
from ledgermq.wire.byte_stream import HEAD_SIZE
from ledgermq.wire.header import VERSION_MIN
from ledgermq.wire.send_frame import (
    FIRST_ATTEMPT_VERSION,
    NOT_SENT,
    RUN_SIZE,
    SendRun,
    encode_one_table,
    encode_send,
    encode_tables,
    resent,
    with_first_position,
)

AnyFuture = SendFuture[SendResult] | SendFuture[BatchResult]
OneCallback = Callable[[SendFuture[SendResult]], object]
BatchCallback = Callable[[SendFuture[BatchResult]], object]


class Frame:
    """One SEND, with all that is needed to send it again.

    Attributes:
        sequence: order in which frames were made; resent frames keep it.
        deadline: when its messages fail.
        attempts: how often it was handed to ZeroMQ.
        may_be_stored: an attempt ended without an answer.
        first_position: no attempt is stored before it in the log; ``NOT_TOLD`` where a node has not
            told where its log ends, ``NOT_SENT`` before an attempt may be stored.
        refusal: why the last attempt was refused.
        payload: its records.
        on_settled: is told the outcome, beside the futures; for who keeps none a message.
    """

    __slots__ = (
        "_checksum",
        "_counts",
        "_tables",
        "_topics_size",
        "attempts",
        "deadline",
        "first_position",
        "form",
        "futures",
        "may_be_stored",
        "on_settled",
        "payload",
        "refusal",
        "runs",
        "sequence",
        "size",
        "sizes",
    )

    def __init__(
        self,
        form: Form,
        parts: list[Body],
        sizes: array[int],
        runs: list[SendRun],
        futures: list[AnyFuture],
        *,
        tables: bytes | None = None,
    ) -> None:
        """A frame that was not sent.

        Args:
            parts: bytes of its records, to be joined.
            tables: of ``sizes`` and ``runs``, where they are encoded already.
        """
        self.form = form
        self.runs = runs
        self.sizes = sizes
        self.futures = futures
        self.sequence = 0
        self.deadline = 0.0
        self.attempts = 0
        self.may_be_stored = False
        self.first_position = NOT_SENT
        self.refusal: LedgerError | None = None
        self.on_settled: Callable[[FrameResult | LedgerError], None] | None = None
        self.payload = b"".join(parts)
        self.size = len(self.payload)
        self._tables = encode_tables(sizes.tobytes(), runs) if tables is None else tables
        self._checksum = crc32(self.payload, crc32(self._tables, 0))
        self._counts = records, count = len(sizes), len(runs)
        self._topics_size = len(self._tables) - 4 * records - RUN_SIZE * count

    def encode(
        self, request_id: int, version: int = VERSION_MIN, *, is_resumed: bool
    ) -> list[bytes]:
        """The parts of the message; a retry if an earlier attempt may have stored something.

        Args:
            version: of the session.
            is_resumed: all that was refused before is known, and this is the first of it.
        """
        head = self._encode_head(request_id, is_resumed=is_resumed)
        if (
            self.may_be_stored
            and version >= FIRST_ATTEMPT_VERSION
            and 0 <= self.first_position < NOT_SENT
        ):
            head = with_first_position(head, self.payload, self.first_position)
        return [head, self.payload]

    def _encode_head(self, request_id: int, *, is_resumed: bool) -> bytes:
        return encode_send(
            request_id,
            tables=self._tables,
            records=self._counts[0],
            runs=self._counts[1],
            topics_size=self._topics_size,
            payload_size=self.size,
            checksum=self._checksum,
            entry_header_size=self.form.entry_header_size,
            store_host_size=self.form.store_host_size,
            is_retry=self.may_be_stored,
            is_resumed=is_resumed,
        )


class WholeFrame(Frame):
    """A frame of one queue that is encoded already, and about to be sent."""

    __slots__ = ("_whole",)

    def __init__(
        self,
        form: Form,
        run: SendRun,
        whole: bytes | bytearray,
        sizes: array[int],
        future: AnyFuture,
    ) -> None:
        """A frame of such records; ``whole`` is what its first attempt is on a stream."""
        self.form = form
        self.runs = [run]
        self.size = sum(sizes)
        self.sizes = sizes
        self.futures = [future]
        self.attempts = 1
        self.may_be_stored = False
        self.first_position = NOT_SENT
        self.refusal = None
        self.on_settled = None
        self._whole = whole

    @property
    def payload(self) -> bytes:  # type: ignore[override]
        """Its records."""
        return bytes(self._whole[-self.size :])

    def _encode_head(self, request_id: int, *, is_resumed: bool) -> bytes:
        head = bytes(self._whole[HEAD_SIZE : -self.size])
        return resent(head, request_id, is_retry=self.may_be_stored, is_resumed=is_resumed)


class _Rows:
    """Where the messages of a frame stand in it; ``order`` is known when the frame is closed.

    Results ask it, and nothing else is kept for each message: many frames have as many topics as
    messages.
    """

    __slots__ = ("order",)

    def __init__(self) -> None:
        self.order: array[int] | None = None

    def place(self, number: int, id_: str, answer: FrameResult) -> SendResult:
        """The result of the message that was added as ``number``."""
        return answer.one(number if self.order is None else self.order[number], id_)


class OpenFrame:
    """Messages that wait for others to share a frame with.

    Attributes:
        size: bytes so far.
        records: messages so far.
        queues: queue chosen for this frame, by topic.
        rows: knows where its messages stand, once it is closed.
    """

    def __init__(self, form: Form, *, opened_at: float) -> None:
        self.form = form
        self.opened_at = opened_at
        self.size = 0
        self.records = 0
        self.queues: dict[bytes, int] = {}
        self.rows = _Rows()
        self._runs: dict[tuple[bytes, int], int] = {}
        self._run_of = array("I")
        self._parts: list[list[Body]] = []
        self._sizes = array("I")
        self._futures: list[AnyFuture] = []

    def add(
        self,
        topic: bytes,
        queue_id: int,
        record: LoneRecord,
        waiting: Waiter,
        callback: OneCallback | None,
    ) -> SendFuture[SendResult]:
        """Add one message; the future of its result."""
        parts, size, id_ = record
        future = SendFuture(waiting, partial(self.rows.place, self.records, id_), id_, callback)
        join_frame(self, (topic, queue_id), parts, size, future)
        return future

    def close(self) -> Frame:
        """The frame; nothing may be added afterwards."""
        counts = [0] * len(self._runs)
        for run in self._run_of:
            counts[run] += 1
        parts, sizes, futures = self._parts, self._sizes, self._futures
        if 1 < len(counts) < self.records:
            # Consecutive records of one queue are one run: in the order in which queues came.
            rows = sorted(range(self.records), key=self._run_of.__getitem__)
            parts = [parts[row] for row in rows]
            sizes = array("I", [sizes[row] for row in rows])
            futures = [futures[row] for row in rows]
            order = array("I", rows)
            for place, row in enumerate(rows):
                order[row] = place
            self.rows.order = order
        runs = [
            SendRun(count, queue_id, topic)
            for count, (topic, queue_id) in zip(counts, self._runs, strict=True)
        ]
        return Frame(self.form, list(chain.from_iterable(parts)), sizes, runs, futures)


def lone_frame(
    form: Form,
    run: SendRun,
    record: LoneRecord,
    waiting: Waiter,
    callback: OneCallback | None,
) -> tuple[Frame, SendFuture[SendResult]]:
    """A frame of one message, which waits for no others, and the future of its result."""
    parts, size, id_ = record
    future = SendFuture(waiting, partial(FrameResult.one, number=0, id_=id_), id_, callback)
    tables = encode_one_table(size, run)
    return Frame(form, parts, array("I", (size,)), [run], [future], tables=tables), future


def batch_of(records: int, id_of: Callable[[int], str]) -> Callable[[FrameResult], BatchResult]:
    """What makes the result of a batch of the answer to its frame."""
    return lambda answer: BatchResult(answer, records, id_of)


def batch_frame(
    form: Form,
    run: SendRun,
    records: EncodedRecords,
    waiting: Waiter,
    callback: BatchCallback | None,
) -> tuple[Frame, SendFuture[BatchResult]]:
    """A frame of one batch, and the future of its result."""

    future = SendFuture(waiting, batch_of(run.records, records.id_of), records.id_of(0), callback)
    return Frame(form, records.parts, records.sizes, [run], [future]), future
