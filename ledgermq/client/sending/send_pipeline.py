"""Send pipeline of a producer: window, answers, refusals, lost connections, timeouts.

Never blocks, has no thread and no clock: ``Producer`` and ``AsyncProducer`` drive it, one caller at
a time. Frames leave in the order in which they were made. After a refusal nothing is sent until
everything under way is answered; then the refused frames go first, in their order. After a lost
connection, or when another node leads, all unanswered frames go again in their order, marked as
retries, with the same bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ledgermq.client.core.connection import Part
from ledgermq.client.core.link import NEVER, Link
from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.results import FrameResult, SendResult
from ledgermq.client.core.wrong_calls import TIMEOUT_S_BOUNDS, check_numbers, told_by_name
from ledgermq.client.sending.frames import AnyFuture, Frame, OneCallback, OpenFrame
from ledgermq.client.sending.outgoing import Compressor
from ledgermq.client.sending.record_encoder import Form, LoneRecord
from ledgermq.client.sending.send_future import SendFuture, Waiter
from ledgermq.formats.records.host_address import Host, parse_host
from ledgermq.model.errors import (
    BusyError,
    ClosedError,
    LedgerError,
    OutcomeUnknownError,
    ProtocolError,
    StaleGenerationError,
    TimedOutError,
)
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.send_frame import NOT_SENT, SENT_HEAD, SENT_HEAD_SIZE, Sent, decode_sent
from ledgermq.wire.session import Refusal, Welcome, decode_refused

BACKOFF_MS_MAX = 250


@told_by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer sends.

    Attributes:
        linger_ms: how long a message may wait for others to share its frame with; with 0 it waits
            only while earlier ones are under way.
        batch_bytes: a frame of gathered messages is closed at this size.
        window_bytes: most bytes of messages without an outcome; ``send`` waits behind it.
        max_in_flight: most unanswered frames; the order is kept also when one is refused.
        timeout_s: after this time a message without an answer fails.
        retries: how often a frame is sent again.
        compress_above: bodies of so many bytes or more are compressed, where that makes them
            smaller; none when ``None``. RocketMQ's size.
        compression: ``zlib``, which all of RocketMQ's clients read; ``lz4`` or ``zstd``, which
            those of RocketMQ 5 read, and which need the packages ``lz4`` and ``zstandard``.
        compression_level: of the kind; RocketMQ's when ``None``.
        waits_for_quota: what a quota refuses is sent again when the node says; else it fails at
            once, and what was sent behind it goes on.
    """

    linger_ms: float = 0.0
    batch_bytes: int = 256 * 1024
    window_bytes: int = 32 * 1024 * 1024
    max_in_flight: int = 32
    timeout_s: float = 15.0
    retries: int = 64
    compress_above: int | None = 4_096
    compression: str = "zlib"
    compression_level: int | None = None
    waits_for_quota: bool = True

    def __post_init__(self) -> None:
        self.compressor()
        limits: dict[str, tuple[float, float]] = {
            "linger_ms": (0, 60_000),
            "batch_bytes": (1, 8 * 1024 * 1024),
            "window_bytes": (1, 2**40),
            "max_in_flight": (1, 1_024),
            "timeout_s": TIMEOUT_S_BOUNDS,
            "retries": (0, 1_000_000),
        }
        check_numbers(self, limits)

    def compressor(self) -> Compressor:
        """What compresses as these options say.

        Raises:
            ConfigError: no such kind or level, or a package is missing.
        """
        return Compressor.of(self.compress_above, self.compression, self.compression_level)


class SendPipeline:
    """Frames on their way; see the module.

    Invariants: a frame is in exactly one of ``_ready``, ``_in_flight`` and ``_refused``, the first
    two in ascending order of ``sequence``; ``unanswered_bytes`` is the sum of them and of the open
    frame; ``len(_in_flight) <= _allowed`` when a frame is sent.
    """

    BACKOFF_MS_MIN = 2

    def __init__(self, link: AnyLink, options: ProducerOptions) -> None:
        self.link = link
        self.options = options
        self.unanswered_bytes = 0
        self.callbacks: list[AnyFuture] = []
        self.refused_count = 0
        self._form_of: Welcome | None = None
        self._form: Form | None = None
        self._host: Host | None = None
        self._open: OpenFrame | None = None
        self._open_is_due = False
        self._ready: deque[Frame] = deque()
        self._in_flight: dict[int, Frame] = {}
        self._in_flight_bytes = 0
        self._refused: list[Frame] = []
        self._allowed = options.max_in_flight
        self._hold_until = 0.0
        self._backoff_ms = self.BACKOFF_MS_MIN
        self._told_to_wait_ms = 0
        self._has_to_resume = False
        self._next_sequence = 0
        self.expire_at = NEVER

    @property
    def form(self) -> Form | None:
        """How to encode messages; ``None`` before the node has told."""
        welcome = self.link.last_welcome
        if welcome is not self._form_of:
            self._form_of = welcome
            self._form = None
            self._host = None
            if welcome is not None:
                self._form = Form(
                    welcome.entry_header_size, welcome.store_host_size, welcome.body_size_max
                )
                self._host = parse_host(welcome.store_host)
        return self._form

    @property
    def frames_made(self) -> int:
        """Frames so far, the open one not counted."""
        return self._next_sequence

    @property
    def in_flight(self) -> int:
        """Frames that are sent and not answered."""
        return len(self._in_flight)

    @property
    def only_gathers(self) -> bool:
        """Whether the open frame can but wait for an answer under way, and the next message too."""
        return bool(
            self._in_flight
            and not self._ready
            and not self._open_is_due
            and not self.options.linger_ms
        )

    @property
    def deadline(self) -> float:
        """When ``advance`` has work that no descriptor tells of."""
        link = self.link
        when = NEVER
        if self.unanswered_bytes:
            when = min(link.deadline, self.expire_at)
        elif link.welcome is None:
            when = link.deadline
        if self._open is not None:
            wait_s = self.options.timeout_s
            if self.options.linger_ms and not self._open_is_due:
                wait_s = min(wait_s, self.options.linger_ms / 1_000)
            when = min(when, self._open.opened_at + wait_s)
        if self._hold_until and self._ready and not self._in_flight:
            when = min(when, self._hold_until)
        return when

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes may come in; one message always may when nothing waits."""
        waiting = self.unanswered_bytes
        return waiting == 0 or waiting + size <= self.options.window_bytes

    def no_room(self) -> LedgerError:
        """Why a message found no room in time."""
        if self.form is None:
            return self._not_sent()
        return BusyError(
            "messages without an outcome fill the producer's window",
            bytes=self.unanswered_bytes,
            limit=self.options.window_bytes,
            setting="window_bytes",
        )

    def frame_queues(self, form: Form, size: int) -> dict[bytes, int]:
        """The queue of each topic for messages that may go to any, in the frame of the next one.

        Args:
            size: of the next message, nearly; an open frame that it does not fit into is closed.
        """
        frame = self._open
        if frame is None:
            return {}
        welcome = self.link.last_welcome
        assert welcome is not None
        if (
            frame.form != form
            or frame.size + size > max(size, self.options.batch_bytes)
            or frame.records >= welcome.frame_records_max
        ):
            self._close_open()
            return {}
        return frame.queues

    def add(
        self,
        form: Form,
        topic: bytes,
        queue_id: int,
        record: LoneRecord,
        *,
        is_any_queue: bool,
        now: float,
        waiting: Waiter,
        callback: OneCallback | None,
    ) -> SendFuture[SendResult]:
        """Take one message into the open frame, or into a new one; the future of its result.

        Args:
            record: the message, encoded: what cannot be encoded opens no frame.
            is_any_queue: others of the topic that may go to any queue go to this one, too.
        """
        frame = self._open
        if frame is None:
            frame = self._open = OpenFrame(form, opened_at=now)
            self._open_is_due = False
            self.expire_at = min(self.expire_at, now + self.options.timeout_s)
        if is_any_queue:
            frame.queues[topic] = queue_id
        future = frame.add(topic, queue_id, record, waiting, callback)
        self.unanswered_bytes += record[1]
        if frame.size >= self.options.batch_bytes:
            self._open_is_due = True
        return future

    def put(self, frame: Frame, now: float) -> None:
        """Take a whole frame, behind all that came before."""
        if self._open is not None:
            self._close_open()
        self.unanswered_bytes += frame.size
        self._enqueue(frame, now)

    def keep_unsent(self, frame: Frame) -> None:
        """Have a frame of one message in line: the connection had ended when it was sent."""
        frame.attempts = 0
        frame.first_position = NOT_SENT
        self._ready.append(frame)

    def flush(self) -> None:
        """Do not let messages wait for others any more; ``advance`` sends them."""
        if self._open is not None:
            self._open_is_due = True

    def advance(self, now: float) -> int:
        """Take answers, look after the connection and the time, send what may go.

        Returns:
            how many messages of the node were taken.
        """
        taken = self._take_answers(now)
        link = self.link
        if link.advance(now):
            self._restart()
        if link.welcome is None and link.failure is not None:
            self._fail_all(link.failure)
        if now >= self.expire_at:
            self._expire(now)
        while (
            (self._ready or self._open is not None or self._refused)
            and link.welcome is not None
            and self._send_waiting(now)
            and not link.stays_readable
        ):
            # Sending may have swallowed the descriptor's edge; an answer may let more be sent.
            more = self._take_answers(now)
            if not more:
                break
            taken += more
        return taken

    def abandon(self) -> None:
        """Fail everything that has no outcome; the producer is being closed."""
        self.give_up(ClosedError("producer was closed before the message was sent"))

    def give_up(self, error: LedgerError) -> None:
        """Fail everything that has no outcome; what may be stored, as an unknown outcome."""
        self._close_open()
        self._fail_all(error)

    def _take_answers(self, now: float) -> int:
        taken = 0
        try:
            link = self.link
            while (parts := link.receive()) is not None:
                taken += 1
                self._take(parts, now)
                # Nothing more is awaited; what comes unasked is taken before the next send.
                if link.stays_readable and not self._in_flight:
                    break
        except ProtocolError:
            # A node that does not speak the protocol: what it was asked has no answer.
            self._lose(now)
        return taken

    def _take(self, parts: list[Part], now: float) -> None:
        if parts[0][:SENT_HEAD_SIZE] == SENT_HEAD:
            self._take_sent(decode_sent(parts[0]))
            return
        header = decode_header(parts[0])
        if header.kind is Kind.ROLE and isinstance(self.link, Link):
            self.link.take_role(parts)
            return
        frame = self._in_flight.get(header.request_id)
        if frame is None:
            # Its time was over before the answer came.
            return
        if header.kind is Kind.SENT:
            self._take_sent(decode_sent(parts[0]))
        elif header.kind is Kind.REFUSED and len(parts) == 2:
            refusal = decode_refused(parts[1])
            self._remove(header.request_id)
            self._take_refusal(frame, refusal, now)
        else:
            raise ProtocolError("not an answer to a SEND", kind=header.kind.name)

    def _take_sent(self, sent: Sent) -> None:
        frame = self._in_flight.get(sent.request_id)
        if frame is None:
            return
        answer = FrameResult(sent, frame.sizes, frame.runs, self._host)
        del self._in_flight[sent.request_id]
        self._in_flight_bytes -= frame.size
        if sent.spans:
            self.link.position = max(self.link.position, sent.spans[-1][2])
        self._backoff_ms = self.BACKOFF_MS_MIN
        if self._allowed < self.options.max_in_flight:
            self._allowed += 1
        self._settle(frame, answer)

    def _take_refusal(self, frame: Frame, refusal: Refusal, now: float) -> None:
        self.refused_count += 1
        frame.refusal = refusal.to_error()
        if refusal.stored != "no":
            frame.may_be_stored = True
        elif not frame.may_be_stored:
            frame.first_position = NOT_SENT
        if refusal.number == StaleGenerationError.number:
            self._refused.append(frame)
            self._lose(now)
        elif refusal.retriable:
            # The node refuses all that was sent behind it, until it is told that we know.
            self._has_to_resume = True
            if refusal.retry_after_ms and not self.options.waits_for_quota:
                self._fail(frame, frame.refusal)
                return
            self._refused.append(frame)
            # One at a time until one is taken: more would be refused as out of turn, all of them.
            self._allowed = 1
            if refusal.retry_after_ms:
                # A frame that comes when it is told to is bounded by its time, not by attempts.
                frame.attempts -= 1
                self._told_to_wait_ms = max(self._told_to_wait_ms, refusal.retry_after_ms)
        else:
            self._fail(frame, frame.refusal)

    def _lose(self, now: float) -> None:
        self.link.lose(now)
        self._restart()

    def _restart(self) -> None:
        """After a session ended: everything unanswered goes again."""
        for frame in self._in_flight.values():
            frame.may_be_stored = True
        unanswered = sorted(
            [*self._in_flight.values(), *self._refused], key=lambda frame: frame.sequence
        )
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._refused.clear()
        self._ready.extendleft(reversed(unanswered))
        # What made the node refuse is over with its session.
        self._hold_until = 0.0
        self._told_to_wait_ms = 0
        self._backoff_ms = self.BACKOFF_MS_MIN

    def _send_waiting(self, now: float) -> bool:
        """Send what may go; true when something went."""
        if self._refused:
            if self._in_flight:
                return False
            self._refused.sort(key=lambda frame: frame.sequence)
            self._ready.extendleft(reversed(self._refused))
            self._refused.clear()
            self._hold_until = now + max(self._backoff_ms, self._told_to_wait_ms) / 1_000
            self._told_to_wait_ms = 0
            self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)
        if now < self._hold_until:
            return False
        self._hold_until = 0.0
        has_sent = False
        assert self.link.welcome is not None
        version = self.link.welcome.version
        while len(self._in_flight) < self._allowed:
            if not self._ready:
                if self._open is None or not self._is_open_due(now):
                    break
                self._close_open()
            frame = self._ready[0]
            if self._in_flight and self._in_flight_bytes + frame.size > self._window():
                break
            if not self._is_sendable(frame):
                continue
            request_id = self.link.next_id()
            parts = frame.encode(request_id, version, is_resumed=self._has_to_resume)
            if not self.link.send(parts):
                break
            frame.first_position = min(frame.first_position, self.link.position)
            self._has_to_resume = False
            self._ready.popleft()
            frame.attempts += 1
            self._in_flight[request_id] = frame
            self._in_flight_bytes += frame.size
            has_sent = True
        return has_sent

    def _is_sendable(self, frame: Frame) -> bool:
        """Whether the first frame in line may go; one that may not is failed here."""
        welcome = self.link.welcome
        assert welcome is not None
        error: LedgerError
        if frame.attempts > self.options.retries:
            error = frame.refusal or OutcomeUnknownError(
                "no answer after all retries", retries=self.options.retries
            )
        elif (frame.form.entry_header_size, frame.form.store_host_size) != (
            welcome.entry_header_size,
            welcome.store_host_size,
        ):
            error = StaleGenerationError("node keeps another form of log now: send again")
        else:
            return True
        self._ready.popleft()
        self._fail(frame, error)
        return False

    def _is_open_due(self, now: float) -> bool:
        frame = self._open
        if frame is None:
            return False
        if self._open_is_due:
            return True
        linger_ms = self.options.linger_ms
        if linger_ms == 0:
            # As Nagle has it: a small frame waits for the answers under way, and grows meanwhile.
            return not self._in_flight
        return now >= frame.opened_at + linger_ms / 1_000

    def _close_open(self) -> None:
        frame, self._open = self._open, None
        if frame is not None:
            assert frame.records > 0
            self._enqueue(frame.close(), frame.opened_at)

    def _enqueue(self, frame: Frame, now: float) -> None:
        frame.sequence = self._next_sequence
        self._next_sequence += 1
        frame.deadline = now + self.options.timeout_s
        self.expire_at = min(self.expire_at, frame.deadline)
        self._ready.append(frame)

    def _window(self) -> int:
        assert self.link.welcome is not None
        return min(self.options.window_bytes, self.link.welcome.window_bytes)

    def _remove(self, request_id: int) -> None:
        frame = self._in_flight.pop(request_id)
        self._in_flight_bytes -= frame.size

    def _expire(self, now: float) -> None:
        for request_id, frame in list(self._in_flight.items()):
            # They ascend by sequence, and by that in their deadlines.
            if frame.deadline > now:
                break
            self._remove(request_id)
            frame.may_be_stored = True
            self._fail(frame, self._timed_out())
        if self._open is not None and self._open.opened_at + self.options.timeout_s <= now:
            self._close_open()
        while self._ready and self._ready[0].deadline <= now:
            self._fail_unsent(self._ready.popleft())
        for frame in [frame for frame in self._refused if frame.deadline <= now]:
            self._refused.remove(frame)
            self._fail_unsent(frame)

        deadlines = [frame.deadline for frame in self._in_flight.values()]
        deadlines += [frame.deadline for frame in (*self._ready, *self._refused)]
        if self._open is not None:
            deadlines.append(self._open.opened_at + self.options.timeout_s)
        self.expire_at = min(deadlines, default=NEVER)

    def _fail_unsent(self, frame: Frame) -> None:
        if frame.may_be_stored:
            self._fail(frame, self._timed_out())
        elif frame.refusal is not None:
            self._fail(frame, frame.refusal)
        elif self.link.welcome is None:
            self._fail(frame, self._not_sent())
        else:
            self._fail(
                frame,
                BusyError(
                    "not sent in time, behind messages that are not answered; it is not stored",
                    timeout_s=self.options.timeout_s,
                ),
            )

    def _not_sent(self) -> LedgerError:
        error = self.link.unreachable()
        # Others may have the same failure.
        error.details = error.details | {"stored": "nothing"}
        return error

    def _timed_out(self) -> TimedOutError:
        error = TimedOutError("no answer in time", timeout_s=self.options.timeout_s)
        if self.link.welcome is None:
            error.details["then"] = str(self.link.unreachable())
        return error

    def _fail_all(self, error: LedgerError) -> None:
        # What was sent may be stored: that is noted there, and decides what a frame fails with.
        self._restart()
        while self._ready:
            self._fail(self._ready.popleft(), error)

    def _fail(self, frame: Frame, error: LedgerError) -> None:
        if frame.may_be_stored and not isinstance(error, OutcomeUnknownError):
            error = OutcomeUnknownError("an earlier attempt may be stored", then=str(error))
        self._settle(frame, error)

    def _settle(self, frame: Frame, outcome: FrameResult | LedgerError) -> None:
        self.unanswered_bytes -= frame.size
        if frame.on_settled is not None:
            frame.on_settled(outcome)
        for future in frame.futures:
            future.settle(outcome)
            if future.callback is not None:
                self.callbacks.append(future)
