"""Watchdog: systemd's is fed while the node is well, and the log says when it is not."""

from __future__ import annotations

import logging

from ledgermq.daemon.health.notify import Notifier
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.model.events import Event
from ledgermq.process.flush_watch import FlushWatch

logger = logging.getLogger(__name__)

_WITHHELD = 3
"""Which counter of the supervisor counts how often it was not fed."""


class Watchdog:
    """Feeds systemd's watchdog for one node; ``trouble`` says why it is not fed, and is empty while
    it is.
    """

    def __init__(self, page: CursorPage, notifier: Notifier) -> None:
        self.trouble = ""
        self._page = page
        self._notifier = notifier
        self._counters = page.counters(Role.SUPERVISOR)
        self._flush_watch = FlushWatch()

    def reopened(self) -> None:
        """Another log is in place: what was not durable of the old one counts no more."""
        self._flush_watch = FlushWatch()

    def look(self, settings: Settings, now_ns: int, *, is_silent: bool, is_down: bool) -> None:
        """Feed systemd's watchdog, if it is due and nothing is wrong.

        Args:
            is_silent: a process gives no sign of life.
            is_down: a process is dead, and nobody is about to start it.
        """
        waiting_ms = self._flush_watch.waiting_ms(self._page, now_ns)
        is_late = waiting_ms > settings.supervision.flush_age_max_ms
        trouble = ", ".join(
            text
            for text, is_so in (
                ("a process is silent", is_silent),
                ("a process is down", is_down),
                ("nothing becomes durable", is_late),
            )
            if is_so
        )
        if trouble and not self.trouble:
            self._counters[_WITHHELD] += 1
            logger.warning(
                "node is not well: the watchdog is not fed",
                extra={
                    "event": Event.WATCHDOG_WITHHELD,
                    "child_silent": is_silent,
                    "not_durable_ms": waiting_ms,
                    "down": is_down,
                },
            )
        elif self.trouble and not trouble:
            logger.info(
                "node is well again: the watchdog is fed", extra={"event": Event.WATCHDOG_FED}
            )
        self.trouble = trouble
        if not trouble and self._notifier.watchdog_due(now_ns):
            self._notifier.feed_watchdog(now_ns)
