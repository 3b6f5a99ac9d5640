"""What each process of idle nodes uses a second: processor time, wake-ups, calls, turns."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.message_calls import collect, shown
from bench.message_cost import Spent, spent_by
from bench.processes import processes_of, role_of

BEATS = "CursorPage.beat"
"""A loop says once in each turn that it turns."""


class Share(NamedTuple):
    """Of one process, while nothing happens.

    Attributes:
        cpu_percent: of one core, of all its threads.
        zmq_cpu_percent: that of ZeroMQ's threads of it.
        wakes: times a second that its loop, or another thread of Python's, was woken.
        zmq_wakes: the same of ZeroMQ's threads.
        calls: of functions and builtins a second, in the thread of its loop.
        turns: of its loop a second.
    """

    cpu_percent: float
    zmq_cpu_percent: float
    wakes: float
    zmq_wakes: float
    calls: float
    turns: float


def shares(
    supervisors: Mapping[str, int], folder: Path, seconds: float, *, top: int = 0
) -> dict[str, dict[str, Share]]:
    """By node and process; time and wake-ups first, then calls, which cost time to be counted.

    Args:
        supervisors: pid of each node's, by the node's name.
        folder: where processes write what they have counted.
        top: functions to print of each process.
    """
    processes = {
        (name, role_of(process)): process
        for name, pid in supervisors.items()
        for process in processes_of(pid)
    }
    before = {key: spent_by(process.pid) for key, process in processes.items()}
    begin = time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - begin
    after = {key: spent_by(process.pid) for key, process in processes.items()}
    counted_s, calls = _calls(processes, folder, seconds)
    found: dict[str, dict[str, Share]] = {}
    for key in processes:
        name, role = key
        counts = calls[key]
        turns = sum(times for called, times in counts.items() if called.endswith(BEATS))
        share = _share(before[key], after[key], took_s)
        found.setdefault(name, {})[role] = share._replace(
            calls=round(counts.total() / counted_s, 1), turns=round(turns / counted_s, 2)
        )
        if top:
            print(f"{name} {role}: {found[name][role]}")
            for called, times in counts.most_common(top):
                print(f"    {times / counted_s:8.2f}  {shown(called)}")
    return found


def _share(before: Mapping[str, Spent], after: Mapping[str, Spent], seconds: float) -> Share:
    nothing = Spent(0, 0)
    own, zmq = (
        Spent(
            after.get(kind, nothing).cpu_ns - before.get(kind, nothing).cpu_ns,
            after.get(kind, nothing).switches - before.get(kind, nothing).switches,
        )
        for kind in ("own", "zmq")
    )
    return Share(
        round((own.cpu_ns + zmq.cpu_ns) / seconds / 1e7, 3),
        round(zmq.cpu_ns / seconds / 1e7, 3),
        round(own.switches / seconds, 1),
        round(zmq.switches / seconds, 1),
        0.0,
        0.0,
    )


def _calls(
    processes: Mapping[tuple[str, str], psutil.Process], folder: Path, seconds: float
) -> tuple[float, dict[tuple[str, str], Counter[str]]]:
    """For how many seconds calls were counted, and those of each process."""
    _toggle(processes)
    begin = time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - begin
    _toggle(processes)
    return took_s, {
        key: collect(folder, {process.pid: " ".join(key)})[" ".join(key)]
        for key, process in processes.items()
    }


def _toggle(processes: Mapping[tuple[str, str], psutil.Process]) -> None:
    for process in processes.values():
        process.send_signal(signal.SIGUSR2)
