"""Calls that watch the cluster: a node's report, and the lags of all groups.

Both are answered by every member of a group, about itself. Sizes and positions are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

import ledgermq
from ledgermq.broker.administration.group_calls import GroupLags, TopicLag
from ledgermq.broker.call_arguments import integer
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.ipc.cursor_page import Role
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.process.environment import Environment
from ledgermq.process.node_status import (
    Cursors,
    Meters,
    NodeNames,
    RaftStatus,
    Usage,
    cursor_status,
    named_counters,
    names_of_node,
    raft_status,
    roles_in_use,
)
from ledgermq.rules.consumers.group_plans import is_builtin
from ledgermq.store.files.disk_space import measure
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.verbs.needs import ADMIN_ANYWHERE, USER, read

GROUPS_MAX = 1_000
TOPICS_TOLD_MAX = 20
"""Topics of one group that are told one by one: those with the most messages that wait."""


class ProcessReport(TypedDict):
    """One process; ``None`` for what cannot be known because it is down."""

    role: str
    pid: int | None
    starts: int
    beat_age_ms: int | None
    pss: int | None
    rss: int | None
    cpu_percent: float | None


class DiskReport(TypedDict):
    """The file system of the store; ``log`` is what the log has, ``reserve`` what is left of it."""

    path: str
    state: str
    total: int
    free: int
    log: int
    reserve: int
    reserve_max: int


class NodeReport(TypedDict):
    """What a node tells of itself.

    ``clock_ns`` is its monotonic clock, for rates; ``epoch_ms`` the time of day that it has.
    ``bodiless``: members of its group that hold no messages, and that no client can ask.
    ``cold_place``: where it reads what its log has no more; the same for all members of a group.
    """

    node: NodeNames
    bodiless: list[str]
    raft: RaftStatus
    cursors: Cursors
    disk: DiskReport
    processes: list[ProcessReport]
    counters: dict[str, dict[str, int]]
    groups_that_differ: dict[str, list[str]]
    uptime_s: float
    generation: int
    clock_ns: int
    epoch_ms: int
    version: str
    cold_place: str | None


class GroupReport(TypedDict):
    """How far one group is; ``consumed`` is the sum of its offsets."""

    group: str
    lag: int
    consumed: int
    topics: dict[str, int]
    topic_count: int
    members: int
    warnings: list[str]


class NodeCalls:
    """Owned by the broker process; reads the page, and measures the node's processes."""

    def __init__(
        self,
        environment: Environment,
        lags: GroupLags,
        *,
        members: Callable[[], Mapping[str, int]],
        differing: Callable[[], Mapping[str, list[str]]],
    ) -> None:
        """Verbs that are answered from ``environment``.

        Args:
            lags: of all groups.
            members: how many consume for each group now; without those that have none.
            differing: groups whose members differ in what they want, and in what.
        """
        self._environment = environment
        self._lags = lags
        self._members = members
        self._differing = differing
        self._meters = Meters()
        self.verbs: Verbs = (
            AnsweredVerb("node_report", self._report, read(USER), whatever_tables=True),
            AnsweredVerb(
                "group_lags", self._group_lags, read(ADMIN_ANYWHERE), whatever_tables=True
            ),
        )

    def _report(self, _call: Call) -> Result:
        page, settings = self._environment.page, self._environment.settings
        now_ns = self._environment.clock.monotonic_ns()
        grant = page.read_grant()
        report = NodeReport(
            node=names_of_node(settings),
            bodiless=_bodiless(settings),
            raft=raft_status(page, grant, settings),
            cursors=cursor_status(page, now_ns),
            disk=self._disk(settings),
            processes=[self._process(role, now_ns) for role in roles_in_use(page)],
            counters=named_counters(page),
            groups_that_differ=dict(self._differing()),
            uptime_s=max(0, self._environment.clock.epoch_ns() // 1_000_000 - page.started_ms)
            / 1_000,
            generation=page.generation,
            clock_ns=now_ns,
            epoch_ms=self._environment.clock.epoch_ns() // 1_000_000,
            version=ledgermq.__version__,
            cold_place=settings.cold.place,
        )
        return {**report}

    def _group_lags(self, call: Call) -> Result:
        """The ``count`` groups with the most messages that wait."""
        count = integer(call.arguments, "count", 1, GROUPS_MAX)
        self._lags.look()
        found, members = self._lags.by_group(), self._members()
        rows = [
            self._group(group, found.get(group, {}), members.get(group, 0))
            for group in found.keys() | members.keys()
            if not is_builtin(group)
        ]
        rows.sort(key=lambda row: (-row["lag"], row["group"]))
        differing = self._differing()
        for row in rows[:count]:
            row["warnings"] = list(differing.get(row["group"], ()))
        return {
            "groups": rows[:count],
            "count": len(rows),
            "lag": sum(row["lag"] for row in rows),
            "complete": self._lags.is_complete,
        }

    def _group(self, group: str, topics: Mapping[str, TopicLag], members: int) -> GroupReport:
        ordered = sorted(topics.items(), key=lambda item: (-item[1].lag, item[0]))
        return GroupReport(
            group=group,
            lag=sum(found.lag for found in topics.values()),
            consumed=sum(found.consumed for found in topics.values()),
            topics={topic: found.lag for topic, found in ordered[:TOPICS_TOLD_MAX]},
            topic_count=len(topics),
            members=members,
            warnings=[],
        )

    def _disk(self, settings: Settings) -> DiskReport:
        page, paths = self._environment.page, StorePaths.of(settings)
        disk = measure(paths.root)
        written, begin = page.read_written().position, page.read_log_begin().position
        return DiskReport(
            path=str(paths.root),
            state=page.read_space().state.name.lower(),
            total=disk.total,
            free=disk.free,
            log=max(0, written - begin),
            reserve=_size(paths.reserve),
            reserve_max=settings.retention.reserve_bytes,
        )

    def _process(self, role: Role, now_ns: int) -> ProcessReport:
        page = self._environment.page
        slot = page.read_process(role)
        pid = page.supervisor_pid if role is Role.SUPERVISOR else slot.pid
        usage = self._meters.usage(pid, now_ns) if pid else Usage(None, None, None)
        beats = role is not Role.SUPERVISOR and slot.beat_ns
        return ProcessReport(
            role=role.title,
            pid=pid or None,
            starts=slot.generation,
            beat_age_ms=max(0, now_ns - slot.beat_ns) // 1_000_000 if beats else None,
            pss=usage.pss,
            rss=usage.rss,
            cpu_percent=usage.cpu_percent,
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _bodiless(settings: Settings) -> list[str]:
    try:
        entries = RosterFile(StorePaths.of(settings).members).entries
    except (CorruptLogError, StorageError):
        # The raft process says so, and what is told here is of no weight.
        return []
    return sorted(entries[-1].roster.membership.bodiless) if entries else []
