"""The processes of a node, as the machine sees them; and an orderly end of a benchmark."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import psutil

DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
"""In front of a command: it ends when this program does, were it by -9."""


def processes_of(supervisor_pid: int) -> list[psutil.Process]:
    """The supervisor and its children."""
    supervisor = psutil.Process(supervisor_pid)
    return [supervisor, *supervisor.children(recursive=True)]


def role_of(process: psutil.Process) -> str:
    """The role of a process of a node by its title, which also names its node."""
    return process.name().removeprefix("ledgermq: ").partition(" ")[0]


def is_alive(pid: int) -> bool:
    """Whether a process can still do something."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def memory_mib(supervisor_pid: int) -> dict[str, float]:
    """Proportional set size by process."""
    return {
        process.name(): round(process.memory_full_info().pss / 2**20, 1)
        for process in processes_of(supervisor_pid)
    }


def cpu_seconds(supervisor_pid: int) -> float:
    """CPU that all processes of a node have used so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes_of(supervisor_pid))


def end_in_order() -> None:
    """Let SIGTERM end this program as Ctrl-C does: whatever it has started is stopped."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
