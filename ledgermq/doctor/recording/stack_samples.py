"""Stack samples of a node's processes over the time, by py-spy, which reads them from outside.

Nothing of it runs in the processes: they are neither stopped nor asked, and one that hangs, or was
stopped, is read like any other. It sees names of functions and lines, never values.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ledgermq.doctor.recording.node_processes import PROC, NodeProcess
from ledgermq.doctor.recording.record_folder import RecordFolder

PROGRAM = "py-spy"
RATE_HZ = 10
SAMPLERS_MAX = 64
"""Processes that are looked at in one record, also those that were started again meanwhile."""

STACKS_TOLD_MAX = 40
START_S = 1.0
STOP_S = 10.0

Stack = tuple[str, ...]
"""Functions with their places, the innermost first."""


class ThreadStacks(NamedTuple):
    """One thread: how often each stack was seen, and how often any was."""

    thread: str
    stacks: list[tuple[Stack, int]]
    total: int


class StackSampler:
    """The samplers of one record."""

    def __init__(self, folder: RecordFolder) -> None:
        self._folder = folder
        self._program = find_program()
        self._running: dict[NodeProcess, subprocess.Popen[bytes]] = {}
        self._last_begun = -START_S
        if self._program is None:
            folder.miss("stacks", f"{PROGRAM} is not installed: pip install 'ledgermq[server]'")

    def follow(self, processes: Iterable[NodeProcess]) -> None:
        """Begin with those of ``processes`` that are new."""
        for process in processes:
            if self._program is None or process in self._running:
                continue
            if len(self._running) >= SAMPLERS_MAX:
                self._folder.miss("stacks", f"more than {SAMPLERS_MAX} processes: not all followed")
                return
            self._running[process] = self._begin(self._program, process)
            self._last_begun = time.monotonic()

    def finish(self) -> dict[NodeProcess, list[ThreadStacks]]:
        """End all, and write what they saw as text; what that was, by process."""
        # One that has only just begun does not know yet that a signal ends it in order.
        time.sleep(max(0.0, self._last_begun + START_S - time.monotonic()))
        for one in self._running.values():
            if one.poll() is None:
                one.send_signal(signal.SIGINT)
        return {process: self._finished(process, one) for process, one in self._running.items()}

    def _begin(self, program: str, process: NodeProcess) -> subprocess.Popen[bytes]:
        output = self._folder.place(
            f"stacks/{process.title}.speedscope.json",
            f"stacks of {process.role.title}, {RATE_HZ} times a second, thread by thread in order:"
            " drop it on speedscope (speedscope.app, which uploads nothing), view Time Order",
        )
        said = self._folder.place(f"stacks/{process.title}.log", f"what {PROGRAM} said of it")
        how = ("--nonblocking", "--idle", "--threads", "--format", "speedscope")
        asked = ("--pid", str(process.pid), "--rate", str(RATE_HZ), "--output", str(output))
        with said.open("wb") as file:
            # In a session of its own: a terminal's Ctrl-C is for whoever ends it, in order.
            return subprocess.Popen(  # noqa: S603 - a program of ours, without a shell
                [program, "record", *how, *asked],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def _finished(
        self, process: NodeProcess, sampler: subprocess.Popen[bytes]
    ) -> list[ThreadStacks]:
        try:
            sampler.wait(STOP_S)
        except subprocess.TimeoutExpired:
            sampler.kill()
            sampler.wait()
        text = self._folder.text_of(f"stacks/{process.title}.speedscope.json")
        if text is None:
            said = (self._folder.text_of(f"stacks/{process.title}.log") or "").strip()
            self._folder.miss(f"stacks of {process.title}", _reason(said, process))
            return []
        self._folder.drop(f"stacks/{process.title}.log")
        try:
            found = list(stacks_in(text))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self._folder.miss(f"stacks of {process.title} as text", f"not understood: {error!r}")
            return []
        self._folder.put(
            f"stacks/{process.title}.txt",
            f"the same of {process.role.title}, summed up: each stack, and how often it was seen",
            "\n".join(described(found)) + "\n",
        )
        return found


def find_program() -> str | None:
    """Where py-spy is: beside this Python, as it is installed with us, or in the path."""
    beside = (str(Path(sys.executable).parent), sysconfig.get_path("scripts"))
    return shutil.which(PROGRAM, path=os.pathsep.join(beside)) or shutil.which(PROGRAM)


def stacks_in(text: str) -> Iterator[ThreadStacks]:
    """What a file in speedscope's format comes to, the most frequent stacks first.

    Raises:
        ValueError: it is no JSON; KeyError, IndexError, TypeError: not in that format.
    """
    document = json.loads(text)
    frames = [_place(frame) for frame in document["shared"]["frames"]]
    for profile in document["profiles"]:
        counts = Counter(tuple(sample) for sample in profile["samples"])
        yield ThreadStacks(
            str(profile["name"]),
            [
                (tuple(frames[number] for number in reversed(stack)), count)
                for stack, count in counts.most_common(STACKS_TOLD_MAX)
            ],
            counts.total(),
        )


def described(found: Iterable[ThreadStacks]) -> Iterator[str]:
    """Lines for people: the innermost function first, as a traceback is read from its end."""
    for thread in found:
        yield f"{thread.thread}: {thread.total} samples"
        for stack, count in thread.stacks:
            yield f"  {100 * count / thread.total:5.1f} %  {count} times"
            yield from (f"      {place}" for place in stack)
        yield ""


def _place(frame: dict[str, object]) -> str:
    """The function and its line; of ours and of libraries without the folder they lie in."""
    file = str(frame.get("file"))
    for folder in ("/site-packages/", "/ledgermq/"):
        file = file.rpartition(folder)[2]
    return f"{frame['name']} ({file}:{frame.get('line')})"


def _reason(said: str, process: NodeProcess) -> str:
    """Why there is nothing: by far the most often, that this account may not look."""
    first = said.splitlines()[0] if said else f"{PROGRAM} wrote nothing"
    if "permission" in said.lower():
        return f"{first} (run doctor as root: the kernel may let nobody else look)"
    return first if (PROC / str(process.pid)).exists() else f"{first} (the process had ended)"
