"""Calls about consumed offsets: commits by members, resets by operators.

RocketMQ's clients commit for many groups at once. They may go back: their tools reset groups so. An
offset that its queue does not have is refused, where RocketMQ stores it: messages that come later
would be passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ledgermq.broker.call_arguments import flag, offsets_by_queue, optional_text, text
from ledgermq.broker.calls import AnsweredVerb, Arguments, Call, Members, Result, Verbs
from ledgermq.broker.consumers.consumed_offsets import plan_consumed, touched_offsets
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import submit_call
from ledgermq.broker.verb_arguments import answered
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import (
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    ProtocolError,
    TopicUnknownError,
)
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.rights import Right
from ledgermq.rules.consumers.offset_plans import (
    OffsetChange,
    ResetTarget,
    check_nobody_consumes,
    chosen_queues,
    moves_of,
    reset_offset,
)
from ledgermq.rules.tables.groups import check_group_name
from ledgermq.rules.tables.table_changes import Change, GroupSet, OffsetsSet
from ledgermq.verbs.needs import ADMIN_ANYWHERE, both_rights, shown
from ledgermq.verbs.offsets import CloneOffsets, ResetOffsets

_MovesPlan = Callable[[], dict[str, list[OffsetChange]]]

ROWS_MAX = 10_000


class OffsetCommit(NamedTuple):
    """How far a group has consumed queues of a topic.

    Attributes:
        owner: whose creation it is if there is no such group yet; empty: nobody's.
    """

    group: str
    topic: str
    offsets: dict[int, int]
    owner: str = ""


class OffsetCalls:
    """Changes go through the log."""

    def __init__(
        self,
        known: KnownTopics,
        rules: TopicsSection,
        log: StateLog,
        members: Members,
        counts: Counts,
    ) -> None:
        self._store = known.store
        self._tables = known.tables
        self._rules = rules
        self._log = log
        self._counts = counts
        self._known = known
        self._members = members
        self.verbs: Verbs = (
            AnsweredVerb("group_offset", self._committed, shown(both_rights(Right.SUB))),
            AnsweredVerb("group_commit", self._commit, both_rights(Right.SUB)),
            answered(ResetOffsets, self._reset),
            answered(CloneOffsets, self._clone),
            AnsweredVerb("offsets_store", self._store_all, ADMIN_ANYWHERE),
        )

    def _committed(self, call: Call) -> Result:
        self._log.check_newest()
        arguments = call.arguments
        offsets = self._tables.offsets.offsets(text(arguments, "group"), text(arguments, "topic"))
        return {"offsets": {str(queue): offset for queue, offset in sorted(offsets.items())}}

    def _commit(self, call: Call) -> Result | None:
        name, topic = text(call.arguments, "group"), text(call.arguments, "topic")
        offsets = offsets_by_queue(call.arguments, "offsets")
        may_go_back = flag(call.arguments, "reset")
        member = optional_text(call.arguments, "client")

        def changes() -> list[Change]:
            if member is not None:
                # It may have been away for longer than its locks.
                self._tables.locks.check_owner(name, topic, member, offsets)
            topics = {topic: offsets}
            return plan_consumed(self._known, self._rules, name, topics, may_go_back=may_go_back)

        touches = touched_offsets(name, {topic: offsets})
        if may_go_back:
            # What a share group takes meanwhile says where it is, in all of its queues.
            touches |= {f"offset {name}@{topic}"}

        def answer() -> Result:
            self._counts[BrokerCounter.OFFSET_COMMITS] += 1
            return {}

        return submit_call(self._log, call, changes, touches, answer)

    def _reset(self, call: Call, asked: ResetOffsets) -> Result | None:
        """Set a group's offsets in a topic: to ``first``, ``last``, a ``time`` or a ``number``."""
        group, topic, force = asked.group, asked.topic, asked.force
        target, value = ResetTarget(asked.to), asked.value or 0
        wanted = None if asked.queues is None else list(asked.queues)

        def plan() -> dict[str, list[OffsetChange]]:
            self._check_target(group, force=force, create=asked.create)
            read_queues = self._known.topic(topic).read_queues
            old = self._tables.offsets.offsets(group, topic)
            queues = chosen_queues(topic, wanted, read_queues)
            new = {one: self._target(QueueName(topic, one), target, value) for one in queues}
            return {topic: moves_of(old, new)}

        return self._move(call, group, [topic], plan, is_trial=asked.dry_run)

    def _check_target(self, group: str, *, force: bool, create: bool) -> None:
        """Refuse what would be overwritten by members that consume now, or is of no group.

        Raises:
            GroupActiveError: members consume now.
            GroupUnknownError: there is no such group; its name may be misspelt.
            BusyError: who consumes is not known yet.
        """
        check_group_name(group)
        if not force:
            check_nobody_consumes(group, self._members(group), force=False)
        if not create and not self._tables.has_group(group):
            raise GroupUnknownError(
                "group does not exist; create=True (--create) makes it", group=group
            )

    def _target(self, queue: QueueName, target: ResetTarget, value: int) -> int:
        self._known.check_queue(queue)
        since = 0
        if target is ResetTarget.TIME:
            since = self._store.told_since(queue, value, self._store.first_since(queue, value))
        bounds = self._store.told_bounds(queue, surely=True)
        return reset_offset(target, value, bounds, since=since, queue_id=queue.queue_id)

    def _clone(self, call: Call, asked: CloneOffsets) -> Result | None:
        """Let a group be as far as another one is, in all topics of that one or in one."""
        source, group, one, force = asked.source, asked.group, asked.topic, asked.force
        topics = [owner.topic for owner, _ in self._tables.offsets.of_group(source)]

        def plan() -> dict[str, list[OffsetChange]]:
            found = {owner.topic: of for owner, of in self._tables.offsets.of_group(source)}
            chosen = found if one is None else {one: found.get(one, {})}
            if not any(chosen.values()):
                raise GroupUnknownError(
                    "source is not there, or has consumed nothing that could be cloned",
                    source=source,
                    topic=one,
                )
            self._check_target(group, force=force, create=asked.create)
            return {
                topic: moves_of(self._tables.offsets.offsets(group, topic), of)
                for topic, of in chosen.items()
            }

        of = topics if one is None else [one]
        return self._move(call, group, of, plan, is_trial=asked.dry_run)

    def _move(
        self, call: Call, group: str, topics: Iterable[str], plan: _MovesPlan, *, is_trial: bool
    ) -> Result | None:
        """Have what ``plan`` says in the log; of a trial tell what it would be."""
        if is_trial:
            self._log.check_leads()
            return _told(group, plan(), is_done=False)
        moves: dict[str, list[OffsetChange]] = {}

        def changes() -> list[Change]:
            moves.clear()
            moves.update(plan())
            created = self._tables.groups.get(group) is None
            found: list[Change] = []
            for topic, of in moves.items():
                new = {move.queue_id: move.new for move in of if move.new != move.old}
                if new:
                    found.append(OffsetsSet(group, topic, new))
            if found and created:
                wished = self._tables.groups.plan_use(group, self._rules)
                found.insert(0, GroupSet(group, wished.to_fields()))
            return found

        # Commits of single queues under way with it cannot be told apart by their names alone.
        touches = {f"offset {group}@{topic}" for topic in topics}
        touches |= {
            f"offset {group}@{topic}/{queue_id}"
            for topic in topics
            for queue_id in self._store.queue_ids(topic)
        }

        def answer() -> Result:
            return _told(group, moves, is_done=True)

        return submit_call(self._log, call, changes, touches, answer)

    def _store_all(self, call: Call) -> Result | None:
        """Store ``commits``; the answer is why which of them were ``refused``."""
        commits = _commits(call.arguments)
        refused: list[tuple[str, str, int, str]] = []

        def changes() -> list[Change]:
            refused.clear()
            found: list[Change] = []
            made: set[str] = set()
            for group, topic, offsets, owner in commits:
                try:
                    kept = self._kept(group, topic, offsets, refused)
                    is_new = group not in made and self._tables.groups.get(group) is None
                    if kept and is_new:
                        wished = self._tables.groups.plan_use(group, self._rules)
                        change = GroupSet(group, wished.to_fields())
                        # By itself: what finds no room takes no other group's commits with it.
                        self._log.room.check([change], owner)
                        found.append(change)
                        made.add(group)
                except LedgerError as error:
                    refused.extend((group, topic, queue_id, str(error)) for queue_id in offsets)
                    continue
                if kept:
                    found.append(OffsetsSet(group, topic, kept))
            return found

        touches = frozenset(
            f"offset {group}@{topic}/{queue_id}"
            for group, topic, offsets, _ in commits
            for queue_id in offsets
        )

        def answer() -> Result:
            self._counts[BrokerCounter.OFFSET_COMMITS] += len(touches)
            return {"refused": refused}

        return submit_call(self._log, call, changes, touches, answer)

    def _kept(
        self,
        group: str,
        topic: str,
        offsets: dict[int, int],
        refused: list[tuple[str, str, int, str]],
    ) -> dict[int, int]:
        """Those that are news, and that their queues have.

        Raises:
            TopicUnknownError, MessageIllegalError: there is no such topic.
        """
        self._tables.shares.check_queue_by_queue(group, topic)
        stored = self._tables.offsets.offsets(group, topic)
        news = {queue: offset for queue, offset in offsets.items() if stored.get(queue) != offset}
        kept: dict[int, int] = {}
        read_queues = self._known.topic(topic).read_queues
        for queue_id, offset in news.items():
            error: LedgerError | None = None
            if not 0 <= queue_id < read_queues:
                error = TopicUnknownError(
                    "topic has no such queue", topic=topic, queue=queue_id, queues=read_queues
                )
            else:
                bounds = self._known.store.bounds(QueueName(topic, queue_id))
                end = max(bounds.end + bounds.pending_max, stored.get(queue_id, 0))
                if not 0 <= offset <= end:
                    error = MessageIllegalError(
                        "offset outside of the queue",
                        group=group,
                        topic=topic,
                        queue=queue_id,
                        offset=offset,
                        end=end,
                    )
            if error is None:
                kept[queue_id] = offset
            else:
                refused.append((group, topic, queue_id, str(error)))
        return kept


def _told(group: str, moves: Mapping[str, list[OffsetChange]], *, is_done: bool) -> Result:
    return {
        "group": group,
        "done": is_done,
        "queues": [
            {"topic": topic, "queue": move.queue_id, "old": move.old, "new": move.new}
            for topic, of in sorted(moves.items())
            for move in of
        ],
    }


def _commits(arguments: Arguments) -> list[OffsetCommit]:
    value = arguments.get("commits")
    if not isinstance(value, list) or len(value) > ROWS_MAX:
        raise ProtocolError("argument not a list, or too long", argument="commits", limit=ROWS_MAX)
    found: list[OffsetCommit] = []
    for one in value:
        if not (isinstance(one, (list, tuple)) and len(one) == len(OffsetCommit._fields)):
            raise ProtocolError("not a group, a topic, offsets and an owner", argument="commits")
        group, topic, offsets, owner = one
        is_sound = isinstance(offsets, dict) and all(
            isinstance(text, str) for text in (group, topic, owner)
        )
        if not is_sound or not all(
            type(queue) is int and type(offset) is int for queue, offset in offsets.items()
        ):
            raise ProtocolError("not a group, a topic, offsets and an owner", argument="commits")
        found.append(OffsetCommit(group, topic, offsets, owner))
    return found
