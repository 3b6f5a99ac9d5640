"""Timed samples: once a second, in a thread of their own, until they are told to end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import psutil

from ledgermq.doctor.recording.kernel_lines import (
    ABOUT_HOST,
    ABOUT_PROCESSES,
    ABOUT_THREADS,
    host_line,
    process_line,
    thread_lines,
)
from ledgermq.doctor.recording.node_processes import NodeProcess, PageWatch, processes_now
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


Line = dict[str, object]


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
