"""Runs of ``archive`` that die of SIGKILL at one of the calls with which they change a file.

    archive_dying.py STORE < PLANS

Each line of PLANS is ``ARCHIVE NAMES CALL MOMENT``: NAMES are calls with commas between them; at
the CALL-th of them (from 1) a process dies, ``before`` or ``after`` the call. Its tasks run in it,
so that their calls count, too. For each line it is said whether it ``died`` or ``ended``: then
there were fewer calls.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledgermq.pipeline.archive import archive_job
from tests.unit.pipeline.archives import archived


def run(store: str, target: str, names: str, call: int, moment: str) -> None:
    """Archive, and die meanwhile."""
    counted = 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **keywords: Any) -> Any:
            nonlocal counted
            counted += 1
            if counted == call and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **keywords)
            if counted == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counting

    for name in names.split(","):
        setattr(os, name, dying(getattr(os, name)))
    archived(Path(store), Path(target))


def main(store: str) -> None:
    """One process for each plan, forked after all that takes long has been imported."""
    archive_job.PART_BYTES_MIN = 600
    for line in sys.stdin:
        target, names, call, moment = line.split()
        child = os.fork()
        if child == 0:
            run(store, target, names, int(call), moment)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print({0: "ended", -signal.SIGKILL: "died"}.get(status, "failed"))


if __name__ == "__main__":
    main(*sys.argv[1:])
