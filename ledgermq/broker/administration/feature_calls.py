"""Calls about feature levels: the one in force, and the next one put in force.

The level of a new group is raised without a call, once all of its members have said what they know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ledgermq
from ledgermq.broker.callers import NODE_ITSELF
from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.service import Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import BatchPlan, StateRequest
from ledgermq.broker.verb_arguments import answered
from ledgermq.ipc.counters import BrokerCounter, Counts, RaftCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.members.level_report import read_levels
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.features import LEVEL, LEVELS, holding_back, version_of
from ledgermq.process.environment import Environment
from ledgermq.rules.state.feature_table import FILE
from ledgermq.rules.tables.table_changes import Change, LevelSet
from ledgermq.verbs.upkeep import EnableFeatures, ShowFeatures

LOOK_MS = 200
"""Members of a new group are looked at so often, until all have said what they know."""

_TOUCHES = frozenset({FILE})


def _nothing() -> None:
    pass


def _look_again(_error: LedgerError) -> None:
    """The next look asks again, if nobody else has raised the level."""


class FeatureCalls(Service):
    """Changes go through the log, and are those of all nodes when they are answered."""

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
        self._log.check_leads()
        self._check(level)
        in_force = self._tables.features
        self._log.submit(
            StateRequest(
                call.caller, self._plan(level), _TOUCHES, lambda: {"in_force": in_force.level}
            ),
            call.now_ms,
        )
        return None

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
