"""The port's producer at the writer's socket: what came in a turn goes as one frame.

RocketMQ's clients wait for each message, or for each batch: there are many small ones under way at
a time, of many connections. While as many frames as may be are under way, what comes is gathered;
the busier the node is, the more messages share a frame, one flush and one round of the group.

Who stores something is told once: where it is, or why it is not. What is not answered when this
node leads no more is told to be unknown: it may be in the log one day, or never.
"""

from __future__ import annotations

import select
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from typing import NamedTuple

import zmq

from ledgermq.client.core.link import NEVER, Link
from ledgermq.client.core.results import FrameResult
from ledgermq.client.sending.frames import Frame
from ledgermq.client.sending.outgoing import Body
from ledgermq.client.sending.record_encoder import Form
from ledgermq.client.sending.send_pipeline import ProducerOptions, SendPipeline
from ledgermq.gateway.parts import PortPart
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    NotLeaderError,
    OutcomeUnknownError,
    QuotaError,
    StorageError,
)
from ledgermq.process.environment import Environment
from ledgermq.wire.send_frame import SendRun, Sent
from ledgermq.wire.session import Welcome

FRAMES_MAX = 2
"""Frames under way; what comes meanwhile shares the next one."""

FRAME_BYTES = 1024 * 1024
"""A frame of several messages is closed at this size."""

TIMEOUT_S = 5.0
"""RocketMQ's clients wait for 3 s, unless they are told to wait for longer."""

NAME = "rocketmq-port"


class ToStore(NamedTuple):
    """What is to be stored, encoded for the ``Form`` of the link: one record, or those of a batch.

    Attributes:
        parts: the bytes, to be joined; the link keeps them until they are answered for.
        sizes: of each record, its entry header included.
        size: of all of them.
    """

    topic: bytes
    queue_id: int
    parts: Sequence[Body]
    sizes: Sequence[int]
    size: int


class Place(NamedTuple):
    """Where something is stored.

    Attributes:
        queue_offset: of the first record; the others follow.
        positions: of each record in the log.
        known_queue: nothing was stored, because the topic has a message of the same unique id
            already, in this queue.
    """

    queue_offset: int
    positions: Sequence[int]
    known_queue: int | None = None


Take = Callable[[Place | LedgerError], None]


class _Entry(NamedTuple):
    record: ToStore
    take: Take


class PortProducer(PortPart):
    """Owned by the port; driven by ``turn``, which never blocks.

    Invariants: an entry is gathered, or in exactly one frame of ``_under_way``, until it is told;
    entries of one queue are stored in the order in which they came.

    Attributes:
        link: to the writer; others only look at it.
    """

    def __init__(
        self,
        environment: Environment,
        epoll: select.epoll,
        *,
        greeted: Callable[[], object] = lambda: None,
    ) -> None:
        """A link that opens its first session with the first ``turn``.

        Args:
            epoll: gets what wakes the link.
            greeted: called once, when the writer has said for the first time how to encode.
        """
        limits = environment.settings.limits
        options = ProducerOptions(
            timeout_s=TIMEOUT_S,
            max_in_flight=FRAMES_MAX,
            window_bytes=limits.client_window_bytes,
            # Messages of many clients share a frame: they are not to wait for one's quota.
            waits_for_quota=False,
        )
        link = Link(
            zmq.Context.instance(),
            f"ipc://{environment.paths.produce}",
            client=NAME,
            is_writers=True,
        )
        self.link = link
        self._pipeline = SendPipeline(link, options)
        self._window_bytes = limits.client_window_bytes
        self._epoll = epoll
        self._watched: tuple[int, ...] = ()
        self._generation = -1
        self._greeted: Callable[[], object] | None = greeted
        self._gathered: list[_Entry] = []
        self._gathered_bytes = 0
        self._under_way = 0
        self._now = 0.0
        self._settled: list[tuple[list[_Entry], FrameResult | LedgerError]] = []

    @property
    def form(self) -> Form | None:
        """How records are to be encoded; None before the writer has told."""
        return self._pipeline.form

    @property
    def welcome(self) -> Welcome | None:
        """What the writer has told last."""
        return self.link.last_welcome

    @property
    def has_gathered(self) -> bool:
        """Whether something waits for ``turn``."""
        return bool(self._gathered)

    @property
    def descriptors(self) -> Sequence[int]:
        """Those that wake the link, in the ``epoll`` that it was given."""
        return self._watched

    def next_deadline_ms(self) -> int | None:
        deadline = self._pipeline.deadline
        return None if deadline == NEVER else int(deadline * 1_000)

    def store(self, record: ToStore, take: Take) -> None:
        """Have ``record`` stored; ``take`` is told what came of it, by ``turn``.

        Raises:
            BusyError: more waits for the writer than its window; nothing is stored.
        """
        if not self.has_room(record.size):
            raise BusyError(
                "more unanswered bytes of this port than its window; nothing was stored",
                bytes=self._gathered_bytes + self._pipeline.unanswered_bytes,
                limit=self._window_bytes,
                setting="limits.client_window_bytes",
            )
        self.put(record, take)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may wait for the writer."""
        waiting = self._gathered_bytes + self._pipeline.unanswered_bytes
        return not waiting or waiting + size <= self._window_bytes

    def put(self, record: ToStore, take: Take) -> None:
        """The same as ``store`` for a record for which ``has_room`` has room."""
        self._gathered.append(tuple.__new__(_Entry, (record, take)))
        self._gathered_bytes += record.size

    def turn(self, now_ms: int) -> None:
        """Take answers, tell who waited for them, and send what was gathered."""
        self._now = now = now_ms / 1_000
        self._close_frames()
        self._pipeline.advance(now)
        while self._settled:
            made = self._pipeline.frames_made
            self._tell()
            # What came meanwhile may go now.
            self._close_frames()
            if self._pipeline.frames_made != made:
                self._pipeline.advance(now)
        if self._generation != self.link.generation:
            self._watch()
        if self._greeted is not None and self.welcome is not None:
            greeted, self._greeted = self._greeted, None
            greeted()

    def give_up(self) -> None:
        """This node does not lead: tell all who wait, and send nothing of it again."""
        error = NotLeaderError("node does not lead any more")
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        self._pipeline.give_up(error)
        while self._settled:
            self._tell()
        for entry in gathered:
            entry.take(error)

    def close(self) -> None:
        """Tell all who wait that nobody knows, and end the session."""
        self.give_up()
        self.link.close()

    def _close_frames(self) -> None:
        while self._gathered and self._under_way < FRAMES_MAX:
            self._put(self._take_gathered())

    def _take_gathered(self) -> list[_Entry]:
        """The entries of the next frame, the oldest ones."""
        gathered = self._gathered
        if self._gathered_bytes <= FRAME_BYTES:
            self._gathered, self._gathered_bytes = [], 0
            return gathered
        size = count = 0
        while count < len(gathered) and (not count or size <= FRAME_BYTES):
            size += gathered[count].record.size
            count += 1
        if count > 1 and size > FRAME_BYTES:
            count -= 1
            size -= gathered[count].record.size
        self._gathered = gathered[count:]
        self._gathered_bytes -= size
        return gathered[:count]

    def _put(self, entries: list[_Entry]) -> None:
        form = self._pipeline.form
        assert form is not None, "something was encoded for no form"
        if len(entries) == 1:
            record = entries[0].record
            run = SendRun(len(record.sizes), record.queue_id, record.topic)
            self._put_frame(
                entries, Frame(form, list(record.parts), array("I", record.sizes), [run], [])
            )
            return
        by_queue: dict[tuple[bytes, int], list[_Entry]] = {}
        for entry in entries:
            key = entry.record.topic, entry.record.queue_id
            by_queue.setdefault(key, []).append(entry)
        if 1 < len(by_queue) < len(entries):
            # Consecutive records of one queue are one run: in the order in which queues came.
            entries = list(chain.from_iterable(by_queue.values()))
        sizes = array("I")
        parts: list[Body] = []
        runs: list[SendRun] = []
        for (topic, queue_id), own in by_queue.items():
            before = len(sizes)
            for record, _ in own:
                sizes.extend(record.sizes)
                parts += record.parts
            runs.append(SendRun(len(sizes) - before, queue_id, topic))
        self._put_frame(entries, Frame(form, parts, sizes, runs, []))

    def _put_frame(self, entries: list[_Entry], frame: Frame) -> None:
        frame.on_settled = partial(self._settle, entries)
        self._under_way += 1
        self._pipeline.put(frame, self._now)

    def _settle(self, entries: list[_Entry], outcome: FrameResult | LedgerError) -> None:
        """Called in the midst of the pipeline's work: told when that is done."""
        self._under_way -= 1
        self._settled.append((entries, outcome))

    def _tell(self) -> None:
        settled, self._settled = self._settled, []
        for entries, outcome in settled:
            if isinstance(outcome, FrameResult):
                for entry, place in zip(entries, places(outcome.sent, entries), strict=True):
                    entry.take(place)
            elif len(parts := _apart(entries, outcome)) > 1:
                # One of them is not what the writer takes: the others must not suffer.
                for part in parts:
                    self._put(part)
            else:
                for entry in entries:
                    entry.take(outcome)

    def _watch(self) -> None:
        """Have the descriptors of the link's newest socket wake the port."""
        for descriptor in self._watched:
            # Closed ones have left by themselves.
            with suppress(OSError):
                self._epoll.unregister(descriptor)
        self._watched = self.link.descriptors
        self._generation = self.link.generation
        for descriptor in self._watched:
            self._epoll.register(descriptor, select.EPOLLIN)


def _apart(entries: list[_Entry], error: LedgerError) -> list[list[_Entry]]:
    """The parts of a refused frame that may fare otherwise by themselves."""
    if isinstance(error, QuotaError):
        by_topic: dict[bytes, list[_Entry]] = {}
        for entry in entries:
            by_topic.setdefault(entry.record.topic, []).append(entry)
        return list(by_topic.values())
    if error.retriable or isinstance(error, StorageError | OutcomeUnknownError):
        # It is for how the node is, and not for what is in it.
        return [entries]
    return [[entry] for entry in entries]


def places(sent: Sent, entries: Sequence[_Entry]) -> Iterator[Place]:
    """Where each entry of a frame is; the spans tell of every record of it."""
    duplicates = {one.record: one.queue_id for one in sent.duplicates} if sent.duplicates else {}
    spans = iter(sent.spans)
    left = position = queue_offset = number = 0
    for record, _ in entries:
        sizes = record.sizes
        if not left:
            _, left, position, queue_offset = next(spans)
        if len(sizes) == 1:
            known = duplicates.get(number) if duplicates else None
            # With each message: half of what the names' constructor costs.
            yield tuple.__new__(Place, (queue_offset, (position,), known))
            position += sizes[0]
            queue_offset += 1
            left -= 1
            number += 1
            continue
        found: list[int] = []
        first_offset = -1
        while len(found) < len(sizes):
            if not left:
                _, left, position, queue_offset = next(spans)
            if first_offset < 0:
                first_offset = queue_offset
            count = min(left, len(sizes) - len(found))
            ends = accumulate(sizes[len(found) : len(found) + count], initial=position)
            found.extend(ends)
            position = found.pop()
            queue_offset += count
            left -= count
        yield Place(first_offset, found, duplicates.get(number))
        number += len(found)
