"""State log: changes proposed by the leader's broker, applied by every node's.

What it applies is a queue like any other, read as far as it is dispatched. What it proposes goes to
the writer as an order, and comes back through that queue; only then are those answered who asked.

A request may have messages of other topics follow its command: a *group*, whose last record is a
command again, so that all of it is in the log when that one is applied.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import NamedTuple

from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.broker_tables import BrokerTables, TableRoom
from ledgermq.broker.state.state_reader import StateReader
from ledgermq.broker.state.state_requests import (
    BatchPlan,
    Generations,
    GroupPart,
    ProposedBatch,
    Reply,
    StateRequest,
    WaitingRequest,
)
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.ipc.counters import Counts, no_counts
from ledgermq.ipc.orders import ProposeState, encode
from ledgermq.members.system_entries import command_record, snapshot_record
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.errors import (
    BusyError,
    CorruptLogError,
    DiskFullError,
    LedgerError,
    NewerVersionError,
    NotLeaderError,
    OutcomeUnknownError,
    StorageError,
)
from ledgermq.model.ids import Position, Term
from ledgermq.process.clock import MACHINE_CLOCK, Clock, epoch_ms
from ledgermq.process.environment import OrderBell
from ledgermq.rules.given_back import MessageGivenBack
from ledgermq.rules.state.broker_state import Applied
from ledgermq.rules.state.state_commands import (
    Part,
    Snapshot,
    StateCommand,
    check_in_force,
    encode_command,
    encode_snapshot_in_steps,
)
from ledgermq.rules.tables.documents import Steps
from ledgermq.rules.tables.moves import Moved, MoveEnded
from ledgermq.rules.tables.share_changes import ShareChanged
from ledgermq.rules.tables.table_changes import Change
from ledgermq.sessions.request_faults import Contain, let_through
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.state_mark import write_state_mark
from ledgermq.wire.session import Standing

logger = logging.getLogger(__name__)

PROPOSAL_MS = 2_000
"""A batch that has not come back by then may be lost: those who asked are told so."""

CHANGES_WAITING_MAX = 10_000
RETRY_MS = 1_000
"""After a proposal was refused, as on a full disk, nobody proposes again for this long."""

COMMANDS_PER_SNAPSHOT = 10_000

SNAPSHOT_NS = 10_000_000
"""A snapshot is encoded for so long in one turn."""

REQUESTS_PER_COMMAND_MAX = 256
"""Requests that one turn looks at, and one command has at most: to plan and to apply them takes
some ten milliseconds. More wait for the next command."""


class _Building(NamedTuple):
    """A snapshot that is encoded; ``next_offset`` is of the command that its tables lack."""

    identity: str
    at_ms: int
    next_offset: int
    steps: Steps[list[Part]]


class StateLog(Service):
    """Owned by the broker process.

    Invariants: at most one batch is under way; while this node does not lead, none is, and nobody
    waits. Commands are applied in the order of the queue, each once to each table. While it is
    *certain*, all that this process has proposed before is in the log and applied, or never will
    be: only then are records of other topics proposed, which must not be there twice.

    Attributes:
        is_beginning: raft has made this node the leader, and not all that was committed before is
            applied.
        room: bounds what is added to the tables.
        begin_log: what the first command of a log changes.
    """

    name = "state"

    def __init__(
        self,
        settings: Settings,
        store: ReadableStore,
        tables: BrokerTables,
        writer: OrderBell,
        generations: Callable[[], Generations] = lambda: Generations(0, 0),
        *,
        mailbox: Mailbox,
        clock: Clock = MACHINE_CLOCK,
        counts: Counts | None = None,
        sign_of_life: Callable[[], None] = lambda: None,
        contain: Contain = let_through,
    ) -> None:
        """Nothing is proposed yet; ``contain`` is told of a bug that a plan has met."""
        self._contain = contain
        self._clock = clock
        counts = no_counts() if counts is None else counts
        self._settings = settings
        self._store = store
        self._tables = tables
        self.room = TableRoom(tables, settings.limits, clock=clock, counts=counts)
        self._owner = ""
        self._writer = writer
        self._reader = StateReader(
            store, tables, self._take_applied, counts=counts, sign_of_life=sign_of_life, clock=clock
        )
        self._term: Term | None = None
        self._batch: ProposedBatch | None = None
        self._waiting: deque[WaitingRequest] = deque()
        # The last turn has planned nothing of what it looked at, and more waits.
        self._goes_on = False
        self._commands_since = 0
        self._parts_position = 0
        self._mark_path = StorePaths.of(settings).state_mark
        self._retry_ms = 0
        self._now_ms = 0
        self._is_snapshot_due = False
        self._building: _Building | None = None
        self._is_unsaved = False
        self._mailbox = mailbox
        self._generations = generations
        self._waiting_messages: list[Callable[[], int | None]] = []
        self._mark_position = 0
        self._is_certain = False
        self._snapshot_term = 0
        self.is_beginning = False
        self.begin_log: Callable[[], BatchPlan] = BatchPlan

    @property
    def term(self) -> int:
        """Term in which this node may propose; 0 while it may not."""
        return self._term or 0

    @property
    def tables_term(self) -> int:
        """Term in which this node leads, once its snapshot is applied; 0 before."""
        return self.term if self._snapshot_term == self.term else 0

    @property
    def leads(self) -> bool:
        """Whether this node may propose."""
        return self._term is not None

    @property
    def is_settled(self) -> bool:
        """Whether this node leads, and its tables say all that the log will ever say of the past.

        Then a move that is open was cut by a crash, and another one may begin.
        """
        return self.leads and self._is_certain and self._batch is None and self._trouble is None

    @property
    def is_certain(self) -> bool:
        """Whether this node leads, and knows of all that it has proposed but for one batch."""
        return self.leads and self._is_certain

    @property
    def hole(self) -> int:
        """Bytes before each record that is to be appended."""
        return ENTRY_HEADER_SIZE if self._settings.store.log is LogKind.DLEDGER else 0

    @property
    def next_offset(self) -> int:
        """Queue offset of the next command; -1 before it is known where the tables stand."""
        return self._reader.next_offset

    @property
    def awaits(self) -> bool:
        return self._batch is not None

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has to look although nothing was dispatched; None when never."""
        if self._batch is not None:
            return self._batch.until_ms
        if self._term is None:
            return None
        if self._goes_on:
            return self._now_ms
        if self._now_ms < self._retry_ms and (
            self._waiting or self._is_snapshot_due or not self._is_certain
        ):
            return self._retry_ms
        return self._waiting[0].until_ms if self._waiting else None

    def submit(self, request: StateRequest, now_ms: int) -> None:
        """Take a request; ``turn`` proposes what it plans, and answers it.

        Raises:
            NotLeaderError: another node leads, or none is known to.
            BusyError: too many wait.
        """
        if self._term is None:
            raise NotLeaderError("node does not lead now: nothing was changed")
        self.check()
        if len(self._waiting) >= CHANGES_WAITING_MAX:
            raise BusyError(
                "too many wait for a change of topics or groups", limit=CHANGES_WAITING_MAX
            )
        self._waiting.append(WaitingRequest(request, now_ms + PROPOSAL_MS, self._owner))

    @contextmanager
    def asked_by(self, owner: str) -> Iterator[None]:
        """What is submitted meanwhile adds to what ``owner`` creates; empty: to nobody's."""
        self._owner = owner
        try:
            yield
        finally:
            self._owner = ""

    def lead(self, standing: Standing) -> bool:
        """Take note of who leads; a new leader's tables are those of all from its snapshot on.

        To be called when everything that was in the log at the term's begin is dispatched, and
        applied.

        Returns:
            Whether this node has begun to lead, anew perhaps, or has ceased to.
        """
        before = self._term
        if standing.leads and before == standing.term:
            return False
        if self._term is not None:
            self._fail(OutcomeUnknownError("node leads no more; ask again"))
        self._term = Term(standing.term) if standing.leads else None
        self._is_snapshot_due = standing.leads
        self._building = None
        self._is_certain = False
        return self._term != before

    def apply(self) -> None:
        """Apply what is new in the log, as far as the store has looked, for a bounded time.

        A damaged place holds it up until it is repaired: what stands behind it may undo it.
        """
        # Tables that change again with the next turn are not written.
        if self._reader.apply() and not self.is_behind:
            self._save()

    @property
    def is_behind(self) -> bool:
        """Whether the last ``apply`` has left something for the next one."""
        return self._reader.is_behind

    @property
    def level_needed(self) -> int:
        """The feature level that the next command needs and this version does not know; else 0."""
        return self._reader.level_needed

    @property
    def is_held_up(self) -> bool:
        """Whether the log has to be repaired, or a newer version started, before it goes on."""
        return self._trouble is not None

    @property
    def _trouble(self) -> CorruptLogError | NewerVersionError | None:
        return self._reader.trouble

    def check(self) -> None:
        """Refuse to tell what the tables say while they are held up, or are not those of the log.

        Raises:
            NotLeaderError: see ``check_started``.
            BusyError: what stands next in the log is damaged, or needs a newer version.
        """
        self.check_started()
        if self._trouble is not None:
            raise BusyError("topics, groups and offsets are held up", reason=str(self._trouble))

    def check_started(self) -> None:
        """Refuse to tell what the tables say before they have all that was acknowledged.

        Raises:
            NotLeaderError: this process has just begun, or this node leads and has not applied all
                that its predecessor was asked for; ask again.
        """
        self._tables.check_started()
        if self.is_beginning:
            raise NotLeaderError("node begins to lead: it has not read yet what was changed before")

    def check_newest(self) -> None:
        """Refuse to tell as a leader what another one may have changed meanwhile.

        Raises:
            NotLeaderError, BusyError: as of ``check``; or no majority was heard of lately.
        """
        self.check()
        if self.leads and not self._store.leads_alone(self._clock.monotonic_ns()):
            raise NotLeaderError("another node may lead by now: no majority was heard of lately")

    def check_leads(self) -> None:
        """Refuse what only a leader may do, or knows.

        Raises:
            NotLeaderError: this node does not lead.
            BusyError: as of ``check``.
        """
        if not self.leads:
            raise NotLeaderError("node does not lead now")
        self.check()

    def _save(self) -> None:
        try:
            self._tables.save_changed()
            self._is_unsaved = False
        except DiskFullError as error:
            # Tried again with the next turn; the log has what the files lack.
            if not self._is_unsaved:
                logger.warning("broker's tables not written, the disk is full: %s", error)
            self._is_unsaved = True

    def take_settings(self, settings: Settings) -> None:
        self.room.limits = settings.limits

    def turn(self, now_ms: int) -> None:
        """Propose what waits; answer who is due."""
        self._now_ms = now_ms
        batch = self._batch
        # It may be in the log, and not be read yet: a snapshot of 100,000 topics takes longer.
        if batch is not None and now_ms >= batch.until_ms and not self.is_behind:
            self._batch = None
            self._is_certain = False
            logger.warning("command of the broker's state not in the log: id=%s", batch.identity)
            self._is_snapshot_due |= not batch.requests
            self._refuse(
                batch.requests,
                OutcomeUnknownError(
                    "change is not in the log yet, and may still come: ask again",
                    waited_ms=PROPOSAL_MS,
                ),
            )
        self._refuse_late(now_ms)
        self._goes_on = False
        is_free = self._batch is None and now_ms >= self._retry_ms
        if self._term is not None and is_free and self._reader.has_begun and self._trouble is None:
            if not self._is_certain:
                # What was sent before may yet come, and say otherwise than the tables do now:
                # nothing is planned by them before a later command has come back.
                plan = self.begin_log() if self.next_offset == 0 else BatchPlan()
                self._propose(self._term, plan, now_ms)
            elif self._is_snapshot_due or self._commands_since >= COMMANDS_PER_SNAPSHOT:
                self._propose_snapshot(self._term, now_ms)
            elif self._waiting:
                self._propose_waiting(self._term, now_ms)

    def want_snapshot(self, before: Position) -> None:
        """The log before a position is to go, but is kept for what a snapshot could let go of."""
        is_kept = self._mark_position < before
        self._is_snapshot_due |= self._term is not None and is_kept and self._oldest() >= before

    def keep_log_from(self, position: Callable[[], int | None]) -> None:
        """Have the log kept from this position on, too: messages there wait for their time."""
        self._waiting_messages.append(position)

    def _oldest(self) -> int:
        """Where the oldest message that waits lies, or a position behind all."""
        found = (self._kept_from(position) for position in self._waiting_messages)
        return min((at for at in found if at is not None), default=2**62)

    def _kept_from(self, position: Callable[[], int | None]) -> int | None:
        try:
            return position()
        except (StorageError, OSError, MemoryError):
            raise
        except Exception as error:
            # Nobody knows: all is kept.
            if not isinstance(error, LedgerError):
                self._contain(error)
            logger.warning("log is kept as a whole, what waits in it is not known: %s", error)
            return 0

    def take_refusal(self, sequence: int) -> None:
        """The writer did not take a proposal: it does not stamp now, or its disk is full."""
        batch = self._batch
        if batch is not None and sequence == _sequence_of(batch.identity):
            self._batch = None
            self._retry_ms = self._now_ms + RETRY_MS
            self._is_snapshot_due |= not batch.requests
            self._refuse(
                batch.requests,
                NotLeaderError("the writer takes nothing now: nothing was changed"),
            )

    def end_all(self) -> None:
        self._fail(OutcomeUnknownError("node stops; ask again"))

    def _take_applied(self, position: int, label: str, applied: Applied) -> None:
        """A command was applied, whose record is at ``position`` of the log."""
        self._commands_since += 1
        # The first part of a snapshot: the mark names where all of it begins.
        if label.startswith("1/"):
            self._parts_position = position
        if applied.is_snapshot:
            self._commands_since = 0
            self._write_mark()
        self._note(applied)

    def _write_mark(self) -> None:
        if self._tables.state.open_moves():
            # What stands behind its command is still to be compared: the older mark keeps that.
            return
        self._mark_position = min(self._parts_position, self._oldest())
        try:
            write_state_mark(self._mark_path, self._mark_position)
        except DiskFullError as error:
            # The older mark keeps more of the log.
            logger.warning("mark of a snapshot not written: %s", error)

    def _note(self, applied: Applied) -> None:
        batch = self._batch
        if batch is None or applied.identity != batch.identity:
            return
        self._batch = None
        # The writer takes orders one after the other, and its log was read up to here.
        self._is_certain = True
        if applied.is_snapshot:
            self._snapshot_term = self.term
        for request in batch.requests:
            self._answer(request)

    def _answer(self, request: StateRequest) -> None:
        try:
            result = request.answer()
        except LedgerError as error:
            # Applied all the same; only its answer cannot be given.
            self._mailbox.append(Reply(request.caller, error))
            return
        if result is not None:
            self._mailbox.append(Reply(request.caller, result))

    def _refuse_late(self, now_ms: int) -> None:
        while self._waiting and self._waiting[0].until_ms <= now_ms:
            error = NotLeaderError(
                "the log takes no changes now: nothing was changed", waited_ms=PROPOSAL_MS
            )
            self._refuse([self._waiting.popleft().request], error)

    def _propose_snapshot(self, term: Term, now_ms: int) -> None:
        """Encode it for a bounded time; sent when it is whole. All changes wait for that."""
        building = self._building
        if building is None or building.next_offset != self.next_offset:
            # What was built of tables that have changed since is let go of.
            building = self._building = self._begin_snapshot()
        until_ns = self._clock.monotonic_ns() + SNAPSHOT_NS
        try:
            while True:
                next(building.steps)
                if self._clock.monotonic_ns() >= until_ns:
                    self._is_snapshot_due = self._goes_on = True
                    return
        except StopIteration as ended:
            parts: list[Part] = ended.value
        self._building, self._is_snapshot_due = None, False
        at_ms = building.at_ms
        records = [snapshot_record(part, self._settings, now_ms=at_ms) for part in parts]
        self._send(term, building.identity, records, (), now_ms)

    def _begin_snapshot(self) -> _Building:
        if self._tables.state.needs_snapshot:
            # Not by our own hand: what is deleted leaves the last snapshot. Nobody has more.
            logger.warning("tables of all lack commands from now on that the log has no more")
        identity, at_ms = self._new_identity(), epoch_ms(self._clock)
        self._tables.begin_term(at_ms)
        snapshot = Snapshot(identity, at_ms, self._tables.snapshot_tables())
        steps = encode_snapshot_in_steps(snapshot)
        return _Building(identity, at_ms, self.next_offset, steps)

    def _propose_waiting(self, term: Term, now_ms: int) -> None:
        """One command of what waits, in order; what touches the same waits for the next one."""
        plan = BatchPlan()
        self.room.begin()
        touched: set[str] = set()
        read: set[str] = set()
        later: list[WaitingRequest] = []
        for _ in range(min(len(self._waiting), REQUESTS_PER_COMMAND_MAX)):
            waiting = self._waiting.popleft()
            request = waiting.request
            is_free = touched.isdisjoint(request.touches | request.reads)
            if not (is_free and read.isdisjoint(request.touches)):
                # What it touches besides counts, too: a third that waits for that stays behind it.
                touched |= request.touches
                read |= request.reads
                later.append(waiting)
                continue
            try:
                planned = request.plan()
                self.room.check(planned, waiting.owner)
                check_in_force(planned, self._tables.features.level)
                records = request.records() if request.records is not None else ()
            except LedgerError as error:
                self._refuse([request], error)
                continue
            except (OSError, MemoryError):
                raise
            except Exception as error:
                # Nothing has changed by it: a plan is what its records and tables say.
                self._refuse([request], self._contain(error))
                continue
            touched |= request.touches
            read |= request.reads
            if not planned and not records:
                self._answer(request)
            elif plan.has_room(records):
                plan.add(request, planned, records)
            else:
                later.append(waiting)
        self._waiting.extendleft(reversed(later))
        self._goes_on = bool(self._waiting) and not plan.requests
        if plan.requests:
            self._propose(term, plan, now_ms)

    def _propose(self, term: Term, plan: BatchPlan, now_ms: int) -> None:
        identity, at_ms = self._new_identity(), epoch_ms(self._clock)
        sums = plan.sums(self.hole)
        # What says that the records are there stands behind them.
        is_late = [bool(sums) and _is_behind(change) for change in plan.changes]
        late = list(compress(plan.changes, is_late))
        early = tuple(compress(plan.changes, (not one for one in is_late)))
        head = StateCommand(f"{identity}+" if sums else identity, at_ms, early, sums)
        first = command_record(encode_command(head), self._settings, now_ms=at_ms)
        group: list[GroupPart] = [first]
        if sums:
            ended = [
                MoveEnded(change.queue)
                for change in plan.changes
                if isinstance(change, Moved) and change.records
            ]
            tail = encode_command(StateCommand(identity, at_ms, (*ended, *late)))
            group += [*plan.records, command_record(tail, self._settings, now_ms=at_ms)]
        self._send(term, identity, group, tuple(plan.requests), now_ms)

    def _send(
        self,
        term: Term,
        identity: str,
        records: Sequence[GroupPart],
        requests: tuple[StateRequest, ...],
        now_ms: int,
    ) -> None:
        sequence = _sequence_of(identity)
        order = ProposeState(term, *self._generations(), sequence, records)
        # Before it is sent: a refusal is taken by the batch that it is for.
        self._batch = ProposedBatch(identity, requests, now_ms + PROPOSAL_MS)
        if not self._writer.send(encode(order)):
            self.take_refusal(sequence)

    def _new_identity(self) -> str:
        return f"{self._clock.seed():016x}{self._clock.seed():016x}"

    def _fail(self, error: LedgerError) -> None:
        batch, self._batch = self._batch, None
        under_way = batch.requests if batch is not None else ()
        waiting = [one.request for one in self._waiting]
        self._waiting.clear()
        self._refuse([*under_way, *waiting], error)

    def _refuse(self, requests: Sequence[StateRequest], error: LedgerError) -> None:
        for request in requests:
            if request.refused is not None:
                request.refused(error)
            else:
                self._mailbox.append(Reply(request.caller, error))


def _is_behind(change: Change) -> bool:
    """Whether a change says what the records before its command have done."""
    return isinstance(change, MessageGivenBack) or (
        isinstance(change, ShareChanged) and change.is_behind
    )


def _sequence_of(identity: str) -> int:
    """The number that an order can carry; collisions only make a refusal look like another's."""
    return int(identity[:15], 16)
