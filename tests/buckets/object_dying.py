"""Runs of ``archive`` into a bucket that die of SIGKILL before one of their requests.

    object_dying.py STORE < PLANS

Each line of PLANS is ``ARCHIVE CALL``: a process dies before its CALL-th request (from 1). For each
line it is said whether it ``died`` or ``ended``: then there were fewer requests.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from botocore.httpsession import URLLib3Session
from requests.adapters import HTTPAdapter

from ledgermq.pipeline.archive import archive_job
from ledgermq.pipeline.archive.archive_folder import store_at
from tests.unit.pipeline.archives import archived


def run(store: str, target: str, call: int) -> None:
    """Archive, and die meanwhile."""
    counted = 0
    guard = threading.Lock()

    def dying_of(send: Any) -> Any:
        def dying(session: Any, request: Any, **how: Any) -> Any:
            nonlocal counted
            with guard:
                counted += 1
                if counted == call:
                    os.kill(os.getpid(), signal.SIGKILL)
            return send(session, request, **how)

        return dying

    for sender in (URLLib3Session, HTTPAdapter):
        sender.send = dying_of(sender.send)
    archived(Path(store), store_at(target))


def main(store: str) -> None:
    """One process for each plan, forked after all that takes long has been imported."""
    archive_job.PART_BYTES_MIN = 600
    for line in sys.stdin:
        target, call = line.split()
        child = os.fork()
        if child == 0:
            run(store, target, int(call))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print({0: "ended", -signal.SIGKILL: "died"}.get(status, "failed"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
