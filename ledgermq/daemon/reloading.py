"""Reload of settings: from SIGHUP until every process has taken what was published."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from ledgermq.daemon.children import Child
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.model.events import Event

logger = logging.getLogger(__name__)

PATIENCE = 2
"""A reload is waited for ``supervision.beat_timeout_ms`` times this. A process that turns no more
is killed before that, and the next one is forked with the new settings."""


class Reloading:
    """Which processes lack the newest settings.

    Invariants: ``is_awaited`` implies ``is_going_on``; ``late`` is empty while ``is_awaited``.

    Attributes:
        is_going_on: some process may lack the newest settings.
        is_awaited: and that is what the end of the reload waits for.
        late: the processes that lack them and are waited for no more, in words.
    """

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._number = 0
        self._begun_ns = 0
        self._deadline_ns = 0
        self._patience_ms = 0
        self.is_going_on = False
        self.is_awaited = False
        self.late = ""

    def begin(self, settings: Settings, now_ns: int) -> None:
        """Settings are published; call it before the processes are told, who look at the number."""
        self._number = self._page.count_settings()
        self._begun_ns = time.monotonic_ns()
        self._patience_ms = PATIENCE * settings.supervision.beat_timeout_ms
        self._deadline_ns = now_ns + self._patience_ms * 1_000_000
        self.is_going_on = self.is_awaited = True
        self.late = ""

    def look(self, children: Iterable[Child], now_ns: int) -> None:
        """Look who has taken the settings; who has not in time is told of in the log, once, and
        looked at on.
        """
        lacking = [child.role.title for child in children if self._lacks(child)]
        if not lacking:
            if self.late:
                logger.info("settings are taken by all processes")
            self.is_going_on = self.is_awaited = False
            self.late = ""
            return
        if self.is_awaited and now_ns >= self._deadline_ns:
            self.is_awaited = False
            logger.warning(
                "settings are not taken by every process",
                extra={
                    "event": Event.SETTINGS_LATE,
                    "processes": ",".join(lacking),
                    "waited_ms": self._patience_ms,
                },
            )
        if not self.is_awaited:
            self.late = " and ".join(lacking)

    def _lacks(self, child: Child) -> bool:
        # One that is down, or was forked since, begins with what the supervisor has.
        if child.pid == 0 or child.forked_ns >= self._begun_ns:
            return False
        slot = self._page.read_process(child.role)
        return slot.pid != child.pid or slot.settings < self._number
