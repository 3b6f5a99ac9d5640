"""Connections of a node's processes, counted: by process, port and state; nobody's address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import psutil

from ledgermq.doctor.recording.node_processes import NodeProcess

ABOUT = (
    "connections of each process: by its own port (of those that it made: the other's, far:PORT),"
    " by state; how many hosts are at the other ends"
)


def connection_counts(processes: Iterable[NodeProcess]) -> dict[str, object]:
    """What each process has; ``why_not`` where that may not be looked at."""
    found: dict[str, object] = {}
    for process in processes:
        try:
            found[process.title] = _counts(psutil.Process(process.pid))
        except psutil.AccessDenied:
            found[process.title] = {"why_not": "only root and the node's account may look"}
        except psutil.NoSuchProcess:
            found[process.title] = {"why_not": "it has ended"}
    return found


def _counts(process: psutil.Process) -> dict[str, object]:
    all_of_them = process.net_connections(kind="inet")
    listening = {one.laddr.port for one in all_of_them if one.status == psutil.CONN_LISTEN}
    counts: dict[str, Counter[str]] = {}
    hosts: dict[str, set[str]] = {}
    for one in all_of_them:
        port = str(one.laddr.port)
        if one.raddr and one.laddr.port not in listening:
            port = f"far:{one.raddr.port}"
        counts.setdefault(port, Counter())[one.status] += 1
        if one.raddr:
            hosts.setdefault(port, set()).add(one.raddr.ip)
    return {
        "tcp": {port: dict(states) for port, states in sorted(counts.items())},
        "far_hosts": {port: len(ends) for port, ends in sorted(hosts.items())},
        "unix": len(process.net_connections(kind="unix")),
    }
