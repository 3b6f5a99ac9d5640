"""The writer's process: its parts, as the settings want them, until it is told to stop."""

from __future__ import annotations

import logging
import sys
import time

from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.process.node import Surroundings
from ledgermq.process.worker_main import run_worker
from ledgermq.writer.log.flusher import Flusher
from ledgermq.writer.log.log_opening import open_log
from ledgermq.writer.member_feeds import DirectFeed, LedFeed
from ledgermq.writer.retention.log_retention import LogRetention
from ledgermq.writer.retention.space_gate import SpaceGate
from ledgermq.writer.steady_wait import steady_turns
from ledgermq.writer.writer import WriterWorker

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.000_2
"""The flusher's thread gets the interpreter this soon when it comes back from a sync."""


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the writer until it is told to stop; the exit status."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    started = time.monotonic()

    def make(environment: Surroundings) -> WriterWorker:
        log = open_log(
            settings,
            is_in_use=environment.page.has_written(),
            sign_of_life=lambda: environment.page.give_sign(Role.WRITER, time.monotonic_ns()),
        )
        retention = LogRetention(environment, log)
        is_fed = settings.raft.direct and settings.raft.direct_writers
        is_fed = is_fed and settings.store.log.has_terms and not settings.mirror.sources
        feeds = (DirectFeed(), LedFeed()) if is_fed else (None, None)
        worker = WriterWorker(
            environment,
            log,
            Flusher,
            SpaceGate.of(environment),
            retention,
            feed=feeds[0],
            followers=feeds[1],
        )
        worker.steady = steady_turns(environment, worker, *feeds)
        logger.info("writer serves: after_ms=%d", (time.monotonic() - started) * 1000)
        return worker

    return run_worker(Role.WRITER, settings, stop, make)
