"""Transaction service: ends of half messages, and checks of those without one.

A half message is moved to what it becomes (``rules/messages/transactions.py``) exactly once, by
one group in the log for each lot of ends (``broker/deliveries/moves.py``). Only the leader's table
of half messages decides, and only while it has all that is dispatched and no group is under way.
Who ends a transaction is answered when the group is in the log, committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ledgermq.broker.call_arguments import WAIT_MS_MAX, integer, text
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.deliveries.moves import Buffer, Moves
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.broker.state.state_requests import Reply
from ledgermq.broker.transactions.transaction_checks import CheckDesk, checks_of
from ledgermq.broker.verb_arguments import answered
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    CorruptLogError,
    LedgerError,
    NotLeaderError,
    OutcomeUnknownError,
    StorageError,
    TransactionEndedError,
)
from ledgermq.model.events import Event
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC, UNANSWERED_TOPIC, Decision
from ledgermq.model.rights import Right
from ledgermq.model.units import HOUR_MS
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.messages.half_table import CheckRules, HalfTable, TransactionKey, unknown
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.rules.messages.transactions import (
    GROUP,
    HALF_QUEUE,
    NAME_SIZE_MAX,
    OP_QUEUE,
    RECORDS_OF,
    WAY_OF,
    Half,
    Way,
    becomes,
    marks_of,
    read_half,
    read_op,
    way_in,
)
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved
from ledgermq.rules.tables.table_changes import Change, OffsetsSet, TopicSet
from ledgermq.rules.tables.topics import Topic
from ledgermq.store.steady_time import SteadyTime
from ledgermq.verbs.needs import USER
from ledgermq.verbs.waiting import EndTransaction, ListTransactions

READ_MAX = 512
"""Messages of one turn, so that a long queue does not keep others waiting."""

REMEMBERED_OPS = 4_096
"""Last op messages that a new leader reads again, to know how transactions ended."""

STUCK_MAX = 10_000
"""Half messages of which it is remembered that they can be moved nowhere."""

Found = TypeVar("Found")


class HalfReader:
    """Owned by the broker process; it has a table while this node leads.

    Attributes:
        table: None until the first ``read``, and after ``forget``.
        is_current: the table has all that was dispatched when ``read`` was called last.
        has_more: there is more to read at once.
    """

    def __init__(self, store: ReadableStore, tables: AppliedTables, moves: Moves) -> None:
        self._store = store
        self._tables = tables
        self._moves = moves
        self._trouble = ""
        self._stuck: dict[int, None] = {}
        self.table: HalfTable | None = None
        self.is_current = False
        self.has_more = False

    def forget(self) -> None:
        """This node leads no more: the table will be another one when it leads again."""
        self.table = None
        self.is_current = self.has_more = False

    def pass_over(self, offset: int) -> None:
        """A half message can be moved nowhere: it waits no more, for this node."""
        self._stuck[offset] = None
        if len(self._stuck) > STUCK_MAX:
            del self._stuck[next(iter(self._stuck))]
        if self.table is not None:
            self.table.forget((offset,))

    def read(self) -> HalfTable | None:
        """The table with all that is dispatched; None while some is still to be read.

        A damaged message holds it up until it is repaired.
        """
        self.is_current = self.has_more = False
        try:
            halves, ops = self._store.bounds(HALF_QUEUE), self._store.bounds(OP_QUEUE)
            if self.table is None:
                self.table = self._fresh(halves, ops)
            self.is_current = self._read_new(self.table, halves, ops)
            self.has_more = not self.is_current
            self._trouble = ""
        except NotLeaderError:
            # Nobody knows yet what is dispatched.
            return None
        except CorruptLogError as error:
            if str(error) != self._trouble:
                logger.error(
                    "transactions are held up: %s",
                    error,
                    extra={"event": Event.TRANSACTIONS_HELD_UP},
                )
            self._trouble = str(error)
        return self.table if self.is_current else None

    def _fresh(self, halves: ReadableRange, ops: ReadableRange) -> HalfTable:
        """Begin where the half queue's consumer group says, ours or RocketMQ's."""
        offsets = self._tables.offsets
        consumed = offsets.offsets(GROUP, HALF_QUEUE.topic).get(HALF_QUEUE.queue_id, 0)
        moved = self._moves.source(HALF_QUEUE).next_offset
        done_ops = offsets.offsets(GROUP, OP_QUEUE.topic).get(OP_QUEUE.queue_id, 0)
        return HalfTable(
            next_half=_within(max(consumed, moved), halves),
            next_op=_within(min(done_ops, ops.end - REMEMBERED_OPS), ops),
        )

    def _read_new(self, table: HalfTable, halves: ReadableRange, ops: ReadableRange) -> bool:
        """Read a part of what is new; true when that was all of it."""
        table.skip_halves(halves.first)
        table.skip_ops(ops.first)
        # Half messages first: an op message then finds its own.
        end = min(halves.end, table.next_half + READ_MAX)
        for offset, record in self._moves.read(HALF_QUEUE, range(table.next_half, end)):
            half = self._guarded(HALF_QUEUE, offset, record, read_half)
            if half is not None and offset not in self._stuck:
                table.take_half(half._replace(offset=offset))
        table.skip_to(half=end)
        if end < halves.end:
            return False
        end = min(ops.end, table.next_op + READ_MAX)
        for offset, record in self._moves.read(OP_QUEUE, range(table.next_op, end)):
            op = self._guarded(OP_QUEUE, offset, record, read_op)
            if op is not None:
                table.take_op(offset, op)
        table.skip_to(op=end)
        return end == ops.end

    def _guarded(
        self, queue: QueueName, offset: int, record: memoryview, read: Callable[[Message], Found]
    ) -> Found | None:
        """What a message says; None when it is none that could be read here."""

        def use() -> Found | None:
            return read(decode_message(record))

        return self._moves.poison.guarded(f"{queue.topic}/{queue.queue_id}/{offset}", use, None)


def _within(offset: int, bounds: ReadableRange) -> int:
    return max(bounds.first, min(offset, bounds.end))


Find = Callable[[str, str], Iterable[memoryview]]
"""The records of a topic that have a key or a unique id."""

assert NAME_SIZE_MAX == 255  # what ``call_arguments.text`` takes


def check_ended(find: Find, key: TransactionKey, decision: Decision) -> None:
    """Return when the transaction has ended with ``decision``, as far as the log knows.

    Raises:
        TransactionEndedError: it has ended the other way.
        TransactionUnknownError: the log, or its index, has nothing of it.
        CorruptLogError: the index or a message is not what it should be.
    """
    try:
        records = find(OP_TOPIC, key.transaction)
    except ConfigError:
        # Without an index there is only what is remembered.
        raise unknown(key) from None
    for record in records:
        op = read_op(decode_message(record))
        if not op.is_end or op.transaction != key.transaction or op.decision is None:
            continue
        if op.decision is decision:
            return
        raise TransactionEndedError(
            "transaction has ended the other way",
            transaction=key.transaction,
            decision=op.decision.value,
        )
    raise unknown(key)


logger = logging.getLogger(__name__)

END_MS = 5_000
"""An end that is not in the log after this long may get there, or never; who asks again is told."""

ENDS_WAITING_MAX = 10_000


COUNTER_OF = {
    Decision.COMMIT: BrokerCounter.TRANSACTIONS_COMMITTED,
    Decision.ROLLBACK: BrokerCounter.TRANSACTIONS_ROLLED_BACK,
}


class End(NamedTuple):
    """Somebody ends a transaction.

    Attributes:
        messages: how many half messages it has; a rollback takes all that there are.
        last_offset: queue offset of the last one, as far as its producer knows, else -1.
        check_topic: refuses a topic that the client may not send to.
    """

    caller: Caller
    key: TransactionKey
    decision: Decision
    messages: int
    last_offset: int
    until_ms: int
    check_topic: Callable[[str], None]


@dataclass(slots=True)
class _Group:
    """Half messages that are moved together, and who is told when they are.

    Attributes:
        floor: the lowest that waits then.
        asked: those to ask for then.
        is_unasked: all are put again as they are, for nobody is asked for them in this round.
    """

    moves: list[tuple[Half, Way]] = field(default_factory=list)
    ends: list[tuple[End, int]] = field(default_factory=list)
    asked: tuple[Half, ...] = ()
    floor: int | None = None
    is_unasked: bool = False
    is_done: bool = False

    def has_room(self, halves: Sequence[Half], way: Way) -> bool:
        """Whether so many more fit; the first ones always do."""
        records = sum(RECORDS_OF[one] for _, one in self.moves) + RECORDS_OF[way] * len(halves)
        size = sum(half.size for half, _ in self.moves) + sum(half.size for half in halves)
        return not self.moves or (records <= GROUP_RECORDS_MAX and size <= GROUP_SIZE_MAX)

    def ordered(self) -> list[tuple[Half, Way]]:
        """The moves as they stand in the log."""
        return sorted(self.moves, key=lambda move: (move[1], move[0].offset))


class TransactionService(Service):
    """Owned by the broker process.

    Invariants: at most one group is under way; while this node does not lead, none is, and nobody
    waits. An end is answered once. While it is *doubtful* what became of an earlier group, of this
    process or of another one, there is no table: that group may yet show in the queues.
    """

    name = "transactions"
    can_rest = True

    def __init__(
        self,
        known: KnownTopics,
        log: StateLog,
        moves: Moves,
        settings: Settings,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
        find: Find,
    ) -> None:
        """Nothing is known yet.

        Args:
            find: looks transactions up whose end is not remembered any more.
        """
        self._tables = known.tables
        self._log = log
        self._clock = clock
        self._time = SteadyTime(clock.epoch_ns, clock.monotonic_ns)
        self._counts = counts
        self._moves = moves
        self._settings = settings
        self._host = (settings.node.broker_ip, settings.node.listen_port)
        self._levels = len(delay_levels_ms(settings.store.message_delay_level)) - 1
        self._find = find
        self._reader = HalfReader(known.store, known.tables, moves)
        self._desk = CheckDesk()
        self._ends: deque[End] = deque()
        self._group: _Group | None = None
        # Where the half queue ended when the round of checks began that is under way.
        self._round_end: int | None = None
        self._next_round_ms: int | None = None
        self._now_ms = self._retry_ms = 0
        self._ended_last = False
        self._is_doubtful = True
        self._mailbox = mailbox
        self.verbs: Verbs = (
            answered(EndTransaction, self._end),
            AnsweredVerb("transaction_checks", self._checks, USER),
            answered(ListTransactions, self._list),
        )
        moves.register(HALF_TOPIC, self._build)

    @property
    def awaits(self) -> bool:
        return self._group is not None or bool(self._ends)

    @property
    def is_behind(self) -> bool:
        return self._reader.has_more

    @property
    def waiting(self) -> int:
        """Half messages that wait, as far as this node knows: only the leader does."""
        table = self._reader.table
        return 0 if table is None else len(table)

    def next_deadline_ms(self) -> int | None:
        if not self._log.leads:
            return None
        deadlines = [self._desk.next_deadline_ms()]
        deadlines += [min((end.until_ms for end in self._ends), default=None)]
        if self._reader.table:
            deadlines.append(self._next_round_ms)
        if self._now_ms < self._retry_ms:
            deadlines.append(self._retry_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def _end(self, call: Call, asked: EndTransaction) -> None:
        """Take an end; ``turn`` answers it."""
        self._log.check_leads()
        if len(self._ends) >= ENDS_WAITING_MAX:
            raise BusyError("too many ends of transactions wait", limit=ENDS_WAITING_MAX)
        self._ends.append(
            End(
                call.caller,
                TransactionKey(asked.group, asked.transaction),
                Decision(asked.decision),
                asked.messages,
                asked.offset,
                call.now_ms + END_MS,
                lambda topic: call.check_topic(topic, Right.PUB),
            )
        )

    def _checks(self, call: Call) -> None:
        """Take a producer that waits for questions, about topics that it may send to; ``turn``
        answers it.
        """
        group = text(call.arguments, "group")
        until_ms = call.now_ms + integer(call.arguments, "wait_ms", 0, WAIT_MS_MAX)
        self._log.check_leads()
        reply = self._desk.wait(
            call.caller, group, until_ms, lambda topic: call.may(topic, Right.PUB)
        )
        if reply is not None:
            self._mailbox.append(reply)

    def _list(self, call: Call, asked: ListTransactions) -> Result:
        """The transactions that wait for their end, the oldest first."""
        table = self.table()
        found: dict[TransactionKey, list[Half]] = {}
        for half in table:
            key = TransactionKey(half.group, half.transaction)
            if key in found:
                found[key].append(half)
            elif len(found) < asked.count:
                found[key] = [half]
        return {
            "half_messages": len(table),
            "transactions": [
                _row(key, halves)
                for key, halves in found.items()
                if all(call.may(topic, Right.PUB) for topic in {half.topic for half in halves})
            ],
        }

    def table(self) -> HalfTable:
        """The half messages that wait.

        Raises:
            NotLeaderError: another node leads, or this one does not know them yet.
        """
        self._log.check_leads()
        if self._reader.table is None or not self._reader.is_current:
            raise NotLeaderError("node does not know the half messages yet")
        return self._reader.table

    def turn(self, now_ms: int) -> None:
        """Read what is new, move what may be moved; answer who is due.

        To be called when the state's log was applied, and before it takes new requests.
        """
        self._now_ms = now_ms
        if self._log.leads:
            self._lead(now_ms)
        else:
            self._stop(NotLeaderError("node does not lead now"))
        self._mailbox += self._desk.due(now_ms)

    def begin_again(self) -> None:
        """Read the queues anew, and answer nobody from what is known of them."""
        self._stop(OutcomeUnknownError("node has met a bug; ask again"))

    def take_settings(self, settings: Settings) -> None:
        if settings.transactions != self._settings.transactions:
            # The next round is due by the new interval.
            self._next_round_ms = None
        self._settings = settings

    def end_all(self) -> None:
        self._stop(OutcomeUnknownError("node stops; ask again"))

    def _doubt(self) -> None:
        self._reader.forget()
        self._is_doubtful = True

    def _stop(self, error: LedgerError) -> None:
        self._doubt()
        self._round_end = self._next_round_ms = None
        group, self._group = self._group, None
        waiting = [end for end, _ in group.ends] if group is not None else []
        self._mailbox += [Reply(end.caller, error) for end in (*waiting, *self._ends)]
        self._ends.clear()
        self._mailbox += self._desk.end_all(error)

    def _lead(self, now_ms: int) -> None:
        if self._next_round_ms is None:
            self._next_round_ms = now_ms + self._interval_ms()
        self._refuse_late(now_ms)
        if self._is_doubtful:
            if not self._moves.is_free(HALF_QUEUE):
                return
            self._is_doubtful = False
        table = self._reader.read()
        if table is None:
            return
        if self._group is not None:
            if not self._group.is_done:
                return
            self._finish(self._group, table)
        if now_ms >= self._retry_ms and self._moves.is_free(HALF_QUEUE):
            self._begin(table, now_ms)

    def _begin(self, table: HalfTable, now_ms: int) -> None:
        """Have the next group moved, if there is one: ends and questions take turns."""
        group = self._group_of_ends(table) if not self._ended_last else _Group()
        self._ended_last = bool(group.moves)
        if not group.moves:
            group = self._group_of_round(table, now_ms)
        if not group.moves:
            # It was the questions' turn, and there are none: ends need not wait for another.
            group = self._group_of_ends(table)
        if not group.moves:
            return
        self._group = group

        def plan() -> tuple[Moved, Sequence[Buffer]] | None:
            return self._plan(table, group)

        def done() -> None:
            group.is_done = True

        def refused(error: LedgerError) -> None:
            self._take_refusal(group, error)

        self._moves.request(
            HALF_QUEUE,
            plan,
            done=done,
            refused=refused,
            now_ms=now_ms,
            also=lambda: self._also(table, group),
        )

    def _group_of_ends(self, table: HalfTable) -> _Group:
        """The ends that can be carried out now; those that need nothing are answered here."""
        group = _Group()
        for half in table.strays():
            if group.has_room((half,), Way.DROP):
                group.moves.append((half, Way.DROP))
        left: deque[End] = deque()
        taken: dict[TransactionKey, Decision] = {}
        for end in self._ends:
            way = WAY_OF[end.decision]
            if end.key in taken:
                # The second end of one transaction looks at what the first one has done.
                left.append(end)
                continue
            try:
                halves = table.plan_end(end.key, end.decision, messages=end.messages)
                for topic in sorted({half.topic for half in halves or ()}):
                    end.check_topic(topic)
                if halves is None and table.next_half > end.last_offset:
                    check_ended(self._find, end.key, end.decision)
                    halves = ()
            except LedgerError as error:
                self._mailbox.append(Reply(end.caller, error))
                continue
            if halves is not None and not halves:
                self._mailbox.append(Reply(end.caller, _ended(end, 0)))
            elif halves is None or not group.has_room(halves, way):
                left.append(end)
            else:
                taken[end.key] = end.decision
                halves = halves[:GROUP_RECORDS_MAX]
                group.moves += [(half, way) for half in halves]
                group.ends.append((end, len(halves)))
        self._ends = left
        return group

    def _group_of_round(self, table: HalfTable, now_ms: int) -> _Group:
        """The next part of a round of checks; empty when none is due."""
        group = _Group()
        assert self._next_round_ms is not None
        at_ms = epoch_ms(self._clock)
        if self._round_end is None:
            if now_ms < self._next_round_ms:
                return group
            self._next_round_ms = now_ms + self._interval_ms()
            self._round_end = table.next_half
            self._desk.begin_round()
        end = self._round_end
        planned = table.plan_round(
            at_ms, self._rules(table, at_ms), below=end, limit=GROUP_RECORDS_MAX
        )
        if planned.is_last:
            self._round_end = None
        group.floor = planned.floor
        again, asked = set(planned.again), {half.offset for half in planned.asked}
        unasked = [half for half in planned.again if half.offset not in asked]
        # Whom nobody is asked for goes as it is, and no check is counted: in a move of its own.
        group.is_unasked = bool(unasked)
        in_order = sorted((*planned.again, *planned.discarded), key=lambda half: half.offset)
        for half in unasked or in_order:
            way = Way.AGAIN if half in again else Way.DISCARD
            if not group.has_room((half,), way):
                break
            group.moves.append((half, way))
        taken = {half.offset for half, _ in group.moves}
        left = next((half.offset for half in in_order if half.offset not in taken), None)
        if left is not None:
            # The rest comes next; nothing behind it may count as done with.
            group.floor = left
            self._round_end = end
        group.asked = tuple(half for half, _ in group.moves if half.offset in asked)
        return group

    def _plan(self, table: HalfTable, group: _Group) -> tuple[Moved, Sequence[Buffer]] | None:
        moves = group.ordered()
        ways = {half.offset: way for half, way in moves}
        offsets = [half.offset for half, _ in moves]
        records: list[Buffer] = []
        stuck = 0
        if group.is_unasked:
            records = self._moves.build(HALF_QUEUE, offsets, again=True)
        for offset, record in () if group.is_unasked else self._moves.read(HALF_QUEUE, offsets):
            made = self._moves.made(
                HALF_QUEUE, offset, record, lambda _queue, at, one: self._become(one, ways[at])
            )
            records += made
            if not made:
                stuck += 1
                self._reader.pass_over(offset)
        if stuck:
            raise BusyError("half messages can be moved nowhere, and are passed over", count=stuck)
        if len(records) != sum(RECORDS_OF[way] for _, way in moves):
            raise StorageError("half messages were deleted while they were moved")
        move = Moved(
            HALF_QUEUE,
            tuple(offsets),
            len(records),
            self._floor(table, group),
            marks_of([(half.offset, way) for half, way in moves]),
            again=group.is_unasked,
        )
        return move, records

    def _also(self, table: HalfTable, group: _Group) -> list[Change]:
        """What RocketMQ goes on from: its consumer offsets of both queues, and their topics."""
        floor = self._floor(table, group)
        offsets = self._tables.offsets
        changes: list[Change] = []
        for queue, offset in ((HALF_QUEUE, floor), (OP_QUEUE, table.op_floor(floor))):
            wanted = {queue.queue_id: offset}
            if offsets.offsets(GROUP, queue.topic) != wanted:
                changes.append(OffsetsSet(GROUP, queue.topic, wanted))
        ways = {way for _, way in group.moves}
        for name in (HALF_TOPIC, *([UNANSWERED_TOPIC] if Way.DISCARD in ways else [])):
            if self._tables.topics.get(name) is None:
                changes.append(TopicSet(name, Topic(name, 1, 1).to_fields()))
        return changes

    @staticmethod
    def _floor(table: HalfTable, group: _Group) -> int:
        if group.floor is not None:
            return group.floor
        return table.floor_without({half.offset for half, _ in group.moves})

    def _build(self, queue: QueueName, offset: int, record: memoryview) -> list[bytes]:
        """What a half message becomes in the move that was begun last; see ``Moves.register``."""
        way = way_in(self._moves.source(queue).marks, offset)
        return self._become(record, way)

    def _become(self, record: memoryview, way: Way) -> list[bytes]:
        made = becomes(
            decode_message(record),
            way,
            host=self._host,
            now_ms=epoch_ms(self._clock),
            levels=self._levels,
        )
        return [encode_message(message) for message in made]

    def _finish(self, group: _Group, table: HalfTable) -> None:
        """All of a group is in the log, and read."""
        self._group = None
        # The others have an op message, by which the table has forgotten them when it was read.
        without_op = (Way.AGAIN, Way.DISCARD)
        table.forget(half.offset for half, way in group.moves if way in without_op)
        self._mailbox += [Reply(end.caller, _ended(end, count)) for end, count in group.ends]
        counts = self._counts
        for end, _ in group.ends:
            counts[COUNTER_OF[end.decision]] += 1
        if group.asked:
            checks = checks_of(group.asked, table)
            counts[BrokerCounter.TRANSACTIONS_CHECKED] += len(checks)
            self._mailbox += self._desk.ask(checks)
        discarded = sum(way is Way.DISCARD for _, way in group.moves)
        counts[BrokerCounter.HALF_MESSAGES_DISCARDED] += discarded
        if discarded:
            logger.warning(
                "half messages discarded, nobody has answered for them: messages=%d topic=%s",
                discarded,
                UNANSWERED_TOPIC,
                extra={"event": Event.HALF_MESSAGES_DISCARDED},
            )

    def _take_refusal(self, group: _Group, error: LedgerError) -> None:
        """Nothing came of a group, or nobody knows: the log says so when it is free again."""
        if self._group is not group:
            # This node leads no more, and they were told.
            return
        self._group = None
        self._doubt()
        self._retry_ms = self._now_ms + RETRY_MS
        if error.retriable:
            self._ends.extendleft(end for end, _ in reversed(group.ends))
        else:
            self._mailbox += [Reply(end.caller, error) for end, _ in group.ends]

    def _refuse_late(self, now_ms: int) -> None:
        late = [end for end in self._ends if end.until_ms <= now_ms]
        if late:
            self._ends = deque(end for end in self._ends if end.until_ms > now_ms)
            error = OutcomeUnknownError("transaction has not ended in time; ask again")
            self._mailbox += [Reply(end.caller, error) for end in late]

    def _interval_ms(self) -> int:
        return self._settings.transactions.transaction_check_interval_ms

    def _rules(self, table: HalfTable, at_ms: int) -> CheckRules:
        rules = self._settings.transactions
        # By so much a clock that was set wrong may be ahead: nobody is given up for that.
        doubted_ms = max(0, at_ms - self._time.now_ms(table.newest_ms))
        return CheckRules(
            rules.transaction_timeout_ms,
            rules.transaction_check_max,
            self._settings.retention.file_reserved_time * HOUR_MS + doubted_ms,
        )


def _ended(end: End, messages: int) -> dict[str, object]:
    return {
        "transaction": end.key.transaction,
        "decision": end.decision.value,
        "messages": messages,
    }


def _row(key: TransactionKey, halves: list[Half]) -> dict[str, object]:
    return {
        "transaction": key.transaction,
        "group": key.group,
        "messages": len(halves),
        "offset": halves[-1].offset,
        "topics": sorted({half.topic for half in halves}),
        "born": halves[0].born_ms,
        "checks": max(half.checks for half in halves),
    }
