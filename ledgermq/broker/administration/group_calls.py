"""Calls about subscription groups: lists, changes, and how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ledgermq.broker.call_arguments import optional_text
from ledgermq.broker.calls import AnsweredVerb, Call, Members, Result, Verbs
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.sliced_answers import SlicedAnswers
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import submit_call
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import ProtocolError
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.consumers.group_plans import (
    is_builtin,
    names_of,
    plan_alter,
    plan_create,
    plan_delete,
)
from ledgermq.rules.given_back import TOKEN_SIZE_MAX, MessageGivenBack
from ledgermq.rules.tables.group_offsets import GroupOffsets, GroupTopic
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.table_changes import Change, GroupSet, TopicSet
from ledgermq.verbs.groups import (
    AlterGroup,
    CreateGroup,
    DeleteGroup,
    ListGroups,
    ShowGroup,
    ShowLag,
)
from ledgermq.verbs.needs import USER, shown

TOPICS_PER_LOOK_MAX = 250
"""Pairs of group and topic that one question looks at: some thousand queues at most."""


class TopicLag(NamedTuple):
    """A group in a topic: messages that wait for it, and the sum of its offsets."""

    lag: int
    consumed: int


Lag = Callable[[str, Mapping[int, int]], int]


class GroupLags:
    """What is known of all groups' lag, found a part at a time.

    There may be thousands of groups, and to look at a queue takes microseconds: whoever asks gets
    the figures that are known, and makes this look at the next few, in turn.

    Invariant: ``_found`` has no group of which no offset was known when the last round began.
    """

    def __init__(self, offsets: GroupOffsets, lag: Lag) -> None:
        """Nothing is known yet.

        Args:
            offsets: of all groups.
            lag: messages that wait in a topic, behind offsets by queue.
        """
        self._offsets = offsets
        self._lag = lag
        self._found: dict[GroupTopic, TopicLag] = {}
        self._waiting: list[GroupTopic] = []
        self.is_complete = False
        """Whether every group was looked at once."""

    def look(self) -> None:
        """Look at the next few."""
        left = TOPICS_PER_LOOK_MAX
        if not self._waiting:
            self._begin_round()
        while self._waiting and left:
            owner = self._waiting.pop()
            offsets = self._offsets.offsets(owner.group, owner.topic)
            if offsets:
                lag = self._lag(owner.topic, offsets)
                self._found[owner] = TopicLag(lag, sum(offsets.values()))
            else:
                self._found.pop(owner, None)
            left -= 1
        if not self._waiting:
            self.is_complete = True

    def by_group(self) -> dict[str, dict[str, TopicLag]]:
        """What was found last, by group and topic."""
        groups: dict[str, dict[str, TopicLag]] = {}
        for owner, found in self._found.items():
            groups.setdefault(owner.group, {})[owner.topic] = found
        return groups

    def _begin_round(self) -> None:
        self._waiting = [owner for owner, _ in self._offsets]
        for gone in self._found.keys() - set(self._waiting):
            del self._found[gone]


class GroupCalls:
    """Changes go through the log; lag is that of what this node has dispatched."""

    def __init__(
        self,
        known: KnownTopics,
        rules: TopicsSection,
        log: StateLog,
        slices: SlicedAnswers,
        *,
        members: Members,
        warnings: Members,
        counts: Callable[[], Mapping[str, int]],
    ) -> None:
        """Verbs about groups.

        Args:
            members: clients of a group that have named themselves.
            counts: how many consume for each group now, also of those that are not named.
        """
        self._counts = counts
        self._rules = rules
        self._store = known.store
        self._tables = known.tables
        self._known = known
        self._log = log
        self._slices = slices
        self._members = members
        self._warnings = warnings
        self.verbs: Verbs = (
            AnsweredVerb("groups", self._groups, shown(USER)),
            answered(ListGroups, self._list),
            answered(ShowGroup, self._show),
            answered(CreateGroup, self._create),
            answered(AlterGroup, self._alter),
            answered(DeleteGroup, self._delete),
            answered(ShowLag, self._lag_rows),
        )

    def check_may_consume(self, group: str) -> None:
        """Refuse a group that may not consume.

        Raises:
            NoPermissionError: it is switched off, or unknown and not made on first use.
            MessageIllegalError: its name breaks a rule.
            NotLeaderError: what was changed before is not known yet; ask again.
        """
        self._log.check_started()
        self._tables.groups.plan_use(group, self._rules)

    def _groups(self, call: Call) -> Result | None:
        """What all groups have committed, or those of one ``topic``; large where there are many."""
        self._log.check_newest()
        topic = optional_text(call.arguments, "topic")
        offsets = self._tables.offsets
        found = sorted(offsets) if topic is None else offsets.of_topic(topic)
        rows = (self._offsets_row(owner, of) for owner, of in found)
        return self._slices.show(call, {}, groups=rows)

    def _offsets_row(self, owner: GroupTopic, offsets: Mapping[int, int]) -> Result:
        return {
            "group": owner.group,
            "topic": owner.topic,
            "offsets": {str(queue): offset for queue, offset in sorted(offsets.items())},
            "lag": self.lag(owner.topic, offsets),
        }

    def _list(self, call: Call, asked: ListGroups) -> Result | None:
        """The groups, with ``limit`` at most so many whose names are behind ``after``."""
        self._log.check_newest()
        offsets = self._tables.offsets
        names = names_of(self._tables.groups, offsets)
        counts = self._counts()
        chosen = list(islice((name for name in names if name > (asked.after or "")), asked.limit))
        rows = (
            {
                **self._described(name),
                "topics": [one.topic for one, _ in offsets.of_group(name)],
                "members": counts.get(name, 0),
            }
            for name in chosen
        )
        is_more = asked.limit is not None and len(chosen) == asked.limit
        return self._slices.show(call, {"more": is_more}, groups=rows)

    def _show(self, call: Call, asked: ShowGroup) -> Result | None:
        self._log.check_newest()
        name = asked.group
        owned = self._tables.offsets.of_group(name)
        members = sorted(self._members(name))
        self._tables.check_group(name, members)
        fields = {
            **self._described(name),
            "members": members,
            "warnings": list(self._warnings(name)),
        }
        rows = (
            {"topic": owner.topic, "lag": self.lag(owner.topic, offsets)}
            for owner, offsets in owned
        )
        return self._slices.show(call, fields, topics=rows)

    def _described(self, name: str) -> Result:
        group = self._tables.groups.get(name)
        known = group or SubscriptionGroup(name)
        return {
            "group": name,
            "exists": group is not None,
            "system": is_builtin(name),
            "fields": known.to_fields(),
        }

    def _create(self, call: Call, asked: CreateGroup) -> Result | None:
        name, wish = asked.group, asked.fields
        return self._change(call, name, lambda: plan_create(self._tables.groups, name, wish))

    def _alter(self, call: Call, asked: AlterGroup) -> Result | None:
        name, wish = asked.group, asked.fields
        return self._change(call, name, lambda: plan_alter(self._tables.groups, name, wish))

    def _change(
        self, call: Call, name: str, plan: Callable[[], SubscriptionGroup]
    ) -> Result | None:
        def changes() -> list[Change]:
            group = plan()
            if group is self._tables.groups.get(name):
                return []
            return [GroupSet(name, group.to_fields())]

        return submit_call(
            self._log, call, changes, {f"group {name}"}, lambda: self._described(name)
        )

    def _delete(self, call: Call, asked: DeleteGroup) -> Result | None:
        """The group, ``with_offsets`` what it has consumed, ``with_topics`` its retry topics.

        A question with the ``token`` of an earlier one is answered as done.
        """
        name = asked.group
        own = (f"{RETRY_PREFIX}{name}", f"{DEAD_LETTER_PREFIX}{name}")
        topics = own if asked.with_topics else ()
        token = optional_text(call.arguments, "token") or ""
        if len(token) > TOKEN_SIZE_MAX:
            raise ProtocolError("token is too long", size=len(token), limit=TOKEN_SIZE_MAX)
        deleted: list[str] = []

        def changes() -> list[Change]:
            tables = self._tables
            if token and token in tables.state.given_back:
                # Asked again, because the answer was lost: this leader or an earlier one did it.
                return []
            deleted[:] = [topic for topic in topics if tables.topics.get(topic) is not None]
            return [
                *plan_delete(tables.groups, tables.offsets, name, with_offsets=asked.with_offsets),
                *(TopicSet(topic, None) for topic in deleted),
                *([MessageGivenBack(token)] if token else []),
            ]

        touches = {f"group {name}", *(f"topic {topic}" for topic in topics)}

        def answer() -> Result:
            return {"group": name, "topics": deleted}

        return submit_call(self._log, call, changes, touches, answer)

    def _lag_rows(self, call: Call, asked: ShowLag) -> Result | None:
        """Queue by queue, of the topics that the group has consumed, or of one."""
        self._log.check_newest()
        name, one = asked.group, asked.topic
        owned = dict(self._tables.offsets.of_group(name))
        self._tables.check_group(name)
        if one is not None:
            self._known.topic(one)
        topics = [owner.topic for owner in owned] if one is None else [one]
        return self._slices.show(call, {"group": name}, queues=self._lags(name, topics))

    def _lags(self, group: str, topics: Iterable[str]) -> Iterator[Result]:
        for topic in topics:
            offsets = self._tables.offsets.offsets(group, topic)
            for queue_id in self._queues_of(topic):
                yield self._lag_row(QueueName(topic, queue_id), offsets.get(queue_id))

    def _lag_row(self, queue: QueueName, offset: int | None) -> Result:
        held, end, _ = self._store.bounds(queue)
        first = self._store.told_bounds(queue).first
        behind = max(0, end - max(offset or 0, first))
        last = -1
        if offset is not None and held < offset <= end:
            last = self._store.store_time(queue, offset - 1)
        return {
            "topic": queue.topic,
            "queue": queue.queue_id,
            "min": first,
            "max": end,
            "offset": offset,
            "lag": behind,
            "last_consumed": last,
        }

    def _queues_of(self, topic: str) -> list[int]:
        """The queues of a topic that are read, as far as they ever had a message."""
        known = self._tables.topics.get(topic)
        found = self._store.queue_ids(topic)
        return found if known is None else [one for one in found if one < known.read_queues]

    def lag(self, topic: str, offsets: Mapping[int, int]) -> int:
        """Messages that a group has not consumed, in all queues of the topic."""
        lag = 0
        for queue_id in self._queues_of(topic):
            bounds = self._store.told_bounds(QueueName(topic, queue_id))
            lag += max(0, bounds.end - max(offsets.get(queue_id, 0), bounds.first))
        return lag
