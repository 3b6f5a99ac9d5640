"""Runs of ``replay`` that die of SIGKILL while they send.

    replay_dying.py ARCHIVE NODES TOPIC < PLANS

Each line of PLANS is ``sent N`` (behind the N-th batch that was given to the producer), ``noted N``
(before the N-th note of how far a queue is, so that all before it is stored), or ``never``. Of
replays by a sink it is ``staged N`` (behind the N-th task that has staged its rows),
``committed N`` (behind the N-th commit, before it is noted), or ``stored``. The runs follow one
another; for each it is said whether it ``died`` or ``ended``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.staging import SinkClient, StageWriter
from ledgermq.pipeline.archive import replay_job
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.archive.replay_job import replay
from ledgermq.pipeline.archive.replay_layout import ReplayChoice, ReplayFolder
from tests.unit.pipeline.archives import TasksHere


def dying(function: Callable[..., Any], call: int, *, before: bool) -> Callable[..., Any]:
    """``function``, at the ``call``-th call of which the process dies."""
    counted = 0

    def counting(*args: Any, **keywords: Any) -> Any:
        nonlocal counted
        counted += 1
        if before and counted == call:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **keywords)
        if counted == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return counting


def run(archive: str, nodes: str, topic: str, plan: list[str]) -> None:
    """One run."""
    if plan[0] == "sent":
        Producer.send_batch = dying(  # type: ignore[method-assign]
            Producer.send_batch, int(plan[1]), before=False
        )
    elif plan[0] == "noted":
        ReplayFolder.write = dying(  # type: ignore[method-assign]
            ReplayFolder.write, int(plan[1]), before=True
        )
    elif plan[0] == "staged":
        StageWriter.finish = dying(  # type: ignore[method-assign]
            StageWriter.finish, int(plan[1]), before=False
        )
    elif plan[0] == "committed":
        SinkClient.commit = dying(  # type: ignore[method-assign]
            SinkClient.commit, int(plan[1]), before=False
        )
    by_sink = plan[0] in ("staged", "committed", "stored")
    choice = ReplayChoice(topics=("orders",) if by_sink else None, to_topic=topic, by_sink=by_sink)
    store = FolderStore(Path(archive))
    replay(TasksHere(1), store, [nodes], choice, name="again", timeout_s=60.0)


def main(archive: str, nodes: str, topic: str) -> None:
    """One process for each plan."""
    replay_job.BATCH_MESSAGES = 7
    replay_job.NOTE_EVERY = 60
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(archive, nodes, topic, line.split())
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print({0: "ended", -signal.SIGKILL: "died"}.get(status, "failed"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
