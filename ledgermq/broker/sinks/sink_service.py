"""Sink service: the leader moves committed rows, and drops what nobody commits.

A commit names the packs of a batch, each by its offset in the staged queue. The leader looks at
each of them, and proposes one command with all (``rules/tables/sinks.py``). From then on it moves
them, some at a time, each group exactly once (``broker/deliveries/moves.py``); so does whoever
leads next. What nobody commits is dropped after a time: the queue's source moves on, and the log
is kept no longer for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ledgermq.broker.callers import Caller
from ledgermq.broker.deliveries.moves import NOBODY, Moves, Part
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.sinks.sink_commits import (
    COMMITS_WAITING_MAX,
    NO_USER,
    Aborter,
    SinkCommit,
    SinkCommits,
)
from ledgermq.broker.sinks.staged_packs import StagedPacks
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.ipc.counters import Counts
from ledgermq.ipc.orders import PackRows
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    CorruptLogError,
    DamagedLogError,
    LedgerError,
    NotLeaderError,
    OutcomeUnknownError,
    StagedUnknownError,
)
from ledgermq.model.limits import STAGED_TOPIC
from ledgermq.process.clock import Clock
from ledgermq.rules.tables.moves import Moved
from ledgermq.rules.tables.sinks import QUEUE, Sink, SinkMoved, SinkSet
from ledgermq.rules.tables.table_changes import Change
from ledgermq.store.steady_time import SteadyTime

logger = logging.getLogger(__name__)

GROUP_ROWS_MAX = 16_384
GROUP_SIZE_MAX = 4 * 1024 * 1024
"""Rows and bytes of one group, which is one order to the writer and one hold of the put lock: so
many that a round through all processes is small beside it. One pack may have more."""

PASSED_MAX = 1_024
"""Packs that one command passes over when it drops some."""

LOOK_MS = 60_000
"""Longest time between two looks whether something is to be dropped: clocks may be set."""


class _Waiting(NamedTuple):
    caller: Caller
    sink: str
    batch: int
    until_ms: int


class SinkService(Service):
    """Owned by the broker process.

    Invariants: at most one move is under way; while this node does not lead, none is, and nobody
    waits. A pack of a committed batch is moved once; one that is not committed never is.
    """

    name = "sinks"
    can_rest = True

    def __init__(
        self,
        store: ReadableStore,
        tables: BrokerTables,
        log: StateLog,
        moves: Moves,
        settings: Settings,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self._store = store
        self._tables = tables
        self._log = log
        # Rows that are staged, and what is remembered of a sink, go for good.
        self._time = SteadyTime(clock.epoch_ns, clock.monotonic_ns)
        self._moves = moves
        self._settings = settings
        self._packs = StagedPacks(store, settings)
        self._commits = SinkCommits(
            self._packs, tables, log, moves, settings, mailbox=mailbox, clock=clock, counts=counts
        )
        self._waiting: list[_Waiting] = []
        self._moved: SinkMoved | None = None
        self._is_moving = False
        self._last_moved = ""
        self._look_ms: int | None = 0
        self._now_ms = self._retry_ms = 0
        self._mailbox = mailbox
        moves.register(STAGED_TOPIC, self._packs.records_of)

    @property
    def awaits(self) -> bool:
        return bool(self._commits or self._waiting) or self._is_moving

    @property
    def is_behind(self) -> bool:
        return self._commits.is_behind

    def next_deadline_ms(self) -> int | None:
        if not self._log.leads:
            return None
        deadlines = self._commits.deadlines_ms()
        deadlines += [one.until_ms for one in self._waiting]
        if self._now_ms < self._retry_ms:
            deadlines.append(self._retry_ms)
        elif self._look_ms is not None and not self._is_moving and self._moves.is_free(QUEUE):
            deadlines.append(self._look_ms)
        return min(deadlines, default=None)

    def notice_growth(self, now_ms: int) -> None:
        """Something was stored: it may be a pack that nobody will commit."""
        if self._look_ms is None:
            self._look_ms = now_ms + min(LOOK_MS, self._settings.sinks.staged_reserved_ms)

    def begin_again(self) -> None:
        """Nothing is under way any more, as far as this service knows."""
        self._stop(OutcomeUnknownError("node has met a bug; ask again"))
        self._commits.is_behind = False
        self._look_ms = self._now_ms

    def take_settings(self, settings: Settings) -> None:
        self._settings = settings
        self._commits.take_settings(settings)
        self._look_ms = 0

    def oldest_position(self) -> int | None:
        """Where the oldest pack that may yet become messages lies; None when there is none."""
        bounds = self._store.bounds(QUEUE)
        first = min(self._moves.source(QUEUE).safe_offset, *self._left(), bounds.end)
        if first >= bounds.end:
            return None
        units = self._store.units(QUEUE, max(first, bounds.first), 1)
        # Where nobody can say where it lies, the whole log is kept.
        return 0 if units is None or len(units) == 0 else int(units["position"][0])

    def commit(self, commit: SinkCommit) -> None:
        """Take a commit; ``turn`` answers it.

        Raises:
            NotLeaderError: another node leads, or none is known to.
            BusyError: too many wait.
        """
        self._commits.commit(commit)

    def wait(self, caller: Caller, sink: str, batch: int, until_ms: int) -> None:
        """Answer once all rows of a batch are messages, or the time is over.

        Raises:
            NotLeaderError: another node leads, or none is known to.
            StagedUnknownError: no such batch is committed, or it is not remembered.
            BusyError: too many wait.
        """
        self._log.check_leads()
        if not self._commits.is_known(sink, batch):
            raise StagedUnknownError("batch is not committed", sink=sink, batch=batch)
        if len(self._waiting) >= COMMITS_WAITING_MAX:
            raise BusyError("too many wait for batches", limit=COMMITS_WAITING_MAX)
        self._waiting.append(_Waiting(caller, sink, batch, until_ms))

    def abort(self, sink: str, batch: int, stages: Iterable[str], by: Aborter = NO_USER) -> None:
        """Drop what was staged, unless it is committed; without ``stages`` all of the batch.

        It is gone at once for this leader, and after its time for others. Rows of topics that
        ``by`` may not send to stay.

        Raises:
            NoPermissionError: the sink belongs to another user.
            NotLeaderError: another node leads, or none is known to.
        """
        self._log.check_leads()
        self._commits.abort(sink, batch, stages, by)
        self._look_ms = 0

    def staged(self) -> tuple[int, int]:
        """Offsets of the staged queue where packs may wait, half-open."""
        bounds = self._store.bounds(QUEUE)
        return min(self._moves.source(QUEUE).next_offset, bounds.end), bounds.end

    def turn(self, now_ms: int) -> None:
        """Look at packs, move what is committed, drop what never will be; answer who is due.

        To be called when the state's log was applied, and before it takes new requests.
        """
        self._now_ms = self._commits.now_ms = now_ms
        self._commits.is_behind = False
        if self._log.leads:
            self._commits.refuse_late()
            self._commits.look()
            if now_ms >= self._retry_ms and not self._is_moving and self._moves.is_free(QUEUE):
                self._ask()
            self._answer_waiting()
        else:
            self._stop(NotLeaderError("node does not lead now"))
            self._look_ms = now_ms

    def end_all(self) -> None:
        self._stop(OutcomeUnknownError("node stops; ask again"))

    def _stop(self, error: LedgerError) -> None:
        self._commits.stop(error)
        self._mailbox += [Reply(one.caller, error) for one in self._waiting]
        self._waiting.clear()
        self._is_moving = False

    def _ask(self) -> None:
        """Have the next packs moved, or others dropped, if there are some."""
        name = self._next_sink()
        if name is not None:
            self._request(lambda: self._plan_move(name))
        elif self._look_ms is not None and self._now_ms >= self._look_ms:
            self._look_ms = None
            self._forget_sinks()
            floor = self._floor(frozenset())
            if floor > self._moves.source(QUEUE).next_offset:
                self._request(self._plan_drop)

    def _request(self, plan: Callable[[], tuple[Moved, Sequence[Part]] | None]) -> None:
        def done() -> None:
            self._is_moving = False
            self._look_ms = self._now_ms

        def refused(error: LedgerError) -> None:
            self._is_moving = False
            self._look_ms = self._retry_ms = self._now_ms + RETRY_MS
            logger.warning("staged rows not moved yet: %s", error)

        self._is_moving = True
        self._moves.request(
            QUEUE, plan, done=done, refused=refused, now_ms=self._now_ms, also=self._also
        )

    def _also(self) -> list[Change]:
        return [] if self._moved is None else [self._moved]

    def _next_sink(self) -> str | None:
        """Whose packs are moved next: sinks take turns."""
        names = self._tables.state.sinks.unmoved
        if not names:
            return None
        self._last_moved = min((one for one in names if one > self._last_moved), default=min(names))
        return self._last_moved

    def _plan_move(self, name: str) -> tuple[Moved, Sequence[Part]] | None:
        self._moved = None
        sink = self._tables.state.sinks.get(name)
        if sink is None or not sink.left:
            return None
        offsets: list[int] = []
        parts: list[Part] = []
        count = size = 0
        for offset in sink.left:
            made = self._moves.taken(QUEUE, offset, self._packs.take)
            if not made and not self._moves.became_nothing(QUEUE, offset):
                raise CorruptLogError(
                    "rows of a committed batch are not in the log", sink=name, offset=offset
                )
            more = sum(part.rows if isinstance(part, PackRows) else 1 for part in made)
            size += sum(part.size if isinstance(part, PackRows) else len(part) for part in made)
            if parts and (count + more > GROUP_ROWS_MAX or size > GROUP_SIZE_MAX):
                break
            offsets.append(offset)
            parts += made
            count += more
        self._moved = SinkMoved(name, sink.batch, sink.moved + len(offsets))
        floor = self._floor(frozenset(offsets))
        return Moved(QUEUE, tuple(offsets), count, floor, {}, has_sums=False), parts

    def _plan_drop(self) -> tuple[Moved, Sequence[Part]] | None:
        # ``_also`` goes by it: with these packs none of a sink's is moved.
        self._moved = None
        floor = self._floor(frozenset())
        source = self._moves.source(QUEUE)
        return None if floor <= source.next_offset else (Moved(QUEUE, (), 0, floor, {}), ())

    def _left(self) -> list[int]:
        """The lowest pack of each batch that is not moved as a whole."""
        return [min(sink.left) for sink in self._unmoved()]

    def _unmoved(self) -> list[Sink]:
        sinks = self._tables.state.sinks
        found = [sinks.get(name) for name in sinks.unmoved]
        return [sink for sink in found if sink is not None]

    def _floor(self, moving: frozenset[int]) -> int:
        """Queue offset below which only what is ``moving`` waits; notes when to look again."""
        bounds = self._store.bounds(QUEUE)
        begin = self._moves.source(QUEUE).next_offset
        at = max(begin, bounds.first)
        waiting = {offset for sink in self._unmoved() for offset in sink.left} - moving
        end = min(bounds.end, at + PASSED_MAX)
        while at < end and at not in waiting:
            if at not in moving and not self._is_over(at):
                return max(at, begin)
            at += 1
        if at < bounds.end:
            self._look_ms = self._now_ms
        return max(at, begin)

    def _is_over(self, offset: int) -> bool:
        """Whether a pack that is not waiting to be moved can become messages no more."""
        place = f"{QUEUE.topic}/{QUEUE.queue_id}/{offset}"
        try:
            # Who can make no pack of it can commit none: it is over.
            pack = self._moves.poison.guarded(place, lambda: self._packs.pack_at(offset), None)
        except DamagedLogError as error:
            logger.error("pack cannot be read: offset=%d: %s", offset, error)
            self._look_ms = self._now_ms + LOOK_MS
            return False
        if pack is None or self._commits.is_known(pack.stage.sink, pack.stage.batch):
            return True
        if self._commits.is_aborted(pack.stage, pack.topics):
            return True
        now_ms = self._time.now_ms(pack.stored_ms)
        wait_ms = pack.stored_ms + self._settings.sinks.staged_reserved_ms - now_ms
        if wait_ms > 0:
            self._look_ms = self._now_ms + min(wait_ms, LOOK_MS)
            return False
        logger.warning(
            "staged rows dropped, nobody has committed them: sink=%s batch=%d stage=%s rows=%d",
            *pack.stage,
            pack.rows,
        )
        return True

    def _forget_sinks(self) -> None:
        """Have sinks forgotten that nobody will ask for any more."""
        rules, sinks = self._settings.sinks, list(self._tables.state.sinks)
        now_ms = self._time.now_ms(max((sink.at_ms for _, sink in sinks), default=0))
        for name, sink in sinks:
            kept_ms = rules.staged_reserved_ms if sink.is_once else rules.batch_reserved_ms
            if sink.left or sink.at_ms + kept_ms > now_ms:
                continue
            plan = _forgetting(self._tables, name, sink)
            touches = frozenset({f"sink {name}"})
            try:
                self._log.submit(
                    StateRequest(NOBODY, plan, touches, _nothing, refused=self._look_later),
                    self._now_ms,
                )
            except BusyError as error:
                self._look_later(error)
                return

    def _look_later(self, error: LedgerError) -> None:
        logger.info("sinks not forgotten yet: %s", error)
        self._look_ms = self._now_ms + RETRY_MS

    def _answer_waiting(self) -> None:
        # The command of a group says that it is moved, and stands before its rows.
        is_whole = self._moves.source(QUEUE).open_at is None
        left: list[_Waiting] = []
        for waiting in self._waiting:
            sink = self._tables.state.sinks.get(waiting.sink)
            is_moved = sink is None or sink.batch > waiting.batch or not sink.left
            is_done = is_moved and is_whole
            if is_done or waiting.until_ms <= self._now_ms:
                packs = 0 if sink is None else len(sink.left)
                result = {"done": is_done, "packs": 0 if is_done else packs}
                self._mailbox.append(Reply(waiting.caller, result))
            else:
                left.append(waiting)
        self._waiting = left


def _forgetting(tables: BrokerTables, name: str, sink: Sink) -> Callable[[], Sequence[Change]]:
    """Forget ``sink``, unless it has another batch by then."""

    def plan() -> Sequence[Change]:
        return [SinkSet(name, None)] if tables.state.sinks.get(name) == sink else ()

    return plan


def _nothing() -> None:
    """Nobody is answered."""
