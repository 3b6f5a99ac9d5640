"""Kernel lines of a record: a node's processes, their threads and their host at one moment.

All of it is read from ``/proc``, which asks nothing of the processes: also of one that hangs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from ledgermq.doctor.recording.node_processes import PROC, NodeProcess

ABOUT_PROCESSES = (
    "each process, once a second: state (T: stopped by a signal, D: waits for the disk), processor"
    " time in seconds, memory and io in bytes, since it began"
)
ABOUT_THREADS = (
    "each thread, once a second: state, processor time in ticks, what it waits for in the kernel"
    " (wchan, and for root its stack there)"
)
ABOUT_HOST = (
    "the host, once a second: load, processor time, memory, pressure (PSI), disks, network, all"
    " counted since it booted"
)

_MEMORY = re.compile(
    r"^(MemTotal|MemFree|MemAvailable|Cached|Dirty|Writeback|SwapTotal|SwapFree|Mlocked|Slab"
    r"|Committed_AS):\s+(\d+) kB",
    re.M,
)
_LISTEN = ("ListenOverflows", "ListenDrops", "TCPTimeouts", "TCPAbortOnTimeout")
_THREADS_MAX = 256
_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12
"""Places in ``/proc/PID/task/TID/stat`` behind the name."""


def process_line(process: NodeProcess) -> dict[str, object]:
    """One process.

    Raises:
        psutil.Error: it has ended, or may not be looked at.
    """
    one = psutil.Process(process.pid)
    line: dict[str, object] = {"role": process.role.title, "pid": process.pid}
    with one.oneshot():
        line["state"] = one.status()
        cpu, memory, switches = one.cpu_times(), one.memory_info(), one.num_ctx_switches()
        line |= {
            "user_s": cpu.user,
            "system_s": cpu.system,
            "rss": memory.rss,
            "shared": memory.shared,
            "threads": one.num_threads(),
            "switches": switches.voluntary,
            "switches_forced": switches.involuntary,
        }
    with suppress(psutil.AccessDenied):
        # Only for root and the node's own account.
        io = one.io_counters()
        line |= {"fds": one.num_fds(), "read": io.read_bytes, "written": io.write_bytes}
    return line


def thread_lines(process: NodeProcess) -> Iterator[dict[str, object]]:
    """Its threads; none when it has ended."""
    with suppress(OSError):
        tasks = sorted((PROC / str(process.pid) / "task").iterdir())
        for task in tasks[:_THREADS_MAX]:
            with suppress(OSError, IndexError):
                yield _thread(process, task)


def host_line() -> dict[str, object]:
    """The host."""
    memory = {name: int(size) * 1024 for name, size in _MEMORY.findall(_read(PROC / "meminfo"))}
    return {
        "load": _read(PROC / "loadavg"),
        "cpu_s": psutil.cpu_times()._asdict(),
        "memory": memory,
        "pressure": {
            name: _read(PROC / "pressure" / name).splitlines() for name in ("cpu", "io", "memory")
        },
        "disks": _disks(),
        "network": {name: io._asdict() for name, io in psutil.net_io_counters(pernic=True).items()},
        "tcp": _tcp(),
    }


def _thread(process: NodeProcess, task: Path) -> dict[str, object]:
    name, _, rest = _read_strictly(task / "stat").partition("(")[2].rpartition(")")
    fields = rest.split()
    line: dict[str, object] = {
        "role": process.role.title,
        "tid": int(task.name),
        "name": name,
        "state": fields[_STATE],
        "user": int(fields[_USER_TICKS]),
        "system": int(fields[_SYSTEM_TICKS]),
        "wchan": _read(task / "wchan"),
    }
    stack = _read(task / "stack")
    if stack:
        line["stack"] = [frame.partition("] ")[2] for frame in stack.splitlines()]
    return line


def _disks() -> dict[str, object]:
    try:
        found = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        return {name: io._asdict() for name, io in found.items()}
    except (OSError, NotImplementedError, RuntimeError):
        # Not every kernel of a container tells.
        return {}


def _tcp() -> dict[str, int]:
    """Connections that found a listener's queue full, and others that were given up."""
    lines = [line.split() for line in _read(PROC / "net" / "netstat").splitlines()]
    found: dict[str, int] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found |= {
            name: int(value)
            for name, value in zip(names[1:], values[1:], strict=False)
            if name in _LISTEN
        }
    return found


def _read(path: Path) -> str:
    """One of the kernel's files; empty when there is none, or it is for others."""
    try:
        return _read_strictly(path)
    except OSError:
        return ""


def _read_strictly(path: Path) -> str:
    return path.read_text(errors="replace").strip()
