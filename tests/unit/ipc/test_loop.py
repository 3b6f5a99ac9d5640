"""The flag that signals set: what a forked child keeps of it."""

from __future__ import annotations

import subprocess
import sys

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
