"""What ``status`` answers: everything about the node that can be told without asking its children.

Sizes and positions are bytes; ``_ms`` and ``_s`` are durations unless the name says otherwise.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import psutil
import zmq

import ledgermq
from ledgermq.daemon.children import Child
from ledgermq.formats import kernel
from ledgermq.ipc.cursor_page import CursorPage, Grant, LogCursor, Role
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.settings import LogKind, Settings
from ledgermq.process.leader_stage import broker_id, leader_stage
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.replication.damage_report import DamageStatus, read_report
from ledgermq.store.disk_space import bytes_on_disk
from ledgermq.store.log_damage import damage_path, read_damage

SUPERVISOR_COUNTERS = ("children_died", "children_killed", "reloads", "watchdog_withheld")
DISK_USE_MAX_AGE_NS = 30_000_000_000
"""A store has many small files; they are not counted for every question."""

CPU_INTERVAL_MIN_NS = 1_000_000_000


class NodeNames(TypedDict):
    """Who the node is."""

    cluster: str
    broker: str
    group: str
    self_id: str
    peers: list[str]


class RaftStatus(TypedDict):
    """Its role in the group.

    ``stage``: how far a leader is on its way to all of its services (``leader_stage``), else empty.
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


class PutLockStatus(TypedDict):
    """Who is inside the put lock, for how long, and how often it was taken."""

    holder: int | None
    held_ms: int
    taken: int
    slow: int
    recovered: int


class ProcessStatus(TypedDict):
    """One process; ``None`` for what cannot be known because it is down."""

    role: str
    pid: int | None
    state: str
    restarts: int
    last_exit: str | None
    beat_age_ms: int | None
    pss: int | None
    rss: int | None
    cpu_percent: float | None


class DiskStatus(TypedDict):
    """The file system of the store, and what of it the store uses.

    ``state``: ``roomy``, ``above`` (retention.refuse_above) or ``full``: producers are refused.
    """

    path: str
    state: str
    dispatch_waits: bool
    total: int
    free: int
    used_by_store: int


class NodeStatus(TypedDict):
    """The whole answer."""

    state: str
    waits_for: str
    node: NodeNames
    raft: RaftStatus
    ack_mode: str
    cursors: Cursors
    put_lock: PutLockStatus
    processes: list[ProcessStatus]
    disk: DiskStatus
    damage: str | None
    damages: list[DamageStatus]
    counters: dict[str, dict[str, int]]
    uptime_s: float
    started_ms: int
    generation: int
    kernel: str
    versions: dict[str, str]


class Usage(NamedTuple):
    """What a process uses; ``None`` when it has gone, or may not be looked at."""

    pss: int | None
    rss: int | None
    cpu_percent: float | None


class Meters:
    """Measures processes and the store's folder; keeps what is needed for the next time."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._cpu: dict[int, tuple[int, float, float]] = {}
        self._store_size = 0
        self._store_measured_ns: int | None = None

    def usage(self, pid: int, now_ns: int) -> Usage:
        """Memory now, and CPU per cent of one core since the last time (at first: since start)."""
        try:
            process = self._processes.setdefault(pid, psutil.Process(pid))
            memory = process.memory_full_info()
            cpu = self._cpu_percent(process, now_ns)
        except psutil.Error:
            self.forget(pid)
            return Usage(None, None, None)
        return Usage(memory.pss, memory.rss, cpu)

    def forget(self, pid: int) -> None:
        """The process has ended: its pid may become another one's."""
        self._processes.pop(pid, None)
        self._cpu.pop(pid, None)

    def store_size(self, root: Path, now_ns: int) -> int:
        """Bytes on disk below ``root``, at most half a minute old."""
        measured_ns = self._store_measured_ns
        if measured_ns is None or now_ns - measured_ns > DISK_USE_MAX_AGE_NS:
            self._store_size = bytes_on_disk(root)
            self._store_measured_ns = now_ns
        return self._store_size

    def _cpu_percent(self, process: psutil.Process, now_ns: int) -> float:
        times = process.cpu_times()
        used_s = times.user + times.system
        last = self._cpu.get(process.pid)
        if last is None:
            age_s = max(time.time() - process.create_time(), 0.001)
            percent = 100 * used_s / age_s
        elif now_ns - last[0] < CPU_INTERVAL_MIN_NS:
            # Too short for the clock in which the kernel counts: the last figure stands.
            return last[2]
        else:
            percent = 100 * (used_s - last[1]) / ((now_ns - last[0]) / 1_000_000_000)
        percent = round(percent, 1)
        self._cpu[process.pid] = (now_ns, used_s, percent)
        return percent


def collect(
    page: CursorPage,
    children: Mapping[Role, Child],
    settings: Settings,
    *,
    state: str,
    waits_for: str,
    meters: Meters,
    counter_names: Mapping[Role, tuple[str, ...]],
) -> NodeStatus:
    """The answer to ``status``.

    Args:
        page: of this node.
        children: the supervisor's.
        settings: in force.
        state: ``starting``, ``ready`` or ``stopping``.
        waits_for: what the node waits for before its next state; empty when for nothing.
        meters: the same at every call.
        counter_names: what the counters of each process count.
    """
    now_ns = time.monotonic_ns()
    grant = page.read_grant()
    return NodeStatus(
        state=state,
        waits_for=waits_for,
        node=names_of_node(settings),
        raft=raft_status(page, grant, settings),
        ack_mode=settings.ack.mode.value,
        cursors=cursor_status(page, now_ns),
        put_lock=_put_lock(page, now_ns),
        processes=[
            _supervisor(meters, now_ns),
            *(_process(child, page, meters, now_ns) for child in children.values()),
        ],
        disk=_disk(settings.store.path_root_dir, page, meters, now_ns),
        damage=_damage(settings.store.path_root_dir),
        damages=read_report(RuntimePaths(settings.listen.runtime_dir).damage),
        counters=named_counters(page, counter_names),
        uptime_s=round(max(0.0, time.time() - page.started_ms / 1_000), 3),
        started_ms=page.started_ms,
        generation=page.generation,
        kernel="compiled" if kernel.compiled else "plain",
        versions=_versions(),
    )


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
    stage = leader_stage(
        grant,
        committed_term=page.read_committed().term,
        broker=page.read_counters(Role.BROKER),
        entries_have_terms=settings.store.log is LogKind.DLEDGER,
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


def _put_lock(page: CursorPage, now_ns: int) -> PutLockStatus:
    lock = page.read_put_lock()
    return PutLockStatus(
        holder=lock.holder or None,
        held_ms=max(0, now_ns - lock.since_ns) // 1_000_000 if lock.holder else 0,
        taken=lock.taken,
        slow=lock.slow,
        recovered=lock.recovered,
    )


def _supervisor(meters: Meters, now_ns: int) -> ProcessStatus:
    usage = meters.usage(os.getpid(), now_ns)
    return ProcessStatus(
        role=Role.SUPERVISOR.title,
        pid=os.getpid(),
        state="running",
        restarts=0,
        last_exit=None,
        beat_age_ms=0,
        pss=usage.pss,
        rss=usage.rss,
        cpu_percent=usage.cpu_percent,
    )


def _process(child: Child, page: CursorPage, meters: Meters, now_ns: int) -> ProcessStatus:
    is_up = child.pid != 0
    usage = meters.usage(child.pid, now_ns) if is_up else Usage(None, None, None)
    return ProcessStatus(
        role=child.role.title,
        pid=child.pid or None,
        state=child.state(page).value,
        restarts=child.restarts,
        last_exit=child.last_exit.text if child.last_exit else None,
        beat_age_ms=child.silence_ms(page, now_ns) if is_up else None,
        pss=usage.pss,
        rss=usage.rss,
        cpu_percent=usage.cpu_percent,
    )


def _disk(root: Path, page: CursorPage, meters: Meters, now_ns: int) -> DiskStatus:
    try:
        disk = shutil.disk_usage(root)
        used = meters.store_size(root, now_ns)
    except OSError as error:
        raise StorageError(
            f"disk not measured: {error.strerror}", errno=error.errno, path=str(root)
        ) from error
    return DiskStatus(
        path=str(root),
        state=page.read_space().state.name.lower(),
        dispatch_waits=page.read_queue_begin().waits,
        total=disk.total,
        free=disk.free,
        used_by_store=used,
    )


def _damage(root: Path) -> str | None:
    """What the mark of a damaged log says; None when the log lacks nothing."""
    try:
        damage = read_damage(damage_path(root))
    except CorruptLogError as error:
        return str(error)
    return None if damage is None else damage.describe()


def named_counters(
    page: CursorPage, names: Mapping[Role, tuple[str, ...]]
) -> dict[str, dict[str, int]]:
    """The counters of all processes that have names for theirs."""
    named = {Role.SUPERVISOR: SUPERVISOR_COUNTERS, **names}
    return {
        role.title: dict(zip(counted, page.read_counters(role), strict=False))
        for role, counted in named.items()
        if counted
    }


def _versions() -> dict[str, str]:
    return {
        "ledgermq": ledgermq.__version__,
        "python": platform.python_version(),
        "pyzmq": zmq.pyzmq_version(),
        "libzmq": zmq.zmq_version(),
        "linux": platform.release(),
    }
