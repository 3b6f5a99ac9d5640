"""Scrub of the committed log: damaged bytes found, and repaired from the other members.

Owned by the raft process, which has the peers. Reading is a thread's, one block at a time; writing
is the writer's (REPAIR in the append ring). A damage goes through

    found → asked for, of one member after the other → verified → written → read again

and counts as repaired when the file gives the right bytes. One is worked on at a time. What nobody
has waits, is told to the operator, and is tried again. No state of Raft changes: the node has
acknowledged these entries, and has them again.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Self

from ledgermq.ipc.append_ring import RepairedBytes
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.loop import LOOK_AGAIN_MS
from ledgermq.ipc.orders import Damaged, Repaired
from ledgermq.members.reports import LISTED_MAX, DamageStatus, write_report
from ledgermq.model.config.settings import ScrubSection
from ledgermq.model.errors import ProtocolError, StorageError
from ledgermq.model.events import Event
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.process.environment import Environment
from ledgermq.raft.core import RaftCore
from ledgermq.raft_node.repair.repair_source import entries_for, repair_answer
from ledgermq.repair.log_repair import Repair, accept_entries, check_item_terms
from ledgermq.repair.log_scrub import Damage, Family, LogScrub, ScrubEnd, Step
from ledgermq.repair.scrub_pace import ScrubPace
from ledgermq.store.log.entry_check import EntryPoint
from ledgermq.store.log.entry_files import LogPlaces
from ledgermq.wire.repair_frames import (
    RepairFrame,
    RepairKind,
    decode_repair_frame,
    encode_repair_frame,
    entries_digest,
)

logger = logging.getLogger(__name__)

ANSWER_NS = 2_000_000_000
WRITE_NS = 5_000_000_000
RING_FULL_NS = 100_000_000
RETRY_NS = 15_000_000_000
"""What nobody has is asked for again after this long."""

UNHEARD_RETRY_NS = 1_000_000_000
"""The same where a member was not reached or gave no answer: it may have it, and be back soon, and
until then no member that is behind gets these entries."""

SUSPECTS_MAX = 64

SendParts = Callable[[NodeId, Sequence[bytes]], bool]
WriteBytes = Callable[[RepairedBytes, bytes | memoryview], bool]


class RepairState(Enum):
    """What is being done about a damage."""

    WAITING = "waits"
    ASKING = "asked for"
    WRITING = "being written"
    CHECKING = "being read again"


class Suspect(NamedTuple):
    """A place that a reader has found wrong: the byte at a position, or the entry of an index."""

    place: int
    is_position: bool


@dataclass(slots=True)
class RepairCase:
    """One damage, and what is done about it.

    Attributes:
        due_ns: when to begin; ``deadline_ns``: when what was begun is given up.
        is_fresh: it was read in this very attempt.
        is_unheard: a member that was to be asked has not answered.
    """

    damage: Damage
    due_ns: int
    state: RepairState = RepairState.WAITING
    is_fresh: bool = True
    is_given_up: bool = False
    is_unheard: bool = False
    reason: str = ""
    asked: set[NodeId] = field(default_factory=set)
    peer: NodeId | None = None
    number: int = 0
    deadline_ns: int = 0
    written: int = 0


def damaged_entries(damage: Damage) -> int:
    """How many entries a damage has; none if only a blank is wrong."""
    return max(0, damage.last - damage.first + 1)


class ScrubCounts(NamedTuple):
    """What is counted, since the process was started; ``damaged_entries`` are those of now."""

    scrubbed_bytes: int
    damaged_entries: int
    repaired_entries: int
    repaired_bytes: int


_Found = Step | tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """What the thread is at: a step of the pass, a look at a place, or at what was written."""

    future: Future[_Found]
    suspect: Suspect | None = None
    case: RepairCase | None = None


class Scrub:
    """Nothing here blocks but reads of at most 1 MiB for a member that asks.

    Attributes:
        source: goes into the poll set; wakes for what somebody waits for.
    """

    @classmethod
    def of(
        cls, environment: Environment, core: RaftCore, send: SendParts, write: WriteBytes
    ) -> Self:
        """The scrub of the raft process whose consensus is ``core``."""

        def sources() -> Sequence[NodeId]:
            able = core.membership.members - core.membership.witnesses
            return sorted(able, key=lambda one: (one != core.leader, one))

        return cls(
            environment.settings.scrub,
            node=core.node,
            executor=environment.background(),
            send=send,
            write=write,
            sources=sources,
            term_of=core.term_of,
            report=environment.paths.damage,
            now_ns=environment.clock.monotonic_ns(),
        )

    def __init__(
        self,
        settings: ScrubSection,
        *,
        node: NodeId,
        executor: Executor,
        send: SendParts,
        write: WriteBytes,
        sources: Callable[[], Sequence[NodeId]],
        term_of: Callable[[Index], Term | None],
        report: Path,
        now_ns: int,
    ) -> None:
        """Begin with nothing known.

        Args:
            executor: runs what reads the log.
            send: hands a message to a peer's socket; false when it takes none now.
            write: hands bytes to the writer; false when it cannot take them now.
            sources: the members that may have entries.
            term_of: the term that the log has at an index.
            report: the file that tells the operator what is damaged.
        """
        self._pace = ScrubPace(settings, now_ns)
        self._node = node
        self._executor = executor
        self._send = send
        self._write = write
        self._sources = sources
        self._term_of = term_of
        self._report = report
        self._report.unlink(missing_ok=True)
        self._is_reported = True
        self._log: LogScrub | None = None
        self._file_size = 0
        self._end: ScrubEnd | None = None
        self._cases: dict[tuple[Family, Index], RepairCase] = {}
        self._active: RepairCase | None = None
        self._suspects: deque[Suspect] = deque()
        self._job: _Job | None = None
        self._point: EntryPoint | None = None
        # Answers to an earlier life of this process carry other numbers.
        self._number = now_ns
        self._scrubbed = self._repaired_entries = self._repaired_bytes = 0
        self.source = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def counts(self) -> ScrubCounts:
        """What was read, is damaged, and was repaired."""
        return ScrubCounts(
            self._scrubbed,
            sum(damaged_entries(case.damage) for case in self._cases.values()),
            self._repaired_entries,
            self._repaired_bytes,
        )

    def open(self, places: LogPlaces) -> None:
        """The log can be read from now on."""
        self._file_size = places.file_size
        self._log = LogScrub(places)

    def change(self, settings: ScrubSection, now_ns: int) -> None:
        """Take other settings while it runs."""
        self._pace.change(settings, now_ns)

    def suspect_entry(self, index: Index) -> None:
        """Entry ``index`` was read, and is not whole."""
        self._suspect(Suspect(index, is_position=False))

    def turn(self, now_ns: int, end: ScrubEnd | None) -> None:
        """Go on; bounded, and mostly nothing.

        Args:
            end: how far the log is committed; None while it must not be read.

        Raises:
            StorageError: the log cannot be read.
        """
        job = self._job
        if job is not None and job.future.done():
            self._drain()
            self._job = None
            self._finish(job, now_ns)
        self._end = end
        if end is not None and self._log is not None:
            active = self._active
            if active is not None and now_ns >= active.deadline_ns:
                self._give_time_up(active, now_ns)
            if self._active is None:
                self._begin_case(now_ns)
            if self._job is None:
                self._begin_job(self._log, end, now_ns)
        if not self._is_reported:
            self._tell()

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until a repair has to be looked at, or a step of the pass; None while that
        is never.

        The end of a step rings no bell: it is seen when the process wakes.
        """
        if self._active is None or self._active.state is RepairState.CHECKING:
            if self._log is None:
                return None
            return max(LOOK_AGAIN_MS, (self._pace.due_ns - now_ns) // 1_000_000)
        return max(0, (self._active.deadline_ns - now_ns) // 1_000_000)

    def take(self, source: NodeId, parts: Sequence[memoryview], now_ns: int) -> None:
        """A message of ``source`` whose first part is a repair frame.

        Raises:
            ProtocolError: it is none, or what it brings is not what is missing.
            StorageError: the log cannot be read.
        """
        frame = decode_repair_frame(parts[0])
        if len(parts) != (2 if frame.kind is RepairKind.ENTRIES else 1):
            raise ProtocolError("entries without their bytes, or the reverse", parts=len(parts))
        if frame.kind is RepairKind.ASK_ENTRIES:
            self._give(source, frame)
            return
        case = self._active
        if case is None or case.state is not RepairState.ASKING:
            return
        if (case.peer, case.number) != (source, frame.number):
            return
        if frame.kind is RepairKind.NO_ENTRIES:
            self._wait(case, now_ns)
            return
        try:
            repair = self._accept(case.damage, frame, parts[1])
        except ProtocolError:
            self._wait(case, now_ns)
            raise
        self._order(case, Family.DATA, repair.position, repair.data, now_ns)

    def take_order(self, order: Damaged | Repaired, now_ns: int) -> None:
        """A reader found damage, or the writer has written a repair."""
        if isinstance(order, Damaged):
            self._suspect(Suspect(order.position, is_position=True))
            return
        case = self._active
        if case is not None and case.state is RepairState.WRITING and case.number == order.number:
            self._check(case, now_ns)

    def close(self) -> None:
        """End the thread; what it reads is finished."""
        self._executor.shutdown(cancel_futures=True)
        os.close(self.source)

    def _give(self, source: NodeId, frame: RepairFrame) -> None:
        """Send a member the entries that it asks for, if they are whole here."""
        if self._log is None or self._end is None or self._term_of(frame.first) != frame.term:
            answer = repair_answer(frame, None)
        else:
            data = entries_for(self._log, frame, self._end)
            if data is None and frame.first <= self._end.index:
                self.suspect_entry(frame.first)
            answer = repair_answer(frame, data)
        self._send(source, answer)

    def _suspect(self, suspect: Suspect) -> None:
        if suspect not in self._suspects and len(self._suspects) < SUSPECTS_MAX:
            self._suspects.append(suspect)

    def _begin_job(self, log: LogScrub, end: ScrubEnd, now_ns: int) -> None:
        """Have the thread read what is most urgent."""
        case = self._active
        if case is not None and case.state is RepairState.CHECKING:
            damage, written = case.damage, case.written
            self._submit(lambda: _read_again(log, damage, written, end), case=case)
        elif self._suspects:
            suspect = self._suspects.popleft()
            self._submit(
                lambda: log.look_at(suspect.place, end, is_position=suspect.is_position),
                suspect=suspect,
            )
        elif now_ns >= self._pace.due_ns:
            self._begin_step(log, end, now_ns)

    def _begin_step(self, log: LogScrub, end: ScrubEnd, now_ns: int) -> None:
        size = self._pace.begin_step(now_ns)
        point = log.begin(end) if self._point is None else self._point
        if point is None:
            self._pace.end_pass()
            return
        self._submit(lambda: log.step(point, end, size))

    def _submit(
        self,
        work: Callable[[], _Found],
        *,
        suspect: Suspect | None = None,
        case: RepairCase | None = None,
    ) -> None:
        future = self._executor.submit(work)
        self._job = _Job(future, suspect, case)
        if suspect is not None or case is not None:
            future.add_done_callback(lambda _: os.eventfd_write(self.source, 1))

    def _finish(self, job: _Job, now_ns: int) -> None:
        """Take what the thread has found.

        Raises:
            StorageError: the log cannot be read; a file that retention deleted is no such error.
        """
        try:
            found = job.future.result()
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            self._forget_deleted(job)
            return
        if isinstance(found, Step):
            self._scrubbed += found.size
            self._go_on_at(found.point)
            if found.damage is not None:
                self._note(found.damage, now_ns)
            return
        if job.case is not None:
            self._finish_check(job.case, found, now_ns)
            return
        for damage in found:
            self._note(damage, now_ns)
        if not found and job.suspect is not None:
            kind = "position" if job.suspect.is_position else "index"
            logger.warning(
                "log is whole where a reader found damage: the queue or index file that led there"
                " may be damaged: %s=%d",
                kind,
                job.suspect.place,
            )

    def _forget_deleted(self, job: _Job) -> None:
        """A file was deleted as too old: what was damaged in it is nobody's concern any more."""
        if job.case is not None:
            self._drop(job.case)
        elif job.suspect is None:
            self._go_on_at(None)

    def _go_on_at(self, point: EntryPoint | None) -> None:
        """The next step begins there; None: the pass is over."""
        self._point = point
        if point is None:
            self._pace.end_pass()

    def _note(self, damage: Damage, now_ns: int) -> None:
        """``damage`` was read."""
        assert self._log is not None
        key = (damage.family, damage.first)
        known = self._cases.get(key)
        if known is not None:
            if known is not self._active:
                known.damage = damage
            return
        if damage.family is Family.INDEX:
            wrong = check_item_terms(damage.patch, damage.first, self._term_of)
            if wrong is not None:
                # An entry that Java wrote says of its term what raft knows better.
                self._suspect(Suspect(wrong, is_position=False))
                return
        self._cases[key] = RepairCase(damage, now_ns)
        self._is_reported = False
        path, offset = self._log.path(damage)
        logger.error(
            "log is damaged: file=%s offset=%d first_index=%d last_index=%d fault=%s",
            path,
            offset,
            damage.first,
            damage.last,
            damage.fault,
            extra={"event": Event.LOG_DAMAGED},
        )

    def _begin_case(self, now_ns: int) -> None:
        """Work on a damage whose time has come."""
        case = next((one for one in self._cases.values() if one.due_ns <= now_ns), None)
        if case is None:
            return
        self._active = case
        if not case.is_fresh:
            self._check(case, now_ns)
        elif case.damage.patch:
            damage = case.damage
            self._order(case, damage.family, damage.position, damage.patch, now_ns)
        else:
            self._ask(case, now_ns)

    def _ask(self, case: RepairCase, now_ns: int) -> None:
        """Ask the next member for what is missing."""
        damage = case.damage
        term = self._term_of(damage.first)
        members = [peer for peer in self._sources() if peer != self._node]
        for peer in members:
            if peer in case.asked or term is None:
                continue
            case.asked.add(peer)
            self._number += 1
            frame = RepairFrame(
                RepairKind.ASK_ENTRIES, self._number, damage.first, damage.last, term
            )
            if self._send(peer, [encode_repair_frame(frame)]):
                case.state, case.peer, case.number = RepairState.ASKING, peer, self._number
                case.deadline_ns = now_ns + ANSWER_NS
                return
            case.is_unheard = True
        self._give_up(case, members, now_ns)

    def _give_up(self, case: RepairCase, members: Sequence[NodeId], now_ns: int) -> None:
        """Nobody gives what is missing now."""
        if members:
            case.reason = f"no member has given it: {', '.join(members)}"
        else:
            case.reason = "there is no other member"
        if not case.is_given_up:
            logger.error(
                "log stays damaged: first_index=%d last_index=%d position=%d reason=%s",
                case.damage.first,
                case.damage.last,
                case.damage.position,
                case.reason,
                extra={"event": Event.LOG_STAYS_DAMAGED},
            )
        case.is_given_up = True
        case.is_fresh = False
        case.asked.clear()
        self._wait(case, now_ns + (UNHEARD_RETRY_NS if case.is_unheard else RETRY_NS))
        case.is_unheard = False

    def _wait(self, case: RepairCase, due_ns: int) -> None:
        """Go on with ``case`` at ``due_ns``."""
        case.state = RepairState.WAITING
        case.due_ns = due_ns
        self._active = None
        self._is_reported = False

    def _give_time_up(self, case: RepairCase, now_ns: int) -> None:
        """A member, or the writer, has not answered in time."""
        if case.state is RepairState.WRITING:
            # It may have written all the same.
            case.is_fresh = False
            self._wait(case, now_ns)
        elif case.state is RepairState.ASKING:
            case.is_unheard = True
            self._wait(case, now_ns)

    def _accept(self, damage: Damage, frame: RepairFrame, data: memoryview) -> Repair:
        assert self._log is not None
        if entries_digest(data) != frame.digest:
            raise ProtocolError("entries of a peer with another digest", first=frame.first)
        repair = accept_entries(damage, data, file_size=self._file_size, term_of=self._term_of)
        if repair.ends_damage and not self._log.joins(damage, repair.chain):
            raise ProtocolError(
                "entries of a peer do not join the one behind them", last=repair.last
            )
        return repair

    def _order(
        self, case: RepairCase, family: Family, position: int, data: bytes | memoryview, now_ns: int
    ) -> None:
        """Have the writer write ``data``."""
        self._number += 1
        case.number = self._number
        if not self._write(RepairedBytes(self._number, family, Position(position)), data):
            # Our ring was full: what that member has given was good, and it may be asked again.
            case.asked -= {case.peer}
            self._wait(case, now_ns + RING_FULL_NS)
            return
        case.state, case.written = RepairState.WRITING, len(data)
        case.deadline_ns = now_ns + WRITE_NS

    def _check(self, case: RepairCase, now_ns: int) -> None:
        case.state = RepairState.CHECKING
        case.deadline_ns = now_ns

    def _finish_check(self, case: RepairCase, found: tuple[Damage, ...], now_ns: int) -> None:
        """What was written, or may have been, was read again."""
        key = (case.damage.family, case.damage.first)
        again = next((one for one in found if (one.family, one.first) == key), None)
        if again is not None:
            self._go_on(case, again, now_ns)
        else:
            self._count(case, found)
            self._drop(case)
        for damage in found:
            self._note(damage, now_ns)

    def _go_on(self, case: RepairCase, again: Damage, now_ns: int) -> None:
        """``again`` was read where something was written, or where time was to help."""
        case.damage, case.is_fresh = again, True
        if case.written and again.patch:
            case.is_given_up = True
            case.reason = "the disk does not keep what is written there"
            now_ns += RETRY_NS
        self._wait(case, now_ns)

    def _count(self, case: RepairCase, left: tuple[Damage, ...]) -> None:
        damage = case.damage
        behind = [one.first for one in left if one.family is Family.DATA]
        entries = (
            min(damage.last + 1, *behind) - damage.first if behind else damaged_entries(damage)
        )
        self._repaired_entries += entries
        self._repaired_bytes += case.written
        logger.warning(
            "log is repaired: first_index=%d entries=%d position=%d bytes=%d source=%s",
            damage.first,
            entries,
            damage.position,
            case.written,
            "the log itself" if damage.patch else case.peer or "elsewhere",
            extra={"event": Event.LOG_REPAIRED},
        )

    def _drop(self, case: RepairCase) -> None:
        self._cases.pop((case.damage.family, case.damage.first), None)
        if self._active is case:
            self._active = None
        self._is_reported = False

    def _tell(self) -> None:
        """Write what is damaged where ``status`` finds it."""
        self._is_reported = True
        assert self._log is not None
        listed = []
        for case in list(self._cases.values())[:LISTED_MAX]:
            path, offset = self._log.path(case.damage)
            listed.append(
                DamageStatus(
                    file=str(path),
                    offset=offset,
                    position=case.damage.position,
                    first_index=case.damage.first,
                    last_index=case.damage.last,
                    fault=case.damage.fault,
                    unrepairable=case.reason if case.is_given_up else "",
                )
            )
        write_report(self._report, listed)

    def _drain(self) -> None:
        try:
            os.eventfd_read(self.source)
        except BlockingIOError:
            return


def committed_end(page: CursorPage) -> ScrubEnd | None:
    """How far the log is committed; None before that is known."""
    committed = page.read_committed()
    return ScrubEnd(committed.position, committed.index) if page.has_committed() else None


def _read_again(log: LogScrub, damage: Damage, written: int, end: ScrubEnd) -> tuple[Damage, ...]:
    """What is damaged still of ``damage``, or behind it, as the disk has it."""
    if written:
        log.forget(damage.family, damage.position, written)
    if damage.patch:
        return () if log.is_patched(damage) else (damage,)
    return log.damages(damage.point, Index(min(end.index, damage.last + 1)), end)
