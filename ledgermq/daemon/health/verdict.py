"""Verdict on a node's health: whether it serves, and if not, why and what to do.

``judge`` is the only place that decides: systemd's status, ``ledgermq status``, the control verb
``health`` and what is answered over HTTP print what it returns (docs/decisions/0074).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ledgermq.daemon.children import Child, ChildState
from ledgermq.daemon.health.health import silent_children
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, Grant, PublishedRole, Role
from ledgermq.ipc.page_slots import Proof, SpaceState
from ledgermq.model.config.settings import Settings
from ledgermq.model.events import Event
from ledgermq.model.features import version_of
from ledgermq.process.flush_watch import CursorWatch, FlushWatch
from ledgermq.process.node_status import Health, HealthReason
from ledgermq.sessions.leadership.takeover import Takeover, takeover_of

logger = logging.getLogger(__name__)

_WHAT_TO_DO = "docs/operating/what-to-do.md"


class HealthState(StrEnum):
    """Where a node is: ``NOT_READY`` once it was started, and does not serve now."""

    STARTING = "starting"
    READY = "ready"
    NOT_READY = "not ready"
    STOPPING = "stopping"


class HealthTrouble(StrEnum):
    """Reasons for which a node does not serve; codes for programs, which never change."""

    STARTING = "starting"
    STOPPING = "stopping"
    PROCESS_DOWN = "process_down"
    PROCESS_STARTS = "process_starts"
    PROCESS_HANGS = "process_hangs"
    NO_MAJORITY = "no_majority"
    NOT_DURABLE = "not_durable"
    NOT_COMMITTED = "not_committed"
    DISK_SICK = "disk_sick"
    DISK_FULL = "disk_full"
    HELD_UP = "held_up"
    DAMAGED = "damaged"


_SERVING = (Takeover.CAUGHT_UP, Takeover.TABLES_APPLIED, Takeover.SERVICES_GRANTED)
"""Stages of a leader that answers consumers, too."""

_SEE = {
    HealthTrouble.STARTING: _WHAT_TO_DO,
    HealthTrouble.STOPPING: "docs/operating/service.md",
    HealthTrouble.PROCESS_DOWN: f"{_WHAT_TO_DO}#a-process-dies-again-and-again",
    HealthTrouble.PROCESS_STARTS: f"{_WHAT_TO_DO}#a-process-dies-again-and-again",
    HealthTrouble.PROCESS_HANGS: f"{_WHAT_TO_DO}#a-process-dies-again-and-again",
    HealthTrouble.NO_MAJORITY: f"{_WHAT_TO_DO}#the-majority-is-lost",
    HealthTrouble.NOT_DURABLE: f"{_WHAT_TO_DO}#a-disk-is-sick",
    HealthTrouble.NOT_COMMITTED: f"{_WHAT_TO_DO}#the-majority-is-lost",
    HealthTrouble.DISK_SICK: f"{_WHAT_TO_DO}#a-disk-is-sick",
    HealthTrouble.DISK_FULL: f"{_WHAT_TO_DO}#the-disk-is-full",
    HealthTrouble.HELD_UP: "docs/operating/new-version.md#feature-levels",
    HealthTrouble.DAMAGED: "docs/operating/check-and-repair.md",
}
"""The page of the documents that says what to do."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What is judged, at one moment; ages in milliseconds.

    Attributes:
        is_stopping: it was told to stop, or is opened anew.
        was_ready: its start is over.
        waits_for: what start or stop waits for, in words.
        down: processes that have died, and are not started again yet.
        starting: processes that were started, and do not turn yet.
        hanging: processes that have given no sign of life for half of ``beat_timeout_ms``.
        grant: role, term and leader.
        stage: how far a leader has taken over.
        proof: what raft knows, as it published it.
        not_durable_ms: for how long the same bytes have been written and not durable.
        not_committed_ms: for how long the same bytes have been written and not committed.
        space: of the disk.
        level_needed: feature level that the log needs and this version lacks; 0: none.
        tables_held_up: a damaged place holds the tables up, or a newer command.
        now_ns: monotonic time.
    """

    is_stopping: bool
    was_ready: bool
    waits_for: str
    down: tuple[str, ...]
    starting: tuple[str, ...]
    hanging: tuple[str, ...]
    grant: Grant
    stage: Takeover
    proof: Proof
    not_durable_ms: int
    not_committed_ms: int
    space: SpaceState
    level_needed: int
    tables_held_up: bool
    now_ns: int


def within_ms(settings: Settings) -> int:
    """Time within which a majority has to be heard of, and bytes have to be durable and committed.

    An election takes one timeout and the next one: shorter would call each fail-over an illness.
    """
    return max(settings.supervision.ready_within_ms, 2 * settings.raft.election_timeout_max_ms)


def judge(signs: Signs, limit_ms: int) -> Health:
    """The verdict on a node; nothing is read here but ``signs``.

    Args:
        signs: what is known of the node.
        limit_ms: ``within_ms`` of its settings.
    """
    grant = signs.grant
    age_ms = _majority_age_ms(signs)
    reasons = [
        HealthReason(code=trouble.value, text=text, see=_SEE[trouble])
        for trouble, text in _troubles(signs, limit_ms)
    ]
    if signs.is_stopping:
        state = HealthState.STOPPING
    elif not signs.was_ready:
        state = HealthState.STARTING
    else:
        state = HealthState.NOT_READY if reasons else HealthState.READY
    reason = "; ".join(one["text"] for one in reasons)
    not_leading = _why_not_leading(signs, reason)
    return Health(
        state=state.value,
        ready=not reasons,
        leads=not not_leading,
        why_not_ready=reason,
        why_not_leading=not_leading,
        role=grant.role.name.lower(),
        term=grant.term,
        leader=grant.leader,
        stage=signs.stage.value,
        majority_age_ms=age_ms,
        within_ms=limit_ms,
        reasons=reasons,
    )


def _why_not_leading(signs: Signs, reason: str) -> str:
    """Why producers and consumers are not answered here, in words; empty when they are."""
    grant = signs.grant
    if reason:
        return reason
    if grant.role is PublishedRole.LEADER:
        is_over = signs.stage in _SERVING
        return "" if is_over else f"it leads, and is taking over: {signs.stage.value}"
    return f"it follows {grant.leader}" if grant.leader else "nobody is known to lead"


def _troubles(signs: Signs, limit_ms: int) -> Iterator[tuple[HealthTrouble, str]]:
    """What is wrong, the causes before what follows from them."""
    if signs.is_stopping or not signs.was_ready:
        trouble = HealthTrouble.STOPPING if signs.is_stopping else HealthTrouble.STARTING
        waits = f", waiting for {signs.waits_for}" if signs.waits_for else ""
        yield trouble, f"{trouble.value}{waits}"
        return
    for roles, trouble, text in (
        (signs.down, HealthTrouble.PROCESS_DOWN, "down, and to be started again"),
        (signs.starting, HealthTrouble.PROCESS_STARTS, "being started again"),
        (signs.hanging, HealthTrouble.PROCESS_HANGS, "giving no sign of life"),
    ):
        if roles:
            verb = "is" if len(roles) == 1 else "are"
            yield trouble, f"{' and '.join(roles)} {verb} {text}"
    age_ms = _majority_age_ms(signs)
    if age_ms is None or age_ms > limit_ms:
        since = "since this start" if age_ms is None else f"for {limit_ms} ms"
        yield HealthTrouble.NO_MAJORITY, f"no majority was heard of {since}"
    if signs.not_durable_ms > limit_ms:
        yield HealthTrouble.NOT_DURABLE, f"what was written is not durable after {limit_ms} ms"
    if signs.not_committed_ms > limit_ms:
        yield HealthTrouble.NOT_COMMITTED, f"what was written is not committed after {limit_ms} ms"
    if signs.proof.disk_is_sick:
        yield HealthTrouble.DISK_SICK, "the disk is sick: syncs hang, or the writer does"
    if signs.space is not SpaceState.ROOMY:
        yield HealthTrouble.DISK_FULL, "disk full, producers are refused"
    yield from _troubles_of_log(signs)


def _troubles_of_log(signs: Signs) -> Iterator[tuple[HealthTrouble, str]]:
    if signs.level_needed:
        version = version_of(signs.level_needed)
        yield (
            HealthTrouble.HELD_UP,
            f"the log needs feature level {signs.level_needed}, which version {version} knows",
        )
    elif signs.tables_held_up:
        yield HealthTrouble.DAMAGED, "a damaged place of the log holds the broker's tables up"
    if signs.proof.lacks_entries:
        yield HealthTrouble.DAMAGED, "the log lost entries to damage, and does not hold them again"


def _majority_age_ms(signs: Signs) -> int | None:
    """Milliseconds since a majority was heard of; None: never."""
    if not signs.proof.majority_ns:
        return None
    # Raft may have published after the clock was read.
    return max(0, signs.now_ns - signs.proof.majority_ns) // 1_000_000


class HealthWatch:
    """Health of one node: the log tells when it stops serving, and when it serves again."""

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._flushes = FlushWatch()
        self._commits = CursorWatch()
        self._was_ready = True
        # A start is over before somebody leads: until it has served, or had the time for it.
        self._has_served = False
        self._began_ns = 0

    def reopened(self) -> None:
        """Another log is in place: what waited of the old one counts no more."""
        self._flushes = FlushWatch()
        self._commits = CursorWatch()

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
            not_committed_ms=self._commits.waiting_ms(page, page.read_committed().position, now_ns),
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
