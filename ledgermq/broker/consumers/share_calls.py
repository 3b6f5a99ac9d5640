"""Share groups: messages of one queue for any number of consumers, acknowledged one by one.

What is handed out and what is settled is in the log before anybody is told
(``rules/tables/shares.py``, docs/decisions/0134). Who waits for messages is known to the leader's
broker alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from ledgermq.broker.call_arguments import flag, integer, optional_integer, text
from ledgermq.broker.callers import NODE_ITSELF, Caller, Client
from ledgermq.broker.calls import AnsweredVerb, Call, Members, Result, Verbs
from ledgermq.broker.consumers.retry_topics import RetryTopics
from ledgermq.broker.consumers.share_attempts import ShareAttempts, attempt_of
from ledgermq.broker.consumers.share_gather import (
    Limits,
    Receive,
    Settlement,
    ShareGather,
    TopicPart,
    accepted_by,
    factor_of,
    queue_row,
)
from ledgermq.broker.consumers.share_messages import IsWanted, ShareMessages, read_filter
from ledgermq.broker.consumers.share_room import RETRY_AFTER_MS, ShareMembers, ShareRoom
from ledgermq.broker.pulls.queue_messages import QueueMessages
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import GroupPart, Reply, StateRequest, submit_call
from ledgermq.broker.verb_arguments import answered
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
)
from ledgermq.model.limits import FORBIDDEN_TOPICS, QUEUE_ID_MAX
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.model.names.group_topics import dead_letter_topic
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.process.clock import NS_PER_MS, Clock, epoch_ms
from ledgermq.rules.consumers.share_handles import ShareHandle, read_handle
from ledgermq.rules.consumers.share_order import (
    AHEAD_MAX,
    WAITS_PER_COMMAND_MAX,
    ShareOrder,
)
from ledgermq.rules.consumers.share_plans import SharePlan
from ledgermq.rules.tables.share_changes import MARK_MAX, ShareEnded
from ledgermq.rules.tables.table_changes import Change, GroupSet
from ledgermq.rules.tables.topics import check_topic_name
from ledgermq.sessions.request_faults import Contain, let_through
from ledgermq.verbs.needs import both_rights
from ledgermq.verbs.shares import (
    GIVE_UP,
    IN_RUNS,
    LATE,
    OTHER_GROUP,
    RECEIVE_WAIT_MS_MAX,
    RECEIVED_MAX,
    UNREADABLE,
    EndShared,
    ReceiveShared,
    SettledHandle,
    SettleShared,
    ShowShared,
    shared_messages,
)
from ledgermq.verbs.verb import NUMBER_MAX

IDLE_MS = 60_000
CLOCK_LOOK_MS = 1_000
"""What is to be handed out again is looked for so often at least."""

PEEK = "share_peek"
"""The port's own verb: what a receive would be given now, which nobody has taken by that."""

IN_ORDER = "in_order"
"""An argument that the port has besides: the messages of a queue one after another."""

ORDERS_MAX = 1_000
"""Groups and topics of which keys are remembered; of others they are read again."""


class ShareCalls(Service):
    """Owned by the broker process.

    Invariants: while this node does not lead nobody waits; a gather is in ``_gathers`` while
    somebody waits in it or a request of it is under way.
    """

    name = "shares"
    can_rest = True

    def __init__(
        self,
        known: KnownTopics,
        log: StateLog,
        queues: QueueMessages,
        settings: Settings,
        members: Members,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
        contain: Contain = let_through,
    ) -> None:
        """Nobody waits.

        Args:
            members: the clients that consume for a group queue by queue now.
            contain: told of a bug that an answer has met; returns the refusal.
        """
        self._known = known
        self._tables = known.tables
        self._store = known.store
        self._log = log
        self._settings = settings
        self._members = members
        self._mailbox = mailbox
        self._clock = clock
        self._counts = counts
        self._contain = contain
        self._topics = RetryTopics(known, settings.topics)
        self._messages = ShareMessages(queues, self._topics, settings)
        self._gathers: dict[tuple[str, str], ShareGather] = {}
        self._orders: OrderedDict[tuple[str, str], ShareOrder] = OrderedDict()
        self._room = ShareRoom(known.tables.shares, settings)
        self._attempts = ShareAttempts()
        self.members = ShareMembers()
        self._looks_at_ms = 0
        self._is_grown = False
        self._making_dead: set[str] = set()
        self.verbs: Verbs = (
            answered(ReceiveShared, self._receive),
            answered(SettleShared, self._settle),
            answered(ShowShared, self._show),
            answered(EndShared, self._end),
            AnsweredVerb(PEEK, self._peek, both_rights(Right.SUB)._replace(is_read=True)),
            AnsweredVerb(GIVE_UP, self._give_up, both_rights(Right.SUB)._replace(is_read=True)),
        )

    @property
    def awaits(self) -> bool:
        return self._room.waiting > 0

    def notice_growth(self, now_ms: int) -> None:
        del now_ms
        self._is_grown = self._room.waiting > 0

    def next_deadline_ms(self) -> int | None:
        return self._looks_at_ms if self._gathers else None

    def take_settings(self, settings: Settings) -> None:
        self._settings = self._room.settings = settings

    def turn(self, now_ms: int) -> None:
        """Answer who has waited long enough; have handed out what has come, or is due again."""
        if not self._gathers:
            return
        if not self._log.leads:
            self._refuse_all(NotLeaderError("node does not lead now; ask the one that does"))
            return
        if not self._is_grown and now_ms < self._looks_at_ms:
            return
        ends: dict[str, tuple[int, ...]] | None = {} if self._is_grown else None
        self._is_grown = False
        epoch = epoch_ms(self._clock)
        looks_at_ms = now_ms + IDLE_MS
        for gather in list(self._gathers.values()):
            if gather.is_asked:
                continue
            try:
                if self._is_to_be_looked_at(gather, now_ms, ends):
                    gather.looks_at_ms = min(self._look(gather, now_ms, epoch))
            except LedgerError as error:
                # Its topic is gone, or cannot be read: no other group's matter.
                self._refuse(gather, error)
            looks_at_ms = min(looks_at_ms, gather.looks_at_ms)
            self._tidy(gather)
        self._looks_at_ms = looks_at_ms

    def _is_to_be_looked_at(
        self, gather: ShareGather, now_ms: int, ends: dict[str, tuple[int, ...]] | None
    ) -> bool:
        """Whether something is due, or its topic has grown: most of many that wait have nothing.

        Args:
            ends: of the queues of topics, as far as this turn has asked for them; None: nothing has
                grown at all.
        """
        if now_ms >= gather.looks_at_ms:
            return True
        if ends is None:
            return False
        topic = gather.topic
        if topic not in ends:
            ends[topic] = tuple(gather.end(number) for number in self._queues(topic))
        if gather.ends != ends[topic]:
            gather.ends = ends[topic]
            return True
        # What has come may have set its offsets.
        gather.looks_at_ms = min(gather.looks_at_ms, now_ms + CLOCK_LOOK_MS)
        return False

    def _look(self, gather: ShareGather, now_ms: int, epoch: int) -> list[int]:
        """Do for one gather what is due; when to look at it again."""
        self._answer_looks(gather, epoch)
        self._end_late(gather, now_ms)
        deadlines = [gather.receives.first_until_ms(now_ms + IDLE_MS)]
        if now_ms < gather.rests_until_ms:
            deadlines.append(gather.rests_until_ms)
        elif self._has_work(gather, epoch):
            self._ask(gather, now_ms)
        due = self._next_due(gather, epoch) if gather.receives else None
        if due is not None and due > epoch:
            # The time of day may be put forward meanwhile.
            deadlines.append(now_ms + min(due - epoch, CLOCK_LOOK_MS))
        return deadlines

    def end_all(self) -> None:
        self._refuse_all(NotLeaderError("node stops; ask again"))

    def cancel(self, client: Client) -> None:
        """A client is gone: nothing is handed out to it any more."""
        self.members.cancel(client)
        for gather in list(self._gathers.values()):
            self._drop(gather, [one for one in gather.receives if one.caller.client == client])
            self._tidy(gather)

    def take_back(self, told: Result) -> None:
        """Messages were handed out, and their receiver has gone before it was told: others have
        them at once, as if nobody had. Of another result there is nothing to take back.
        """
        if PAYLOAD not in told or not self._log.leads:
            return
        texts = [run.handle_of(offset) for run, offset, _ in shared_messages(told)]
        handles = [one for text in texts if (one := read_handle(text)) is not None]
        if not handles:
            return
        group, topic, *_ = handles[0]
        asked = SettleShared(group, "return", texts)
        settlement = Settlement(NODE_ITSELF, asked, texts, {}, left=1)
        gather = self._gather(group, topic)
        self._take_part(gather, TopicPart(settlement, list(enumerate(handles))))
        if not gather.is_asked:
            self._ask_or_refuse(gather, self._now_ms())

    def _check_asked(self, asked: ReceiveShared) -> None:
        """Refuse a receive that nobody could be answered.

        Raises:
            LedgerError: this node does not lead, or group, topic or queue cannot be used so.
        """
        self._log.check_leads()
        self._tables.groups.plan_use(asked.group, self._settings.topics)
        check_topic_name(dead_letter_topic(asked.group))
        topic = self._known.topic(asked.topic)
        if not topic.is_readable or topic.name in FORBIDDEN_TOPICS:
            raise NoPermissionError("topic may not be read", topic=topic.name)
        if asked.queue is not None:
            self._known.check_queue(QueueName(topic.name, asked.queue))

    def _peek(self, call: Call) -> Result | None:
        arguments = call.arguments
        asked = ReceiveShared(
            text(arguments, "group"),
            text(arguments, "topic"),
            integer(arguments, "max_messages", 1, RECEIVED_MAX),
            wait_ms=integer(arguments, "wait_ms", 0, RECEIVE_WAIT_MS_MAX),
            queue=optional_integer(arguments, "queue", 0, QUEUE_ID_MAX),
        )
        self._check_asked(asked)
        look = self._receive_of(call, asked, None, takes=False)
        gather = self._gather(asked.group, asked.topic)
        self._look_into(gather, look)
        if look.places or not asked.wait_ms:
            self._tidy(gather)
            if gather.awaits is not None and not look.places:
                raise gather.awaits
            return self._told_of(gather, look)
        self._hold(gather, look)
        return None

    def _give_up(self, call: Call) -> Result:
        """Have a receive of the same client, which it names by its number, wait no more."""
        arguments = call.arguments
        gather = self._gathers.get((text(arguments, "group"), text(arguments, "topic")))
        waiting = Caller(call.caller.client, integer(arguments, "request", 0, NUMBER_MAX))
        given_up = gather is not None and gather.give_up(waiting, call.now_ms)
        if given_up:
            self._looks_at_ms = 0
        return {"given_up": given_up}

    def _receive(self, call: Call, asked: ReceiveShared) -> Result | None:
        self._check_asked(asked)
        if members := self._members(asked.group):
            raise GroupActiveError(
                "members of the group consume queue by queue now: stop them, or take another group;"
                " RocketMQ's are put into POP by mqadmin setConsumeMode",
                group=asked.group,
                members=len(members),
            )
        wanted = read_filter(asked.filter, settings=self._settings)
        accepts = accepted_by(call.caller, asked)
        if accepts is not None:
            self._room.check_settling(call.caller.client, accepts.size)
        gather = self._gather(asked.group, asked.topic)
        receive = self._receive_of(call, asked, wanted, takes=True)
        receive.attempt = attempt_of(call, asked)
        receive.before = self._attempts.find(receive.attempt)
        self._hold(gather, receive)
        gather.has_repeated |= receive.before is not None
        self.members.hear(call, asked.group)
        if accepts is not None:
            receive.accepts = accepts
            self._take_part(gather, accepts)
        try:
            if not gather.is_asked and self._has_work(gather, epoch_ms(self._clock)):
                self._ask(gather, call.now_ms)
        except LedgerError as error:
            self._refuse(gather, error)
        return None

    def _take_part(self, gather: ShareGather, part: TopicPart) -> None:
        """Have handles of a settlement wait for the next command."""
        part.of.count += part.size
        self._room.settle(part.of.caller.client, part.size)
        gather.parts.append(part)

    def _receive_of(
        self, call: Call, asked: ReceiveShared, wanted: IsWanted | None, *, takes: bool
    ) -> Receive:
        return Receive(
            call.caller,
            asked,
            wanted,
            call.check_topic,
            call.now_ms + asked.wait_ms,
            takes,
            in_runs=flag(call.arguments, IN_RUNS),
            in_order=flag(call.arguments, IN_ORDER),
            owner=call.owner,
        )

    def _hold(self, gather: ShareGather, receive: Receive) -> None:
        """Have a receive wait.

        Raises:
            BusyError: too many do.
        """
        try:
            self._room.check_waiting(receive.waiter)
        except BusyError:
            self._tidy(gather)
            raise
        gather.receives.add(receive)
        self._room.wait(receive.waiter, 1)
        # The turn answers one that is not to wait, and finds out when messages are due for it.
        self._looks_at_ms = gather.looks_at_ms = 0

    def _drop(self, gather: ShareGather, receives: Sequence[Receive]) -> None:
        """These wait no more, as far as they still did."""
        for receive in receives:
            if gather.receives.remove(receive):
                self._room.wait(receive.waiter, -1)

    def _settle(self, call: Call, asked: SettleShared) -> Result | None:
        self._log.check_leads()
        handles = list(asked.handles)
        settlement = Settlement(call.caller, asked, handles, {})
        by_topic: dict[str, list[tuple[int, ShareHandle]]] = {}
        for number, told in enumerate(handles):
            handle = read_handle(told)
            if handle is None or handle.length > 1:
                settlement.rows[number] = SettledHandle(told, UNREADABLE)
            elif handle.group != asked.group:
                settlement.rows[number] = SettledHandle(told, OTHER_GROUP)
            else:
                by_topic.setdefault(handle.topic, []).append((number, handle))
        for topic in by_topic:
            call.check_topic(topic, Right.SUB)
        if not by_topic:
            return settlement.told()
        self._room.check_settling(call.caller.client, len(handles))
        self.members.hear(call, asked.group)
        settlement.left = len(by_topic)
        for topic, of in by_topic.items():
            self._take_part(self._gather(asked.group, topic), TopicPart(settlement, of))
        for topic in by_topic:
            gather = self._gather(asked.group, topic)
            if not gather.is_asked:
                self._ask_or_refuse(gather, call.now_ms)
        return None

    def _show(self, call: Call, asked: ShowShared) -> Result:
        self._log.check_newest()
        group = asked.group
        topics = self._shared_topics(group)
        now_ms = epoch_ms(self._clock)
        return {
            "members": self.members.counts(call.now_ms)[group],
            "group": group,
            "deliveries_max": self._deliveries_max(group),
            "ordered": self._topics.group(group).is_ordered,
            "unsettled": self._tables.shares.unsettled_of(group),
            "limit": self._settings.limits.share_unsettled_per_group,
            "waiting": sum(
                len(one.receives) for (of, _), one in self._gathers.items() if of == group
            ),
            "queues": [
                queue_row(QueueName(topic, number), queue, self._store, now_ms)
                for topic in topics
                for number, queue in sorted(self._tables.shares.queues(group, topic).items())
            ],
        }

    def _end(self, call: Call, asked: EndShared) -> Result | None:
        group = asked.group
        self._log.check_leads()
        topics = self._shared_topics(group)

        def plan() -> list[Change]:
            shared = self._shared_topics(group)
            unsettled = self._tables.shares.unsettled_of(group)
            if unsettled and not asked.force:
                raise GroupActiveError(
                    "messages of the group are handed out and not settled; with force they are"
                    " consumed again",
                    group=group,
                    unsettled=unsettled,
                )
            return [ShareEnded(group, topic) for topic in shared]

        def answer() -> Result:
            error = GroupActiveError("group is no share group any more", group=group)
            for (of, _), gather in list(self._gathers.items()):
                if of == group:
                    self._refuse(gather, error)
            return {"group": group}

        touches = {_touched(group, topic) for topic in topics}
        return submit_call(self._log, call, plan, touches, answer)

    def _shared_topics(self, group: str) -> list[str]:
        self._tables.check_group(group)
        topics = self._tables.shares.topics(group)
        if not topics:
            raise GroupUnknownError("group is no share group: it has taken nothing", group=group)
        return topics

    def _deliveries_max(self, group: str) -> int:
        return max(0, self._topics.group(group).retry_times_max) + 1

    def _order(self, group: str, topic: str) -> ShareOrder | None:
        """What is known of the keys of a group that goes by them; None of others."""
        if not self._topics.group(group).is_ordered:
            self._orders.pop((group, topic), None)
            return None
        key = group, topic
        if key not in self._orders:
            gone = [one for one in self._orders if not self._tables.shares.queues(*one)]
            for one in gone:
                del self._orders[one]
            self._orders[key] = ShareOrder()
        self._orders.move_to_end(key)
        while len(self._orders) > ORDERS_MAX:
            self._orders.popitem(last=False)
        return self._orders[key]

    def _gather(self, group: str, topic: str) -> ShareGather:
        key = group, topic
        if key not in self._gathers:
            self._gathers[key] = ShareGather(group, topic, self._messages)
        return self._gathers[key]

    def _tidy(self, gather: ShareGather) -> None:
        if not (gather.is_asked or gather.receives or gather.parts):
            self._gathers.pop((gather.group, gather.topic), None)

    def _queues(self, topic: str) -> list[int]:
        return list(range(self._known.topic(topic).read_queues))

    def _has_work(self, gather: ShareGather, epoch: int) -> bool:
        """Whether a plan would find something to do."""
        if gather.parts or (gather.has_repeated and gather.receives):
            return True
        wanted = gather.receives.queues_wanted(self._queues(gather.topic))
        return self._has_messages(gather, wanted, epoch)

    def _has_messages(self, gather: ShareGather, queues: Sequence[int], epoch: int) -> bool:
        """Whether some of these queues have what may be handed out now."""
        taken = self._tables.shares.queues(gather.group, gather.topic)
        committed = self._tables.offsets.offsets(gather.group, gather.topic)
        order = self._order(gather.group, gather.topic)
        in_order = gather.receives.is_in_order
        for number in queues:
            queue, low = taken.get(number), committed.get(number)
            if in_order and queue is not None and queue.held_until(epoch) is not None:
                continue
            bounds = gather.bounds(number, low, surely=False)
            if queue is not None and queue.waiting:
                if order is None or not order.is_checked(number, queue):
                    return True
                if queue.waiting >= AHEAD_MAX:
                    # What is fresh is not looked at.
                    bounds = range(0)
            begin = bounds.start if low is None else low
            if queue is not None and queue.low == begin:
                begin = queue.next
            if max(begin, bounds.start) < bounds.stop:
                return True
            due = None if queue is None else queue.next_due(epoch)
            if due is not None and due <= epoch:
                return True
        return False

    def _next_due(self, gather: ShareGather, epoch: int) -> int | None:
        """When something is to be handed out again of a queue that somebody waits for."""
        taken = self._tables.shares.queues(gather.group, gather.topic)
        queues = [taken[number] for number in gather.receives.queues_wanted(list(taken))]
        if gather.receives.is_in_order:
            times = (queue.held_until(epoch) for queue in queues)
        else:
            times = (queue.next_due(epoch) for queue in queues)
        return min((due for due in times if due is not None), default=None)

    def _end_late(self, gather: ShareGather, now_ms: int) -> None:
        """Tell those who have waited long enough that there is nothing; what has just come is
        theirs all the same, but for what a plan has just made nothing of.
        """
        late = [one for one in gather.receives.late(now_ms) if not one.is_settling]
        is_tried = now_ms < gather.rests_until_ms
        if not late or not (is_tried or not self._has_work(gather, epoch_ms(self._clock))):
            return
        self._drop(gather, late)
        for one in late:
            self._mailbox.append(Reply(one.caller, self._nothing(gather, one)))

    def _answer_looks(self, gather: ShareGather, epoch: int) -> None:
        """Tell those who only want to know that there is something."""
        looks = []
        if gather.receives.has_looks:
            looks = [one for one in gather.receives if not one.takes]
        if not looks or not self._has_messages(gather, self._queues(gather.topic), epoch):
            return
        # Where one finds nothing, nobody does that looks at the same queue.
        has: dict[int | None, bool] = {}
        for look in looks:
            if has.get(look.asked.queue, True):
                self._look_into(gather, look)
                has[look.asked.queue] = bool(look.places)
        found = [look for look in looks if look.places]
        self._drop(gather, found)
        for look in found:
            self._mailbox.append(Reply(look.caller, self._told(gather, look)))

    def _look_into(self, gather: ShareGather, look: Receive) -> None:
        """Find what a receive would be given."""
        limits, queue = self._limits(gather), look.asked.queue
        plan = self._plan_of(gather, limits)
        gather.awaits = None
        if plan is not None:
            queues = self._queues(gather.topic) if queue is None else [queue]
            gather.fill(plan, look, queues, limits)

    def _ask_or_refuse(self, gather: ShareGather, now_ms: int) -> None:
        try:
            self._ask(gather, now_ms)
        except LedgerError as error:
            self._refuse(gather, error)

    def _ask(self, gather: ShareGather, now_ms: int) -> None:
        """Have one command made of all that waits in a gather by then.

        Raises:
            NotLeaderError, BusyError: nothing is taken now.
        """
        group, topic = gather.group, gather.topic

        def records() -> list[GroupPart]:
            hole = bytes(self._log.hole)
            return [hole + record for record in gather.records]

        def answer() -> None:
            self._answer(gather)

        def refused(error: LedgerError) -> None:
            gather.is_asked = False
            self._room.end_plan(group, gather.taken)
            self._refuse(gather, error)

        touches = frozenset({_touched(group, topic), f"offset {group}@{topic}"})
        # Else what is handed out in the command that deletes them would be there behind it.
        reads = frozenset({f"group {group}", f"topic {topic}"})
        request = StateRequest(
            NODE_ITSELF, lambda: self._plan(gather), touches, answer, records, refused, reads
        )
        self._log.submit(request, now_ms)
        gather.is_asked = True

    def _plan(self, gather: ShareGather) -> list[Change]:
        group, topic = gather.group, gather.topic
        # It may be planned anew.
        self._room.end_plan(group, gather.taken)
        limits = self._limits(gather)
        gather.begin_plan(has_dead_topic=self._has_dead_topic(group))
        plan = self._plan_of(gather, limits)
        if plan is None:
            return []
        gather.plan_settlements(plan)
        if gather.receives:
            gather.plan_receives(plan, self._queues(topic), limits, self._draw, self._room)
            self._room.plan(group, gather.taken)
        changes = gather.with_taker(plan.changes(), self._tables.shares.owner_of(group))
        gather.has_changed = bool(changes)
        if changes and self._tables.groups.get(group) is None:
            made = self._tables.groups.plan_use(group, self._settings.topics)
            changes.insert(0, GroupSet(group, made.to_fields()))
        return changes

    def _plan_of(self, gather: ShareGather, limits: Limits) -> SharePlan | None:
        """A plan in which what waits no more is freed; None while keys have to be read for it."""
        group, topic = gather.group, gather.topic
        queues, order = self._tables.shares.queues(group, topic), self._order(group, topic)
        if order is not None and not gather.read_keys(order, queues):
            return None
        plan = SharePlan(
            group,
            topic,
            queues,
            self._tables.offsets.offsets(group, topic),
            now_ms=epoch_ms(self._clock),
            room=limits.room,
            deliveries_max=limits.deliveries_max,
            order=order,
            room_to_wait=limits.room_to_wait,
        )
        for queue_id in queues:
            plan.free_waiting(queue_id, WAITS_PER_COMMAND_MAX)
        return plan

    def _draw(self) -> int:
        """A mark: nobody can guess it who was not told."""
        return 1 + self._clock.seed() % MARK_MAX

    def _limits(self, gather: ShareGather) -> Limits:
        group = gather.group
        return self._room.limits(
            group,
            deliveries_max=self._deliveries_max(group),
            priority_factor=factor_of(
                self._topics.group(group), self._tables.topics.get(gather.topic)
            ),
        )

    def _answer(self, gather: ShareGather) -> None:
        """What the last plan says is in the log."""
        gather.is_asked = False
        self._room.end_plan(gather.group, gather.taken)
        dead = len(gather.records)
        order = self._orders.get((gather.group, gather.topic))
        if order is not None and not gather.is_reading:
            order.note_checked()
        if not gather.has_planned:
            gather.rests_until_ms = self._now_ms() + RETRY_AFTER_MS
        served, done = gather.take_planned()
        self._drop(gather, served)
        self._counts[BrokerCounter.MESSAGES_DEAD] += dead
        for receive in served:
            self._attempts.note(receive.attempt, receive.places, receive.mark)
            self._mailbox.append(Reply(receive.caller, self._told(gather, receive)))
        for part in done:
            part.of.left -= 1
            if part.of.left == 0:
                self._tell_settled(part.of, part.of.error or part.of.told())
        self._looks_at_ms = gather.looks_at_ms = 0
        if gather.lacks_dead:
            self._make_dead_topic(gather.group)
        elif gather.parts:
            self._ask_or_refuse(gather, self._now_ms())
        self._tidy(gather)

    def _told(self, gather: ShareGather, receive: Receive) -> Result | LedgerError:
        if receive.error is not None:
            return receive.error
        try:
            return self._told_of(gather, receive)
        except LedgerError as error:
            # They are handed out again when their time is over.
            return error
        except (OSError, MemoryError):
            raise
        except Exception as error:
            return self._contain(error)

    def _told_of(self, gather: ShareGather, receive: Receive) -> Result:
        told = self._messages.told(
            gather.group,
            gather.topic,
            receive.places,
            until=receive.until,
            mark=receive.mark,
            in_runs=receive.in_runs,
        )
        return {**told, LATE: receive.late} if receive.in_runs else told

    def _nothing(self, gather: ShareGather, receive: Receive) -> Result | LedgerError:
        """What is told who has waited in vain: that there is nothing, or that it is not here."""
        if gather.awaits is not None:
            return gather.awaits
        told = {"topic": gather.topic, "messages": []}
        return {**told, LATE: receive.late} if receive.in_runs else told

    def _has_dead_topic(self, group: str) -> bool:
        """Whether dead letters can be stored, or need not be: a group without retry queues drops
        what others put aside.
        """
        if self._topics.group(group).retry_queues <= 0:
            return True
        try:
            return not self._topics.lacking(group, dead_letter_topic(group))
        except NoPermissionError:
            # Who rejects is told so when it is to be made; others go on.
            return False

    def _make_dead_topic(self, group: str) -> None:
        """Make the topic of a group's dead letters; what waits for it is asked for again then."""
        if group in self._making_dead:
            return

        def done() -> None:
            self._making_dead.discard(group)
            for gather in self._of_group(group):
                if not gather.is_asked:
                    self._ask_or_refuse(gather, self._now_ms())

        def refused(error: LedgerError) -> None:
            self._making_dead.discard(group)
            for gather in self._of_group(group):
                self._refuse(gather, error)

        name = dead_letter_topic(group)
        touches = frozenset({f"group {group}", f"topic {name}"})
        request = StateRequest(
            NODE_ITSELF, lambda: self._topics.lacking(group, name), touches, done, refused=refused
        )
        try:
            self._log.submit(request, self._now_ms())
        except LedgerError as error:
            refused(error)
        else:
            self._making_dead.add(group)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS

    def _of_group(self, group: str) -> Iterator[ShareGather]:
        return iter([one for (of, _), one in self._gathers.items() if of == group])

    def _refuse_all(self, error: LedgerError) -> None:
        for gather in list(self._gathers.values()):
            self._refuse(gather, error)

    def _refuse(self, gather: ShareGather, error: LedgerError) -> None:
        """Tell all who wait in a gather why nothing came of it, or may come of it."""
        refused = list(gather.receives)
        self._drop(gather, refused)
        for receive in refused:
            self._mailbox.append(Reply(receive.caller, error))
        for part in gather.parts:
            if part.of.left > 0:
                part.of.left = -1
                self._tell_settled(part.of, error)
        gather.parts.clear()
        gather.served, gather.done = [], []
        self._tidy(gather)

    def _tell_settled(self, settlement: Settlement, outcome: Result | LedgerError) -> None:
        caller = settlement.caller
        self._room.settle(caller.client, -settlement.count)
        if caller is not NODE_ITSELF and not settlement.is_of_receive:
            self._mailbox.append(Reply(caller, outcome))


def _touched(group: str, topic: str) -> str:
    """What a command about a share group in a topic changes, for the state log."""
    return f"share {group}@{topic}"
