"""The call that commits offsets of many groups at once, as RocketMQ's clients send them.

They may go back: their tools reset groups so. An offset that its queue does not have is refused,
where RocketMQ stores it: messages that come later would be passed over.
"""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.broker.calls import AnsweredVerb, Arguments, Call, Result, Verbs
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import LedgerError, MessageIllegalError, ProtocolError, TopicUnknownError
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.tables.table_changes import Change, GroupSet, OffsetsSet
from ledgermq.verbs.needs import ADMIN_ANYWHERE

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


class OffsetBatches:
    """Changes go through the log, as one command; what is known already leaves nothing there."""

    def __init__(
        self, known: KnownTopics, rules: TopicsSection, log: StateLog, counts: Counts
    ) -> None:
        self._known = known
        self._tables = known.tables
        self._rules = rules
        self._log = log
        self._counts = counts
        self.verbs: Verbs = (AnsweredVerb("offsets_store", self._store, ADMIN_ANYWHERE),)

    def _store(self, call: Call) -> Result | None:
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

        self._log.submit(StateRequest(call.caller, changes, touches, answer), call.now_ms)
        return None

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
