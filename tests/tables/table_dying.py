"""Jobs on a table that die of SIGKILL at one of their steps.

    table_dying.py STORE < PLANS

Each line of PLANS is ``FOLDER URI STEP JOB``: a run of ``archive`` into a catalog in the database
at URI, with its tables below FOLDER, or of ``tidy``, dies before its STEP-th step (from 1): a file
of a worker closed, a file of the table's begun or deleted by PyIceberg, a statement or a commit of
the catalog's database. For each line it is said whether it ``died`` or ``ended``: then there were
fewer steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyiceberg.io import pyarrow as pyiceberg_files
from sqlalchemy.orm import Session

from ledgermq.pipeline.archive import archive_job
from ledgermq.pipeline.archive.archive_store import StagedFile
from tests.tables.lake import PART_BYTES, Lake


def run(store: str, lake: Lake, step: int, job: str) -> None:
    """Do it, and die meanwhile."""
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
        (pyiceberg_files.PyArrowFileIO, "delete"),
        (Session, "execute"),
        (Session, "commit"),
    ):
        setattr(owner, name, dying(getattr(owner, name)))
    if job == "archive":
        lake.archived(Path(store))
    else:
        lake.tidied(keep=timedelta(microseconds=1))


def main(store: str) -> None:
    """One process for each plan, forked after all that takes long has been imported."""
    archive_job.PART_BYTES_MIN = PART_BYTES
    for line in sys.stdin:
        folder, uri, step, job = line.split()
        child = os.fork()
        if child == 0:
            run(store, Lake.below(Path(folder), uri), int(step), job)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print({0: "ended", -signal.SIGKILL: "died"}.get(status, "failed"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
