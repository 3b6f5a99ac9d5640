"""Readiness of the node, its watchdog for systemd, and the hand-over before it stops."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from ledgermq.daemon.children import Child
from ledgermq.daemon.health.notify import Notifier
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import PORTS, CursorPage, PublishedRole, Role
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError
from ledgermq.model.events import Event
from ledgermq.process import control
from ledgermq.process.flush_watch import FlushWatch
from ledgermq.process.runtime_paths import RuntimePaths

logger = logging.getLogger(__name__)

SERVING = (Role.WRITER, Role.DISPATCHER, Role.BROKER, *PORTS, Role.GRPC)


class Readiness:
    """Finds the moment from which the node can serve, once.

    The backlog to be dispatched is that of the start: a node that is written to at once need not
    wait until its producers pause. The first call of a client is to find the tables that were
    acknowledged: those of a node that is alone are those of the log once its own snapshot is in
    them. A member may know of nothing that is committed, and is ready all the same.
    """

    def __init__(self) -> None:
        self.is_ready = False
        self._dispatch_until: int | None = None
        self._progress: tuple[int, ...] = ()

    def missing(self, page: CursorPage, children: Iterable[Child], settings: Settings) -> str:
        """What is still waited for, in a few words; empty once the node is ready."""
        if self.is_ready:
            return ""
        if settings.node.witness:
            self.is_ready = all(child.is_turning(page) for child in children)
            return "" if self.is_ready else Role.RAFT.title
        starting = [
            child.role.title
            for child in children
            if child.role in SERVING and not child.is_turning(page)
        ]
        if starting:
            return " and ".join(starting)
        if not _has_role(page, settings):
            return "a leader"
        if self._dispatch_until is None:
            self._dispatch_until = page.read_committed().position
        behind = self._dispatch_until - page.read_dispatched().position
        # With a full disk dispatch waits for space: the node serves what it has, and says so.
        if behind > 0 and not page.read_queue_begin().waits:
            return f"{behind} bytes to be dispatched"
        missing = _missing_of_tables(page, settings)
        self.is_ready = not missing
        return missing

    def has_progressed(self, page: CursorPage, children: Iterable[Child]) -> bool:
        """Whether anything has moved since the last call: a cursor, or a child towards its loop."""
        progress = (
            page.read_written().position,
            page.read_durable()[0].position,
            page.read_committed().position,
            page.read_dispatched().position,
            page.read_counters(Role.BROKER)[BrokerCounter.TABLES_AT],
            *(child.beat_ns(page) for child in children if not child.is_turning(page)),
            *(child.is_turning(page) for child in children),
        )
        moved = progress != self._progress
        self._progress = progress
        return moved


def silent_children(
    page: CursorPage,
    children: Iterable[Child],
    settings: Settings,
    now_ns: int,
    *,
    since_ns: int,
    part: int = 1,
) -> list[Child]:
    """Children that live and have given no sign of it for too long.

    Args:
        page: of this node.
        children: all of them.
        settings: of the node.
        now_ns: monotonic time.
        since_ns: since when we look without a pause; when the whole node was stopped, by a
            debugger or by its host, a child's silence in that time is not its fault.
        part: too long is this part of what they are killed for; 2 is half of it.
    """
    return [
        child
        for child in children
        if child.pid
        and child.silence_ms(page, now_ns, since_ns=since_ns)
        > child.silence_max_ms(page, settings) // part
    ]


def _missing_of_tables(page: CursorPage, settings: Settings) -> str:
    """What of the broker's tables is still waited for."""
    counters = page.read_counters(Role.BROKER)
    if page.has_dispatched() and not counters[BrokerCounter.TABLES_AT]:
        return "the broker's tables"
    if page.read_space().state is not SpaceState.ROOMY or counters[BrokerCounter.TABLES_HELD_UP]:
        # What it has can be read, and nothing be changed: it serves that, and says so.
        return ""
    if others_can_lead(settings) or counters[BrokerCounter.TABLES_TERM] == page.read_grant().term:
        return ""
    return "the broker's first snapshot"


def others_can_lead(settings: Settings) -> bool:
    """Whether a leader that stops has somebody to hand over to.

    The settings may still name a group of one, whose members have come since.

    Raises:
        CorruptLogError, StorageError: the list of members cannot be read.
    """
    # It imports numpy, whose library begins threads unless ``ProcessTable.load`` was first; none
    # may be there at a fork.
    from ledgermq.members.log_trouble import has_others

    return has_others(settings)


def _has_role(page: CursorPage, settings: Settings) -> bool:
    """Whether the node knows what to be: a leader that may write, or a member that follows one."""
    grant = page.read_grant()
    if grant.granted or page.read_counters(Role.BROKER)[BrokerCounter.LEVEL_NEEDED]:
        # Who is too old for its log never leads: it serves what it has, and says so.
        return True
    return grant.role is PublishedRole.FOLLOWER and grant.term > 0 and others_can_lead(settings)


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


RESIGN_TIMEOUT_S = 0.5
"""Raft answers at once, or is in no state to hand anything over."""


class HandOver:
    """Hand-over of leadership before a leader stops, so that producers need not wait."""

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._until_ns = 0

    def begin(self, settings: Settings) -> None:
        """Have raft find a leader; a failure is told, and the node stops as it is."""
        path = RuntimePaths(settings.listen.runtime_dir).raft_control
        try:
            if not others_can_lead(settings):
                return
            answer = control.ask(path, "resign", timeout_s=RESIGN_TIMEOUT_S)
        except LedgerError as error:
            logger.warning(
                "leadership not handed over: %s", error, extra={"event": Event.HAND_OVER_FAILED}
            )
            return
        logger.info(
            "leadership is handed over: to=%s",
            answer.get("target"),
            extra={"event": Event.LEADERSHIP_HANDED_OVER},
        )
        self._until_ns = time.monotonic_ns() + settings.raft.transfer_timeout_ms * 1_000_000

    def is_going_on(self, now_ns: int) -> bool:
        """Whether this node still leads, and another may be about to."""
        return now_ns < self._until_ns and self._page.read_grant().role is PublishedRole.LEADER
