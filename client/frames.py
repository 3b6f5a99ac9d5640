"""Frames of a producer: messages gathered by queue, closed, and kept until they are answered."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial

from ledgermq.client.outgoing import Body
from ledgermq.client.record_encoder import Form, Records
from ledgermq.client.results import BatchResult, FrameResult, SendResult
from ledgermq.client.send_future import SendFuture, Waiting
from ledgermq.formats.crc32 import crc32
from ledgermq.model.errors import LedgerError
from ledgermq.wire.send_frame import SendRun, encode_send, encode_tables

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
        refusal: why the last attempt was refused.
    """

    __slots__ = (
        "_checksum",
        "_payload",
        "_tables",
        "attempts",
        "deadline",
        "form",
        "futures",
        "may_be_stored",
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
    ) -> None:
        self.form = form
        self.runs = runs
        self.sizes = sizes
        self.futures = futures
        self.sequence = 0
        self.deadline = 0.0
        self.attempts = 0
        self.may_be_stored = False
        self.refusal: LedgerError | None = None
        self._payload = b"".join(parts)
        self.size = len(self._payload)
        self._tables = encode_tables(sizes.tobytes(), runs)
        self._checksum = crc32(self._payload, crc32(self._tables, 0))

    def encode(self, request_id: int, *, is_resumed: bool) -> list[bytes]:
        """The parts of the message; a retry if an earlier attempt may have stored something.

        Args:
            is_resumed: all that was refused before is known, and this is the first of it.
        """
        head = encode_send(
            request_id,
            tables=self._tables,
            records=len(self.sizes),
            runs=len(self.runs),
            topics_size=sum(len(run.topic) for run in self.runs),
            payload_size=self.size,
            checksum=self._checksum,
            entry_header_size=self.form.entry_header_size,
            store_host_size=self.form.store_host_size,
            is_retry=self.may_be_stored,
            is_resumed=is_resumed,
        )
        return [head, self._payload]


class _Run:
    """Messages of one queue; ``first`` is known when the frame is closed."""

    __slots__ = ("first", "futures", "parts", "sizes")

    def __init__(self) -> None:
        self.first = 0
        self.parts: list[Body] = []
        self.sizes = array("I")
        self.futures: list[AnyFuture] = []

    def place(self, row: int, id_: str, answer: FrameResult) -> SendResult:
        return answer.one(self.first + row, id_)


class OpenFrame:
    """Messages that wait for others to share a frame with.

    Attributes:
        size: bytes so far.
        records: messages so far.
        queues: queue chosen for this frame, by topic.
    """

    def __init__(self, form: Form, *, opened_at: float) -> None:
        self.form = form
        self.opened_at = opened_at
        self.size = 0
        self.records = 0
        self.queues: dict[bytes, int] = {}
        self._runs: dict[tuple[bytes, int], _Run] = {}

    def add(
        self,
        topic: bytes,
        queue_id: int,
        records: Records,
        waiting: Waiting,
        callback: OneCallback | None,
    ) -> SendFuture[SendResult]:
        """Add one message; the future of its result."""
        key = (topic, queue_id)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run()
        id_ = records.id_of(0)
        make = partial(run.place, len(run.sizes), id_)
        future = SendFuture(waiting, make, id_, callback)
        run.parts.extend(records.parts)
        run.sizes.extend(records.sizes)
        run.futures.append(future)
        self.size += records.size
        self.records += 1
        return future

    def close(self) -> Frame:
        """The frame; nothing may be added afterwards."""
        parts: list[Body] = []
        sizes = array("I")
        runs: list[SendRun] = []
        futures: list[AnyFuture] = []
        for (topic, queue_id), run in self._runs.items():
            run.first = len(sizes)
            parts += run.parts
            sizes += run.sizes
            futures += run.futures
            runs.append(SendRun(len(run.sizes), queue_id, topic))
            run.parts = []
        return Frame(self.form, parts, sizes, runs, futures)


def batch_frame(
    form: Form,
    run: SendRun,
    records: Records,
    waiting: Waiting,
    callback: BatchCallback | None,
) -> tuple[Frame, SendFuture[BatchResult]]:
    """A frame of one batch, and the future of its result."""

    def make(answer: FrameResult) -> BatchResult:
        return BatchResult(answer, run.records, records.id_of)

    future = SendFuture(waiting, make, records.id_of(0), callback)
    return Frame(form, records.parts, records.sizes, [run], [future]), future
