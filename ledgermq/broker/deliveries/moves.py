"""Moves at the leader: proposed and appended, finished after a crash has cut one.

A service that moves (delivery of what was delayed, and the like) says for its source topic what a
message becomes (``register``), and asks for a move with ``request``. What a crash has cut is found
where a term begins, or where the writer was started again, by reading what stands behind the
command; the rest is appended before the queue moves on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ledgermq.broker.callers import Caller
from ledgermq.broker.reading.poison_messages import PoisonMessages
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.broker.state.state_reader import QUEUE
from ledgermq.broker.state.state_requests import GroupPart, StateRequest, count_of
from ledgermq.formats.records.message import decode_message, queue_of
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.ipc.orders import PackRows
from ledgermq.model.errors import BusyError, CorruptLogError, LedgerError, MessageIllegalError
from ledgermq.model.limits import (
    DELAY_TOPIC,
    ENTRY_SIZE_MAX,
    STAGED_TOPIC,
    TIMER_TOPIC,
    TOPIC_CHARACTERS,
    TOPIC_SIZE_MAX,
)
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.state.state_commands import StateCommand, decode_command
from ledgermq.rules.tables.moves import Moved, Source, count_present, record_sum, rest_of
from ledgermq.rules.tables.table_changes import Change

logger = logging.getLogger(__name__)

NOBODY = Caller(b"", 0)
"""Who asks when no client does."""


COUNTER_OF = {
    DELAY_TOPIC: BrokerCounter.DELAYED_DELIVERED,
    TIMER_TOPIC: BrokerCounter.TIMERS_DELIVERED,
    STAGED_TOPIC: BrokerCounter.SINK_ROWS,
}
"""Counters of the records that messages of a source become, one each."""

POISON_MAX = 10_000
"""Messages of which it is remembered that they become nothing."""

Buffer = bytes | memoryview

Build = Callable[[QueueName, int, memoryview], Sequence[Buffer]]
"""What the message at a queue offset becomes: records, without the hole of an entry header.

From that message alone, on any node and at any time the same; times and hosts of the store are not
looked at. The record is valid during the call.
"""

Part = Buffer | PackRows
"""What follows the command of a move: a record, or the rows of a pack that the log has."""

Take = Callable[[memoryview], Sequence[Part]]
"""What a message becomes whose rows the writer may take from the log; it has checked these."""


class Moves(Service):
    """Owned by the broker process.

    Attributes:
        poison: where services read messages that are stored.
    """

    name = "moves"
    can_rest = True

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, log: StateLog, counts: Counts
    ) -> None:
        self._store = store
        self._tables = tables
        self._log = log
        self._counts = counts
        self._builds: dict[str, Build] = {}
        self._mending: set[QueueName] = set()
        self._retry_ms = 0
        self.poison = PoisonMessages(counts)
        self._became_nothing: dict[tuple[QueueName, int], None] = {}

    def register(self, topic: str, build: Build) -> None:
        """Say what messages of a source topic become."""
        assert topic not in self._builds, topic
        self._builds[topic] = build

    def source(self, queue: QueueName) -> Source:
        """How far ``queue`` is moved."""
        return self._tables.state.moves_of(queue.topic)[queue]

    def is_free(self, queue: QueueName) -> bool:
        """Whether ``queue`` may be moved on now: no move of it is under way, or was cut."""
        return self._log.is_settled and self.source(queue).open_at is None

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do again; None when only the log can give it something."""
        return self._retry_ms if self._log.is_settled and self._cut() else None

    def turn(self, now_ms: int) -> None:
        """Finish what was cut; its queue is not free before."""
        if self._log.is_settled and now_ms >= self._retry_ms:
            for queue in self._cut():
                self._mend(queue, now_ms)

    def request(
        self,
        queue: QueueName,
        plan: Callable[[], tuple[Moved, Sequence[Part]] | None],
        *,
        done: Callable[[], None],
        refused: Callable[[LedgerError], None],
        now_ms: int,
        also: Callable[[], Sequence[Change]] = tuple,
        is_mend: bool = False,
    ) -> None:
        """Have a move made; no two of a queue are asked for at a time.

        Args:
            plan: the move and its records, without the hole; None when there is nothing to move
                (any more). It is called when no move is under way, perhaps more than once.
            done: called when all of it is in the log.
            refused: called when it was not, or nobody knows, and at once where nothing is taken
                now; the table says how things stand once the queue is free.
            also: changes of other tables in the same command; asked for right after the plan.
            is_mend: it is the rest of a move that was cut, which goes before all others.
        """
        assert queue.topic in self._builds, queue
        planned: list[GroupPart] = []

        def changes() -> Sequence[Change]:
            planned.clear()
            # Also of one that was in line before the rest was asked for: it would stand for both.
            if not is_mend and self.source(queue).open_at is not None:
                raise BusyError("a move of the queue was cut, and is finished first")
            move = plan()
            if move is None:
                return []
            hole = bytes(self._log.hole)
            planned.extend(part if isinstance(part, PackRows) else hole + part for part in move[1])
            assert count_of(planned) == move[0].records
            return [move[0], *also()]

        def answer() -> None:
            counter = COUNTER_OF.get(queue.topic)
            if counter is not None:
                self._counts[counter] += count_of(planned)
            done()

        touches = frozenset({f"move {queue.topic}/{queue.queue_id}"})
        wish = StateRequest(NOBODY, changes, touches, answer, lambda: planned, refused)
        try:
            self._log.submit(wish, now_ms)
        except LedgerError as error:
            refused(error)

    def build(
        self, queue: QueueName, offsets: Sequence[int], *, again: bool = False
    ) -> list[Buffer]:
        """What the messages at ``offsets`` become, in order; those that are deleted become nothing,
        and so do those of which nobody can make anything (``made``).

        Args:
            again: they are stored once more as they are.

        Raises:
            DamagedLogError: one is not what was written.
        """
        if again:
            return [bytes(record) for _, record in self.read(queue, offsets)]
        build = self._builds[queue.topic]
        return [
            made
            for offset, record in self.read(queue, offsets)
            for made in self.made(queue, offset, record, build)
        ]

    def taken(self, queue: QueueName, offset: int, take: Take) -> Sequence[Part]:
        """What the message at ``offset`` becomes by ``take``, as of ``build``.

        Raises:
            DamagedLogError: it is not what was written.
        """
        nothing: Sequence[Part] = ()
        for _, record in self.read(queue, (offset,)):

            def make(record: memoryview = record) -> Sequence[Part]:
                parts = take(record)
                if not parts:
                    raise MessageIllegalError("message does not say where it belongs")
                for part in parts:
                    if not isinstance(part, PackRows):
                        _check_storable(part, hole=self._log.hole)
                return parts

            parts = self.poison.guarded(_place(queue, offset), make, nothing)
            if not parts:
                self._note_nothing(queue, offset)
            return parts
        return nothing

    def made(
        self, queue: QueueName, offset: int, record: memoryview, build: Build
    ) -> Sequence[Buffer]:
        """What a message becomes by ``build``; nothing, named, where that makes nothing of it, or
        nothing that a log may have: whatever others have stored ends no move.
        """

        def make() -> Sequence[Buffer]:
            records = build(queue, offset, record)
            if not records:
                raise MessageIllegalError("message does not say where it belongs")
            for one in records:
                _check_storable(one, hole=self._log.hole)
            return records

        nothing: Sequence[Buffer] = ()
        records = self.poison.guarded(_place(queue, offset), make, nothing)
        if not records:
            self._note_nothing(queue, offset)
        return records

    def _note_nothing(self, queue: QueueName, offset: int) -> None:
        self._became_nothing[queue, offset] = None
        if len(self._became_nothing) > POISON_MAX:
            del self._became_nothing[next(iter(self._became_nothing))]

    def became_nothing(self, queue: QueueName, offset: int) -> bool:
        """Whether ``made`` has made nothing of that message, a moment ago."""
        return (queue, offset) in self._became_nothing

    def read(self, queue: QueueName, offsets: Sequence[int]) -> Iterator[tuple[int, memoryview]]:
        """The records at ``offsets``, in order; one that is deleted is left out.

        Raises:
            DamagedLogError: one is not what was written.
        """
        at, end = 0, len(offsets)
        while at < end:
            count = end - at if isinstance(offsets, range) else 1
            while at + count < end and offsets[at + count] == offsets[at] + count:
                count += 1
            units = self._store.units(queue, offsets[at], count)
            if units is None or len(units) == 0:
                at += 1
                continue
            positions, sizes = units["position"].astype("i8"), units["size"].astype("i8")
            if queue.topic in self._store.of_batches:
                # Up to the first one that is gone: what follows would be taken for it.
                gone = np.flatnonzero(positions < self._store.log.first_position)
                rows = range(int(gone[0]) if len(gone) else len(units))
                parts = self._store.batch_records(offsets[at], units, rows)
            else:
                parts = self._store.records(positions, sizes)
            if parts is None:
                at += 1
                continue
            payload, stops = memoryview(parts.payload), parts.starts + parts.sizes
            places = zip(parts.starts.tolist(), stops.tolist(), strict=True)
            records = [payload[start:stop] for start, stop in places]
            yield from zip(offsets[at : at + len(records)], records, strict=True)
            at += len(records)

    def _cut(self) -> list[QueueName]:
        """Queues whose open moves nobody finishes yet; to be asked when the log is settled."""
        return [
            queue
            for queue, _ in self._tables.state.open_moves()
            if queue not in self._mending and queue.topic in self._builds
        ]

    def _mend(self, queue: QueueName, now_ms: int) -> None:
        def plan() -> tuple[Moved, Sequence[Buffer]] | None:
            place = self.source(queue).open_at
            return None if place is None else self._rest(queue, place)

        def done() -> None:
            self._counts[BrokerCounter.MOVES_MENDED] += 1
            self._mending.discard(queue)
            logger.info("move finished: topic=%s queue=%d", queue.topic, queue.queue_id)

        def refused(error: LedgerError) -> None:
            self._mending.discard(queue)
            self._retry_ms = now_ms + RETRY_MS
            logger.warning(
                "move not finished: topic=%s queue=%d: %s", queue.topic, queue.queue_id, error
            )

        self._mending.add(queue)
        self.request(queue, plan, done=done, refused=refused, now_ms=now_ms, is_mend=True)

    def _rest(self, queue: QueueName, place: int) -> tuple[Moved, Sequence[Buffer]]:
        """What is missing of the move whose command is at ``place`` of the state's queue."""
        command, behind = self._command_at(place)
        moved = next(
            (one for one in command.changes if isinstance(one, Moved) and one.queue == queue), None
        )
        if moved is None:
            raise CorruptLogError("no move where its command was", queue=str(queue), at=place)
        sums = self._sums_of(command)
        rest = rest_of(moved, count_present(sums, self._records_behind(behind)))
        records = self.build(queue, moved.offsets, again=moved.again)[rest.done :]
        _check_complete(rest, len(records))
        logger.warning(
            "move was cut: topic=%s queue=%d records=%d missing=%d",
            queue.topic,
            queue.queue_id,
            moved.records,
            rest.records,
        )
        return rest, records

    def _sums_of(self, command: StateCommand) -> list[int]:
        """The sums of what follows a command, also of moves that were made without.

        Raises:
            CorruptLogError: messages are there no more, and nobody can say what they became.
        """
        sums = list(command.follows)
        for change in command.changes:
            if isinstance(change, Moved) and not change.has_sums:
                made = self.build(change.queue, change.offsets)[change.done :]
                _check_complete(change, len(made))
                sums[change.before : change.before + change.records] = [
                    record_sum(memoryview(record)) for record in made
                ]
        return sums

    def _command_at(self, place: int) -> tuple[StateCommand, int]:
        """A command, and the position behind its record.

        Raises:
            CorruptLogError: there is none (any more).
        """
        for _, record in self.read(QUEUE, [place]):
            message = decode_message(record)
            return decode_command(bytes(message.body)), message.physical_offset + message.size
        raise CorruptLogError("command of a move is not in the log", at=place)

    def _records_behind(self, position: int) -> Iterator[memoryview]:
        """The records from ``position`` on, across the ends of files, as far as dispatched."""
        while (file := self._store.log.file_of(position)) is not None:
            record = self._store.record_at(position + file.header_size)
            if record is None:
                if position == file.start:
                    return
                # The blank at the end of a file, or the end of the log: then nothing is there.
                position = file.end
                continue
            yield record
            position += file.header_size + len(record)


def _place(queue: QueueName, offset: int) -> str:
    """Name under which it is remembered that nobody can make anything of a message."""
    return f"{queue.topic}/{queue.queue_id}/{offset}"


def _check_complete(move: Moved, records: int) -> None:
    """``records`` were made of what ``move`` is about: as many as it has, no more and no fewer."""
    if records != move.records:
        raise CorruptLogError(
            "messages of a move are there no more",
            topic=move.queue.topic,
            queue=move.queue.queue_id,
            records=records,
            expected=move.records,
        )


_TOPIC = re.compile(TOPIC_CHARACTERS.encode())


def check_queue(topic: bytes, queue_id: int) -> None:
    """Refuse to move a message into what can be no queue.

    Raises:
        MessageIllegalError: so it is.
    """
    if not 0 < len(topic) <= TOPIC_SIZE_MAX or not _TOPIC.fullmatch(topic) or queue_id < 0:
        raise MessageIllegalError("message belongs into no queue", topic=topic, queue=queue_id)


def _check_storable(record: Buffer, *, hole: int) -> None:
    check_queue(*queue_of(memoryview(record)))
    if hole + len(record) > ENTRY_SIZE_MAX:
        raise MessageIllegalError(
            "message is too large for where it belongs",
            size=hole + len(record),
            limit=ENTRY_SIZE_MAX,
        )
