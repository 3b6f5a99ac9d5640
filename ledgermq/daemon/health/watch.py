"""Watch on a node's health: signs read from the page and the children, and the verdict on them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from ledgermq.daemon.children import Child, ChildState
from ledgermq.daemon.health.health import silent_children
from ledgermq.daemon.health.verdict import HealthState, Signs, judge, within_ms
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.model.events import Event
from ledgermq.process.flush_watch import FlushWatch
from ledgermq.process.node_status import Health
from ledgermq.sessions.leadership.takeover import takeover_of

logger = logging.getLogger(__name__)


class CommitWatch:
    """Watches how long the same bytes have been written and not committed."""

    def __init__(self) -> None:
        self._committed = -1
        self._since_ns = 0

    def waiting_ms(self, page: CursorPage, now_ns: int) -> int:
        """How long the commit cursor has stood still before the end; 0 when all is committed."""
        committed = page.read_committed().position
        if page.read_written().position <= committed:
            self._committed = -1
            return 0
        if committed != self._committed:
            self._committed = committed
            self._since_ns = now_ns
        return max(0, now_ns - self._since_ns) // 1_000_000


class HealthWatch:
    """Health of one node: the log tells when it stops serving, and when it serves again."""

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._flushes = FlushWatch()
        self._commits = CommitWatch()
        self._was_ready = True
        # A start is over before somebody leads: until it has served, or had the time for it.
        self._has_served = False
        self._began_ns = 0

    def reopened(self) -> None:
        """Another log is in place: what waited of the old one counts no more."""
        self._flushes = FlushWatch()
        self._commits = CommitWatch()

    def look(
        self,
        children: Collection[Child],
        settings: Settings,
        now_ns: int,
        *,
        is_stopping: bool,
        was_ready: bool,
        waits_for: str,
        since_ns: int,
    ) -> Health:
        """The verdict as of now.

        Args:
            children: of the node.
            settings: in force.
            now_ns: monotonic time.
            is_stopping: whether it is stopping, or opened anew.
            was_ready: whether its start is over.
            waits_for: what start or stop waits for.
            since_ns: since when the supervisor looks without a pause (``silent_children``).
        """
        page = self._page
        grant = page.read_grant()
        broker = page.read_counters(Role.BROKER)
        log = settings.store.log
        hanging = silent_children(page, children, settings, now_ns, since_ns=since_ns, part=2)
        signs = Signs(
            is_stopping=is_stopping,
            was_ready=was_ready,
            waits_for=waits_for,
            down=_titles(child for child in children if not child.pid),
            starting=_titles(
                child for child in children if child.state(page) is ChildState.STARTING
            ),
            hanging=_titles(hanging),
            grant=grant,
            stage=takeover_of(
                grant, committed_term=page.read_committed().term, broker=broker, log=log
            ),
            proof=page.read_proof(),
            not_durable_ms=self._flushes.waiting_ms(page, now_ns),
            not_committed_ms=self._commits.waiting_ms(page, now_ns),
            space=page.read_space().state,
            level_needed=broker[BrokerCounter.LEVEL_NEEDED],
            tables_held_up=bool(broker[BrokerCounter.TABLES_HELD_UP]),
            now_ns=now_ns,
        )
        health = judge(signs, within_ms(settings))
        self._tell(health, now_ns, within_ms(settings))
        return health

    def _tell(self, health: Health, now_ns: int, limit_ms: int) -> None:
        if health["state"] not in (HealthState.READY, HealthState.NOT_READY):
            return
        self._began_ns = self._began_ns or now_ns
        is_new = now_ns - self._began_ns <= limit_ms * 1_000_000
        if is_new and not (health["ready"] or self._has_served):
            return
        self._has_served = True
        if health["ready"] and not self._was_ready:
            logger.info("node serves again", extra={"event": Event.NODE_SERVES})
        elif not health["ready"] and self._was_ready:
            logger.warning(
                "node does not serve: %s",
                health["why_not_ready"],
                extra={"event": Event.NODE_SERVES_NOT},
            )
        self._was_ready = health["ready"]


def _titles(children: Iterable[Child]) -> tuple[str, ...]:
    return tuple(child.role.title for child in children)
