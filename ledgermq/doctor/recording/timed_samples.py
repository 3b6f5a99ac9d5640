"""Timed samples: once a second, in a thread of their own, until they are told to end."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil

from ledgermq.doctor.recording.node_processes import (
    PROC,
    NodeProcess,
    PageWatch,
    kernel_text,
    processes_now,
)
from ledgermq.doctor.recording.record_folder import INTERVAL_S, RecordFolder
from ledgermq.doctor.recording.stack_samples import StackSampler
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.time_histogram import BOUNDS_NS, TimeKind, read_times
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.process.node_status import (
    cursor_status,
    named_counters,
    raft_status,
    roles_in_use,
)

ABOUT = (
    "the node's cursor page, once a second: cursors, role and term, proof of a majority, put lock,"
    " disk, signs of life, all counters (docs/internals/processes.md; ages in ms, sizes in bytes)"
)

Line = dict[str, object]

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


def page_line(page: CursorPage, settings: Settings) -> dict[str, object]:
    """All of it; counters and histograms count from the node's start."""
    now_ns = time.monotonic_ns()
    grant, proof, lock = page.read_grant(), page.read_proof(), page.read_put_lock()
    released, held_by = page.read_released()
    return {
        "generation": page.generation,
        "settings": page.settings_number,
        "raft": raft_status(page, grant, settings),
        "leader": grant.leader,
        "absent": sorted(page.read_absent()),
        "majority_age_ms": _age_ms(proof.majority_ns, now_ns),
        "disk_is_sick": proof.disk_is_sick,
        "lacks_entries": proof.lacks_entries,
        "cursors": cursor_status(page, now_ns),
        "put_lock": {
            "holder": lock.holder,
            "held_ms": _age_ms(lock.since_ns if lock.holder else 0, now_ns),
            "taken": lock.taken,
            "slow": lock.slow,
            "recovered": lock.recovered,
        },
        "space": page.read_space().state.name.lower(),
        "disk_free": page.read_space().free,
        "log_begin": page.read_log_begin()._asdict(),
        "queue_begin": page.read_queue_begin()._asdict(),
        "released": {"position": released, "held_by": held_by.name.lower()},
        "processes": {
            role.title: {
                "pid": (slot := page.read_process(role)).pid,
                "beat_age_ms": _age_ms(slot.beat_ns, now_ns),
                "asleep": slot.asleep,
                "turns": slot.turns,
            }
            for role in roles_in_use(page)
        },
        "counters": named_counters(page),
        "times": {kind.name.lower(): _times(page, kind) for kind in TimeKind},
    }


def _times(page: CursorPage, kind: TimeKind) -> dict[str, object]:
    """A histogram: counts below each bound, and of what took longer than the last one."""
    times = read_times(page, kind)
    bounds = (*(f"{bound // 1_000}us" for bound in BOUNDS_NS), "more")
    counts = {bound: count for bound, count in zip(bounds, times.counts, strict=True) if count}
    return {"sum_ms": times.sum_ns // 1_000_000, "counts": counts}


def _age_ms(then_ns: int, now_ns: int) -> int | None:
    return max(0, now_ns - then_ns) // 1_000_000 if then_ns else None


@dataclass(slots=True)
class Gathered:
    """What the samples come to.

    Attributes:
        first_page: the first line of the page, ``None`` when it was never read.
        last_page: the last one.
        states: how often each process was seen in each state.
        beat_age_max_ms: longest silence of a process, by its name.
        first: the first line of each process.
        last: the last one.
        count: samples.
    """

    first_page: Line | None = None
    last_page: Line | None = None
    states: dict[NodeProcess, Counter[str]] = field(default_factory=dict)
    beat_age_max_ms: dict[str, int] = field(default_factory=dict)
    first: dict[NodeProcess, Line] = field(default_factory=dict)
    last: dict[NodeProcess, Line] = field(default_factory=dict)
    count: int = 0


class TimedSamples:
    """Samples of a node and its host; begins with its first one at once."""

    def __init__(self, folder: RecordFolder, settings: Settings, watch: PageWatch) -> None:
        """Begin.

        Args:
            watch: of the node's page; nobody else uses it before ``finish``.
        """
        self.gathered = Gathered()
        self._folder = folder
        self._settings = settings
        self._watch = watch
        self._stacks = StackSampler(folder)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def finish(self) -> StackSampler:
        """Take no more; the stack sampler, which still runs."""
        self._stop.set()
        self._thread.join()
        return self._stacks

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                self._sample()
            except Exception as error:  # what is left of the record must not end with it
                self._folder.miss("samples", f"a sample failed: {error!r}")
            due = max(due + INTERVAL_S, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _sample(self) -> None:
        at = round(time.time(), 3)
        gathered = self.gathered
        gathered.count += 1
        self._folder.add_line("samples/host.jsonl", ABOUT_HOST, {"at": at, **host_line()})
        self._page(at)
        processes = processes_now(self._watch, self._settings)
        self._stacks.follow(processes)
        for process in processes:
            try:
                line = process_line(process)
            except psutil.Error:
                # It ended between two looks.
                continue
            gathered.states.setdefault(process, Counter())[str(line["state"])] += 1
            gathered.first.setdefault(process, {"at": at, **line})
            gathered.last[process] = {"at": at, **line}
            self._folder.add_line(
                "samples/processes.jsonl", ABOUT_PROCESSES, gathered.last[process]
            )
            for thread in thread_lines(process):
                self._folder.add_line("samples/threads.jsonl", ABOUT_THREADS, {"at": at, **thread})

    def _page(self, at: float) -> None:
        try:
            line = {"at": at, **page_line(self._watch.page(), self._settings)}
        except FileNotFoundError:
            self._folder.miss("samples/page.jsonl", "there is no cursor page: no node runs here")
            return
        except (LedgerError, OSError) as error:
            self._folder.miss("samples/page.jsonl", f"the cursor page cannot be read: {error}")
            return
        gathered = self.gathered
        gathered.first_page = gathered.first_page or line
        gathered.last_page = line
        slots = cast("Mapping[str, Mapping[str, int | None]]", line["processes"])
        for role, slot in slots.items():
            age = slot["beat_age_ms"] or 0
            gathered.beat_age_max_ms[role] = max(age, gathered.beat_age_max_ms.get(role, 0))
        self._folder.add_line("samples/page.jsonl", ABOUT, line)


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
    memory = {
        name: int(size) * 1024 for name, size in _MEMORY.findall(kernel_text(PROC / "meminfo"))
    }
    return {
        "load": kernel_text(PROC / "loadavg"),
        "cpu_s": psutil.cpu_times()._asdict(),
        "memory": memory,
        "pressure": {
            name: kernel_text(PROC / "pressure" / name).splitlines()
            for name in ("cpu", "io", "memory")
        },
        "disks": _disks(),
        "network": {name: io._asdict() for name, io in psutil.net_io_counters(pernic=True).items()},
        "tcp": _tcp(),
    }


def _thread(process: NodeProcess, task: Path) -> dict[str, object]:
    name, _, rest = (
        (task / "stat").read_text(errors="replace").strip().partition("(")[2].rpartition(")")
    )
    fields = rest.split()
    line: dict[str, object] = {
        "role": process.role.title,
        "tid": int(task.name),
        "name": name,
        "state": fields[_STATE],
        "user": int(fields[_USER_TICKS]),
        "system": int(fields[_SYSTEM_TICKS]),
        "wchan": kernel_text(task / "wchan"),
    }
    stack = kernel_text(task / "stack")
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
    lines = [line.split() for line in kernel_text(PROC / "net" / "netstat").splitlines()]
    found: dict[str, int] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found |= {
            name: int(value)
            for name, value in zip(names[1:], values[1:], strict=False)
            if name in _LISTEN
        }
    return found
