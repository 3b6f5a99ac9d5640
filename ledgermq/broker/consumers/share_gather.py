"""Gather of a share group in one topic: receives and settlements, and one command for all."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ledgermq.broker.callers import Caller, Client
from ledgermq.broker.calls import CheckTopic
from ledgermq.broker.consumers.share_attempts import GivenPlaces, ReceiveAttempt
from ledgermq.broker.consumers.share_messages import Basket, IsWanted, ShareMessages
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.model.errors import BusyError, ColdAwayError, DamagedLogError, LedgerError
from ledgermq.model.names.message_types import BY_PRIORITY
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.rules.consumers.share_handles import ShareHandle, read_handle
from ledgermq.rules.consumers.share_order import ShareOrder
from ledgermq.rules.consumers.share_plans import SharePlan, Stand, TakenPlace
from ledgermq.rules.tables.groups import PRIORITY_FACTOR_MAX, SubscriptionGroup
from ledgermq.rules.tables.share_changes import ShareChanged
from ledgermq.rules.tables.share_queue import ShareQueue
from ledgermq.rules.tables.table_changes import Change
from ledgermq.rules.tables.topics import Topic
from ledgermq.verbs.shares import (
    AT_LAST,
    DONE,
    OVER,
    SETTLED,
    UNREADABLE,
    ReceiveShared,
    SettledHandle,
    SettleShared,
)

HANDLES_PER_COMMAND_MAX = 4_096
MESSAGES_PER_COMMAND_MAX = 4_096
DEAD_PER_COMMAND_MAX = 64
KEYS_READ_MAX = 2_048
"""Messages whose keys are read at once, by a leader that does not know them."""

UNTILS_SLACK = 64
"""Times of receives that wait no more, which are kept however few wait."""

DEAD_SIZE_MAX = 512 * 1024
"""Dead letters of one command; the first one is taken however large it is."""


@dataclass(eq=False)
class Receive:
    """One receive, from the call to its answer.

    Attributes:
        until_ms: it waits up to then, monotonic.
        takes: false: it only wants to know what it would be given.
        in_runs: as ``ShareMessages.told`` has it.
        owner: a user, a host or an account; empty: no bound holds for it.
        in_order: of a queue nothing is taken of which anything is with somebody.
        accepts: what is settled by the same call, before it is given anything.
        attempt: what its client calls it; ``before``: what it was given by that name already.
        places: what it has taken, once that is planned; with ``error`` it is told that.
    """

    caller: Caller
    asked: ReceiveShared
    wanted: IsWanted | None
    check_topic: CheckTopic
    until_ms: int
    takes: bool = True
    in_runs: bool = False
    in_order: bool = False
    owner: str = ""
    accepts: TopicPart | None = None
    attempt: ReceiveAttempt | None = None
    before: GivenPlaces | None = None
    places: list[TakenPlace] = field(default_factory=list)
    until: int = 0
    mark: int = 0
    error: LedgerError | None = None

    @property
    def waiter(self) -> tuple[Client, str]:
        """Who waits: one connection may ask for many owners."""
        return self.caller.client, self.owner

    @property
    def count(self) -> int:
        """Messages that it has taken."""
        return sum(place.length for place in self.places)

    @property
    def is_settling(self) -> bool:
        """Whether what it accepts is not through."""
        return self.accepts is not None and not self.accepts.is_through

    @property
    def late(self) -> list[str]:
        """Handles that it was to accept, and for which it was too late."""
        if self.accepts is None:
            return []
        rows = (row for _, row in sorted(self.accepts.of.rows.items()))
        return [row.handle for row in rows if row.outcome not in (DONE, SETTLED)]

    @property
    def is_choosy(self) -> bool:
        """Whether it does not take any message of the topic."""
        has_wish = self.asked.queue is not None or self.wanted is not None
        return has_wish or self.in_order or self.before is not None


class WaitingReceives:
    """Receives that wait, in the order in which they came. What they want in all is counted: 2,000
    may wait at one queue, and for each message somebody looks.
    """

    def __init__(self) -> None:
        self._all: dict[Receive, None] = {}
        self._queues: Counter[int | None] = Counter()
        self._choosy = self._in_order = 0
        # By when each has waited long enough, with those that wait no more, and a number.
        self._untils: list[tuple[int, int, Receive]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Receive]:
        return iter(self._all)

    @property
    def has_looks(self) -> bool:
        """Whether one only wants to know what it would be given."""
        return self._queues.total() < len(self._all)

    @property
    def has_choosy(self) -> bool:
        """Whether one that takes does not take any message of the topic."""
        return self._choosy > 0

    @property
    def is_in_order(self) -> bool:
        """Whether all that wait go by the order of queues, and take."""
        return self._in_order == len(self._all)

    def queues_wanted(self, queues: Sequence[int]) -> Sequence[int]:
        """Those of these queues of which somebody waits to take messages."""
        named = self._queues
        return queues if None in named else [number for number in queues if number in named]

    def first_until_ms(self, nobodys_ms: int) -> int:
        """When the first of them has waited long enough; ``nobodys_ms``: nobody waits."""
        while self._untils and self._untils[0][2] not in self._all:
            heapq.heappop(self._untils)
        return self._untils[0][0] if self._untils else nobodys_ms

    def late(self, now_ms: int) -> list[Receive]:
        """Those that have waited long enough."""
        if self.first_until_ms(now_ms + 1) > now_ms:
            return []
        return [receive for receive in self._all if receive.until_ms <= now_ms]

    def add(self, receive: Receive) -> None:
        """It waits behind the others."""
        self._all[receive] = None
        self._count += 1
        if len(self._untils) > 2 * len(self._all) + UNTILS_SLACK:
            self._untils = [one for one in self._untils if one[2] in self._all]
            heapq.heapify(self._untils)
        heapq.heappush(self._untils, (receive.until_ms, self._count, receive))
        if receive.takes:
            self._queues[receive.asked.queue] += 1
            self._choosy += receive.is_choosy
            self._in_order += receive.in_order

    def hasten(self, receive: Receive, until_ms: int) -> None:
        """It has waited long enough by ``until_ms``."""
        receive.until_ms = until_ms
        self._count += 1
        heapq.heappush(self._untils, (until_ms, self._count, receive))

    def remove(self, receive: Receive) -> bool:
        """It waits no more; false: it did not."""
        if receive not in self._all:
            return False
        del self._all[receive]
        if receive.takes:
            queue = receive.asked.queue
            self._queues[queue] -= 1
            if not self._queues[queue]:
                del self._queues[queue]
            self._choosy -= receive.is_choosy
            self._in_order -= receive.in_order
        return True


@dataclass(eq=False)
class Settlement:
    """One call that settles, from the call to its answer.

    Attributes:
        rows: what became of its handles, by their numbers.
        left: topics whose handles are not through.
        error: why one could not be looked at; the call is told that.
        is_of_receive: the answer of that tells what became of it.
        count: messages that its handles name.
    """

    caller: Caller
    asked: SettleShared
    handles: Sequence[str]
    rows: dict[int, SettledHandle]
    left: int = 0
    error: LedgerError | None = None
    is_of_receive: bool = False
    count: int = 0

    def told(self) -> dict[str, object]:
        """The answer, once nothing is left."""
        rows = (self.rows[number] for number in range(len(self.handles)))
        # Which is what _asdict would make of them, and takes a tenth of an accept.
        return {
            "handles": [
                {"handle": handle, "outcome": outcome, "until": until}
                for handle, outcome, until in rows
            ]
        }


@dataclass(eq=False)
class TopicPart:
    """The handles of a settlement that are of one topic; ``at`` is the next one."""

    of: Settlement
    handles: list[tuple[int, ShareHandle]]
    at: int = 0

    @property
    def size(self) -> int:
        """Messages that the handles name."""
        return sum(handle.length for _, handle in self.handles)

    @property
    def is_through(self) -> bool:
        """Whether each handle has its row."""
        return self.at == len(self.handles)


def accepted_by(caller: Caller, asked: ReceiveShared) -> TopicPart | None:
    """What a receive settles before it is given anything; None: nothing."""
    if not asked.accept:
        return None
    handles = list(asked.accept)
    of = SettleShared(asked.group, "accept", handles)
    settlement = Settlement(caller, of, handles, {}, left=1, is_of_receive=True)
    part = TopicPart(settlement, [])
    for number, told in enumerate(handles):
        handle = read_handle(told)
        if handle is None or (handle.group, handle.topic) != (asked.group, asked.topic):
            settlement.rows[number] = SettledHandle(told, UNREADABLE)
        else:
            part.handles.append((number, handle))
    return part


class Limits(NamedTuple):
    """How many messages a group may take, and how often one is handed out.

    ``reached``: the refusal where there is no room. ``room_to_wait``: so many of them may be passed
    over because others of their key are not settled. ``priority_factor``: of a hundred receives so
    many have the messages of the highest priority first; 0: the topic's have none.
    """

    room: int
    room_to_wait: int
    reached: BusyError
    deliveries_max: int
    priority_factor: int


class OwnersRoom(Protocol):
    """How much those may still take who ask; ``ShareRoom`` knows."""

    def left_of(self, owner: str, /) -> int | None: ...

    def reached_by(self, owner: str, group: str, /) -> BusyError: ...


def factor_of(group: SubscriptionGroup, topic: Topic | None) -> int:
    """How many of a hundred receives of a group go by priority; 0: the topic's messages have none,
    or there is no such topic.
    """
    has_any = topic is not None and topic.message_type == BY_PRIORITY
    return group.priority_factor if has_any else 0


class ShareGather:
    """All that is asked of one group in one topic; one request of it is in the log at a time.

    Attributes:
        receives: those that wait; ``parts``: settlements that do.
        is_asked: a request of it is under way.
        lacks_dead: dead letters wait for their topic to be made.
        is_reading: keys of messages are not all read.
        has_repeated: one that waits may have been given something already.
        has_changed: the last plan says something.
        awaits: why messages are not here that pieces have, as the last plan has found.
        served, done: what the last plan has planned for.
        records: dead letters that follow its command, without their hole.
        taken: messages that it hands out, by owners; the caller's to clear.
        rests_until_ms: nothing came of the last plan, and nobody looks before then.
        looks_at_ms: when it is looked at again, monotonic, if its topic does not grow before.
        ends: of the topic's queues when it was found to have grown last.
    """

    def __init__(self, group: str, topic: str, messages: ShareMessages) -> None:
        self.group = group
        self.topic = topic
        self.receives = WaitingReceives()
        self.parts: deque[TopicPart] = deque()
        self.is_asked = False
        self.lacks_dead = False
        self.is_reading = False
        self.has_repeated = False
        self.has_changed = False
        self.awaits: LedgerError | None = None
        self.served: list[Receive] = []
        self.done: list[TopicPart] = []
        self.records: list[bytes] = []
        self.taken: Counter[str] = Counter()
        self._store = messages.queues.store
        self._messages = messages
        self.rests_until_ms = 0
        self.looks_at_ms = 0
        self.ends: tuple[int, ...] = ()
        self._size = 0
        self._has_dead_topic = False

    def begin_plan(self, *, has_dead_topic: bool) -> None:
        """Another plan: what an earlier one has planned was not proposed."""
        self.served, self.done, self.records = [], [], []
        self.lacks_dead = self.is_reading = self.has_changed = False
        self.awaits = None
        self._size = 0
        self._has_dead_topic = has_dead_topic
        for part in self.parts:
            part.at = 0

    def end(self, queue_id: int) -> int:
        """End of a queue."""
        return self._store.bounds(QueueName(self.topic, queue_id)).end

    def bounds(self, queue_id: int, low: int | None, *, surely: bool = True) -> range:
        """The offsets that a queue holds for a group that has settled all below ``low``; None: it
        is nowhere yet.

        Raises:
            ColdAwayError: ``surely``, and where it begins is not known now.
        """
        queue = QueueName(self.topic, queue_id)
        return self._messages.queues.bounds(queue, low, surely=surely)

    @property
    def has_planned(self) -> bool:
        """Whether the last plan has got on."""
        has_done = bool(self.served or self.done or self.records)
        return has_done or self.has_changed or self.is_reading

    def read_keys(self, order: ShareOrder, queues: Mapping[int, ShareQueue]) -> bool:
        """Read some of the keys that are not known; whether all are then.

        Raises:
            DamagedLogError: a message is not what was written.
        """

        def read(queue_id: int, offsets: list[int]) -> dict[int, str]:
            return self._messages.keys(self.topic, queue_id, offsets)

        self.is_reading = not order.read_keys(queues, read, KEYS_READ_MAX)
        return not self.is_reading

    def give_up(self, caller: Caller, now_ms: int) -> bool:
        """Have the receive of ``caller`` wait no more: it is answered when the gather is looked at,
        which is due now, or with what is about to be in the log for it; false where none waits.
        """
        found = [receive for receive in self.receives if receive.caller == caller]
        for receive in found:
            self.receives.hasten(receive, now_ms)
            self.looks_at_ms = 0
        return bool(found)

    def plan_settlements(self, plan: SharePlan) -> None:
        """Plan what is to become of handles, a bounded number."""
        left = HANDLES_PER_COMMAND_MAX
        for part in self.parts:
            for number, handle in part.handles:
                if left <= 0:
                    return
                left -= handle.length
                text = part.of.handles[number]
                try:
                    row = self._settled(plan, part.of, handle, text)
                except (ColdAwayError, DamagedLogError) as error:
                    # No dead letter can be made of it now; it stays as it is, and holds up nobody.
                    part.of.error, row = error, SettledHandle(text, OVER)
                if row is None:
                    # Its dead letter has no room in this command, or no topic yet.
                    return
                part.of.rows[number] = row
                part.at += 1
            self.done.append(part)

    def _settled(
        self, plan: SharePlan, of: Settlement, handle: ShareHandle, text: str
    ) -> SettledHandle | None:
        if of.asked.action == "accept":
            return SettledHandle(text, plan.accept(handle))
        outcome, until = plan.outcome(handle), 0
        if outcome != DONE:
            return SettledHandle(text, outcome)
        match of.asked.action:
            case "extend":
                until = plan.extend(handle, of.asked.delay_ms)
            case "release":
                until = plan.release(handle, of.asked.delay_ms)
            case "return":
                until = plan.release(handle, 0, counts=False)
            case "reject":
                place = TakenPlace(handle.queue_id, handle.offset, handle.delivery)
                if not self._make_dead([place]):
                    return None
                plan.reject(handle)
        return SettledHandle(text, DONE, until)

    def _make_dead(self, places: Sequence[TakenPlace]) -> bool:
        """Have dead letters follow the command; False: not this time."""
        if not self._has_dead_topic:
            self.lacks_dead = True
            return False
        is_full = len(self.records) >= DEAD_PER_COMMAND_MAX or self._size > DEAD_SIZE_MAX
        if is_full:
            return False
        made = list(self._messages.dead_letters(self.group, self.topic, places))
        self.records += made
        self._size += sum(map(len, made))
        return True

    def plan_receives(
        self,
        plan: SharePlan,
        queues: Sequence[int],
        limits: Limits,
        draw: Callable[[], int],
        room: OwnersRoom,
    ) -> None:
        """Plan what those who wait are given, in the order in which they came.

        Args:
            queues: of the topic.
            draw: gives a mark.
            room: of those who ask.
        """
        self.has_repeated = False
        self._bury_worn_out(plan, self.receives.queues_wanted(queues))
        left, is_drained = MESSAGES_PER_COMMAND_MAX, False
        for receive in self.receives:
            if left <= 0 or (is_drained and not self.receives.has_choosy):
                break
            if not receive.takes or (is_drained and not receive.is_choosy):
                continue
            if receive.is_settling:
                # Whoever is told what it was given is told that the rest is in the log.
                continue
            asked = receive.asked
            try:
                # It may have lost the right while it waited.
                receive.check_topic(self.topic, Right.SUB)
            except LedgerError as error:
                receive.error = error
                self.served.append(receive)
                continue
            receive.until, receive.mark = plan.now_ms + asked.invisible_ms, draw()
            if self._repeat(plan, receive):
                left -= receive.count
                self.served.append(receive)
                continue
            of = queues if asked.queue is None else [asked.queue]
            begun, owners = plan.room, room.left_of(receive.owner)
            if owners is not None:
                plan.room = max(0, min(begun, owners - self.taken[receive.owner]))
            withheld = begun - plan.room
            self.fill(plan, receive, of, limits)
            self.taken[receive.owner] += receive.count
            left -= receive.count
            if receive.places:
                self.served.append(receive)
            elif withheld and plan.room <= 0 and self._has_fresh(plan, of):
                receive.error = room.reached_by(receive.owner, self.group)
                self.served.append(receive)
            elif plan.room <= 0 and self._has_fresh(plan, of):
                receive.error = limits.reached
                self.served.append(receive)
            elif asked.queue is None and not receive.in_order:
                is_drained = True
            plan.room += withheld

    @staticmethod
    def _repeat(plan: SharePlan, receive: Receive) -> bool:
        """Give a receive what it was given before; false: that is with others now, or settled."""
        receive.places, receive.error = [], None
        if receive.before is None:
            return False
        places, mark = receive.before
        for place in places:
            receive.places += plan.keep(place, mark, receive.until)
        if receive.places:
            receive.mark = mark
        return bool(receive.places)

    def with_taker(self, changes: list[Change], owner: str) -> list[Change]:
        """The changes of the last plan, with who takes by it, where ``owner`` is another one."""
        takers = [receive.owner for receive in self.served if receive.places]
        if not takers or takers[-1] == owner:
            return changes
        at = next(at for at, change in enumerate(changes) if isinstance(change, ShareChanged))
        changed = changes[at]
        assert isinstance(changed, ShareChanged)
        changes[at] = changed._replace(taken_by=takers[-1])
        return changes

    def fill(
        self, plan: SharePlan, receive: Receive, queues: Sequence[int], limits: Limits
    ) -> None:
        """Plan what one receive is given of these queues; its ``places`` say what.

        By priority it has all of a queue, what comes again first, before any of a lower one; else
        what comes again of all queues before what is new, beginning with any of them.
        """
        basket = Basket(receive.asked.max_messages)
        receive.places, receive.error = [], None
        if receive.asked.start == AT_LAST:
            # In all queues at once: what comes later is the group's.
            for queue_id in filter(plan.is_nowhere, queues):
                if not self._store.is_young(QueueName(self.topic, queue_id)):
                    plan.begin(queue_id, self.end(queue_id))
        # The mark is drawn anew for each receive, and a gather lasts as long as somebody waits.
        drawn, percent = divmod(receive.mark, PRIORITY_FACTOR_MAX)
        if receive.in_order:
            percent = PRIORITY_FACTOR_MAX
        if percent < limits.priority_factor:
            for queue_id in sorted(queues, reverse=True):
                self._fill_of(plan, receive, [queue_id], basket)
        else:
            start = drawn % len(queues) if queues else 0
            self._fill_of(plan, receive, [*queues[start:], *queues[:start]], basket)

    def _fill_of(
        self, plan: SharePlan, receive: Receive, queues: Sequence[int], basket: Basket
    ) -> None:
        parts = (self._take_due, self._take_fresh)
        for part in (self._take_in_order,) if receive.in_order else parts:
            for queue_id in queues:
                try:
                    part(plan, receive, queue_id, basket)
                except (ColdAwayError, DamagedLogError) as error:
                    # Other queues have theirs in the log, perhaps.
                    self.awaits = error

    def _take_due(self, plan: SharePlan, receive: Receive, queue_id: int, basket: Basket) -> None:
        if basket.left <= 0:
            return
        due = plan.due(queue_id, basket.left)
        again = self._messages.fitting(self.topic, due, basket)
        plan.take(again, receive.until, receive.mark)
        receive.places += again

    def _take_in_order(
        self, plan: SharePlan, receive: Receive, queue_id: int, basket: Basket
    ) -> None:
        """What is first in a queue, if nothing of it is with anybody."""
        if basket.left <= 0 or plan.is_held(queue_id):
            return
        wanted, is_all = plan.again_in_order(queue_id, basket.left)
        again = self._messages.fitting(self.topic, wanted, basket)
        plan.take(again, receive.until, receive.mark)
        receive.places += again
        if is_all and len(again) == len(wanted):
            self._take_fresh(plan, receive, queue_id, basket)

    def _take_fresh(self, plan: SharePlan, receive: Receive, queue_id: int, basket: Basket) -> None:
        if basket.left <= 0 or plan.room <= 0:
            return
        bounds = self._bounds_for(plan, queue_id)
        stand = Stand(receive.until, 1, receive.mark)
        if plan.is_ordered:
            look = self._messages.look(self.topic, queue_id, receive.wanted, end=bounds.stop)
            receive.places += plan.take_fresh_in_order(
                queue_id,
                bounds,
                basket.left,
                look,
                has_room=basket.take,
                stand=stand,
                by_key=not receive.in_order,
            )
            return
        choose = self._messages.choose(self.topic, receive.wanted, basket, end=bounds.stop)
        receive.places += plan.take_fresh(queue_id, bounds, basket.left, choose, stand)

    def _bounds_for(self, plan: SharePlan, queue_id: int) -> range:
        """Bounds of a queue, which nobody asks for again while a plan is made.

        Raises:
            ColdAwayError: where it begins is not known now.
        """
        found = plan.bounds.get(queue_id)
        if found is None:
            found = plan.bounds[queue_id] = self.bounds(queue_id, plan.low(queue_id))
        return found

    def _bury_worn_out(self, plan: SharePlan, queues: Sequence[int]) -> None:
        for queue_id in queues:
            try:
                first = self._bounds_for(plan, queue_id).start
            except ColdAwayError:
                # Nothing is known to be gone.
                first = 0
            for place in plan.worn_out(queue_id, first, DEAD_PER_COMMAND_MAX):
                try:
                    if not self._make_dead([place]):
                        return
                except (ColdAwayError, DamagedLogError):
                    # It waits to be repaired, or given, and holds up nobody.
                    continue
                plan.bury(place)

    def _has_fresh(self, plan: SharePlan, queues: Sequence[int]) -> bool:
        return any(
            plan.has_fresh(queue_id, self.bounds(queue_id, plan.low(queue_id), surely=False))
            for queue_id in queues
        )

    def take_planned(self) -> tuple[list[Receive], list[TopicPart]]:
        """What the plan was about is in the log. Settlements of it wait no more; receives are the
        caller's to let go of.
        """
        served, done = self.served, self.done
        for _ in done:
            self.parts.popleft()
        for part in self.parts:
            part.handles, part.at = part.handles[part.at :], 0
        self.served, self.done, self.records = [], [], []
        return served, done


def queue_row(
    name: QueueName, queue: ShareQueue, store: ReadableStore, now_ms: int
) -> dict[str, object]:
    """What ``SharedQueue`` tells of a queue.

    Args:
        now_ms: epoch ms.
    """
    held = [run for run in queue.runs if run.mark]
    return {
        "topic": name.topic,
        "queue": name.queue_id,
        "low": queue.low,
        "next": queue.next,
        "end": store.bounds(name).end,
        "in_flight": sum(run.length for run in held if run.until > now_ms),
        "late": sum(run.length for run in held if run.until <= now_ms),
        "returned": queue.unsettled - queue.waiting - sum(run.length for run in held),
        "behind": queue.waiting,
        "again": sum(run.length for run in queue.runs if run.delivery > 1),
        "next_due": queue.next_due(now_ms),
    }
