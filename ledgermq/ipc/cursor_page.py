"""The cursor page: shared memory in which each process publishes its cursors and its state.

One file of 32,768 bytes in the runtime directory, mapped by all processes. A slot is 64 bytes of
eight aligned 64-bit fields, little-endian, and has exactly one writer (``asleep`` alone is also
cleared by who rings). Fields that belong together stand twice, 32 slots apart; field 0 is their
sequence, whose last bit names the copy that counts. Its writer fills the other copy and then counts
the sequence up, so a reader never waits, not even for a writer that died inside.

    slot  name        writer      fields (S: a sequence first)
    0     header      supervisor  magic, version, generation, supervisor pid, started_ms,
                                    number of the published settings
    1     written     writer      S position, index, term, count
    2     durable     writer      S position, index, term, flushed_ns
    3     committed   raft*       S position, index, term
    4     dispatched  dispatcher  S position, messages, store_timestamp_ms, changed_ns,
                                    log_generation
    5     put_lock    writer      S holder pid, since_ns, taken, slow, recovered
    6     grant       raft        S term, granted (0/1), role, leader (16 bytes, ASCII)
    7     reader      raft        S follower to read old messages from (16 bytes, ASCII)
    8-12  process     that one    pid, beat_ns, asleep, generation, started_ns, turns (0/1),
                                    number of the settings that it has taken
    13    space       writer      S state, free, total, since_ns
    14    log_begin   writer      S wanted position, position
    15    queue_begin dispatcher  S position, waits (0/1)
    16    proof       raft        S majority_ns, disk_is_sick (0/1), lacks_entries (0/1)
    17    alone       raft        until_ns: before it no other member is elected
    18    run         raft        what the writer does by itself (``run_cell``); 0: nothing
    19    rest        dispatcher  until_ns: before it bells do not wake it
    20    heard       writer      number of the run, tick, round
    21    led         writer      number of the run, round, tick, matches of five members
    26    released    raft        S position, reason
    27    absent      raft        S names of up to seven members (``ipc/page_slots.py``)
    31    queues      dispatcher  S position
    32-63                         second copies of 1 to 7, 13 to 16, 26, 27 and 31
    64-231 counters   that one    64 counters, eight slots a process (``ipc/counters.py``)
    232-251 process   that one    those of all other processes, as 8-12
    256-263 counters  observer    as 64-231
    264-272 times     writer      histograms, three slots each (``ipc/time_histogram.py``)
    280-287 counters  grpc        as 64-231
    288-295 counters  cold        as 64-231
    296-303 counters  slaves      as 64-231

``committed`` is the writer's while ``run`` says so (docs/decisions/0133). ``heard`` and ``led`` are
written and read with the fence held.

Everything here is disposable: a process that starts again rebuilds its slots from the files. Times
named ``_ns`` are CLOCK_MONOTONIC, the same for all processes of one boot; ``_ms`` are epoch
milliseconds.

An aligned 8-byte store is one instruction on the machines we support. The wake-up protocol
(``asleep`` is set, then the cursors are read again, then the process sleeps; the other side stores
its cursor, then reads ``asleep``) may in theory lose a bell to the store buffer; every sleep is
bounded, so a lost bell costs one tick and nothing else.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from ledgermq.ipc.page_slots import (
    LED_MAX,
    MAGIC,
    NAMES_MAX,
    HeldBy,
    Led,
    LogBegin,
    ProcessSlot,
    Proof,
    PutLock,
    QueueBegin,
    Space,
    SpaceState,
    led_run,
    lone_run,
    make_file,
    map_file,
    name_cells,
    name_of,
    names_cells,
    names_of,
)
from ledgermq.model.errors import StaleGenerationError
from ledgermq.model.ids import Index, NodeId, Position, Term

PAGE_SIZE = 32_768
SLOT_SIZE = 64
FIELDS = SLOT_SIZE // 8
VERSION = 5

_HEADER, _WRITTEN, _DURABLE, _COMMITTED, _DISPATCHED, _PUT_LOCK, _GRANT, _READER = range(8)
_PROCESS = 8
_FIRST_PORT = 5
_PORT_PROCESS = 232
_SPACE, _LOG_BEGIN, _QUEUE_BEGIN = 13, 14, 15
_PROOF, _ALONE, _RUN, _REST, _HEARD, _LED = 16, 17, 18, 19, 20, 21
_QUEUES = 31
_RELEASED = 26
_ABSENT = 27
_SECOND_COPY = 32
_COUNTERS = 64
_COUNTER_SLOTS = 8
_OBSERVER_COUNTERS = 256
_GRPC_COUNTERS = 280
_COLD_COUNTERS = 288
_SLAVES_COUNTERS = 296
_RECEIPTS_COUNTERS = 304
COUNTERS_MAX = _COUNTER_SLOTS * FIELDS
"""Counters that each process has."""

BEAT_AT, TURNS_AT = 1, 5
"""Where in a process slot stand the time of its last sign of life, and whether its loop turns."""

Made = TypeVar("Made")

_NEVER_READ = -1, None

_READ_ATTEMPTS = 10_000

assert (
    _PROCESS + 5
    <= _SPACE
    < _QUEUE_BEGIN
    < _PROOF
    < _ALONE
    < _RUN
    < _REST
    < _HEARD
    < _LED
    < _RELEASED
)
assert _RELEASED < _ABSENT < _QUEUES < _SECOND_COPY < _COUNTERS - _QUEUES


class Role(IntEnum):
    """The processes of a node, numbered as their counters; those of ``PORTS`` serve RocketMQ's
    clients, where the settings want more processes for that than the broker, the observer HTTP,
    ``GRPC`` RocketMQ 5's clients, ``COLD`` reads what was sealed, ``SLAVES`` sends the log to
    slaves of RocketMQ's, and ``RECEIPTS`` makes checkpoints of receipts.
    """

    SUPERVISOR = 0
    RAFT = 1
    WRITER = 2
    DISPATCHER = 3
    BROKER = 4
    PORT_1 = 5
    PORT_2 = 6
    PORT_3 = 7
    PORT_4 = 8
    PORT_5 = 9
    PORT_6 = 10
    PORT_7 = 11
    PORT_8 = 12
    PORT_9 = 13
    PORT_10 = 14
    PORT_11 = 15
    PORT_12 = 16
    PORT_13 = 17
    PORT_14 = 18
    PORT_15 = 19
    PORT_16 = 20
    OBSERVER = 21
    GRPC = 22
    COLD = 23
    SLAVES = 24
    RECEIPTS = 25

    @property
    def title(self) -> str:
        """Name in logs, in ``ps`` and in ``status``."""
        return self.name.lower().replace("_", "-")


PORTS = tuple(role for role in Role if _FIRST_PORT <= role < Role.OBSERVER)

assert len(PORTS) == 16
assert _COUNTERS + Role.OBSERVER * _COUNTER_SLOTS <= _PORT_PROCESS
assert _PORT_PROCESS + Role.RECEIPTS - _FIRST_PORT < _OBSERVER_COUNTERS
assert _OBSERVER_COUNTERS + _COUNTER_SLOTS <= _GRPC_COUNTERS
assert _GRPC_COUNTERS + _COUNTER_SLOTS <= _COLD_COUNTERS
assert _COLD_COUNTERS + _COUNTER_SLOTS <= _SLAVES_COUNTERS
assert _SLAVES_COUNTERS + _COUNTER_SLOTS <= _RECEIPTS_COUNTERS
assert (_RECEIPTS_COUNTERS + _COUNTER_SLOTS) * SLOT_SIZE <= PAGE_SIZE


class PublishedRole(IntEnum):
    """Role in the group, as the grant slot holds it."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class LogCursor(NamedTuple):
    """End of a prefix of the log: first position behind it, and its last entry."""

    position: Position
    index: Index  # type: ignore[assignment]  # in the place of the method of tuples
    term: Term


class Dispatched(NamedTuple):
    """How far ConsumeQueue and Index are built."""

    position: Position
    messages: int
    store_timestamp_ms: int
    changed_ns: int
    log_generation: int


class Grant(NamedTuple):
    """What raft lets the writer do, and who leads; ``leader`` is empty when nobody is known to."""

    term: Term
    granted: bool
    role: PublishedRole
    leader: NodeId = NodeId("")


class PagePlaces(NamedTuple):
    """Where a compiled wait finds what it needs: names with ``_at`` are cells, others slots.

    ``counters_at`` is the first of the process's counters.
    """

    asleep_at: int
    beat_at: int
    dispatcher_at: int
    run_at: int
    counters_at: int
    written: int
    durable: int
    committed: int
    grant: int
    heard: int
    put_lock: int

    @classmethod
    def of(cls, own: Role, dispatcher: Role) -> PagePlaces:
        """Those of the process ``own``, which rings ``dispatcher``."""
        return cls(
            _PROCESS_AT[own] + 2,
            _PROCESS_AT[own] + BEAT_AT,
            _PROCESS_AT[dispatcher] + 2,
            _RUN * FIELDS,
            _COUNTERS_AT[own],
            _WRITTEN,
            _DURABLE,
            _COMMITTED,
            _GRANT,
            _HEARD,
            _PUT_LOCK,
        )


class CursorPage:
    """A process's map of the page; who may write which slot is in the module's table."""

    def __init__(self, path: Path, map_: mmap.mmap) -> None:
        self.path = path
        self._map = map_
        self._cells = memoryview(map_).cast("q")
        self._lent: list[memoryview] = []
        # What was read last of slots that are looked at in every turn, behind the sequence then: a
        # slot that has not changed is not taken apart again. A pair is replaced in one step, for
        # several threads read.
        self._made: list[tuple[int, Any]] = [_NEVER_READ] * _SECOND_COPY

    @classmethod
    def create(cls, path: Path) -> Self:
        """A zeroed page at ``path``, with its header; only the supervisor calls this.

        The generation is one more than that of the page that was there before, which may be one
        of another version of the program.
        """
        generation = make_file(path, PAGE_SIZE)
        page = cls(path, map_file(path, PAGE_SIZE))
        cells = page._cells
        cells[1] = VERSION
        cells[2] = generation
        cells[3] = os.getpid()
        cells[4] = time.time_ns() // 1_000_000
        # Last: whoever attaches before that finds no page of this version.
        cells[0] = MAGIC
        return page

    @classmethod
    def attach(cls, path: Path) -> Self:
        """The page that the supervisor made.

        Raises:
            StaleGenerationError: there is none, or it is of another version of the program.
        """
        page = cls(path, map_file(path, PAGE_SIZE))
        if (page._cells[0], page._cells[1]) != (MAGIC, VERSION):
            page.close()
            raise StaleGenerationError("not a cursor page of this version", path=str(path))
        return page

    def reset(self) -> None:
        """Make the page as it was created; only the supervisor, and while nobody else has it.

        What the supervisor says of itself stays; the generation is the next one.
        """
        own = _COUNTERS + _COUNTER_SLOTS * Role.SUPERVISOR
        kept = (_HEADER, _process_slot(Role.SUPERVISOR), *range(own, own + _COUNTER_SLOTS))
        for at in range(len(self._cells)):
            if at // FIELDS not in kept:
                self._cells[at] = 0
        self._cells[2] += 1
        # Sequences begin anew, and may come to be what they were.
        self._made = [_NEVER_READ] * _SECOND_COPY

    def close(self) -> None:
        """Unmap; the page itself stays. Counters that were handed out end with it."""
        for view in self._lent:
            view.release()
        self._cells.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def generation(self) -> int:
        """Number of the node's start in this runtime directory."""
        return self._cells[2]

    @property
    def supervisor_pid(self) -> int:
        """Pid of the supervisor that made the page."""
        return self._cells[3]

    @property
    def started_ms(self) -> int:
        """When the node was started, epoch milliseconds."""
        return self._cells[4]

    @property
    def settings_number(self) -> int:
        """How often settings have been published again since the node was started."""
        return self._cells[5]

    def count_settings(self) -> int:
        """Other settings are published from now on: their number; only the supervisor."""
        self._cells[5] += 1
        return self._cells[5]

    def _publish(self, slot: int, values: tuple[int, ...]) -> None:
        cells = self._cells
        sequence = cells[slot * FIELDS] + 1
        at = (slot + (sequence & 1) * _SECOND_COPY) * FIELDS
        for offset, value in enumerate(values, 1):
            cells[at + offset] = value
        cells[slot * FIELDS] = sequence

    def _snapshot(self, slot: int, count: int) -> list[int]:
        cells = self._cells
        for _ in range(_READ_ATTEMPTS):
            sequence = cells[slot * FIELDS]
            at = (slot + (sequence & 1) * _SECOND_COPY) * FIELDS
            values = cells[at + 1 : at + 1 + count].tolist()
            if cells[slot * FIELDS] == sequence:
                return values
        raise StaleGenerationError("cursor changes faster than it can be read", slot=slot)

    def _known(self, slot: int, count: int, make: Callable[[list[int]], Made]) -> Made:
        """What ``make`` makes of a slot: the same object until the slot changes."""
        sequence = self._cells[slot * FIELDS]
        known, made = self._made[slot]
        if sequence != known:
            # Behind the sequence: values that are newer than it are read once more.
            made = make(self._snapshot(slot, count))
            self._made[slot] = sequence, made
        found: Made = made
        return found

    def publish_written(self, cursor: LogCursor, count: int) -> None:
        """Entries up to ``cursor`` are in the log's files; ``count`` messages since start."""
        self._publish(_WRITTEN, (cursor.position, cursor.index, cursor.term, count))

    def read_written(self) -> LogCursor:
        """End of what the writer has put in the log."""
        known, made = self._made[_WRITTEN]
        if self._cells[_WRITTEN * FIELDS] == known:
            cursor: LogCursor = made
            return cursor
        return self._known(_WRITTEN, 3, _cursor)

    def read_written_position(self) -> int:
        """The position of ``read_written`` alone."""
        return self.read_written().position

    def publish_durable(self, cursor: LogCursor, flushed_ns: int) -> None:
        """Entries up to ``cursor`` survive a power failure."""
        self._publish(_DURABLE, (cursor.position, cursor.index, cursor.term, flushed_ns))

    def read_durable(self) -> tuple[LogCursor, int]:
        """End of what is durable, and when the last flush returned."""
        return self._known(_DURABLE, 4, _durable)

    def publish_committed(self, cursor: LogCursor) -> None:
        """Entries up to ``cursor`` will never be taken back."""
        self._publish(_COMMITTED, (cursor.position, cursor.index, cursor.term))

    def has_committed(self) -> bool:
        """Whether raft has published a commit cursor since the node was started."""
        return self._cells[_COMMITTED * FIELDS] != 0

    def has_dispatched(self) -> bool:
        """Whether the dispatcher has published its cursor since the node was started."""
        return self._cells[_DISPATCHED * FIELDS] != 0

    def has_written(self) -> bool:
        """Whether the writer has recovered the log since the node was started."""
        return self._cells[_WRITTEN * FIELDS] != 0

    def read_committed(self) -> LogCursor:
        """End of what is committed."""
        known, made = self._made[_COMMITTED]
        if self._cells[_COMMITTED * FIELDS] == known:
            cursor: LogCursor = made
            return cursor
        return self._known(_COMMITTED, 3, _cursor)

    def read_committed_position(self) -> Position:
        """The position of ``read_committed`` alone, for who needs it with each message."""
        return Position(self._snapshot(_COMMITTED, 1)[0])

    def publish_dispatched(self, dispatched: Dispatched) -> None:
        """ConsumeQueue and Index hold all messages below ``dispatched.position``."""
        self._publish(_DISPATCHED, tuple(dispatched))

    def read_dispatched(self) -> Dispatched:
        """How far ConsumeQueue and Index are built."""
        values = self._snapshot(_DISPATCHED, 5)
        return Dispatched(Position(values[0]), *values[1:])

    def publish_queues(self, position: Position) -> None:
        """All messages below ``position`` are in the ConsumeQueues, as the files themselves say.

        Unlike ``dispatched`` it does not wait for raft to say what is committed.
        """
        self._publish(_QUEUES, (position,))

    def has_queues(self) -> bool:
        """Whether the dispatcher has looked at the queues since the node was started."""
        return self._cells[_QUEUES * FIELDS] != 0

    def read_queues(self) -> Position:
        """Position up to which the queues held all messages when the dispatcher opened them."""
        return Position(self._snapshot(_QUEUES, 1)[0])

    def publish_put_lock(self, lock: PutLock | tuple[int, int, int, int, int]) -> None:
        """State of the put lock; its fields in their order are enough."""
        self._publish(_PUT_LOCK, lock)

    def read_put_lock(self) -> PutLock:
        """State of the put lock."""
        return PutLock(*self._snapshot(_PUT_LOCK, 5))

    def publish_grant(self, grant: Grant) -> None:
        """What raft lets the writer do; the writer acts on the message, others read this."""
        cells = name_cells(grant.leader)
        self._publish(_GRANT, (grant.term, int(grant.granted), int(grant.role), *cells))

    def read_grant(self) -> Grant:
        """Term, whether the writer may stamp, and the node's role."""
        return self._known(_GRANT, 5, _grant)

    def publish_reader(self, node: NodeId) -> None:
        """A follower that holds what is committed; empty when there is none, or no leader here."""
        self._publish(_READER, name_cells(node))

    def read_reader(self) -> NodeId:
        """The follower that readers of old messages are sent to; empty when there is none."""
        return name_of(self._snapshot(_READER, 2))

    def publish_absent(self, members: Sequence[NodeId]) -> None:
        """Members that have given no sign of life lately: the first seven of them."""
        self._publish(_ABSENT, names_cells(members))

    def read_absent(self) -> frozenset[NodeId]:
        """Members that the raft process has not heard of lately."""
        return self._known(_ABSENT, NAMES_MAX, names_of)

    def publish_space(self, state: SpaceState, free: int, total: int, since_ns: int) -> None:
        """The disk as the writer sees it."""
        self._publish(_SPACE, (int(state), free, total, since_ns))

    def read_space(self) -> Space:
        """The disk as the writer saw it last."""
        return self._known(_SPACE, 4, _space)

    def publish_log_begin(self, wanted: Position, position: Position) -> None:
        """Files before ``position`` are gone; those before ``wanted`` are to go."""
        self._publish(_LOG_BEGIN, (wanted, position))

    def read_log_begin(self) -> LogBegin:
        """Where the log begins and is to begin; zeros before anything was deleted."""
        return self._known(_LOG_BEGIN, 2, _log_begin)

    def publish_released(self, position: Position, held_by: HeldBy) -> None:
        """Raft reads nothing of the log before ``position`` any more."""
        self._publish(_RELEASED, (position, int(held_by)))

    def read_released(self) -> tuple[Position, HeldBy]:
        """Position up to which raft has let go of the log, and why it did not go further."""
        position, held_by = self._snapshot(_RELEASED, 2)
        return Position(position), HeldBy(held_by)

    def publish_proof(self, proof: Proof) -> None:
        """When a majority was heard of, and what is wrong with this node's disk and log."""
        self._publish(_PROOF, (proof.majority_ns, proof.disk_is_sick, proof.lacks_entries))

    def read_proof(self) -> Proof:
        """What raft knew when it looked last; zeros before it has looked."""
        majority_ns, sick, lacks = self._snapshot(_PROOF, 3)
        return Proof(majority_ns, bool(sick), bool(lacks))

    def publish_alone(self, until_ns: int) -> None:
        """No other member is elected before ``until_ns``; 0: one may be, or this node is none that
        leads.
        """
        self._cells[_ALONE * FIELDS] = until_ns

    def read_alone_until_ns(self) -> int:
        """Time until which this node surely leads alone, in CLOCK_MONOTONIC; 0 when it does not."""
        return int(self._cells[_ALONE * FIELDS])

    def publish_run(self, term: Term | None) -> None:
        """The writer publishes ``committed`` by itself in ``term``, and raft does not; None: raft
        alone does. To be called with the fence held (``ipc/run_fence.py``).
        """
        self._cells[_RUN * FIELDS] = 0 if term is None else lone_run(term)

    def publish_led_run(self, number: int) -> None:
        """The writer feeds the other members by itself, counts what they hold and publishes
        ``committed``, in the leader's run of that number. To be called with the fence held, as
        ``publish_run``, which ends it.
        """
        assert number > 0, number
        self._cells[_RUN * FIELDS] = led_run(number)

    def publish_led(self, led: Led) -> None:
        """What the leader's writer knows of the members that it feeds. To be called with the fence
        held, and before a round is begun.
        """
        at = _LED * FIELDS
        matches = [*led.matches, *(-1,) * (LED_MAX - len(led.matches))]
        for place, value in enumerate((led.number, led.round, led.confirmed, *matches)):
            self._cells[at + place] = value

    def read_led(self) -> Led:
        """What ``publish_led`` was given last, and -1 for members that it did not name. To be
        called with the fence held.
        """
        at = _LED * FIELDS
        number, round_, confirmed, *matches = self._cells[at : at + FIELDS].tolist()
        return Led(number, round_, confirmed, tuple(matches))

    def publish_follow_run(self, number: int) -> None:
        """The writer takes what the leader sends it by itself, and publishes ``committed``, in the
        follower's run of that number. To be called with the fence held, as ``publish_run``, which
        ends it.
        """
        assert number > 0, number
        self._cells[_RUN * FIELDS] = -number

    def publish_heard(self, number: int, tick: int, round_: int, round_began: int) -> None:
        """The leader was heard of at ``tick`` in the follower's run ``number``, in that round of
        heartbeats or a later one, and of the round first at ``round_began``. To be called with the
        fence held.
        """
        cells, at = self._cells, _HEARD * FIELDS
        cells[at], cells[at + 1], cells[at + 2], cells[at + 3] = number, tick, round_, round_began

    def read_heard(self) -> tuple[int, int, int, int]:
        """What ``publish_heard`` was given last. To be called with the fence held."""
        at = _HEARD * FIELDS
        number, tick, round_, round_began = self._cells[at : at + 4].tolist()
        return number, tick, round_, round_began

    def run_cell(self) -> memoryview:
        """The one cell that says whether there is a run: ``lone_run`` of a term, ``led_run`` of a
        number, or the number of a follower's run, negative; 0: there is none.
        """
        return self.lend(_RUN * FIELDS, 1)

    def run_is(self, run: int) -> bool:
        """Whether the cell of runs says ``run``."""
        return bool(self._cells[_RUN * FIELDS] == run)

    def rest_cell(self) -> memoryview:
        """The one cell in which the dispatcher says until when bells do not wake it, in
        CLOCK_MONOTONIC nanoseconds; who begins to wait for it rouses it.
        """
        return self.lend(_REST * FIELDS, 1)

    def publish_queue_begin(self, position: Position, *, waits: bool) -> None:
        """Queue and index files that only point before ``position`` are gone."""
        self._publish(_QUEUE_BEGIN, (position, int(waits)))

    def read_queue_begin(self) -> QueueBegin:
        """What the dispatcher has deleted, and whether it waits for space."""
        position, waits = self._snapshot(_QUEUE_BEGIN, 2)
        return QueueBegin(Position(position), bool(waits))

    def enter_process(self, role: Role) -> int:
        """Take the slot of ``role`` for this process; the number of times it was taken."""
        at = _PROCESS_AT[role]
        cells = self._cells
        cells[at + 3] += 1
        cells[at + 4] = time.monotonic_ns()
        cells[at + 1] = time.monotonic_ns()
        cells[at + 2] = 0
        cells[at + 5] = 0
        cells[at + 6] = 0
        cells[at] = os.getpid()
        return cells[at + 3]

    def beat(self, role: Role, now_ns: int) -> None:
        """Tell that the loop of ``role`` turns."""
        at = _PROCESS_AT[role]
        self._cells[at + BEAT_AT] = now_ns
        self._cells[at + TURNS_AT] = 1

    def take_settings(self, role: Role, number: int) -> None:
        """Tell that ``role`` goes by the settings of that ``settings_number``, or later ones."""
        self._cells[_PROCESS_AT[role] + 6] = number

    def give_sign(self, role: Role, now_ns: int) -> None:
        """Tell that ``role`` is at long work, before its loop or in a turn of it."""
        self._cells[_PROCESS_AT[role] + 1] = now_ns

    def set_asleep(self, role: Role, asleep: bool) -> None:
        """Tell that ``role`` wants a bell; see the module's text for the order of things."""
        self._cells[_PROCESS_AT[role] + 2] = asleep

    def asleep_cell(self, role: Role) -> memoryview:
        """The one cell of ``set_asleep`` and ``is_asleep``, for who needs it with each message."""
        return self.lend(_PROCESS_AT[role] + 2, 1)

    def sign_cells(self, role: Role) -> memoryview:
        """The cells of ``role``'s process slot, for a loop that writes two of them each turn: at
        ``BEAT_AT`` the time, at ``TURNS_AT`` a 1 (``beat``).
        """
        return self.lend(_PROCESS_AT[role], TURNS_AT + 1)

    def cursor_cells(self) -> tuple[memoryview, ...]:
        """Cells that change with what is published: written, durable, committed, the grant."""
        slots = _WRITTEN, _DURABLE, _COMMITTED, _GRANT
        return tuple(self.lend(slot * FIELDS, 1) for slot in slots)

    def is_asleep(self, role: Role) -> bool:
        """Whether ``role`` wants a bell."""
        return self._cells[_PROCESS_AT[role] + 2] != 0

    def read_process(self, role: Role) -> ProcessSlot:
        """The sign of life of ``role``."""
        at = _PROCESS_AT[role]
        pid, beat, asleep, generation, started, turns, number = self._cells[at : at + 7].tolist()
        return ProcessSlot(pid, beat, bool(asleep), generation, started, bool(turns), number)

    def counters(self, role: Role) -> memoryview:
        """``COUNTERS_MAX`` 64-bit counters of ``role``, writable by that process alone."""
        return self.lend(_COUNTERS_AT[role], COUNTERS_MAX)

    def read_counters(self, role: Role) -> list[int]:
        """What ``role`` has counted, as it is now."""
        return self.read_cells(_COUNTERS_AT[role], COUNTERS_MAX)

    def read_cells(self, at: int, count: int) -> list[int]:
        """What ``count`` cells from ``at`` on hold now."""
        return self._cells[at : at + count].tolist()

    def whole(self) -> memoryview:
        """All cells, until ``close``; for who knows what stands there (``PagePlaces``)."""
        return self.lend(0, len(self._cells))

    def lend(self, at: int, count: int) -> memoryview:
        """``count`` cells from ``at`` on, until ``close``; for who knows what stands there."""
        self._lent.append(self._cells[at : at + count])
        return self._lent[-1]


def _process_slot(role: Role) -> int:
    return _PROCESS + role if role < _FIRST_PORT else _PORT_PROCESS + role - _FIRST_PORT


_PROCESS_AT = tuple(_process_slot(role) * FIELDS for role in Role)
"""First cell of each role's process slot."""

_OWN_COUNTERS = {
    Role.OBSERVER: _OBSERVER_COUNTERS,
    Role.GRPC: _GRPC_COUNTERS,
    Role.COLD: _COLD_COUNTERS,
    Role.SLAVES: _SLAVES_COUNTERS,
    Role.RECEIPTS: _RECEIPTS_COUNTERS,
}

_COUNTERS_AT = tuple(
    FIELDS * _OWN_COUNTERS.get(role, _COUNTERS + _COUNTER_SLOTS * role) for role in Role
)
"""First cell of each role's counters."""


def _cursor(values: list[int]) -> LogCursor:
    return LogCursor(Position(values[0]), Index(values[1]), Term(values[2]))


def _durable(values: list[int]) -> tuple[LogCursor, int]:
    return _cursor(values), values[3]


def _grant(values: list[int]) -> Grant:
    return Grant(Term(values[0]), bool(values[1]), PublishedRole(values[2]), name_of(values[3:]))


def _space(values: list[int]) -> Space:
    return Space(SpaceState(values[0]), *values[1:])


def _log_begin(values: list[int]) -> LogBegin:
    return LogBegin(Position(values[0]), Position(values[1]))
