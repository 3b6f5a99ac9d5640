"""Host checks: kernel, processors, memory, and how the kernel treats memory."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from ledgermq.doctor.finding import Diagnosis, ok, warn
from ledgermq.doctor.subject import Subject
from ledgermq.formats.kernels import kernel
from ledgermq.model.config.amounts import size_text

KERNEL_MIN = (5, 10)
CPUS_MIN = 2
NODE_BYTES = 192 * 1024 * 1024
"""What the five processes of a busy node take besides the windows that the settings allow."""

SWAPPINESS_MAX = 10
STRICT_OVERCOMMIT = "2"
STRICT_ROOM = 512 * 1024 * 1024


def host_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about the machine."""
    yield _kernel()
    yield _kernels()
    yield _processors()
    yield _load()
    if not subject.settings.node.witness:
        # The limits are those of clients, and a witness without bodies has none.
        yield _memory(subject)
    yield _swap(subject)
    yield _overcommit()
    yield _huge_pages()


def _kernel() -> Diagnosis:
    release = platform.release()
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    least = ".".join(map(str, KERNEL_MIN))
    if version >= KERNEL_MIN:
        return ok("host.kernel", f"Linux {release}", limit=f"at least {least}")
    return warn(
        "host.kernel",
        f"Linux {release}",
        limit=f"at least {least}",
        change="install the kernel of Debian 12 or later: older ones are not tested",
    )


def _kernels() -> Diagnosis:
    limit = "compiled"
    if kernel.compiled:
        return ok("host.kernels", "kernels are compiled", limit=limit)
    return warn(
        "host.kernels",
        "kernels are plain Python",
        limit=limit,
        change="install a package or a wheel of this platform, or a C compiler before pip install:"
        " the node works, and takes and gives a small part of the messages a second",
    )


def _processors() -> Diagnosis:
    count = len(os.sched_getaffinity(0))
    limit = f"at least {CPUS_MIN}"
    if count >= CPUS_MIN:
        return ok("host.processors", f"{count} processors", limit=limit)
    return warn(
        "host.processors",
        f"{count} processor",
        limit=limit,
        change="give the machine a second one: raft waits while the writer or a client computes",
    )


def _load() -> Diagnosis:
    count = len(os.sched_getaffinity(0))
    load = os.getloadavg()[1]
    measured = f"{load:.1f} runnable on {count} processors, over five minutes"
    limit = f"below {4 * count}"
    if load < 4 * count:
        return ok("host.load", measured, limit=limit)
    return warn(
        "host.load",
        measured,
        limit=limit,
        change="heartbeats come late on a machine that is this busy: see with top what runs here",
    )


def _memory(subject: Subject) -> Diagnosis:
    limits = subject.settings.limits
    memory = psutil.virtual_memory()
    needed = (
        NODE_BYTES
        + limits.total_window_bytes
        + limits.total_answers_bytes
        + limits.deduplication_memory_bytes
    )
    used = (
        sum(process["pss"] or 0 for process in subject.status["processes"])
        if (subject.status)
        else 0
    )
    measured = f"{size_text(memory.available)} of {size_text(memory.total)} available"
    limit = f"{size_text(needed)}, which the limits of the settings allow the node"
    if memory.available + used >= needed:
        return ok("host.memory", measured, limit=limit)
    return warn(
        "host.memory",
        measured,
        limit=limit,
        change="add memory, or lower limits.total_window_bytes and limits.total_answers_bytes",
    )


def _swap(subject: Subject) -> Diagnosis:
    swap = psutil.swap_memory()
    swapped = sum(map(_swapped, subject.pids))
    swappiness = int(_read("/proc/sys/vm/swappiness") or 0)
    if swapped:
        return warn(
            "host.swap",
            f"{size_text(swapped)} of the node are swapped out",
            limit="0 B",
            change="add memory, or set vm.swappiness = 1: a process that is swapped in misses "
            "heartbeats",
        )
    if not swap.total:
        return ok("host.swap", "no swap")
    measured = f"{size_text(swap.total)} of swap, vm.swappiness = {swappiness}"
    limit = f"vm.swappiness at most {SWAPPINESS_MAX}"
    if swappiness <= SWAPPINESS_MAX:
        return ok("host.swap", measured, limit=limit)
    return warn(
        "host.swap",
        measured,
        limit=limit,
        change="set vm.swappiness = 1 in /etc/sysctl.d: the page cache of the log is not to push "
        "processes out",
    )


def _overcommit() -> Diagnosis:
    mode = _read("/proc/sys/vm/overcommit_memory")
    measured = f"vm.overcommit_memory = {mode}"
    if mode != STRICT_OVERCOMMIT:
        return ok("host.overcommit", measured)
    info = dict(re.findall(r"^(\w+):\s+(\d+) kB", _read("/proc/meminfo"), re.M))
    room = (int(info["CommitLimit"]) - int(info["Committed_AS"])) * 1024
    measured = f"{measured}, {size_text(room)} may still be promised"
    limit = f"at least {size_text(STRICT_ROOM)} with mode 2"
    if room >= STRICT_ROOM:
        return ok("host.overcommit", measured, limit=limit)
    return warn(
        "host.overcommit",
        measured,
        limit=limit,
        change="set vm.overcommit_memory = 0, or raise vm.overcommit_ratio: a process that is "
        "started again is a fork",
    )


def _huge_pages() -> Diagnosis:
    found = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return ok(
        "host.huge-pages",
        f"transparent huge pages: {found[1] if found else 'none'}",
        limit="any: heaps are small, and log files are mapped as ordinary pages",
    )


def _swapped(pid: int) -> int:
    found = re.search(r"^VmSwap:\s+(\d+) kB", _read(f"/proc/{pid}/status"), re.M)
    return int(found[1]) * 1024 if found else 0


def _read(path: str) -> str:
    """Content of one of the kernel's files; empty when this kernel, or this process, has none."""
    try:
        return Path(path).read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
