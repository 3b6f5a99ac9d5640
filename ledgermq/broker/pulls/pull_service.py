"""Pull service: answers from the store at once, or a long poll."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from ledgermq.broker.callers import Client
from ledgermq.broker.pulls.cold_reads import ColdAnswer, ColdReads
from ledgermq.broker.pulls.pull_answers import Answer, Held, Hold, Holds, Later, nothing, refusal
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.reading.poison_messages import PoisonMessages
from ledgermq.broker.reading.property_scan import Integers, Wanted, sql_filter
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Service
from ledgermq.formats.arrays import Units
from ledgermq.formats.batch_unit import BATCH_TAGS
from ledgermq.ipc.counters import BrokerCounter, Counts, no_counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, NotLeaderError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import MACHINE_CLOCK, Clock
from ledgermq.rules.messages.pull_rules import (
    ReadableRange,
    Selection,
    judge_offset,
    select,
    tag_table,
)
from ledgermq.rules.messages.rate_limits import RateLimits
from ledgermq.rules.sql.sql_filter import SqlFilter
from ledgermq.sessions.request_faults import Contain, let_through
from ledgermq.store.queues.queue_end import PREFILL_SIZE
from ledgermq.store.record_parts import RecordParts
from ledgermq.wire.cold_frames import ColdNothing
from ledgermq.wire.pull_frame import Pull, PullStatus

SCAN_STEP_UNITS = 4_096
SCANNED_UNITS_MAX = 65_536
"""Units that one pull by tags looks at before it says how far it came."""

SQL_STEP_UNITS = 512
SQL_SCANNED_UNITS_MAX = 2_048
SQL_TURN_UNITS_MAX = 8_192
"""Units that one pull, and one turn of the loop, looks at by an SQL expression: each takes time."""

SQL_SIZE = 64
"""Characters of an expression of which that is true; a longer one is looked for in fewer units."""

_VAIN = (PullStatus.NO_MATCHED_MESSAGE, PullStatus.MESSAGE_WAS_REMOVING)
"""Status of a pull that has found nothing; the second one if the last unit that was looked at is
that of a removed message."""

PACED_MAX = 10_000
"""Old reads that wait for their turn; more are answered at once."""

HELD_QUEUES_PER_TURN = 512
"""Queues looked at in one turn for those who wait, so that the loop comes round."""

ANSWERS_NS = 10_000_000
"""Pulls whose queues have grown are answered for so long in one turn, and as long those whose time
has ended: thousands may wait for one message."""

TAKEN_AT_ONCE = 16
"""Pulls that are answered before it is looked what time it is."""

LONG_HOLD_MS = 2_000
HOLDS_END_MS = 200
"""Longer holds end together, so far apart: to wake up for each of thousands costs more than what is
answered then."""

CheckQueue = Callable[[QueueName], None]
SendAnswers = Callable[[Iterable[Answer]], None]


class _Paced(NamedTuple):
    """A ``Later`` that waits; ``number`` keeps those of one millisecond in their order."""

    due_ms: int
    number: int
    client: Client
    queue: QueueName
    held: Held
    deadline_ms: int


class _Given(NamedTuple):
    """Records of an answer, and where the client goes on."""

    parts: RecordParts
    next_offset: int


class PullService(Service):
    """Looks up what is pulled, and keeps the holds. It knows no socket.

    Invariant: a pull is answered once, or held, or waits for its turn; what is held or waits is
    answered once, or cancelled.

    Attributes:
        limits: the buckets of what is read, of whoever gives messages out; nothing here asks them.
        send: where answers go that are given later than at once; the time that it takes counts in
            what a turn may take.
    """

    name = "pulls"

    def __init__(
        self,
        store: ReadableStore,
        holds: Holds[Client, Held],
        check_queue: CheckQueue,
        *,
        filters_properties: bool = True,
        cold: ColdReads | None = None,
        counts: Counts | None = None,
        contain: Contain = let_through,
        clock: Clock = MACHINE_CLOCK,
    ) -> None:
        """Nothing is held.

        Args:
            filters_properties: SQL expressions are taken.
            cold: asked for what the log has no more; None: nobody has it.
            counts: the broker's counters.
            contain: told of a bug that a pull has met while it waited.
        """
        self._clock = clock
        self._contain = contain
        self._filters_properties = filters_properties
        self._counts = no_counts() if counts is None else counts
        self._poison = PoisonMessages(self._counts)
        self._evaluated = 0
        self._store = store
        self._cold = cold
        self._holds = holds
        # Asked in each turn, twice: a mapping's truth costs no call.
        self._held = holds.by_serial
        self._check_queue = check_queue
        # With how many of those that wait are to be looked at; None: all.
        self._unlooked: dict[QueueName, int | None] = {}
        self.limits: RateLimits | None = None
        self.send: SendAnswers = _to_nobody
        self._displaced: deque[Hold[Client, Held]] = deque()
        self._paced: list[_Paced] = []
        self._paced_count = 0

    @classmethod
    def made(
        cls,
        known: KnownTopics,
        settings: Settings,
        *,
        cold: ColdReads | None,
        counts: Counts,
        contain: Contain,
        clock: Clock,
    ) -> PullService:
        """The one of a process, as the settings say."""
        limits = settings.limits
        return cls(
            known.store,
            Holds(limit=limits.held_pulls_max, share=limits.held_pulls_per_client),
            known.check_queue,
            filters_properties=settings.reads.enable_property_filter,
            cold=cold,
            counts=counts,
            contain=contain,
            clock=clock,
        )

    def know_hosts(self, host_of: Callable[[Client], str]) -> None:
        """Be told by ``host_of``, too, of which host a client is; of others it says nothing."""
        others = self._holds.host_of
        self._holds.host_of = lambda client: host_of(client) or others(client)

    def take_settings(self, settings: Settings) -> None:
        self._holds.limit = settings.limits.held_pulls_max
        self._holds.share = settings.limits.held_pulls_per_client
        if self._cold is not None:
            self._cold.take_settings(settings.cold)

    @property
    def is_holding(self) -> bool:
        """Whether pulls are held now."""
        return bool(self._held)

    @property
    def held(self) -> int:
        """Pulls held now."""
        return len(self._held)

    def next_deadline_ms(self) -> int | None:
        """When the next hold ends, or an old read's turn comes; ``None`` when nothing waits.

        Of those that had to make way ``is_behind`` tells.
        """
        first_ms = self._holds.next_deadline_ms() if self._held else None
        if self._paced:
            due_ms = self._paced[0].due_ms
            first_ms = due_ms if first_ms is None else min(due_ms, first_ms)
        if self._cold is None or (cold_ms := self._cold.next_deadline_ms()) is None:
            return first_ms
        return cold_ms if first_ms is None else min(cold_ms, first_ms)

    @property
    def is_behind(self) -> bool:
        """Whether queues with holds wait to be looked at, or holds that ended to be answered."""
        if self._unlooked or self._displaced:
            return True
        if self._cold is not None and self._cold.is_behind:
            return True
        return bool(self._held) and self._store.has_moved()

    def pull(self, client: Client, pull: Pull, now_ms: int) -> Answer | None:
        """The answer to ``pull``, ``None`` when it is held.

        Raises:
            TopicUnknownError, NoPermissionError: there is no such queue, or not for reading.
            NotLeaderError: the node is starting.
            CorruptLogError: the store is not what it should be at this place.
            FilterIllegalError: its SQL expression cannot be read, or none are taken.
        """
        if pull.expression:
            self._sql(pull)
        queue = QueueName(pull.topic, pull.queue_id)
        self._check_queue(queue)
        return self._take(
            client,
            queue,
            Held(pull, pull.queue_offset),
            self._store.bounds(queue),
            now_ms=now_ms,
            deadline_ms=_hold_until_ms(now_ms, pull.hold_ms),
            may_hold=pull.hold_ms > 0,
        )

    def cancel(self, client: Client) -> int:
        """Forget what ``client`` waits for; how many pulls were held."""
        if self._cold is not None:
            self._cold.cancel(client)
        self._paced = [paced for paced in self._paced if paced.client != client]
        heapq.heapify(self._paced)
        return self._holds.cancel(client)

    def notice_growth(self, now_ms: int) -> None:
        """The dispatched position has moved: every queue that somebody waits for is due a look."""
        del now_ms
        # Those that were due before stay where they are: else the last ones would never be looked
        # at while messages come all the time.
        self._unlooked |= dict.fromkeys(self._holds.queues())

    def turn(self, now_ms: int) -> None:
        """Answer holds whose queues have grown, and what is due."""
        self.send(self.grown(now_ms))
        self.send(self.due(now_ms))
        if self._cold is not None:
            self.send(self._cold_answers(self._cold, now_ms))

    def end_all(self) -> None:
        self.send(self._ends())

    def grown(self, now_ms: int) -> Iterator[Answer]:
        """Answers to holds whose queues have grown, from a bounded number of queues, for a bounded
        time; ``is_behind`` tells whether there is more to be looked at.
        """
        until_ns = self._clock.monotonic_ns() + ANSWERS_NS
        for queue in list(islice(self._unlooked, HELD_QUEUES_PER_TURN)):
            left = self._unlooked.pop(queue)
            bounds = self._grown_bounds(queue)
            if bounds is None:
                continue
            if left is None:
                left = self._holds.count(queue)
            # Those that go on to wait come behind these.
            while left and (holds := self._holds.take(queue, min(left, TAKEN_AT_ONCE))):
                left -= len(holds)
                for hold in holds:
                    answer = self._look_again(hold, bounds, now_ms)
                    if answer is not None:
                        yield answer
                if self._clock.monotonic_ns() >= until_ns:
                    if left:
                        # Behind the other queues.
                        self._unlooked[queue] = left
                    return

    def _grown_bounds(self, queue: QueueName) -> ReadableRange | LedgerError | None:
        """Bounds of a queue with something for those who wait, or why it has nothing; else
        ``None``.
        """
        try:
            bounds = self._store.bounds(queue)
            waiting = self._holds.peek(queue)
            if all(self._still_waits(hold.request, bounds) for hold in waiting):
                return None
        except LedgerError as error:
            return error
        except Exception as error:
            return self._contain(error)
        return bounds

    def due(self, now_ms: int) -> Iterator[Answer]:
        """Answers to holds whose time has ended, and to old reads whose turn has come.

        To be called in each turn: what a turn may look at by SQL expressions begins anew here. What
        is left after a bounded time is due at once again.
        """
        self._evaluated = 0
        until_ns = self._clock.monotonic_ns() + ANSWERS_NS
        # What is due when no more may be looked at goes on with the next turn.
        while (
            self._paced and self._paced[0].due_ms <= now_ms and self._evaluated < SQL_TURN_UNITS_MAX
        ):
            answer = self._take_turn(heapq.heappop(self._paced), now_ms)
            if answer is not None:
                yield answer
            if self._clock.monotonic_ns() >= until_ns:
                return
        while holds := self._ended(now_ms):
            for hold in holds:
                yield self._end(hold)
            if self._clock.monotonic_ns() >= until_ns:
                return

    def _ended(self, now_ms: int) -> list[Hold[Client, Held]]:
        """Some of the holds that have to be answered now."""
        if not self._displaced:
            return self._holds.take_due(now_ms, TAKEN_AT_ONCE)
        count = min(len(self._displaced), TAKEN_AT_ONCE)
        self._counts[BrokerCounter.HOLDS_DISPLACED] += count
        return [self._displaced.popleft() for _ in range(count)]

    def _ends(self) -> Iterator[Answer]:
        paced, self._paced = self._paced, []
        for one in paced:
            yield self._end(Hold(one.client, one.queue, one.deadline_ms, one.held))
        displaced, self._displaced = self._displaced, deque()
        for hold in (*displaced, *self._holds.take_all()):
            yield self._end(hold)
        for pull in self._cold.take_all() if self._cold is not None else ():
            yield self._end(Hold(pull.client, pull.queue, 0, pull.held))

    @staticmethod
    def _still_waits(held: Held, bounds: ReadableRange) -> bool:
        verdict = judge_offset(held.scanned_to, bounds)
        return verdict is not None and verdict.may_hold

    def _look_again(
        self, hold: Hold[Client, Held], bounds: ReadableRange | LedgerError, now_ms: int
    ) -> Answer | None:
        """The answer for a queue that has grown, ``None`` when the hold goes on."""
        if isinstance(bounds, LedgerError):
            return refusal(hold.client, hold.request, bounds)
        try:
            return self._take(
                hold.client,
                hold.queue,
                hold.request,
                bounds,
                now_ms=now_ms,
                deadline_ms=hold.deadline_ms,
                may_hold=True,
            )
        except LedgerError as error:
            return refusal(hold.client, hold.request, error)
        except Exception as error:
            return refusal(hold.client, hold.request, self._contain(error))

    def _take_turn(self, paced: _Paced, now_ms: int) -> Answer | None:
        """The answer to an old read whose turn has come, ``None`` when it still has to wait."""
        try:
            return self._take(
                paced.client,
                paced.queue,
                paced.held,
                self._store.bounds(paced.queue),
                now_ms=now_ms,
                deadline_ms=paced.deadline_ms,
                may_hold=now_ms < paced.deadline_ms,
            )
        except LedgerError as error:
            return refusal(paced.client, paced.held, error)
        except Exception as error:
            return refusal(paced.client, paced.held, self._contain(error))

    def _take(
        self,
        client: Client,
        queue: QueueName,
        held: Held,
        bounds: ReadableRange,
        *,
        now_ms: int,
        deadline_ms: int,
        may_hold: bool,
    ) -> Answer | None:
        """The answer to a pull; ``None`` when it is held, waits for its turn, or for the cold
        process.
        """
        if self._cold is not None and self._is_cold(queue, held, bounds):
            floor = self._store.floor(queue)
            self._cold.ask(client, queue, held, floor=floor, now_ms=now_ms)
            return None
        may_wait = len(self._paced) < PACED_MAX
        looked = self._look(client, held, queue, bounds, may_hold=may_hold, may_wait=may_wait)
        if isinstance(looked, Answer):
            return self._told(queue, looked)
        if isinstance(looked, Later):
            self._paced_count += 1
            due_ms = now_ms + looked.wait_ms
            paced = _Paced(due_ms, self._paced_count, client, queue, looked.held, deadline_ms)
            heapq.heappush(self._paced, paced)
            return None
        self._displaced += self._holds.add(Hold(client, queue, deadline_ms, looked))
        return None

    def _end(self, hold: Hold[Client, Held]) -> Answer:
        """The answer to a hold that has waited long enough."""
        try:
            bounds = self._store.bounds(hold.queue)
            if self._cold is not None and self._is_cold(hold.queue, hold.request, bounds):
                return _again(hold.client, hold.request, bounds)
            looked = self._look(
                hold.client, hold.request, hold.queue, bounds, may_hold=False, may_wait=False
            )
        except LedgerError as error:
            return refusal(hold.client, hold.request, error)
        except Exception as error:
            return refusal(hold.client, hold.request, self._contain(error))
        assert isinstance(looked, Answer)
        return self._told(hold.queue, looked)

    def _told(self, queue: QueueName, answer: Answer) -> Answer:
        """An answer out of the log, which says where the queue begins wherever that is."""
        if self._cold is None:
            return answer
        return answer._replace(begin=self._store.told_begin(queue, answer.begin))

    def _look(
        self,
        client: Client,
        held: Held,
        queue: QueueName,
        bounds: ReadableRange,
        *,
        may_hold: bool,
        may_wait: bool,
    ) -> Answer | Held | Later:
        """What there is for a pull now: an answer, or what to wait with."""
        pull = held.pull
        verdict = judge_offset(held.scanned_to, bounds)
        if verdict is None:
            found = self._scan(client, held, queue, bounds, may_wait=may_wait)
            if not isinstance(found, Held):
                return found
            held = found
            at_end = held.scanned_to >= bounds.end
            if at_end and may_hold:
                return held
            return nothing(client, pull, held.status, held.scanned_to, bounds)
        if verdict.may_hold:
            if may_hold:
                return held
            # Units were looked at in vain: the client goes on behind them, and has none looked at
            # twice.
            if held.scanned_to != pull.queue_offset:
                return nothing(client, pull, held.status, held.scanned_to, bounds)
        elif held.scanned_to > bounds.end and self._store.may_be_behind_a_leader(
            self._clock.monotonic_ns()
        ):
            # Who asks would go back, and be given again what the next leader has told it.
            raise NotLeaderError("another node may lead by now, where the queue goes on")
        return nothing(client, pull, verdict.status, verdict.next_offset, bounds)

    def _scan(
        self,
        client: Client,
        held: Held,
        queue: QueueName,
        bounds: ReadableRange,
        *,
        may_wait: bool,
    ) -> Answer | Held | Later:
        """The messages found, or how far they were looked for in vain, or when to look again."""
        pull, store = held.pull, self._store
        tags = tag_table(pull.tag_hashes)
        step = SCAN_STEP_UNITS if pull.tag_hashes else pull.messages_max
        step = SQL_STEP_UNITS if pull.expression else step
        offset, status = held.scanned_to, held.status
        most = SCANNED_UNITS_MAX
        if pull.expression:
            most = max(1, SQL_SCANNED_UNITS_MAX // _weight(pull.expression))
            step = min(step, most)
        stop = min(bounds.end, offset + most)
        while offset < stop:
            units = store.units(queue, offset, step)
            if self._cold is not None and _is_gone(units, store.log.first_position):
                # Deleted since: the cold process has what was not looked at.
                return _again(client, held._replace(scanned_to=offset), bounds)
            if units is None:
                # As DefaultMessageStore.getMessage: no unit where one should be, so on to the next
                # file.
                if offset == held.scanned_to:
                    status, offset = PullStatus.OFFSET_FOUND_NULL, store.next_file(queue, offset)
                return nothing(client, pull, status, offset, bounds)
            fulfilling: Wanted | None = None
            if pull.expression:
                looked = self._fulfilling(pull, units, may_wait=may_wait)
                if isinstance(looked, int):
                    return Later(looked, Held(pull, offset, status))
                fulfilling = looked
                if fulfilling is None:
                    # Removed since, and known to be: the same units are looked at again.
                    continue
                units = units[: len(fulfilling)]
            selection = select(
                units,
                tags=tags,
                count_max=pull.messages_max,
                size_max=pull.bytes_max,
                first_position=store.log.first_position,
                disk_below=store.disk_below,
                limits=store.limits,
                fulfilling=fulfilling,
            )
            positions, sizes = selection.positions, selection.sizes
            chosen = len(positions)
            if pull.tag_hashes or pull.expression:
                out = BrokerCounter.MESSAGES_FILTERED_OUT
                self._counts[out] += selection.scanned - chosen
            if chosen:
                wait_ms = store.old_read_wait_ms(
                    int(positions[0]), int(positions[-1]) + int(sizes[-1])
                )
                if wait_ms and may_wait:
                    return Later(wait_ms, Held(pull, offset, status))
                given = self._given(pull, offset, units, selection, fulfilling)
                if given is None:
                    # Removed since, and known to be: the same units are looked at again.
                    continue
                looked_at = selection.looked_at
                return self._found(client, pull, bounds, given, looked_at=looked_at)
            status = _VAIN[selection.ends_removed]
            offset += selection.scanned
        return Held(pull, offset, status)

    def _given(
        self,
        pull: Pull,
        offset: int,
        units: Units,
        selection: Selection,
        fulfilling: Wanted | None,
    ) -> _Given | None:
        """The records of the selected ones of ``units``, which are those from ``offset`` on."""
        positions, chosen = selection.positions, len(selection.positions)
        if pull.topic in self._store.of_batches:
            is_there = units["position"] >= self._store.log.first_position
            if fulfilling is not None:
                is_there &= fulfilling
            rows = np.flatnonzero(is_there)[:chosen].tolist()
            parts = self._store.batch_records(offset, units, rows)
        else:
            parts = self._store.records(positions, selection.sizes, with_headers=pull.with_headers)
            rows = []
        if parts is None:
            return None
        given, taken = len(parts.starts), selection.scanned
        if given < chosen:
            # What did not fit into the part is where the client goes on.
            following = np.flatnonzero(units["position"] == positions[given])
            taken = rows[given] if rows else int(following[0])
        return _Given(parts, offset + taken)

    def _is_cold(self, queue: QueueName, held: Held, bounds: ReadableRange) -> bool:
        """Whether the log has had what a pull wants, and has it no more."""
        return held.scanned_to < bounds.first and self._store.floor(queue) < bounds.first

    def _cold_answers(self, cold: ColdReads, now_ms: int) -> Iterator[Answer]:
        """Answers to pulls that have waited for the cold process."""
        for one in cold.take(now_ms):
            try:
                queue = one.pull.queue
                yield self._told(queue, _cold_answer(one, self._store.bounds(queue)))
            except LedgerError as error:
                yield refusal(one.pull.client, one.pull.held, error)

    def _found(
        self,
        client: Client,
        pull: Pull,
        bounds: ReadableRange,
        given: _Given,
        *,
        looked_at: int,
    ) -> Answer:
        """The answer that gives records."""
        return Answer(
            client,
            pull.request_id,
            PullStatus.FOUND,
            given.next_offset,
            bounds.first,
            bounds.end,
            given.parts,
            self._store.suggested(looked_at),
            pull.version,
            topic=pull.topic,
        )

    def _sql(self, pull: Pull) -> SqlFilter:
        return sql_filter(pull.expression, is_enabled=self._filters_properties)

    def _fulfilling(self, pull: Pull, units: Units, *, may_wait: bool) -> Wanted | int | None:
        """Which of the first units the expression of ``pull`` wants.

        Or how many milliseconds to wait first; or ``None`` when messages were removed meanwhile.
        """
        store = self._store
        first_position = store.log.first_position
        positions = units["position"].astype(np.int64)
        sizes = units["size"].astype(np.int64)
        gone = (positions < first_position) | (sizes == PREFILL_SIZE)
        if gone[0]:
            # ``select`` passes them over.
            return np.zeros(len(gone) if gone.all() else int(gone.argmin()), np.bool_)
        alive = int(gone.argmax()) if gone.any() else len(gone)
        if may_wait:
            # The next turn may look at as many again (``due``).
            if self._evaluated >= SQL_TURN_UNITS_MAX:
                return 1
            end = int(positions[0] + sizes[0])
            wait_ms = store.old_read_wait_ms(int(positions[0]), end)
            if wait_ms:
                return wait_ms
        found = store.wanted(
            positions[:alive],
            sizes[:alive],
            self._sql(pull),
            count_max=pull.messages_max,
            size_max=pull.bytes_max,
            poison=self._poison,
            numbers=self._numbers(pull, units[:alive]),
        )
        if found is not None:
            self._evaluated += len(found) * _weight(pull.expression)
            self._counts[BrokerCounter.EXPRESSIONS_EVALUATED] += len(found)
        return found

    def _numbers(self, pull: Pull, units: Units) -> Integers | None:
        """Which one of its record each message is, where records have several."""
        if pull.topic not in self._store.of_batches:
            return None
        numbers: Integers = units["tags"].astype(np.int64) - BATCH_TAGS
        return numbers


def _is_gone(units: Units | None, first_position: int) -> bool:
    """Whether the log has the first of some units of a queue no more."""
    if units is None:
        return True
    # Of an offset that no message has, nobody else has one either.
    positions = units["position"][units["position"] >= 0]
    return len(positions) > 0 and int(positions[0]) < first_position


def _again(client: Client, held: Held, bounds: ReadableRange) -> Answer:
    """The answer to a pull of messages that have gone into the cold meanwhile: none of them was
    passed over, and the client asks for them again.
    """
    status = PullStatus.NO_MATCHED_MESSAGE
    return nothing(client, held.pull, status, held.scanned_to, bounds)


def _cold_answer(answer: ColdAnswer, bounds: ReadableRange) -> Answer:
    """What the cold process has found, as it is told.

    Args:
        bounds: of the queue in the log, now.
    """
    (client, _, held, question, _), found = answer
    pull = held.pull
    if isinstance(found, LedgerError):
        return refusal(client, held, found)
    if isinstance(found, ColdNothing):
        if not found.is_gone:
            return nothing(client, pull, held.status, found.next_offset, bounds)
        # Neither the log nor a piece has it: as if retention had taken it yesterday.
        behind = bounds.first if found.next_offset < 0 else min(found.next_offset, bounds.first)
        behind = max(behind, min(question.floor, bounds.first))
        return nothing(client, pull, PullStatus.OFFSET_TOO_SMALL, behind, bounds)
    starts = np.frombuffer(found.starts, np.uint32)
    sizes = np.frombuffer(found.sizes, np.uint32)
    parts = RecordParts(
        memoryview(found.payload),
        starts,
        sizes,
        int(sizes.sum()),
        found.header_size if pull.with_headers else 0,
    )
    return Answer(
        client,
        pull.request_id,
        PullStatus.FOUND,
        found.next_offset,
        bounds.first,
        bounds.end,
        parts,
        "",
        pull.version,
        topic=pull.topic,
    )


def _hold_until_ms(now_ms: int, hold_ms: int) -> int:
    """When a pull that is held from now on ends without a message."""
    until_ms = now_ms + hold_ms
    return until_ms if hold_ms <= LONG_HOLD_MS else -(-until_ms // HOLDS_END_MS) * HOLDS_END_MS


def _weight(expression: str) -> int:
    """The time that an expression takes, as a number of expressions of the usual length."""
    return -(-len(expression) // SQL_SIZE)


def _to_nobody(answers: Iterable[Answer]) -> None:
    assert not list(answers), "answers to nobody"
