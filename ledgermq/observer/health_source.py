"""Source of the node's health: the supervisor's verdict, asked for once for all who ask at once."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from pathlib import Path
from typing import cast

from ledgermq.model.errors import LedgerError
from ledgermq.process import control
from ledgermq.process.node_status import Health

FRESH_NS = 100_000_000
"""A verdict counts for so long: whoever asks a thousand times a second costs no more than ten."""

ANSWER_S = 2.0
"""The supervisor answers within a turn; who takes longer hangs."""


class HealthSource:
    """Asks in a thread of its own, so that a supervisor that hangs holds up nobody else."""

    def __init__(self, path: Path, thread: Executor) -> None:
        self._path = path
        self._thread = thread
        self._asked: asyncio.Future[Health] | None = None
        self._known: tuple[int, Health] | None = None

    async def health(self) -> Health:
        """The verdict, at most ``FRESH_NS`` old.

        Raises:
            StorageError, TimedOutError, LedgerError: the supervisor does not answer.
        """
        if self._known is not None and time.monotonic_ns() - self._known[0] < FRESH_NS:
            return self._known[1]
        if self._asked is None:
            loop = asyncio.get_running_loop()
            self._asked = loop.run_in_executor(self._thread, self._ask)
            self._asked.add_done_callback(self._told)
        return await asyncio.shield(self._asked)

    def _ask(self) -> Health:
        return cast("Health", control.ask(self._path, "health", timeout_s=ANSWER_S))

    def _told(self, asked: asyncio.Future[Health]) -> None:
        self._asked = None
        if not asked.cancelled() and asked.exception() is None:
            self._known = (time.monotonic_ns(), asked.result())


def silence_text(error: LedgerError) -> str:
    """What is known of a node whose supervisor does not answer."""
    return f"the supervisor does not answer: {error.message}"
