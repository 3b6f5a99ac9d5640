"""Main function of a node's processes: enter what they share, turn, close."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Protocol

from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import StopFlag, Worker, run, sleep_max_ms
from ledgermq.members.log_trouble import LogDamagedError
from ledgermq.model.config.settings import Settings
from ledgermq.model.exit_status import EXIT_REOPEN, EXIT_STOPPED
from ledgermq.process.node import Surroundings
from ledgermq.process.settings import reload

logger = logging.getLogger(__name__)


class NodeWorker(Worker, Protocol):
    """The worker of one of a node's processes."""

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""

    def finish(self) -> None:
        """The last turn was told to be it: bring to an end what should not be left to a restart."""

    def close(self) -> None:
        """Close what was opened, whatever has happened."""


def run_worker(
    role: Role, settings: Settings, stop: StopFlag, make: Callable[[Surroundings], NodeWorker]
) -> int:
    """Be the process ``role`` until told to stop; the exit status.

    Where the log turns out to be damaged it is ``EXIT_REOPEN``: the supervisor opens the node anew.
    Whatever else the worker raises is raised.

    Raises:
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    environment = Surroundings.enter(role, settings)
    try:
        worker = make(environment)
    except LogDamagedError as error:
        logger.error("%s", error)
        environment.leave()
        return EXIT_REOPEN
    stop.on_reload = lambda: worker.take_settings(reload.take_published(settings))
    try:
        run(
            worker,
            page=environment.page,
            role=role,
            stop=stop,
            sleep_max_ms=sleep_max_ms(settings),
        )
        worker.finish()
    except BaseException as error:
        _forget_variables(error)
        if not isinstance(error, LogDamagedError):
            raise
        logger.error("%s", error)
        return EXIT_REOPEN
    finally:
        worker.close()
        environment.leave()
    return EXIT_STOPPED


def _forget_variables(error: BaseException | None) -> None:
    """Let go what the functions had that ``error`` came through: a record of a ring that is not
    taken whole keeps its memory from being unmapped, and the worker from closing.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
