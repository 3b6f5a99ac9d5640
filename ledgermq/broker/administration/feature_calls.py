"""Calls about what the group keeps for operators and tools: feature levels, archives, name values.

The level of a new group is raised without a call, once all of its members have said what they know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ledgermq
from ledgermq.broker.call_arguments import text
from ledgermq.broker.callers import NODE_ITSELF
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.broker.service import Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import BatchPlan, StateRequest, submit_call
from ledgermq.broker.verb_arguments import answered
from ledgermq.ipc.counters import BrokerCounter, Counts, RaftCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.members.reports import read_levels
from ledgermq.model.errors import ConfigError, LedgerError, ProtocolError
from ledgermq.model.features import LEVEL, LEVELS, holding_back, version_of
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.process.environment import Environment
from ledgermq.rules.state.feature_table import FILE
from ledgermq.rules.tables import name_values
from ledgermq.rules.tables.archives import ArchiveMark, check_name
from ledgermq.rules.tables.table_changes import ArchiveSet, Change, LevelSet, NamesSet
from ledgermq.verbs.needs import CHANGE
from ledgermq.verbs.upkeep import (
    CommitArchive,
    EnableFeatures,
    ListArchives,
    RemoveArchive,
    ShowFeatures,
)

LOOK_MS = 200
"""Members of a new group are looked at so often, until all have said what they know."""

_TOUCHES = frozenset({FILE})

ARCHIVES_MAX = 100


def _nothing() -> None:
    pass


def _look_again(_error: LedgerError) -> None:
    """The next look asks again, if nobody else has raised the level."""


class FeatureCalls(Service):
    """The feature level in force, and the next one put in force: changes go through the log."""

    name = "features"

    def __init__(
        self, environment: Environment, tables: BrokerTables, log: StateLog, counts: Counts
    ) -> None:
        """``counts`` are the broker's counters."""
        self._page = environment.page
        self._counts = counts
        self._report = environment.paths.levels
        self._tables = tables
        self._log = log
        self._look_ms = 0
        self._first_term = 0
        log.begin_log = self._begin_log
        self.verbs: Verbs = (
            answered(ShowFeatures, self._features, whatever_tables=True),
            answered(EnableFeatures, self._enable),
        )

    @property
    def _may_begin(self) -> bool:
        """Whether a new group's level may still go up by itself."""
        return self._first_term == self._log.term != 0 and self._tables.features.level < LEVEL

    @property
    def _members_know(self) -> int:
        """The highest feature level that this node and all members know, as raft has heard."""
        return min(LEVEL, self._page.read_counters(Role.RAFT)[RaftCounter.MEMBERS_LEVEL])

    def _begin_log(self) -> BatchPlan:
        """This node leads the first term of a log: what its first command says of the level."""
        self._first_term = self._log.term
        plan, level = BatchPlan(), self._members_know
        if level > self._tables.features.level:
            plan.changes.append(LevelSet(level))
        return plan

    def next_deadline_ms(self) -> int | None:
        return self._look_ms if self._may_begin else None

    def turn(self, now_ms: int) -> None:
        """Raise the level of a new group, or tell what an operator may put in force."""
        level = self._members_know
        # Nothing before this node knows what the log says: that of a new group rises by itself.
        is_told = self._log.is_settled and not self._may_begin
        is_next = is_told and level > self._tables.features.level
        self._counts[BrokerCounter.LEVEL_TO_ENABLE] = level if is_next else 0
        if not self._may_begin or now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        if self._log.is_settled and self._members_know >= LEVEL:
            request = StateRequest(
                NODE_ITSELF, self._plan(LEVEL), _TOUCHES, _nothing, refused=_look_again
            )
            self._log.submit(request, now_ms)

    def _features(self, _call: Call, _asked: ShowFeatures) -> Result:
        """What this node knows, what each member has told it, what is in force."""
        return {
            "node": self._tables.node.self_id,
            "version": ledgermq.__version__,
            "known": LEVEL,
            "members_know": self._members_know,
            "members": read_levels(self._report),
            "in_force": self._tables.features.level,
            "needed": self._log.level_needed,
            "levels": [level._asdict() for level in LEVELS],
        }

    def _enable(self, call: Call, asked: EnableFeatures) -> Result | None:
        """Put ``level`` in force, the highest without one."""
        level = LEVEL if asked.level is None else asked.level
        in_force = self._tables.features
        return submit_call(
            self._log,
            call,
            self._plan(level),
            _TOUCHES,
            lambda: {"in_force": in_force.level},
            tries=True,
        )

    def _plan(self, level: int) -> Callable[[], Sequence[Change]]:
        def plan() -> Sequence[Change]:
            self._check(level)
            return [LevelSet(level)] if level > self._tables.features.level else []

        return plan

    def _check(self, level: int) -> None:
        in_force = self._tables.features.level
        if level > LEVEL:
            raise ConfigError("no such feature level in this version", level=level, known=LEVEL)
        if level < in_force:
            raise ConfigError("feature levels never go down", level=level, in_force=in_force)
        members_know = self._members_know
        if level > max(members_know, in_force):
            raise ConfigError(
                "not all members have said that they know the feature level, which needs version"
                f" {version_of(level)}",
                level=level,
                members_know=members_know,
                held_back_by="; ".join(holding_back(read_levels(self._report), level)),
            )


class ArchiveCalls:
    """Archives, for which retention waits.

    Changes go through the log, and are those of all nodes when they are answered.
    """

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, log: StateLog, clock: Clock
    ) -> None:
        self._store = store
        self._tables = tables
        self._log = log
        self._clock = clock
        self.verbs: Verbs = (
            answered(ListArchives, self._list),
            answered(CommitArchive, self._commit),
            answered(RemoveArchive, self._remove),
        )

    def _list(self, _call: Call, _asked: ListArchives) -> Result:
        """All archives, and up to where this node's queues have the log."""
        self._log.check_newest()
        return {
            "archives": [
                {"archive": name, **mark.to_fields()} for name, mark in self._tables.archives
            ],
            "node": self._tables.node.self_id,
            "queued": self._store.position,
        }

    def _commit(self, call: Call, asked: CommitArchive) -> Result | None:
        """Have an archive further, or for the first time."""
        name, position = check_name(asked.archive), asked.position
        archives = self._tables.archives

        def plan() -> Sequence[Change]:
            known = archives.get(name)
            if known is None and len(archives) >= ARCHIVES_MAX:
                raise ConfigError("too many archives", archives=len(archives), limit=ARCHIVES_MAX)
            if position > self._store.position:
                raise ConfigError(
                    "archive is said to have what the log has not",
                    archive=name,
                    position=position,
                    end=self._store.position,
                )
            if known is not None and position < known.position:
                raise ConfigError(
                    "archive was further already: is it another one? ledgermq archive remove",
                    archive=name,
                    position=position,
                    archived=known.position,
                )
            return [ArchiveSet(name, ArchiveMark(position, epoch_ms(self._clock)).to_fields())]

        def shown() -> Result:
            mark = archives.get(name)
            return {"archive": name, **({} if mark is None else mark.to_fields())}

        return self._submit(call, name, plan, shown)

    def _remove(self, call: Call, asked: RemoveArchive) -> Result | None:
        name = check_name(asked.archive)

        def plan() -> Sequence[Change]:
            if self._tables.archives.get(name) is None:
                raise ConfigError("nothing waits for such an archive", archive=name)
            return [ArchiveSet(name, None)]

        return self._submit(call, name, plan, lambda: {"archive": name})

    def _submit(
        self,
        call: Call,
        name: str,
        plan: Callable[[], Sequence[Change]],
        answer: Callable[[], Result],
    ) -> Result | None:
        return submit_call(self._log, call, plan, {f"archive {name}"}, answer, tries=True)


class NameCalls:
    """Name values, which tools keep at a name server: changes go through the log."""

    def __init__(self, tables: BrokerTables, log: StateLog) -> None:
        self._tables = tables
        self._log = log
        self.verbs: Verbs = (AnsweredVerb("name_set", self._set, CHANGE),)

    def _set(self, call: Call) -> Result | None:
        """Have ``value`` at ``key`` of ``namespace``; without one have nothing there."""
        namespace, key = text(call.arguments, "namespace"), text(call.arguments, "key")
        value = call.arguments.get("value")
        if value is not None and not isinstance(value, str):
            raise ProtocolError("argument not a text", argument="value")

        def plan() -> Sequence[Change]:
            names = self._tables.names
            values = names.with_value(namespace, key, value)
            return [] if values == names.of(namespace) else [NamesSet(namespace, values or None)]

        touches = {f"{name_values.FILE} {namespace}"}
        return submit_call(self._log, call, plan, touches, dict, tries=True)
