"""Node status from the cursor page and the processes, for ``status`` and for clients.

Sizes and positions are bytes; ``_ms`` and ``_s`` are durations unless the name says otherwise.
"""

from __future__ import annotations

import time
from typing import NamedTuple, TypedDict

import psutil

from ledgermq.ipc.counters import COUNTER_NAMES, BrokerCounter
from ledgermq.ipc.cursor_page import PORTS, CursorPage, Grant, LogCursor, Role
from ledgermq.model.config.settings import Settings
from ledgermq.sessions.leadership.takeover import broker_id, takeover_of

MEASURE_NS = 1_000_000_000
"""A process is measured no more often, however many ask: for its memory the kernel looks through
all of its pages, and the clock in which it counts processor time is coarse."""


class NodeNames(TypedDict):
    """Who the node is."""

    cluster: str
    broker: str
    group: str
    self_id: str
    peers: list[str]


class HealthReason(TypedDict):
    """A reason why a node does not serve: a ``HealthTrouble``, and the page that helps."""

    code: str
    text: str
    see: str


class Health(TypedDict):
    """The verdict on a node (``daemon/health/verdict.py``).

    ``leads``: producers and consumers are answered here now. ``leader`` is empty while nobody is
    known to lead. ``within_ms``: the time within which proofs count. The two reasons in words are
    empty where there is none.
    """

    state: str
    ready: bool
    leads: bool
    why_not_ready: str
    why_not_leading: str
    role: str
    term: int
    leader: str
    stage: str
    majority_age_ms: int | None
    within_ms: int
    reasons: list[HealthReason]


class RaftStatus(TypedDict):
    """Its role in the group.

    ``stage``: how far a leader is on its way to all of its services (``takeover_of``), else empty.
    ``broker_id``: RocketMQ's: 0 for the leader, the number in its id + 1 for others.
    """

    role: str
    term: int
    granted: bool
    stage: str
    broker_id: int


class CursorStatus(TypedDict):
    """End of a prefix of the log."""

    position: int
    index: int
    term: int


class Cursors(TypedDict):
    """The four cursors, and what lies between them."""

    written: CursorStatus
    durable: CursorStatus
    committed: CursorStatus
    dispatched: int
    dispatched_messages: int
    not_durable_bytes: int
    not_committed_bytes: int
    not_dispatched_bytes: int
    last_flush_age_ms: int | None


class Usage(NamedTuple):
    """What a process uses; ``None`` when it has gone, or may not be looked at."""

    pss: int | None
    rss: int | None
    cpu_percent: float | None


class _Measured(NamedTuple):
    """The last look at a process: when, the processor time that it had used, and what was told."""

    now_ns: int
    used_s: float
    usage: Usage


class Meters:
    """Measures processes; keeps what is needed for the next time."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._measured: dict[int, _Measured] = {}

    def usage(self, pid: int, now_ns: int) -> Usage:
        """Memory, at most ``MEASURE_NS`` old, and CPU per cent of one core since the look before
        (at first: since the process's start)."""
        last = self._measured.get(pid)
        if last is not None and now_ns - last.now_ns < MEASURE_NS:
            return last.usage
        try:
            process = self._processes.setdefault(pid, psutil.Process(pid))
            memory, times = process.memory_full_info(), process.cpu_times()
            used_s = times.user + times.system
            if last is None:
                since_s, over_s = 0.0, max(time.time() - process.create_time(), 0.001)
            else:
                since_s, over_s = last.used_s, (now_ns - last.now_ns) / 1_000_000_000
        except psutil.Error:
            self.forget(pid)
            return Usage(None, None, None)
        usage = Usage(memory.pss, memory.rss, round(100 * (used_s - since_s) / over_s, 1))
        self._measured[pid] = _Measured(now_ns, used_s, usage)
        return usage

    def forget(self, pid: int) -> None:
        """The process has ended: its pid may become another one's."""
        self._processes.pop(pid, None)
        self._measured.pop(pid, None)


def names_of_node(settings: Settings) -> NodeNames:
    """Who the node is."""
    node = settings.node
    return NodeNames(
        cluster=node.broker_cluster_name,
        broker=node.broker_name,
        group=node.group,
        self_id=node.self_id,
        peers=list(node.peers),
    )


def raft_status(page: CursorPage, grant: Grant, settings: Settings) -> RaftStatus:
    """Its role in the group, as ``grant`` has it."""
    stage = takeover_of(
        grant,
        committed_term=page.read_committed().term,
        broker=page.read_counters(Role.BROKER),
        log=settings.store.log,
    )
    return RaftStatus(
        role=grant.role.name.lower(),
        term=grant.term,
        granted=grant.granted,
        stage=stage.value,
        broker_id=broker_id(settings.node.self_id, grant, stage),
    )


def cursor_status(page: CursorPage, now_ns: int) -> Cursors:
    """How far written, durable, committed and dispatched are."""
    # Read from the last to the first, so that none is seen ahead of one that it follows.
    dispatched = page.read_dispatched()
    committed = page.read_committed()
    durable, flushed_ns = page.read_durable()
    written = page.read_written()
    return Cursors(
        written=_cursor(written),
        durable=_cursor(durable),
        committed=_cursor(committed),
        dispatched=dispatched.position,
        dispatched_messages=dispatched.messages,
        not_durable_bytes=written.position - durable.position,
        not_committed_bytes=written.position - committed.position,
        not_dispatched_bytes=committed.position - dispatched.position,
        # The writer may have flushed after the clock was read here.
        last_flush_age_ms=max(0, now_ns - flushed_ns) // 1_000_000 if flushed_ns else None,
    )


def _cursor(cursor: LogCursor) -> CursorStatus:
    return CursorStatus(position=cursor.position, index=cursor.index, term=cursor.term)


def named_counters(page: CursorPage) -> dict[str, dict[str, int]]:
    """The counters of all processes that the node has."""
    return {
        role.title: dict(zip(COUNTER_NAMES[role], page.read_counters(role), strict=False))
        for role in roles_in_use(page)
    }


def roles_in_use(page: CursorPage) -> list[Role]:
    """The processes that the node has: of port processes and the observer if they ever began."""
    return [role for role in Role if role <= Role.BROKER or page.read_process(role).generation]


def given_out(page: CursorPage, counter: BrokerCounter) -> int:
    """What broker and port processes have counted together."""
    return sum(
        page.read_counters(role)[counter]
        for role in roles_in_use(page)
        if role is Role.BROKER or role in PORTS
    )
