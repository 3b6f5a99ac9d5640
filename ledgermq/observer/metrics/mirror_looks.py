"""Looks at mirrors: what this node is a mirror of, and the mirrors that its log is kept for."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.members.mirrors.mirror_figures import (
    EntriesLag,
    HeldMirror,
    OwnMirror,
    held_mirror,
    mirror_of_mark,
    own_mirror,
)
from ledgermq.members.mirrors.mirror_report import read_mirror_report
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.model.ids import Position
from ledgermq.observer.metrics.node_series import index_held, member_lag
from ledgermq.observer.metrics.scrapes import Scrapes
from ledgermq.process.runtime_paths import RuntimePaths

_NOT_KNOWN = EntriesLag(None, None)


class MirrorLooks:
    """Owned by the observer's loop; reads files alone, in a thread.

    Attributes:
        is_mirror: this node is one.
    """

    def __init__(
        self, settings: Settings, page: CursorPage, scrapes: Scrapes, thread: Executor
    ) -> None:
        """Nothing is read yet."""
        self.is_mirror = bool(settings.mirror.sources)
        self._settings = settings
        self._page = page
        self._scrapes = scrapes
        self._thread = thread
        self._report = RuntimePaths(settings.listen.runtime_dir).mirror

    async def own(self) -> OwnMirror | None:
        """What this node tells as a mirror; None: it is none, or has told nothing yet.

        Raises:
            LedgerError: the report cannot be read.
        """
        if not self.is_mirror:
            return None
        loop = asyncio.get_running_loop()
        report = await loop.run_in_executor(self._thread, read_mirror_report, self._report)
        return None if report is None else own_mirror(report, time.time_ns() // 1_000_000)

    async def held(self) -> list[HeldMirror]:
        """The mirrors that retention of the log waits for, by name; of a mirror: its source's.

        Raises:
            LedgerError: they are not known just now.
        """
        marks = [
            (mirror, mark)
            for name, mark in await self._scrapes.archive_marks()
            if (mirror := mirror_of_mark(name))
        ]
        if not marks:
            return []
        loop = asyncio.get_running_loop()
        now_ms, committed = time.time_ns() // 1_000_000, self._page.read_committed().position
        return [
            held_mirror(
                mirror,
                mark.position,
                mark.at_ms,
                committed=committed,
                now_ms=now_ms,
                lag=await loop.run_in_executor(self._thread, self._lag, Position(mark.position)),
            )
            for mirror, mark in marks
        ]

    def _lag(self, position: Position) -> EntriesLag:
        if not (self._settings.store.log.has_terms and self._page.has_committed()):
            return _NOT_KNOWN
        committed = self._page.read_committed()
        if position >= committed.position:
            return EntriesLag(0, 0.0)
        try:
            held = index_held(self._settings, position, committed.index)
            if held is None:
                return _NOT_KNOWN
            lag = member_lag(self._settings, held, committed.index, committed.position)
        except (CorruptLogError, StorageError):
            # Retention was faster, or the place is damaged, of which the node itself tells.
            return _NOT_KNOWN
        return EntriesLag(committed.index - held, round(lag.seconds, 3))
