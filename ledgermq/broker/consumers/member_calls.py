"""Calls of group members: heartbeats, queue locks, goodbyes.

A heartbeat that finds its group as the member knows it is answered when the group changes, or after
``groups.heartbeat_ms``: so each member has one question here at all times, and learns of a change
at once. Who is a member is known to the leader's broker alone, and comes back with the heartbeats;
who owns which queue is in the log (``rules/tables/queue_locks.py``).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ledgermq.broker.call_arguments import Arguments, flag, text
from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.consumers.other_members import OTHER_OWNER_PREFIX, TWINS_LINE, OtherMembers
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.sliced_answers import SlicedAnswers
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Encoded, Reply, StateRequest
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    GroupActiveError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
)
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.message_filter import EXPRESSION_SIZE_MAX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import Clock
from ledgermq.rules.consumers.enrolment import MODELS, Enrolment, Member
from ledgermq.rules.consumers.offset_plans import MEMBERS_NAMED_MAX
from ledgermq.rules.tables.groups import check_group_name
from ledgermq.rules.tables.queue_locks import QueueLeases
from ledgermq.rules.tables.table_changes import Change, GroupSet, Lock, LocksSet
from ledgermq.rules.tables.topics import check_topic_name
from ledgermq.sessions.refusal_lines import RefusalLines
from ledgermq.sessions.request_faults import Contain, let_through
from ledgermq.verbs.needs import GROUP, shown
from ledgermq.wire.session import encode_body

logger = logging.getLogger(__name__)

TOPICS_MAX = 1_000
HEARTBEATS_NS = 10_000_000
"""Heartbeats that waited are answered for so long in one turn."""

GROUP_TOPICS_MAX = 50_000
"""Members' wishes of one group: each of its members is told all of them, as one answer."""

LINES_MAX = 200
"""Most log lines about the members of one group in ten minutes."""
TOLD_MAX = 10
"""Differences among members that one answer names."""

Locks = Mapping[str, Mapping[int, Lock | None]]


class _Held(NamedTuple):
    caller: Caller
    group: str
    client: str
    until_ms: int


class MemberCalls(Service):
    """Owned by the broker process.

    Invariants: while this node does not lead there are no members, and no heartbeat waits; at most
    one heartbeat of a member is in ``_held``, and its group is as it was told; those in ``_due``
    wait for nothing but their turn.
    """

    name = "members"

    def __init__(
        self,
        known: KnownTopics,
        settings: Settings,
        log: StateLog,
        others: OtherMembers,
        slices: SlicedAnswers,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
        contain: Contain = let_through,
    ) -> None:
        """Nobody is a member yet.

        Args:
            others: members that are not our own clients.
            slices: answers that take several turns.
            contain: told of a bug that an answer has met; returns the refusal.
        """
        self._contain = contain
        self._known = known
        self._tables = known.tables
        self._settings = settings.groups
        self._limits = settings.limits
        self._rules = settings.topics
        self._log = log
        self._clock = clock
        self._counts = counts
        self._others = others
        self._slices = slices
        others.own = self._own_clients
        others.locked = self._locked_groups
        self._now_ms = 0
        self._leads = False
        self._led_ms = 0
        self._members = self._no_members()
        self._leases = QueueLeases(known.tables.locks)
        # The one that is due first stands first: all wait equally long.
        self._held: dict[tuple[str, str], _Held] = {}
        self._mailbox = mailbox
        # Groups whose members are to be told, heartbeats that are to be answered, and how.
        self._changed: dict[str, None] = {}
        self._due: deque[_Held] = deque()
        self._views: dict[str, Encoded | LedgerError] = {}
        self._lines = RefusalLines(LINES_MAX)
        self._stored: frozenset[str] = frozenset()
        self._stored_at_ns = -2
        self._differing: dict[str, list[str]] = {}
        self._locks_revision = -1
        self._locked: frozenset[str] = frozenset()
        self.verbs: Verbs = (
            AnsweredVerb("group_heartbeat", self._heartbeat, GROUP),
            AnsweredVerb("group_leave", self._leave, GROUP),
            AnsweredVerb("queue_lock", self._lock, GROUP),
            AnsweredVerb("queue_unlock", self._unlock, GROUP),
            AnsweredVerb("group_members", self._group_members, shown(GROUP)),
        )

    def clients(self, group: str) -> list[str]:
        """Ids of those who consume for ``group`` now."""
        return [member.client for member in self._of_all_kinds(group)]

    def queue_by_queue(self, group: str) -> list[str]:
        """Ids of those who consume for ``group`` queue by queue now, and not message by message."""
        own = [member.client for member in self._members.members(group)]
        return own + self._others.queue_by_queue(group)

    def _of_all_kinds(self, group: str) -> list[Member]:
        return self._members.members(group) + self._others.members(group)

    def _own_clients(self, group: str) -> list[str]:
        """Our own clients that consume for a group; on a follower, those that own queues of it.

        Also those that a new leader has not heard of yet, as long as their locks live.
        """
        found = {member.client for member in self._members.members(group)}
        if group not in self._locked_groups():
            return sorted(found)
        owners: Iterable[str]
        if self._leads:
            live = self._leases.owners(group, self._now_ms).values()
            owners = (owner for queues in live for owner in queues.values())
        else:
            locks = self._tables.locks.of_group(group).values()
            owners = (lock.owner for queues in locks for lock in queues.values())
        found |= {owner for owner in owners if not owner.startswith(OTHER_OWNER_PREFIX)}
        return sorted(found)

    def _locked_groups(self) -> frozenset[str]:
        """Groups of which our own clients own queues, by the log; looked for when that changes."""
        locks = self._tables.locks
        if locks.revision != self._locks_revision:
            self._locks_revision = locks.revision
            self._locked = frozenset(
                owner.group
                for owner, queues in locks
                if any(not lock.owner.startswith(OTHER_OWNER_PREFIX) for lock in queues.values())
            )
        return self._locked

    def tell_counts(self, counts: Counts) -> None:
        """Note how many groups and members there are now, and how many groups differ."""
        counted = self.counts()
        counts[BrokerCounter.GROUPS_CONSUMING] = len(counted)
        counts[BrokerCounter.GROUPS_DIFFERING] = len(self.differing())
        counts[BrokerCounter.MEMBERS] = sum(counted.values())

    def consuming(self, group: str) -> list[str]:
        """Ids of those who consume for ``group``, for who must not overlook one.

        Raises:
            BusyError: there are none, and this node has not led long enough to hear of them.
        """
        clients = self.clients(group)
        wait_ms = self._led_ms + self._settings.heartbeat_ms - self._now_ms
        if not clients and wait_ms > 0:
            raise BusyError(
                "node has just begun to lead, and members of the group may not have told it yet",
                group=group,
                retry_after_ms=wait_ms,
                setting="groups.heartbeat_ms",
            )
        return clients

    def counts(self) -> dict[str, int]:
        """How many consume for each group now; groups without members are left out."""
        own = {group: len(self._members.members(group)) for group in self._members.groups}
        counted = Counter(own)
        counted.update(self._others.counts())
        return dict(counted)

    def differing(self) -> dict[str, list[str]]:
        """Groups whose members differ in what they want, or have one id, each with in what."""
        return {**self._differing, **self._others.warnings()}

    def lead(self, leads: bool, now_ms: int) -> None:
        """This node leads from now on, or does not."""
        self._leads = leads
        self._refuse_held(NotLeaderError("node does not lead; ask the one that does"))
        self._members = self._no_members()
        self._differing.clear()
        self._changed.clear()
        if leads:
            self._led_ms = now_ms
            self._leases.begin(now_ms)

    def turn(self, now_ms: int) -> None:
        """Let go of members that are silent; answer who is due."""
        self._now_ms = now_ms
        for group, client in self._members.expire(now_ms):
            self._log_member(group, "consumer not heard of any more", client)
            self._held.pop((group, client), None)
            self._counts[BrokerCounter.MEMBERS_LOST] += 1
            self._tell(group)
        until_ns = self._clock.monotonic_ns() + HEARTBEATS_NS
        for group in self._changed:
            for member in self._members.members(group):
                if (held := self._held.pop((group, member.client), None)) is not None:
                    self._due.append(held)
            self._note_differences(group)
        self._changed.clear()
        while self._held and next(iter(self._held.values())).until_ms <= now_ms:
            self._due.append(self._held.pop(next(iter(self._held))))
        while self._due:
            self._answer(self._due.popleft())
            if self._clock.monotonic_ns() >= until_ns:
                break
        self._views.clear()  # of this turn alone

    def next_deadline_ms(self) -> int | None:
        if self._changed or self._due:
            return 0
        held = next(iter(self._held.values()), None)
        expiry_ms = self._members.next_expiry_ms()
        if held is None or expiry_ms is None:
            return expiry_ms
        return min(held.until_ms, expiry_ms)

    def end_all(self) -> None:
        self._refuse_held(NotLeaderError("node stops; ask again"))

    def _heartbeat(self, call: Call) -> Result | None:
        self._check(call)
        group, arguments = text(call.arguments, "group"), call.arguments
        member = _member(arguments)
        self._tables.groups.plan_use(group, self._rules)
        self._check_kind(group)
        self._tables.shares.check_queue_by_queue(group)
        self._check_room(group, member)
        try:
            is_news = self._members.heartbeat(group, member, call.now_ms)
        except NoPermissionError:
            self._warn_of_twins(group, member)
            raise
        self._leases.renew(group, member.client, _queues(arguments, "owned"), call.now_ms)
        key = group, member.client
        if (older := self._held.pop(key, None)) is not None:
            self._due.append(older)
        if is_news:
            self._log_member(group, "consumer in group", member.client)
            self._tell(group)
        held = _Held(call.caller, group, member.client, call.now_ms + self._settings.heartbeat_ms)
        if arguments.get("version") == self._members.version(group):
            self._held[key] = held
        else:
            # At the turn's end, as all that wait: of those who come together each is told the same.
            self._due.append(held)
        return None

    def take_settings(self, settings: Settings) -> None:
        self._limits = settings.limits

    def _check_room(self, group: str, member: Member) -> None:
        """Refuse who comes anew, or wants more, where there are too many; others stay."""
        members, limits = self._members, self._limits
        known = members.member(group, member.client)
        if known is None and len(members) >= limits.members_max:
            raise BusyError(
                "too many consumers",
                consumers=len(members),
                limit=limits.members_max,
                setting="limits.members_max",
            )
        topics = members.topics(group) + len(member.subscription)
        topics -= 0 if known is None else len(known.subscription)
        if topics > max(members.topics(group), GROUP_TOPICS_MAX):
            raise BusyError(
                "consumers of the group want too many topics, all together",
                group=group,
                topics=topics,
                limit=GROUP_TOPICS_MAX,
            )
        more = member.size - (0 if known is None else known.size)
        if more > 0 and members.size + more > limits.members_bytes:
            raise BusyError(
                "consumers want too much, all together",
                size=members.size + more,
                limit=limits.members_bytes,
                setting="limits.members_bytes",
            )

    def _check_kind(self, group: str) -> None:
        """Refuse our own clients while others consume.

        Raises:
            GroupActiveError: they do.
        """
        others = [member.client for member in self._others.members(group)]
        if others:
            raise GroupActiveError(
                "RocketMQ's clients consume for the group now: stop them first, or take another",
                group=group,
                members=len(others),
                some=others[:MEMBERS_NAMED_MAX],
            )

    def _leave(self, call: Call) -> Result | None:
        self._check(call)
        group, client = text(call.arguments, "group"), text(call.arguments, "client")
        if self._members.leave(group, client, text(call.arguments, "instance")):
            self._log_member(group, "consumer left", client)
            self._held.pop((group, client), None)
            self._tell(group)
        return {}

    def _lock(self, call: Call) -> Result | None:
        """Own what nobody else owns of ``queues``; the answer is what the client owns of them."""
        self._check(call)
        arguments = call.arguments
        group, client = text(arguments, "group"), text(arguments, "client")
        queues = _queues(arguments, "queues")
        settings, is_ordered = self._settings, flag(arguments, "ordered")
        lease_ms = settings.lock_expiry_ms if is_ordered else settings.member_expiry_ms
        for topic, queue_ids in queues.items():
            for queue_id in queue_ids:
                self._known.check_queue(QueueName(topic, queue_id))

        def plan() -> Locks:
            changes = self._leases.forget_dead(group, self._now_ms)
            wanted = self._leases.plan_lock(
                group, client, queues, lease_ms=lease_ms, now_ms=self._now_ms
            )
            return {
                topic: {**changes.get(topic, {}), **wanted.get(topic, {})}
                for topic in changes.keys() | wanted.keys()
            }

        def answer() -> Result:
            self._leases.renew(group, client, queues, self._now_ms)
            owned = self._leases.owned(group, client, queues)
            self._counts[BrokerCounter.QUEUE_LOCKS] += sum(map(len, owned.values()))
            return {"owned": owned}

        self._change(call, group, plan, answer)
        return None

    def _unlock(self, call: Call) -> Result | None:
        """Own none of ``queues`` any more."""
        self._check(call)
        arguments = call.arguments
        group, client = text(arguments, "group"), text(arguments, "client")
        queues = _queues(arguments, "queues")
        self._change(
            call, group, lambda: self._leases.plan_unlock(group, client, queues), lambda: {}
        )
        return None

    def _change(
        self, call: Call, group: str, plan: Callable[[], Locks], answer: Callable[[], Result]
    ) -> None:
        """Have other owners in the log, and tell the group's members of them."""
        planned: list[Change] = []

        def changes() -> list[Change]:
            found = self._tables.groups.plan_use(group, self._rules)
            planned[:] = [LocksSet(group, topic, locks) for topic, locks in plan().items() if locks]
            if planned and self._tables.groups.get(group) is None:
                planned.insert(0, GroupSet(group, found.to_fields()))
            return planned

        def told() -> Result:
            result = answer()
            if planned:
                self._leases.forget_times()
                self._members.changed(group)
                self._tell(group)
            return {**result, "version": self._members.version(group)}

        touches = frozenset({f"locks {group}"})
        self._log.submit(StateRequest(call.caller, changes, touches, told), call.now_ms)

    def _group_members(self, call: Call) -> Result | None:
        self._check(call)
        group = text(call.arguments, "group")
        check_group_name(group)
        owners = self._leases.owners(group, call.now_ms)
        members = self._of_all_kinds(group)
        self._tables.check_group(group, self.clients(group))
        fields = {"group": group, "warnings": self.warnings(group)}
        rows = (
            {
                "client": member.client,
                "host": member.host,
                "model": member.model,
                "start": member.start,
                "ordered": member.ordered,
                "strategy": member.strategy,
                "subscription": dict(member.subscription),
            }
            for member in members
        )
        queues = self._owned_rows(group, members, owners)
        return self._slices.show(call, fields, members=rows, queues=queues)

    def _owned_rows(
        self, group: str, members: Iterable[Member], owners: Mapping[str, Mapping[int, str]]
    ) -> Iterator[Result]:
        """Each queue of the topics that members want or have: who owns it, and what it lags."""
        topics = {topic for one in members for topic in one.subscription}
        counts = self._queue_counts(topics | owners.keys())
        for topic in sorted(counts):
            offsets = self._tables.offsets.offsets(group, topic)
            for queue_id in range(counts[topic]):
                bounds = self._known.store.bounds(QueueName(topic, queue_id))
                committed = offsets.get(queue_id)
                yield {
                    "topic": topic,
                    "queue": queue_id,
                    "client": owners.get(topic, {}).get(queue_id),
                    "committed": committed,
                    "lag": max(0, bounds.end - max(committed or 0, bounds.first)),
                }

    def _view(self, group: str, now_ms: int) -> Result:
        """What a member needs to know to share queues with the others."""
        members = self._members.members(group)
        topics = sorted({topic for member in members for topic in member.subscription})
        owners = self._leases.owners(group, now_ms)
        return {
            "version": self._members.version(group),
            "heartbeat_ms": self._settings.heartbeat_ms,
            "member_lease_ms": self._settings.member_expiry_ms,
            "lock_lease_ms": self._settings.lock_expiry_ms,
            "members": {member.client: sorted(member.subscription) for member in members},
            "owners": {
                topic: {str(queue): client for queue, client in queues.items()}
                for topic, queues in owners.items()
            },
            "queues": self._queue_counts(topics),
            "warnings": self.warnings(group),
        }

    def _queue_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Queues of each; none of one that is not there: its readers may be there before it is."""
        table, store = self._tables.topics, self._known.store
        changed_ns = store.topics_changed_ns()
        if changed_ns != self._stored_at_ns:
            self._stored, self._stored_at_ns = frozenset(store.topics()), changed_ns
        counts = {}
        for name in topics:
            known = table.get(name)
            if known is not None:
                counts[name] = known.read_queues
            else:
                # To look for queues reads a folder, which few of those have that no table knows.
                counts[name] = self._known.queues_found(name) if name in self._stored else 0
        return counts

    def warnings(self, group: str) -> list[str]:
        """Differences among the members of ``group``; a few examples."""
        differences = islice(self._members.differences(group), TOLD_MAX)
        return [*map(str, differences), *self._others.warnings().get(group, [])]

    def _tell(self, group: str) -> None:
        """Have the members of a group that has changed answered, at the turn's end.

        All that they have to be told is made once a turn, whatever has changed: with thousands of
        members, who come one after the other, each change for each was the square.
        """
        self._counts[BrokerCounter.GROUP_CHANGES] += 1
        self._changed[group] = None

    def _log_member(self, group: str, what: str, client: str) -> None:
        if self._lines.is_news(group, f"{what} {client} {self._now_ms}", self._now_ms / 1_000):
            logger.info("%s: group=%s client=%s", what, group, client)

    def _warn_of_twins(self, group: str, member: Member) -> None:
        known = self._members.member(group, member.client)
        if known and self._lines.is_news(group, f"twins {member.client}", self._now_ms / 1_000):
            logger.warning(TWINS_LINE, group, member.client, member.host, known.host)

    def _note_differences(self, group: str) -> None:
        warnings = self.warnings(group)
        if not warnings:
            self._differing.pop(group, None)
            return
        if group not in self._differing:
            logger.warning("consumers of a group differ: group=%s %s", group, warnings[0])
        self._differing[group] = warnings

    def _answer(self, held: _Held) -> None:
        view = self._views.get(held.group)
        if view is None:
            try:
                view = Encoded(encode_body(self._view(held.group, self._now_ms)))
            except LedgerError as error:
                view = error
            except (OSError, MemoryError):
                raise
            except Exception as error:
                view = self._contain(error)
            self._views[held.group] = view
        self._mailbox.append(Reply(held.caller, view))

    def _refuse_held(self, error: LedgerError) -> None:
        self._mailbox += [Reply(held.caller, error) for held in (*self._due, *self._held.values())]
        self._due.clear()
        self._held.clear()

    def _check(self, call: Call) -> None:
        """Refuse what only the leader knows.

        Raises:
            NotLeaderError: this node does not lead.
            BusyError: its tables are held up.
        """
        self._now_ms = call.now_ms
        if not self._leads:
            raise NotLeaderError("node does not lead now; members are known to the leader")
        self._log.check()

    def _no_members(self) -> Enrolment:
        epoch = f"{self._clock.seed():016x}"[:12]
        return Enrolment(epoch=epoch, expiry_ms=self._settings.member_expiry_ms)


def _member(arguments: Arguments) -> Member:
    model = text(arguments, "model")
    if model not in MODELS:
        raise ProtocolError("not a model of consuming", model=model, allowed=", ".join(MODELS))
    wanted = arguments.get("subscription")
    if not isinstance(wanted, dict) or not 0 < len(wanted) <= TOPICS_MAX:
        raise ProtocolError("subscription has no topics, or too many", limit=TOPICS_MAX)
    return Member(
        client=text(arguments, "client"),
        instance=text(arguments, "instance"),
        host=text(arguments, "host"),
        model=model,
        start=text(arguments, "start"),
        ordered=flag(arguments, "ordered"),
        strategy=text(arguments, "strategy"),
        subscription={topic: _expression(wanted, topic) for topic in wanted},
    )


def _expression(wanted: Mapping[str, object], topic: str) -> str:
    check_topic_name(topic)
    value = wanted[topic]
    if not isinstance(value, str) or not 0 < len(value) <= EXPRESSION_SIZE_MAX + 16:
        raise ProtocolError("not what a consumer wants", topic=topic, limit=EXPRESSION_SIZE_MAX)
    return value


def _queues(arguments: Arguments, name: str) -> dict[str, list[int]]:
    """The object called ``name``: queue ids by topic; empty when it is left out.

    Raises:
        ProtocolError: it has something else.
    """
    value = arguments.get(name, {})
    if not isinstance(value, dict) or len(value) > TOPICS_MAX:
        raise ProtocolError("argument not an object of topics, or too many", argument=name)
    for topic, queue_ids in value.items():
        if not isinstance(queue_ids, list) or not all(
            type(one) is int and 0 <= one <= QUEUE_ID_MAX for one in queue_ids
        ):
            raise ProtocolError("not the numbers of queues", argument=name, topic=topic[:64])
    return value
