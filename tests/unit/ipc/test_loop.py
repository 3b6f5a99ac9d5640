"""The main loop: how long a process sleeps; the flag that signals set, in a forked child."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import SLEEP_MAX_MS, Pollable, StopFlag, run, sleep_max_ms
from ledgermq.model.config.settings import RaftSection, Settings, SupervisionSection

FORKS = """
import os, signal, sys
from ledgermq.ipc.loop import StopFlag

def pipes():
    return [fd for fd in os.listdir("/proc/self/fd") if link(fd).startswith("pipe:")]

def link(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # the listing's own
        return ""

before = pipes()
stop = StopFlag()
stop.install()
assert len(pipes()) == len(before) + 2
pid = os.fork()
if pid == 0:
    stop.close_in_child()
    left = pipes()
    own = StopFlag()
    own.install()
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0 if left == before and (own.reason, stop.reason) == ("SIGTERM", "") else 1)
assert os.waitpid(pid, 0)[1] == 0
os.kill(os.getpid(), signal.SIGTERM)
assert os.read(stop.fileno(), 8) == bytes([signal.SIGTERM])
"""


def test_a_forked_child_has_neither_of_the_parents_descriptors_and_the_parent_keeps_both() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("beat_ms", "sick_ms", "most_ms"), [(60_000, 60_000, SLEEP_MAX_MS), (1_000, 5_000, 250)]
)
def test_a_process_gives_several_signs_of_life_before_it_is_taken_for_dead_or_its_disk_for_sick(
    beat_ms: int, sick_ms: int, most_ms: int
) -> None:
    for beat, sick in ((beat_ms, sick_ms), (sick_ms, beat_ms)):
        settings = Settings(
            supervision=SupervisionSection(beat_timeout_ms=beat),
            raft=RaftSection(disk_sick_after_ms=sick),
        )

        assert sleep_max_ms(settings) == most_ms


class LongTurns:
    """A worker whose turns take long, and say so in their course; it stops after two."""

    hears_bells = zmq_uses = None

    def __init__(self, page: CursorPage, stop: StopFlag) -> None:
        self._page, self._stop = page, stop
        self.beats: list[int] = []
        self.begun: list[int] = []

    def sources(self) -> list[Pollable]:
        return []

    def sleep_ms(self, _now_ns: int) -> int:
        return 0

    def turn(self, _ready: Mapping[Pollable, int], now_ns: int) -> None:
        self.begun.append(now_ns)
        self.beats.append(self._page.read_process(Role.DISPATCHER).beat_ns)
        self._page.give_sign(Role.DISPATCHER, time.monotonic_ns())
        if len(self.begun) == 2:
            self._stop.reason = "enough"


def test_what_a_turn_has_said_stays_said_and_each_turn_begins_with_a_sign(tmp_path: Path) -> None:
    with CursorPage.create(tmp_path / "cursors") as page:
        page.enter_process(Role.DISPATCHER)
        stop = StopFlag()
        worker = LongTurns(page, stop)
        run(worker, page=page, role=Role.DISPATCHER, stop=stop)
        slot = page.read_process(Role.DISPATCHER)

    # A turn of four seconds, and another one: nobody was silent for eight.
    assert worker.beats == worker.begun
    assert slot.beat_ns > worker.begun[1]
    assert slot.turns
