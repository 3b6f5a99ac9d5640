"""Runs of ``archive`` into a table that die of SIGKILL at one of the steps of their commit.

    table_dying.py STORE < PLANS

Each line of PLANS is ``FOLDER STEP``: a run into the catalog below FOLDER dies before its STEP-th
step (from 1): a file of a worker closed, a file of the table's begun by PyIceberg, a statement or a
commit of the catalog's database. For each line it is said whether it ``died`` or ``ended``: then
there were fewer steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.io import pyarrow as pyiceberg_files
from sqlalchemy.orm import Session
from tests.tables.lake import PART_BYTES, Lake

from ledgermq.pipeline.archive import archive_job
from ledgermq.pipeline.archive.archive_store import StagedFile


def run(store: str, folder: str, step: int) -> None:
    """Archive, and die meanwhile."""
    counted = 0
    guard = threading.Lock()

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **keywords: Any) -> Any:
            nonlocal counted
            with guard:
                counted += 1
                if counted == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **keywords)

        return counting

    for owner, name in (
        (StagedFile, "close"),
        (pyiceberg_files.PyArrowFile, "create"),
        (Session, "execute"),
        (Session, "commit"),
    ):
        setattr(owner, name, dying(getattr(owner, name)))
    Lake.below(Path(folder)).archived(Path(store))


def main(store: str) -> None:
    """One process for each plan, forked after all that takes long has been imported."""
    archive_job.PART_BYTES_MIN = PART_BYTES
    for line in sys.stdin:
        folder, step = line.split()
        child = os.fork()
        if child == 0:
            run(store, folder, int(step))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print({0: "ended", -signal.SIGKILL: "died"}.get(status, "failed"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
