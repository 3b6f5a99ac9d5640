"""Limits of one test: processor time of its whole process tree, and a generous time of the clock.

    pytest -n auto --limit-processor-s 120 --limit-wall-s 1800

What a busy machine makes slow takes no more processor time, so that this limit means the same on
any machine; that of the clock is for a test that stands still. A test that exceeds one ends its
worker: the stacks of its threads and the processes below it are kept for the report of that test,
what it started is killed, and another worker takes what is left (``order``). A run without workers
has no limits: whoever looks at a single test may stop at a breakpoint for as long as it takes.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

LOOK_EVERY_S = 1.0
BEHIND_S = float(os.environ.get("LEDGERMQ_LIMIT_BEHIND_S", "60"))
"""So much later than the limit of the clock a worker ends whose interpreter runs no other thread,
because a test stands still in C; what that started is not killed then."""
SHOWN_MAX = 8


class Limits(NamedTuple):
    """Seconds that one test may take."""

    processor_s: float
    wall_s: float


class Used(NamedTuple):
    """A process and the processor time that it has used, with what it has waited for."""

    seconds: float
    process: psutil.Process

    def line(self) -> str:
        """Its number, its time and how it was started."""
        try:
            words = " ".join(self.process.cmdline()) or self.process.name()
        except psutil.Error:
            words = "(has ended)"
        return f"  {self.seconds:8.1f} s  {self.process.pid:>8}  {words[:100]}"


def tree() -> list[Used]:
    """This process and all below it; who has waited for one that ended has its time."""
    own = psutil.Process()
    found = []
    for process in [own, *own.children(recursive=True)]:
        try:
            found.append(Used(sum(process.cpu_times()[:4]), process))
        except psutil.Error:
            continue
    return found


class Watch:
    """A thread of a worker that looks every second at the test that runs.

    Args:
        stacks: the file for what is known of a test that has exceeded a limit.
    """

    def __init__(self, limits: Limits, stacks: Path) -> None:
        self._limits = limits
        self._stacks = stacks.open("w")
        self._running: tuple[str, float] | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._end_later()
        self._thread.start()

    def begin(self, nodeid: str) -> None:
        """A test begins."""
        self._running = nodeid, time.monotonic()

    def end(self) -> None:
        """It has ended."""
        self._running = None

    def close(self) -> None:
        """No test any more."""
        self._is_over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        self._stacks.close()

    def _look_on(self) -> None:
        seen, before_s = None, 0.0
        while not self._is_over.wait(LOOK_EVERY_S):
            self._end_later()
            running = self._running
            if running is None or self._is_young(running):
                continue
            used = tree()
            sum_s = sum(one.seconds for one in used)
            if running is not seen:
                # What it has used so far is given to it.
                seen, before_s = running, sum_s
            self._judge(running, sum_s - before_s, used)

    def _is_young(self, running: tuple[str, float]) -> bool:
        """Most tests are over sooner than it is worth to look for their processes."""
        return time.monotonic() - running[1] < min(self._limits) / 20

    def _end_later(self) -> None:
        """End all the same if this is not called again: that thread needs no interpreter."""
        if self._limits.wall_s < float("inf"):
            behind_s = self._limits.wall_s + BEHIND_S
            faulthandler.dump_traceback_later(behind_s, exit=True, file=self._stacks)

    def _judge(self, running: tuple[str, float], processor_s: float, used: list[Used]) -> None:
        nodeid, began = running
        waited_s = time.monotonic() - began
        if processor_s > self._limits.processor_s:
            why = f"{processor_s:.0f} s of processor time, {self._limits.processor_s:g} allowed"
        elif waited_s > self._limits.wall_s:
            why = f"{waited_s:.0f} s of the clock, {self._limits.wall_s:g} allowed"
        else:
            return
        if self._running is running:
            self._give_up(f"{nodeid} took {why}", used)

    def _give_up(self, why: str, used: list[Used]) -> None:
        largest = sorted(used, key=lambda one: -one.seconds)[:SHOWN_MAX]
        lines = [why, "processor time of its process and those below it:"]
        print(*lines, *(one.line() for one in largest), sep="\n", file=self._stacks, flush=True)
        faulthandler.dump_traceback(self._stacks, all_threads=True)
        for one in used[1:]:
            try:
                one.process.kill()
            except psutil.Error:
                continue
        os._exit(1)
