"""Verdict on a node's health: whether it serves, and if not, why and what to do.

``judge`` is the only place that decides: systemd's status, ``ledgermq status``, the control verb
``health`` and what is answered over HTTP print what it returns (docs/decisions/0074).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ledgermq.ipc.cursor_page import Grant, PublishedRole
from ledgermq.ipc.process_slots import Proof
from ledgermq.ipc.space_slots import SpaceState
from ledgermq.model.config.settings import Settings
from ledgermq.model.features import version_of
from ledgermq.process.node_status import Health, HealthReason
from ledgermq.sessions.leadership.takeover import Takeover

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
