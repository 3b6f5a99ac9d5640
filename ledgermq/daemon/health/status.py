"""Status document: everything about the node that is known without asking its children.

Sizes and positions are bytes; ``_ms`` and ``_s`` are durations unless the name says otherwise.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import zmq

import ledgermq
from ledgermq.daemon.children import Child
from ledgermq.daemon.health.verdict import HealthState
from ledgermq.formats.kernels import kernel
from ledgermq.hosts.host_name import host_and_port
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.members.reports import DamageStatus, read_report
from ledgermq.model.config.settings import ListenSection, Settings
from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.process.node_status import (
    Cursors,
    Health,
    Meters,
    NodeNames,
    RaftStatus,
    Usage,
    cursor_status,
    named_counters,
    names_of_node,
    raft_status,
)
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.systemd.inherited_sockets import inherited_at
from ledgermq.process.systemd.port_addresses import addresses_by_setting
from ledgermq.store.files.kept_aside import FOLDER, kept_in
from ledgermq.store.recovery.log_damage import damage_path, read_damage


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
    ``used_by_store`` is None until it was counted for the first time.
    """

    path: str
    state: str
    dispatch_waits: bool
    total: int
    free: int
    used_by_store: int | None


class PortStatus(TypedDict):
    """A port of RocketMQ's clients.

    ``unit``: the socket unit by which systemd holds it; ``None`` when the node opened it itself.
    """

    setting: str
    address: str
    unit: str | None


class NodeStatus(TypedDict):
    """The whole answer."""

    state: str
    waits_for: str
    health: Health
    node: NodeNames
    raft: RaftStatus
    ack_mode: str
    cursors: Cursors
    put_lock: PutLockStatus
    processes: list[ProcessStatus]
    ports: list[PortStatus]
    disk: DiskStatus
    damage: str | None
    damages: list[DamageStatus]
    set_aside: list[str]
    counters: dict[str, dict[str, int]]
    uptime_s: float
    started_ms: int
    generation: int
    kernel: str
    versions: dict[str, str]


def collect(
    page: CursorPage,
    children: Mapping[Role, Child],
    settings: Settings,
    *,
    health: Health,
    waits_for: str,
    meters: Meters,
    used_by_store: int | None,
) -> NodeStatus:
    """The answer to ``status``.

    Args:
        page: of this node.
        children: the supervisor's.
        settings: in force.
        health: the verdict as of now.
        waits_for: what the node waits for before its next state; empty when for nothing.
        meters: the same at every call.
        used_by_store: bytes on disk, None while they are not known.
    """
    now_ns = time.monotonic_ns()
    grant = page.read_grant()
    return NodeStatus(
        state=health["state"],
        waits_for=waits_for,
        health=health,
        node=names_of_node(settings),
        raft=raft_status(page, grant, settings),
        ack_mode=settings.ack.mode.value,
        cursors=cursor_status(page, now_ns),
        put_lock=_put_lock(page, now_ns),
        processes=[
            _supervisor(meters, now_ns),
            *(_process(child, page, meters, now_ns) for child in children.values()),
        ],
        ports=_ports(settings.listen),
        disk=_disk(settings.store.path_root_dir, page, used_by_store),
        damage=_damage(settings.store.path_root_dir),
        damages=read_report(RuntimePaths(settings.listen.runtime_dir).damage),
        set_aside=kept_in(settings.store.path_root_dir / "ledgermq" / FOLDER),
        counters=named_counters(page),
        uptime_s=round(max(0.0, time.time() - page.started_ms / 1_000), 3),
        started_ms=page.started_ms,
        generation=page.generation,
        kernel="compiled" if kernel.compiled else "plain",
        versions=_versions(),
    )


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


def _ports(listen: ListenSection) -> list[PortStatus]:
    found = []
    for setting, (host, port) in addresses_by_setting(listen).items():
        inherited = inherited_at(host, port)
        address = host_and_port(host, port)
        unit = inherited.name if inherited else None
        found.append(PortStatus(setting=setting, address=address, unit=unit))
    return found


def _disk(root: Path, page: CursorPage, used: int | None) -> DiskStatus:
    with refused_as("disk not measured", why="within", path=root):
        disk = shutil.disk_usage(root)
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


def _versions() -> dict[str, str]:
    return {
        "ledgermq": ledgermq.__version__,
        "python": platform.python_version(),
        "pyzmq": zmq.pyzmq_version(),
        "libzmq": zmq.zmq_version(),
        "linux": platform.release(),
    }


def sentence(page: CursorPage, *, health: Health, trouble: str, lacks_settings: str = "") -> str:
    """The node in one sentence, the same for as long as nothing changes.

    Lags are told where there are any: bytes that are written and not committed yet, and such that
    are committed and not in the queues yet.

    Args:
        page: of this node.
        health: the verdict on it.
        trouble: why the watchdog is not fed; empty when it is.
        lacks_settings: processes that did not take settings in time that were read again.
    """
    if health["state"] in (HealthState.STARTING, HealthState.STOPPING):
        return health["why_not_ready"]
    grant = page.read_grant()
    # From the last to the first, so that none is seen ahead of one that it follows.
    dispatched = page.read_dispatched().position
    committed = page.read_committed().position
    written = page.read_written().position
    parts = [f"{grant.role.name.lower()} in term {grant.term}, committed up to {committed}"]
    if written > committed:
        parts.append(f"{written - committed} bytes to be committed")
    if committed > dispatched:
        parts.append(f"{committed - dispatched} bytes to be dispatched")
    if not health["ready"]:
        parts.append(f"not ready: {health['why_not_ready']}")
    if lacks_settings:
        parts.append(f"reloaded settings not taken by {lacks_settings}")
    if trouble:
        parts.append(f"not well: {trouble}")
    return "; ".join(parts)
