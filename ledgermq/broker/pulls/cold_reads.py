"""Cold reads: pulls of messages that the log has no more, asked of the process that has pieces.

Nothing here waits: a question leaves by a socket, and its answer comes by one. A question without
an answer is refused after a while; the client asks again, and finds what was read meanwhile.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol

import zmq

from ledgermq.broker.callers import Client
from ledgermq.broker.pulls.asked_once import AskedOnce, MakeQuestion
from ledgermq.broker.pulls.pull_answers import Held
from ledgermq.formats.records.message import QUEUE_OFFSET_AT
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.zmq_flags import NOBLOCK
from ledgermq.model.config.settings import ColdSection
from ledgermq.model.errors import BusyError, ColdAwayError, LedgerError, ProtocolError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.process.node import Surroundings
from ledgermq.wire.cold_frames import (
    RECORDS_SIZE_MAX,
    RETRY_AFTER_MS,
    SEARCH_WAIT_MS,
    ColdBegins,
    ColdGreeting,
    ColdHits,
    ColdMessage,
    ColdNothing,
    ColdOffset,
    ColdQuestion,
    ColdRecords,
    ColdRefusal,
    ColdSearch,
    ColdSince,
    decode_answer,
    encode_greeting,
    encode_question,
)

logger = logging.getLogger(__name__)

_QUEUE_OFFSET = Struct(">q")

BEHIND_ALL = 2**62
"""A queue offset behind all others: where a queue goes on of which no piece has more."""

LIFE_LOOK_MS = 200
"""While questions wait, it is looked so often whether the process that has them lives."""

ASKED_AFTER_MS = 50
"""Where a queue begins is known a request to the place later, as a rule."""

TIMES_MAX = 10_000
"""Times whose offsets are remembered."""

STRETCHES_MAX = 64
"""Stretches of queues that are kept for who hands out their messages, each of 1 MiB at most, or one
message."""

SEARCHES_MAX = 16
"""Searches whose answers are kept, each of 1 MiB at most, or one message."""

STRETCH_MESSAGES_MAX = 4_096

ANSWERS_PER_TURN_MAX = 16
"""Answers that are handed on in one turn, each of up to 1 MiB."""


class ColdPull(NamedTuple):
    """A pull that waits for the cold process.

    Attributes:
        asked_ms: when it began to wait.
    """

    client: Client
    queue: QueueName
    held: Held
    question: ColdQuestion
    asked_ms: int


class ColdAnswer(NamedTuple):
    """What has come of a pull."""

    pull: ColdPull
    found: ColdRecords | ColdNothing | LedgerError


class _Time(NamedTuple):
    queue: QueueName
    time_ms: int
    first: int


class ColdStretch(NamedTuple):
    """Messages of a queue out of pieces, from the queue offset ``first`` on; without any: nothing
    up to ``end`` is in a piece.
    """

    first: int
    end: int
    records: list[memoryview]


class _Place(NamedTuple):
    queue: QueueName
    offset: int

    def question(self, floor: int) -> MakeQuestion:
        """Asks for what is there."""
        return lambda number: ColdQuestion(
            number=number,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            offset=self.offset,
            floor=floor,
            messages_max=STRETCH_MESSAGES_MAX,
            bytes_max=RECORDS_SIZE_MAX,
        )


def _stretch(first: int, offset: int, found: ColdMessage) -> ColdStretch:
    """What an answer gives of a queue from ``offset`` on, as far as messages follow one another.

    Args:
        first: offset that was asked for.
    """
    if isinstance(found, ColdNothing):
        return ColdStretch(first, BEHIND_ALL if found.next_offset < 0 else found.next_offset, [])
    assert isinstance(found, ColdRecords), found
    starts, sizes = memoryview(found.starts).cast("I"), memoryview(found.sizes).cast("I")
    payload = memoryview(found.payload)
    places = zip(starts.tolist(), sizes.tolist(), strict=True)
    records = [payload[start : start + size] for start, size in places]
    if _offset_of(records[-1]) == first + len(records) - 1:
        return ColdStretch(first, found.next_offset, records)
    # Some were dropped out of the pieces.
    offsets = list(map(_offset_of, records))
    at = bisect_left(offsets, offset)
    if at == len(offsets) or offsets[at] > offset:
        return ColdStretch(offset, offsets[at] if at < len(offsets) else found.next_offset, [])
    end = at + 1
    while end < len(offsets) and offsets[end] == offsets[end - 1] + 1:
        end += 1
    return ColdStretch(offset, offsets[end - 1] + 1, records[at:end])


def _offset_of(record: memoryview) -> int:
    offset: int = _QUEUE_OFFSET.unpack_from(record, QUEUE_OFFSET_AT)[0]
    return offset


class ColdLine(Protocol):
    """The way to the cold process; ``ColdSocket`` is the real one.

    Attributes:
        source: can be read when ``receive`` has something.
    """

    @property
    def source(self) -> Pollable:
        """A socket of ZeroMQ's, or a descriptor."""
        ...

    def send(self, parts: list[bytes]) -> bool:
        """Send a message; false where too many wait for the process."""
        ...

    def receive(self) -> list[bytes] | None:
        """The next answer; None: there is none now."""
        ...

    def generation(self) -> int:
        """Which life of the process is running."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class ColdSocket:
    """The real ``ColdLine``, owned by the broker process or by a port process."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], path: Path, page: CursorPage, *, waiting: int
    ) -> None:
        """Connect, now or as soon as there is something to connect to."""
        self._page = page
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 2 * waiting)
        self.socket.setsockopt(zmq.RCVHWM, waiting)
        self.socket.connect(f"ipc://{path}")

    @property
    def source(self) -> Pollable:
        return self.socket

    def close(self) -> None:
        self.socket.close(0)

    def send(self, parts: list[bytes]) -> bool:
        try:
            self.socket.send_multipart(parts, NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[bytes] | None:
        try:
            return self.socket.recv_multipart(NOBLOCK)
        except zmq.Again:
            return None

    def generation(self) -> int:
        return self._page.read_process(Role.COLD).generation


class ColdReads:
    """Pulls of one process that wait for the cold one; see the module.

    Attributes:
        line: the way to it, which wakes the process that pulls.
        is_behind: ``take`` has more to give at once.

    Invariant: a pull is answered once by ``take``, or cancelled; ``_of_client`` counts those of
    ``_waiting``.
    """

    def __init__(self, line: ColdLine, settings: ColdSection, clock: Clock) -> None:
        """Nothing is asked yet."""
        self.line = line
        self._settings = settings
        self._clock = clock
        self._number = 0
        self._waiting: dict[int, ColdPull] = {}
        self._of_client: Counter[Client] = Counter()
        self._begins: Mapping[QueueName, int] | None = None
        # Where the log began when it was asked last where queues begin.
        self._log_first = -1
        self._serial = self._told_serial = 0
        self._times: AskedOnce[_Time] = AskedOnce(
            self._send,
            self._not_yet,
            self._now_ms,
            most=TIMES_MAX,
            reason="it has not told yet what is of that time",
        )
        self._stretches: AskedOnce[_Place] = AskedOnce(
            self._send,
            self._not_yet,
            self._now_ms,
            most=STRETCHES_MAX,
            reason="it has not given yet what is to be handed out",
        )
        self._searches: AskedOnce[ColdSearch] = AskedOnce(
            self._send,
            self._not_yet,
            self._now_ms,
            most=SEARCHES_MAX,
            reason="it has not told yet what it has found in pieces",
        )
        self._answers = self._times, self._stretches, self._searches
        self._greeted_ms = 0
        self._generation = -1
        self._look_due_ms = 0
        # When the process was heard of last, or was first missed: epoch ms.
        self._silent_since_ms = epoch_ms(clock)
        self.is_behind = False

    @classmethod
    def of(cls, environment: Surroundings) -> ColdReads | None:
        """Those of a process of this node; None where the settings want none."""
        settings = environment.settings.cold
        if settings.place is None:
            return None
        line = ColdSocket(
            environment.context,
            environment.paths.cold,
            environment.page,
            waiting=settings.pulls_max,
        )
        return cls(line, settings, environment.clock)

    def take_settings(self, settings: ColdSection) -> None:
        """The settings were read again."""
        self._settings = settings

    def begin_of(self, queue: QueueName, first: int, log_first: int) -> int:
        """Where a queue begins whose first message in the log is ``first``.

        Pieces may have got messages of the queue since it was told where queues begin, and the log
        have lost them: only who has read the manifest since can say that there are none.

        Args:
            log_first: where the log begins.

        Raises:
            ColdAwayError: that is not known yet; it is asked for.
        """
        begin = self.known_begin_of(queue, first)
        if begin < first:
            return begin
        self.note_deleted(log_first)
        if self._told_serial == self._serial:
            return begin
        if self._now_ms() - self._greeted_ms >= RETRY_AFTER_MS:
            self._greet()
        raise self._away("it has not told yet where this queue begins", after_ms=ASKED_AFTER_MS)

    def note_deleted(self, log_first: int) -> None:
        """The log begins at this position: if that is news, it is asked where queues begin now."""
        if log_first != self._log_first:
            self._log_first = log_first
            self._greet()

    def known_begin_of(self, queue: QueueName, first: int) -> int:
        """The same as ``begin_of``, as far as it is known: for figures."""
        return first if self._begins is None else min(first, self._begins.get(queue, first))

    def first_since(self, queue: QueueName, time_ms: int, first: int) -> int | None:
        """Queue offset of the first message that was stored at a time or later, epoch ms, of those
        that pieces have before the log's ``first``; None: all of them are older.

        Raises:
            ColdAwayError: that is not known yet; it is asked for, and told to who asks again.
            LedgerError: the cold process could not tell.
        """
        found = self._times.get(
            _Time(queue, time_ms, first),
            lambda number: ColdSince(number, *queue, time_ms),
            self._settings.wait_ms,
        )
        assert isinstance(found, ColdOffset), found
        return found.offset if 0 <= found.offset < first else None

    def stretch(self, queue: QueueName, offset: int, *, floor: int, log_first: int) -> ColdStretch:
        """The messages that pieces have of a queue from an offset on, some at once, for who reads
        them for others; what comes behind them is asked for, too, up to where the log has it.

        Args:
            floor: what is before does not belong to the topic of today.
            log_first: first offset of the queue that the log has.

        Raises:
            ColdAwayError: they are not here yet; they are asked for, and given to who asks again.
            LedgerError: the cold process could not tell.
        """
        for place, answer in self._stretches.answers():
            if place.queue == queue and place.offset <= offset:
                found = _stretch(place.offset, offset, answer)
                if offset < found.end:
                    self._stretches.touch(place)
                    break
        else:
            place = _Place(queue, offset)
            answer = self._stretches.get(place, place.question(floor), self._settings.wait_ms)
            found = _stretch(offset, offset, answer)
        if isinstance(answer, ColdRecords) and answer.next_offset < log_first:
            ahead = _Place(queue, answer.next_offset)
            self._stretches.want(ahead, ahead.question(floor), self._settings.wait_ms)
        return found

    def search(self, asked: ColdSearch) -> ColdHits:
        """What a search in pieces finds; ``asked`` has no number yet. It is given once.

        Raises:
            ColdAwayError: it is not known yet; it is asked for, and told to who asks again.
            LedgerError: the cold process could not tell.
        """
        found = self._searches.get(
            asked, lambda number: asked._replace(number=number), SEARCH_WAIT_MS
        )
        assert isinstance(found, ColdHits), found
        self._searches.pop(asked)
        return found

    def ask(self, client: Client, queue: QueueName, held: Held, *, floor: int, now_ms: int) -> None:
        """Have ``take`` give the answer to a pull.

        Args:
            floor: what is before does not belong to the topic of today.

        Raises:
            BusyError: too many wait, of this client or of all; names limit and setting.
        """
        settings = self._settings
        mine = self._of_client[client]
        for waiting, limit, setting in (
            (mine, settings.pulls_per_client, "cold.pulls_per_client"),
            (len(self._waiting), settings.pulls_max, "cold.pulls_max"),
        ):
            if waiting >= limit:
                raise BusyError(
                    "too many pulls wait for old messages",
                    waiting=waiting,
                    limit=limit,
                    setting=setting,
                )
        self._number += 1
        pull = held.pull
        question = ColdQuestion(
            number=self._number,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=held.scanned_to,
            floor=floor,
            messages_max=pull.messages_max,
            bytes_max=pull.bytes_max,
            tag_hashes=pull.tag_hashes,
            expression=pull.expression,
        )
        if not self._waiting:
            self._silent_since_ms = epoch_ms(self._clock)
            self._look_due_ms = now_ms + LIFE_LOOK_MS
        self._waiting[question.number] = ColdPull(client, queue, held, question, now_ms)
        self._of_client[client] += 1
        # Where it finds no room the pull waits for its end, and the client asks again.
        self.line.send(encode_question(question))

    def cancel(self, client: Client) -> int:
        """Forget what ``client`` waits for; how many pulls that were."""
        numbers = [number for number, one in self._waiting.items() if one.client == client]
        for number in numbers:
            self._done(number)
        return len(numbers)

    def next_deadline_ms(self) -> int | None:
        """When ``take`` has something to do that the line does not tell of."""
        return self._look_due_ms if self._waiting else None

    def take(self, now_ms: int) -> Iterator[ColdAnswer]:
        """What has been answered, and what has waited too long."""
        self.is_behind = False
        for _ in range(ANSWERS_PER_TURN_MAX):
            parts = self.line.receive()
            if parts is None:
                break
            self._silent_since_ms = epoch_ms(self._clock)
            answer = self._read(parts)
            if answer is not None:
                yield answer
        else:
            self.is_behind = True
        self._look(now_ms)
        late_ms = now_ms - self._settings.wait_ms
        for number in [number for number, one in self._waiting.items() if one.asked_ms <= late_ms]:
            yield ColdAnswer(self._done(number), self._away("it does not answer in time"))

    def take_all(self) -> list[ColdPull]:
        """All that wait, which wait no more."""
        return [self._done(number) for number in list(self._waiting)]

    def _look(self, now_ms: int) -> None:
        """Ask again whoever has taken the place of the one who was asked."""
        self._look_due_ms = now_ms + LIFE_LOOK_MS
        generation = self.line.generation()
        if generation == self._generation:
            return
        self._generation = generation
        for asked in self._answers:
            asked.forget_asked()
        self._greet()
        for one in self._waiting.values():
            self.line.send(encode_question(one.question))

    def _greet(self) -> None:
        self._serial += 1
        self._greeted_ms = self._now_ms()
        self.line.send(encode_greeting(ColdGreeting(self._serial)))

    def _read(self, parts: list[bytes]) -> ColdAnswer | None:
        """The pull that an answer is for; None: nobody waits for it."""
        try:
            found = decode_answer(parts)
        except ProtocolError as error:
            logger.error("answer out of pieces refused: %s", error)
            return None
        if isinstance(found, ColdBegins):
            self._begins = found.begins
            self._told_serial = max(self._told_serial, found.serial)
            return None
        if any(asked.take(found, found.number) for asked in self._answers):
            return None
        if found.number not in self._waiting or isinstance(found, ColdOffset | ColdHits):
            return None
        pull = self._done(found.number)
        return ColdAnswer(pull, found.error if isinstance(found, ColdRefusal) else found)

    def _done(self, number: int) -> ColdPull:
        pull = self._waiting.pop(number)
        self._of_client[pull.client] -= 1
        if not self._of_client[pull.client]:
            del self._of_client[pull.client]
        return pull

    def _send(self, make: MakeQuestion) -> int:
        self._number += 1
        self.line.send(encode_question(make(self._number)))
        return self._number

    def _not_yet(self, reason: str) -> ColdAwayError:
        return self._away(reason, after_ms=ASKED_AFTER_MS)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def _away(self, reason: str, *, after_ms: int = RETRY_AFTER_MS) -> ColdAwayError:
        since = datetime.fromtimestamp(self._silent_since_ms // 1_000, UTC)
        return ColdAwayError(
            f"cold storage away since {since.isoformat(timespec='seconds')}: {reason}",
            place=self._settings.place,
            setting="cold.place",
            retry_after_ms=after_ms,
        )
