"""Topic follower: a group's leader has its topic table follow the cluster's rows of topics.

It proposes what differs, as any change of a topic, and compares again: so a crash in between leaves
nothing half done, and what is done twice changes nothing (docs/decisions/0087).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ledgermq.broker.callers import NODE_ITSELF
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import RETRY_MS, StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
)
from ledgermq.model.features import LEVEL_OF_SPREAD
from ledgermq.rules.cluster.numbered_rows import Point
from ledgermq.rules.cluster.topic_rows import TOPIC_KIND
from ledgermq.rules.messages.topic_plans import plan_followed
from ledgermq.rules.state.cluster_copy import FILE
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.rules.tables.topics import Topic

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE = 100
"""What one command changes at most: a turn of the broker is not to be noticed."""


class _Looked(NamedTuple):
    term: int
    cluster: int
    level: int
    topics: int


class TopicFollower:
    """Owned by the cluster service. In a group of no cluster nothing is proposed.

    Invariant: at most one command is under way.
    """

    def __init__(self, known: KnownTopics, tables: BrokerTables, log: StateLog) -> None:
        self._known = known
        self._tables = tables
        self._log = log
        self._looked: _Looked | None = None
        self._at: Point | None = None
        self._pending: dict[str, None] = {}
        self._refused: dict[str, str] = {}
        self._is_proposed = False
        self._due_ms: int | None = None

    @property
    def refused(self) -> Mapping[str, str]:
        """Topics whose row this group does not follow, as its leader knows, and why."""
        return self._refused

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do although nothing came; None: never."""
        return self._due_ms

    def turn(self, now_ms: int) -> None:
        """Compare what has changed, and propose what differs."""
        if not self._log.is_certain:
            self._looked = self._due_ms = None
            self._refused.clear()
            return
        looked = _Looked(
            self._log.term,
            self._tables.cluster.revision,
            self._tables.features.level,
            self._tables.topics.changes,
        )
        if looked != self._looked:
            self._look(looked)
        is_due = self._due_ms is None or now_ms >= self._due_ms
        if self._pending and not self._is_proposed and is_due:
            self._due_ms = None
            self._propose(now_ms)

    def _look(self, looked: _Looked) -> None:
        """Take note of the topics that may differ."""
        before, self._looked = self._looked, looked
        if looked.level < LEVEL_OF_SPREAD:
            self._pending.clear()
            return
        rows, at = self._tables.cluster.table.rows, self._at
        self._at = rows.at
        is_new = before is None or (before.term, before.level) != (looked.term, looked.level)
        if before is None or is_new or at is None or not rows.has_passed(at):
            self._pending.clear()
            self._refused.clear()
            self._note(name for name, _ in rows.of_kind(TOPIC_KIND))
            self._note(topic.name for topic in self._tables.topics if topic.cluster)
            return
        self._note(row.key.name for row in rows.above(at.number) if row.key.kind == TOPIC_KIND)
        self._note(self._tables.topics.changed_since(before.topics))

    def _note(self, names: Iterable[str]) -> None:
        self._pending |= dict.fromkeys(names)

    def _propose(self, now_ms: int) -> None:
        """Have the log say what differs of the next topics; those that do not differ are done."""
        names: list[str] = []
        for name in list(islice(self._pending, TOPICS_AT_ONCE)):
            if self._wanted(name) is None:
                del self._pending[name]
            else:
                names.append(name)
        if not names:
            self._due_ms = now_ms if self._pending else None
            return

        def plan() -> Sequence[TopicSet]:
            wanted = (self._wanted(name) for name in names)
            return [TopicSet(one.name, one.to_fields()) for one in wanted if one is not None]

        def done() -> None:
            self._is_proposed = False
            for name in names:
                self._pending.pop(name, None)
            self._due_ms = now_ms if self._pending else None

        def refused(error: LedgerError) -> None:
            self._is_proposed, self._due_ms = False, now_ms + RETRY_MS
            logger.warning("topics do not follow the cluster's rows yet: %s", error)

        touches = frozenset({FILE, *(f"topic {name}" for name in names)})
        request = StateRequest(NODE_ITSELF, plan, touches, done, refused=refused)
        self._is_proposed = True
        try:
            self._log.submit(request, now_ms)
        except LedgerError as error:
            refused(error)

    def _wanted(self, name: str) -> Topic | None:
        """The topic as its row wants it; None: as it is, or it cannot be so, which is told once."""
        tables = self._tables
        try:
            wanted = plan_followed(
                tables.topics,
                tables.cluster.table,
                name,
                first_offsets={}
                if tables.topics.get(name) is not None
                else self._known.first_offsets(name),
            )
        except (ConfigError, MessageIllegalError, NoPermissionError) as error:
            if self._refused.get(name) != str(error):
                self._refused[name] = str(error)
                logger.warning("topic does not follow the cluster's row: %s", error)
            return None
        self._refused.pop(name, None)
        return wanted
